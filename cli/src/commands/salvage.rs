//! `salvage`: writes what can be read of a damaged database to a new one.

use crate::args::SalvageArguments;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::text::counted;

/// Salvages. A loss is a negative answer, not an error.
pub(crate) fn run(session: &mut Session, arguments: &SalvageArguments) -> Result<Outcome, Failure> {
    let report = session.options().salvage(&arguments.from, &arguments.to)?;
    let output = &mut session.output;
    output.done(format!("what could be read is in {}", arguments.to.display()));
    if output.json {
        output.object(&report)?;
    } else {
        for damage in &report.lost {
            output.line(&format!("lost: {damage}"))?;
        }
        let records = counted(report.records, "record", "records");
        let tables = counted(report.tables, "table", "tables");
        let lost = counted(report.lost.len() as u64, "loss", "losses");
        output.line(&format!("{records} read, {tables} written, {lost}"))?;
    }
    Ok(if report.lost.is_empty() { Outcome::Good } else { Outcome::Negative })
}
