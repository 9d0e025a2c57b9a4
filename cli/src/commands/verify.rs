//! `verify`: reads everything on the medium and says what is damaged, or whether two nodes of a
//! shared database show the same.

use std::path::{Path, PathBuf};

use terrace::{Digest, VerifyReport};

use crate::args::VerifyArguments;
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::session::Session;
use crate::text::grouped;

/// What is left of a verification that was stopped.
const UNKNOWN: &str = "nothing is known of the rest";

/// Checks the database. Damage is a negative answer, not an error, and so is what cannot be read.
pub(crate) fn run(session: &mut Session, arguments: &VerifyArguments) -> Result<Outcome, Failure> {
    if let Some(other) = &arguments.against {
        return compare(session, other);
    }
    // Without opening it: what is too damaged to be opened can still be verified.
    interrupt::on_signals();
    let report = session.options().verify(session.directory());
    told(session, report)
}

/// Prints the report of a verification. Of one that a signal has stopped it prints what was found
/// by then, and fails.
pub(super) fn told(
    session: &mut Session,
    report: terrace::Result<VerifyReport>,
) -> Result<Outcome, Failure> {
    match report {
        Ok(report) => {
            session.say_commit(report.commit);
            print(session, &report)
        }
        Err(error) => {
            if let Some(report) = error.report() {
                print(session, report)?;
            }
            Err(Failure::stopped(UNKNOWN)(error))
        }
    }
}

/// Compares all rows of two nodes at one commit. A difference is a negative answer.
fn compare(session: &mut Session, other: &Path) -> Result<Outcome, Failure> {
    interrupt::on_signals();
    let digest = |path: &Path| -> terrace::Result<Digest> {
        let db = session.options().share(false).open_read_only(database_of(path))?;
        let digest = db.digest()?;
        db.close()?;
        Ok(digest)
    };
    let (one, two) = (digest(session.directory())?, digest(other)?);
    let differences = one.differences(&two)?;
    let output = &mut session.output;
    if output.json {
        output.object(&serde_json::json!({
            "commit": one.commit, "tables": one.tables, "differences": differences
        }))?;
    } else {
        for line in &differences {
            output.line(line)?;
        }
        let rows = grouped(one.tables.iter().map(|table| table.rows).sum());
        let tables = one.tables.len();
        match differences.len() {
            0 => output.line(&format!(
                "{tables} tables with {rows} rows at commit {}, all the same",
                one.commit
            ))?,
            n => output.line(&format!("{n} of {tables} tables differ at commit {}", one.commit))?,
        }
    }
    Ok(if differences.is_empty() { Outcome::Good } else { Outcome::Negative })
}

/// Where the database of a node is: of a follower or a standby, in its last numbered subdirectory.
fn database_of(node: &Path) -> PathBuf {
    let of = |n: u32| node.join(format!("{n:08}"));
    let numbered = std::fs::read_dir(node).into_iter().flatten().flatten();
    let numbered = numbered.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        of(number).is_dir().then_some(number)
    });
    numbered.max().map_or_else(|| node.to_path_buf(), of)
}

/// Prints what was found.
fn print(session: &mut Session, report: &VerifyReport) -> Result<Outcome, Failure> {
    let output = &mut session.output;
    if output.json {
        output.object(report)?;
    } else {
        for damage in &report.damages {
            output.line(&format!("damaged: {}", damage.what))?;
            output.line(&format!("  tier      {}", damage.tier))?;
            output.line(&format!("  file      {}", damage.file.display()))?;
            output.line(&format!("  offset    {}", damage.offset))?;
            output.line(&format!("  expected  {}", damage.expected))?;
            output.line(&format!("  got       {}", damage.got))?;
        }
        for part in &report.not_checked {
            output.line(&format!("not looked at, or not to the end: {part}"))?;
        }
        for unreadable in &report.unreadable {
            output.line(&format!("could not be read: {}", unreadable.what))?;
            output.line(&format!("  tier      {}", unreadable.tier))?;
            output.line(&format!("  file      {}", unreadable.file.display()))?;
            output.line(&format!("  offset    {}", unreadable.offset))?;
            output.line(&format!("  error     {}", unreadable.error))?;
        }
        let checked = grouped(report.checked);
        let found = match (report.damages.len(), report.unreadable.len()) {
            (0, 0) if !report.not_checked.is_empty() => "no damage by then".to_string(),
            (0, 0) => "all sound".to_string(),
            (damaged, 0) => format!("{damaged} damaged"),
            (damaged, unread) => format!("{damaged} damaged, {unread} could not be read"),
        };
        output.line(&format!("{checked} structures checked, {found}"))?;
    }
    Ok(if report.is_sound() { Outcome::Good } else { Outcome::Negative })
}
