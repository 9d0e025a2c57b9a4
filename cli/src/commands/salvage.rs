//! `salvage`: writes what can be read of a damaged database to a new one.

use crate::args::SalvageArguments;
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::session::Session;
use crate::text::counted;

/// Salvages. A loss is a negative answer, not an error.
pub(crate) fn run(session: &mut Session, arguments: &SalvageArguments) -> Result<Outcome, Failure> {
    interrupt::on_signals();
    let report = session.options().salvage(&arguments.from, &arguments.to);
    let to = arguments.to.display();
    let report = report.map_err(Failure::stopped(format!(
        "{} is as it was, and there is no database in {to}; to start over, run it again",
        arguments.from.display()
    )))?;
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
