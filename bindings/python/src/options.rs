//! Options by name, as keyword arguments. The engine has the tables of names.

use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyString, PyTuple};
use terrace::{Durability, Existing, Isolation, Options, TableOptions, TxnOptions};

use crate::{errors, events};

/// The options of a database. `on_event` has no text.
pub(crate) fn database(named: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut on_event = None;
    if let Some(named) = named
        && let Some(function) = named.get_item("on_event")?
    {
        named.del_item("on_event")?;
        on_event = (!function.is_none()).then_some(function);
    }
    let options = filled(Options::new(), named, Options::names(), Options::set)?;
    match on_event {
        Some(function) if function.is_callable() => Ok(events::tell(options, function.unbind())),
        Some(other) => Err(wrong_class(("option on_event", "a function, or None"), &other)),
        None => Ok(options),
    }
}

/// The options of a table.
pub(crate) fn table(named: Option<&Bound<'_, PyDict>>) -> PyResult<TableOptions> {
    filled(TableOptions::new(), named, TableOptions::names(), TableOptions::set)
}

/// What changes options of a table, and leaves others as they are.
pub(crate) fn table_change(
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<impl Fn(TableOptions) -> terrace::Result<TableOptions> + Send + Sync> {
    let texts = texts(named, TableOptions::names())?;
    Ok(move |mut options: TableOptions| {
        texts.iter().try_for_each(|(name, text)| options.set(name, text))?;
        Ok(options)
    })
}

/// The options of a transaction.
pub(crate) fn transaction(named: Option<&Bound<'_, PyDict>>) -> PyResult<TxnOptions> {
    filled(TxnOptions::new(), named, TxnOptions::names(), TxnOptions::set)
}

/// The names of options, each with what it takes.
trait Names: Iterator<Item = (&'static str, &'static str)> {}

impl<I: Iterator<Item = (&'static str, &'static str)>> Names for I {}

fn filled<T>(
    mut options: T,
    named: Option<&Bound<'_, PyDict>>,
    names: impl Names,
    set: fn(&mut T, &str, &str) -> terrace::Result<()>,
) -> PyResult<T> {
    let Some(given) = named else { return Ok(options) };
    for (name, text) in texts(named, names)? {
        set(&mut options, &name, &text).map_err(|error| errors::engine(given.py(), &error))?;
    }
    Ok(options)
}

/// Names and values as the text that the tables of names take.
fn texts(named: Option<&Bound<'_, PyDict>>, names: impl Names) -> PyResult<Vec<(String, String)>> {
    let Some(named) = named else { return Ok(Vec::new()) };
    let all: Vec<(&str, &str)> = names.collect();
    let text_of = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        // The engine refuses a name that it does not know with any value.
        let text = match all.iter().find(|(known, _)| *known == name) {
            Some((_, takes)) => text((&name, takes), &value)?,
            None => String::new(),
        };
        Ok((name, text))
    };
    named.iter().map(text_of).collect()
}

/// A value as the text that the tables of names take. A value of a class that the option does not
/// take is refused: its text would mean something else.
fn text((name, takes): (&str, &str), value: &Bound<'_, PyAny>) -> PyResult<String> {
    let is_time = takes.starts_with("a time");
    let is_count = takes.starts_with("a size") || takes.starts_with("a number");
    let is_path = takes.starts_with("a path");
    let is_number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    let utf8 = |text: Bound<'_, PyAny>| {
        text.extract::<String>().map_err(|_| {
            let message = format!("option {name} takes text that is UTF-8, not {text:?}");
            errors::invalid(value.py(), message)
        })
    };
    if value.is_instance_of::<PyString>() {
        return utf8(value.clone());
    }
    if value.is_none() && takes.contains("or none") {
        return Ok("none".into());
    }
    if value.is_instance_of::<PyBool>() {
        if takes.contains("on or off") {
            return Ok(if value.extract()? { "on" } else { "off" }.into());
        }
    } else if is_time && (is_number || value.is_instance_of::<PyDelta>()) {
        return Ok(format!("{}us", time(name, value)?.as_micros()));
    } else if is_count && value.is_instance_of::<PyInt>() {
        return Ok(value.str()?.to_string());
    } else if takes.starts_with("octal") && value.is_instance_of::<PyInt>() {
        return Ok(format!("{:o}", count(&format!("option {name}"), u32::MAX.into(), value)?));
    } else if is_path && value.hasattr("__fspath__")? {
        return utf8(value.call_method0("__fspath__")?);
    } else if takes.contains("two of them")
        && let Ok(several) = value.cast::<PyTuple>()
    {
        let texts: Vec<String> = several.extract::<Vec<String>>()?;
        return Ok(texts.join(","));
    }
    Err(wrong_class((&format!("option {name}"), takes), value))
}

/// A time: a number of seconds, or a `timedelta`.
pub(crate) fn time(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = match value.cast::<PyDelta>() {
        Ok(delta) => delta.call_method0("total_seconds")?.extract(),
        Err(_) => value.extract::<f64>(),
    };
    let takes = format!("a number of seconds from 0 to {}, or a timedelta", u64::MAX);
    let seconds = seconds.map_err(|_| wrong_class((name, &takes), value))?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| errors::invalid(value.py(), format!("{name}={seconds}: it takes {takes}")))
}

/// A whole number from 0 to `most`.
pub(crate) fn count(name: &str, most: u64, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let takes = format!("a whole number from 0 to {most}");
    match value.extract::<u64>() {
        Ok(number) if number <= most => Ok(number),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => {
            Err(wrong_class((name, &takes), value))
        }
        _ => Err(errors::invalid(value.py(), format!("{name} takes {takes}, not {value}"))),
    }
}

/// How often a transaction is run at most.
pub(crate) fn attempts(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    Ok(count("attempts", u32::MAX.into(), value)? as u32)
}

/// The size of a region.
pub(crate) fn size(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    count("size", u64::MAX, value)
}

/// The number of a backup.
pub(crate) fn number(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    count("number", u64::MAX, value)
}

/// The number of a transaction.
pub(crate) fn id(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    count("id", u64::MAX, value)
}

/// The refusal of an object of a class that an argument does not take.
fn wrong_class((name, takes): (&str, &str), value: &Bound<'_, PyAny>) -> PyErr {
    match value.get_type().name() {
        Ok(class) => {
            PyTypeError::new_err(format!("{name} takes {takes}, not an object of class {class}"))
        }
        Err(error) => error,
    }
}

/// How far a commit goes: `"durable"`, `"relaxed"` or `"remote"`.
pub(crate) fn durability(py: Python<'_>, name: &str) -> PyResult<Durability> {
    match name {
        "durable" => Ok(Durability::Durable),
        "relaxed" => Ok(Durability::Relaxed),
        "remote" => Ok(Durability::Remote),
        other => {
            let message =
                format!("there is no durability {other:?}; there are durable, relaxed and remote");
            Err(errors::invalid(py, message))
        }
    }
}

/// The name of an isolation level, as the option has it.
pub(crate) fn isolation(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadCommitted => "read_committed",
        Isolation::Snapshot => "snapshot",
        Isolation::Serializable => "serializable",
    }
}

/// What a bulk load does with keys that are there: `"refuse"` or `"replace"`.
pub(crate) fn existing(py: Python<'_>, name: &str) -> PyResult<Existing> {
    match name {
        "refuse" => Ok(Existing::Refuse),
        "replace" => Ok(Existing::Replace),
        other => {
            let message = format!("existing={other:?}; there are refuse and replace");
            Err(errors::invalid(py, message))
        }
    }
}
