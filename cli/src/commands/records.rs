//! `get`, `put`, `delete`: one record at a time.

use std::io::Read;

use crate::args::{DeleteArguments, GetArguments, PutArguments};
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::text::Encoding;

/// Prints the value of a key.
pub(crate) fn get(session: &mut Session, arguments: &GetArguments) -> Result<Outcome, Failure> {
    let key = session.output.encoding.parse(&arguments.key)?;
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
    if output.json {
        output.record(&key, Some(&value))?;
    } else {
        output.line(&output.encoding.whole(&value))?;
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
    database.close()?;
    Ok(Outcome::Good)
}

/// The value on standard input: every byte of it, or hexadecimal digits and white space.
fn read_value(encoding: Encoding) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    std::io::stdin()
        .read_to_end(&mut value)
        .map_err(|error| Failure::io("read standard input", &error))?;
    match encoding {
        Encoding::Text => Ok(value),
        Encoding::Hex => {
            let digits: String = String::from_utf8_lossy(&value).split_whitespace().collect();
            encoding.parse(digits.as_ref())
        }
    }
}

/// Removes a key, or a whole table.
pub(crate) fn delete(
    session: &mut Session,
    arguments: &DeleteArguments,
) -> Result<Outcome, Failure> {
    let table = &arguments.table;
    match &arguments.key {
        Some(key) => {
            let key = session.output.encoding.parse(key)?;
            let database = session.change()?;
            database.existing_table(table)?.delete(&key)?;
            database.close()?;
        }
        None => {
            if !arguments.confirm {
                return Err(Failure::Invalid(format!(
                    "this removes table `{table}` and everything in it; say --confirm to do it"
                )));
            }
            let database = session.change()?;
            database.drop_table(table)?;
            database.close()?;
            session.output.remark(&format!("table `{table}` removed"));
        }
    }
    Ok(Outcome::Good)
}
