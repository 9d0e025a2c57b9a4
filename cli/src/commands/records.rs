//! `get`, `put`, `delete`: one record at a time.

use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::ops::Bound;

use terrace::limits::MAX_VALUE_LEN;

use crate::args::{DeleteArguments, GetArguments, PutArguments};
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::text::Encoding;

/// Prints the value of a key.
pub(crate) fn get(session: &mut Session, arguments: &GetArguments) -> Result<Outcome, Failure> {
    let key = session.output.encoding.parse(&arguments.key)?;
    if arguments.raw && session.output.json {
        return Err(Failure::Invalid("--raw and --json: say one of them".to_owned()));
    }
    if arguments.raw && std::io::stdout().is_terminal() {
        let why = "the bytes of a value could change the terminal; name a file with --output";
        return Err(Failure::Invalid(why.to_owned()));
    }
    let database = session.read()?;
    let output = &mut session.output;
    let Some(value) = database.existing_table(&arguments.table)?.get(&key)? else {
        output.remark(&format!(
            "`{}` is not in table `{}`",
            output.encoding.line(&key),
            arguments.table
        ));
        return Ok(Outcome::Negative);
    };
    if let Some(file) = &arguments.output {
        crate::file::replace(file, |to| {
            let failed = |error| Failure::io(format!("write {}", file.display()), &error);
            to.write_all(&value).map_err(failed)
        })?;
    } else if arguments.raw {
        output.bytes(&value)?;
    } else if output.json {
        output.record(&key, Some(&value))?;
    } else {
        output.value(&value)?;
    }
    Ok(Outcome::Good)
}

/// Sets the value of a key.
pub(crate) fn put(session: &mut Session, arguments: &PutArguments) -> Result<Outcome, Failure> {
    let encoding = session.output.encoding;
    let key = encoding.parse(&arguments.key)?;
    let value = if arguments.value == "-" {
        read_value(encoding)?
    } else {
        encoding.parse(&arguments.value)?
    };
    let database = session.write()?;
    database.table(&arguments.table)?.put(&key, &value)?;
    let done = format!("`{}` is in table `{}`", encoding.line(&key), arguments.table);
    database.close().map_err(Failure::closing(done))?;
    Ok(Outcome::Good)
}

/// No value takes so many bytes, written as hexadecimal digits with white space.
const LONGEST_INPUT: u64 = 8 * MAX_VALUE_LEN as u64;

/// The value on standard input: every byte of it, or hexadecimal digits and white space.
fn read_value(encoding: Encoding) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let mut input = std::io::stdin().take(LONGEST_INPUT + 1);
    input.read_to_end(&mut value).map_err(|error| Failure::io("read standard input", &error))?;
    if value.len() as u64 > LONGEST_INPUT {
        let why = format!(
            "standard input has more than {LONGEST_INPUT} bytes, a value at most {MAX_VALUE_LEN}"
        );
        return Err(Failure::Invalid(why));
    }
    match encoding {
        Encoding::Text => Ok(value),
        Encoding::Hex => {
            let digits: String = String::from_utf8_lossy(&value).split_whitespace().collect();
            encoding.parse(digits.as_ref())
        }
    }
}

/// Removes a key, a range of keys, or a whole table.
pub(crate) fn delete(
    session: &mut Session,
    arguments: &DeleteArguments,
) -> Result<Outcome, Failure> {
    let encoding = session.output.encoding;
    let parse = |argument: &Option<OsString>| {
        argument.as_ref().map(|argument| encoding.parse(argument)).transpose()
    };
    let (key, prefix) = (parse(&arguments.key)?, parse(&arguments.prefix)?);
    let (from, to) = (parse(&arguments.from)?, parse(&arguments.to)?);
    let table = &arguments.table;
    if key.is_none() && !arguments.confirm {
        let what = match &prefix {
            _ if arguments.all => format!("table `{table}` and everything in it"),
            Some(prefix) => {
                format!("all keys of `{table}` that start with `{}`", encoding.line(prefix))
            }
            None => format!("all keys of `{table}` {}", between(encoding, &from, &to)),
        };
        let message = format!("this removes {what}; say --confirm to do it");
        return Err(Failure::Invalid(message));
    }
    let database = session.change()?;
    if arguments.all {
        database.drop_table(table)?;
    } else {
        let table = database.existing_table(table)?;
        match (key, prefix) {
            (Some(key), _) => table.delete(key)?,
            (None, Some(prefix)) => table.delete_prefix(prefix)?,
            (None, None) => {
                let from = from.map_or(Bound::Unbounded, Bound::Included);
                table.delete_range((from, to.map_or(Bound::Unbounded, Bound::Excluded)))?;
            }
        }
    }
    let done = match arguments.all {
        true => format!("table `{table}` removed"),
        false => format!("what was named is removed from table `{table}`"),
    };
    database.close().map_err(Failure::closing(&done))?;
    if arguments.all {
        session.output.remark(&done);
    }
    Ok(Outcome::Good)
}

/// A range of keys, for people.
fn between(encoding: Encoding, from: &Option<Vec<u8>>, to: &Option<Vec<u8>>) -> String {
    let from = from.as_ref().map(|from| format!("from `{}` on", encoding.line(from)));
    let to = to.as_ref().map(|to| format!("before `{}`", encoding.line(to)));
    from.into_iter().chain(to).collect::<Vec<_>>().join(" and ")
}
