//! `verify`: reads everything on the medium and says what is damaged.

use terrace::VerifyReport;

use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::text::grouped;

/// Checks the database. Damage is a negative answer, not an error.
pub(crate) fn run(session: &mut Session) -> Result<Outcome, Failure> {
    // Without opening it: what is too damaged to be opened can still be verified.
    let report = session.options().verify(session.directory())?;
    print(session, &report)
}

/// Prints what was found.
pub(super) fn print(session: &mut Session, report: &VerifyReport) -> Result<Outcome, Failure> {
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
        let checked = grouped(report.checked);
        match report.damages.len() {
            0 => output.line(&format!("{checked} structures checked, all sound"))?,
            damaged => output.line(&format!("{checked} structures checked, {damaged} damaged"))?,
        }
    }
    Ok(if report.damages.is_empty() { Outcome::Good } else { Outcome::Negative })
}
