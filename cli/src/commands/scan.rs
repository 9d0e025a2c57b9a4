//! `scan`: records in the order of their keys.

use std::ffi::OsString;
use std::ops::Bound;

use crate::args::ScanArguments;
use crate::failure::{Failure, Outcome};
use crate::session::Session;

/// Prints the records that were asked for.
pub(crate) fn run(session: &mut Session, arguments: &ScanArguments) -> Result<Outcome, Failure> {
    let encoding = session.output.encoding;
    let parse = |argument: &Option<OsString>| {
        argument.as_ref().map(|argument| encoding.parse(argument)).transpose()
    };
    let (prefix, from, to) =
        (parse(&arguments.prefix)?, parse(&arguments.from)?, parse(&arguments.to)?);
    let database = session.read()?;
    let table = database.existing_table(&arguments.table)?;
    let range = match prefix {
        Some(prefix) => table.prefix(&prefix),
        None => {
            let from = from.map_or(Bound::Unbounded, Bound::Included);
            let to = to.map_or(Bound::Unbounded, Bound::Excluded);
            if is_empty(&from, &to) {
                return Ok(Outcome::Good);
            }
            table.range((from, to))
        }
    };
    let records: Box<dyn Iterator<Item = _>> =
        if arguments.reverse { Box::new(range.rev()) } else { Box::new(range) };
    for record in records.take(arguments.limit.unwrap_or(usize::MAX)) {
        let (key, value) = record?;
        session.output.record(&key, (!arguments.keys_only).then_some(&value[..]))?;
        if session.output.reader_is_gone() {
            break;
        }
    }
    Ok(Outcome::Good)
}

/// Whether nothing can lie between the two.
fn is_empty(from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    matches!((from, to), (Bound::Included(from), Bound::Excluded(to)) if from >= to)
}
