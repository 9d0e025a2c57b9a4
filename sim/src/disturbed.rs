//! What calls that fail have done to a life.

use terrace::{Error, ErrorKind};

use crate::violation::{Class, Violation};

/// After so many errors in a row the machine is mended.
const MENDED_AFTER: u32 = 5;

/// After so many errors in a row nothing but another opening helps.
const ENDS_AFTER: u32 = 12;

/// The errors that calls of a database told, and what is wrong about them.
#[derive(Debug, Default)]
pub struct Disturbed {
    /// How many were told.
    pub errors: u64,
    /// A commit has an unknown outcome.
    pub has_unknown: bool,
    in_a_row: u32,
    /// What was told, in order.
    told: Vec<String>,
    complaint: Option<Violation>,
}

impl Disturbed {
    /// A commit or a background job was done.
    pub(crate) fn passed(&mut self) {
        self.in_a_row = 0;
    }

    /// A call told an error. Whether the machine is to be mended now.
    pub(crate) fn failed(&mut self, what: &str, error: &Error) -> bool {
        self.note(format!("{what}: {} ({})", error, error.kind().as_str()));
        self.errors += 1;
        self.in_a_row += 1;
        match error.kind() {
            ErrorKind::Full | ErrorKind::Unavailable => {}
            ErrorKind::UnknownOutcome => self.has_unknown = true,
            // Whether a table is there may be what is unknown.
            ErrorKind::Invalid if self.has_unknown => {}
            _ => self.complain(Class::WrongError, &format!("{what}: {error}")),
        }
        self.in_a_row == MENDED_AFTER
    }

    /// Notes something for the report of a violation.
    pub(crate) fn note(&mut self, what: String) {
        self.told.push(what);
    }

    /// All that was noted.
    pub(crate) fn told(&self) -> String {
        self.told.join("\n    ")
    }

    /// Nothing but another opening helps.
    pub(crate) fn end(&mut self) {
        self.in_a_row = ENDS_AFTER;
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.in_a_row < ENDS_AFTER
    }

    pub(crate) fn complain(&mut self, class: Class, what: &str) {
        self.complaint.get_or_insert_with(|| class.violation(what));
    }

    /// What is wrong about the errors, if anything.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.complaint.clone().map_or(Ok(()), Err)
    }
}
