//! `store`: what is in the object store of a database.

use terrace::ObjectStoreReport;

use crate::args::StoreCommand;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::text::{counted, size};

/// Checks the object store, or deletes what is not needed. Lost objects are a negative answer, not
/// an error.
pub(crate) fn run(session: &mut Session, command: &StoreCommand) -> Result<Outcome, Failure> {
    let report = match command {
        StoreCommand::Check => session.read()?.check_object_store()?,
        StoreCommand::Gc => {
            let database = session.change()?;
            let report = database.collect_objects()?;
            let gone = counted(report.left.len() as u64, "object", "objects");
            let done = format!("{gone} are deleted");
            session.output.done(&done);
            database.close().map_err(Failure::closing(done))?;
            report
        }
    };
    let is_gone = matches!(command, StoreCommand::Gc);
    let output = &mut session.output;
    if output.json {
        output.object(&report)?;
    } else {
        let ObjectStoreReport { objects, bytes, left, left_bytes, foreign, lost, .. } = &report;
        lost.iter().try_for_each(|name| output.line(&format!("lost: {name}")))?;
        let state = if is_gone { "deleted" } else { "not needed" };
        left.iter().try_for_each(|name| output.line(&format!("{state}: {name}")))?;
        foreign.iter().try_for_each(|name| output.line(&format!("not Terrace's: {name}")))?;
        let had = counted(*objects, "object", "objects");
        let left = counted(left.len() as u64, "object", "objects");
        output.line(&format!(
            "{}: {had} with {}; {left} with {} {state}",
            report.store,
            size(*bytes),
            size(*left_bytes)
        ))?;
    }
    Ok(if report.lost.is_empty() { Outcome::Good } else { Outcome::Negative })
}
