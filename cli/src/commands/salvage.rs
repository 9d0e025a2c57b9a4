//! `salvage`: writes what can be read of a damaged database to a new one.

use crate::args::SalvageArguments;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::text::grouped;

/// Salvages. A loss is a negative answer, not an error.
pub(crate) fn run(session: &mut Session, arguments: &SalvageArguments) -> Result<Outcome, Failure> {
    let report = terrace::Database::salvage(&arguments.from, &arguments.to)?;
    let output = &mut session.output;
    if output.json {
        output.object(&report)?;
    } else {
        for damage in &report.lost {
            output.line(&format!("lost: {damage}"))?;
        }
        let (records, tables) = (grouped(report.records), grouped(report.tables));
        let lost = grouped(report.lost.len() as u64);
        output.line(&format!("{records} records read, {tables} tables written, {lost} losses"))?;
    }
    Ok(if report.lost.is_empty() { Outcome::Good } else { Outcome::Negative })
}
