//! Options by name, as keyword arguments. The engine has the tables of names.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyString, PyTuple};
use terrace::{Durability, Existing, Options, TableOptions, TxnOptions};

use crate::errors;

/// Options whose numbers are seconds.
const TIMES: &[&str] = &["ttl", "lock_wait", "share_retention"];

/// The options of a database.
pub(crate) fn database(named: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    filled(Options::new(), named, Options::set)
}

/// The options of a table.
pub(crate) fn table(named: Option<&Bound<'_, PyDict>>) -> PyResult<TableOptions> {
    filled(TableOptions::new(), named, TableOptions::set)
}

/// Options of a table, changed.
pub(crate) fn changed_table(
    old: TableOptions,
    named: &Bound<'_, PyDict>,
) -> PyResult<TableOptions> {
    filled(old, Some(named), TableOptions::set)
}

/// The options of a transaction.
pub(crate) fn transaction(named: Option<&Bound<'_, PyDict>>) -> PyResult<TxnOptions> {
    filled(TxnOptions::new(), named, TxnOptions::set)
}

fn filled<T>(
    mut options: T,
    named: Option<&Bound<'_, PyDict>>,
    set: fn(&mut T, &str, &str) -> terrace::Result<()>,
) -> PyResult<T> {
    for (name, value) in named.into_iter().flatten() {
        let name: String = name.extract()?;
        let text = text(&name, &value)?;
        set(&mut options, &name, &text).map_err(|error| errors::engine(value.py(), &error))?;
    }
    Ok(options)
}

/// A value as the text that the tables of names take.
fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_none() {
        return Ok("none".into());
    }
    if value.is_instance_of::<PyString>() {
        return value.extract();
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(if value.extract()? { "on" } else { "off" }.into());
    }
    let is_number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    if value.is_instance_of::<PyDelta>() || (is_number && TIMES.contains(&name)) {
        return Ok(format!("{}us", time(value)?.as_micros()));
    }
    if name == "file_permissions" && value.is_instance_of::<PyInt>() {
        return Ok(format!("{:o}", value.extract::<u32>()?));
    }
    if let Ok(several) = value.cast::<PyTuple>() {
        let texts: PyResult<Vec<String>> = several.iter().map(|one| text(name, &one)).collect();
        return Ok(texts?.join(","));
    }
    if value.hasattr("__fspath__")? {
        return value.call_method0("__fspath__")?.extract();
    }
    Ok(value.str()?.to_string())
}

/// A time: a number of seconds, or a `timedelta`.
pub(crate) fn time(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(delta) = value.cast::<PyDelta>() {
        return delta.extract();
    }
    let seconds: f64 = value.extract()?;
    Duration::try_from_secs_f64(seconds).map_err(|error| {
        let message = format!("{seconds} is no time in seconds: {error}");
        errors::invalid(value.py(), message)
    })
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
