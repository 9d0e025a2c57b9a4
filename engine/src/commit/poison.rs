//! An internal failure poisons the database: every later call fails with its cause instead of
//! guessing.
//!
//! Thread safety: any thread may poison, once counts; checking is one load.

use std::sync::OnceLock;

use crate::error::{Error, ErrorKind, Result};

/// Whether, and why, a database stopped.
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<String>);

impl Poison {
    /// Stops the database. The first cause stays.
    pub(crate) fn set(&self, cause: &Error) {
        self.set_because(cause.to_string());
    }

    /// Stops the database.
    pub(crate) fn set_because(&self, cause: String) {
        // A second failure is a consequence of the first, or as good as one.
        drop(self.0.set(cause));
    }

    /// Whether the database has stopped.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Fails when the database has stopped.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            None => Ok(()),
            Some(cause) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the database stopped after a failure; open it again ({cause})"),
            )),
        }
    }

    /// The error of a commit that had its LSN when the database stopped.
    pub(crate) fn unknown_outcome(&self, lsn: crate::record::Lsn) -> Error {
        let cause = self.0.get().map_or("unknown cause", String::as_str);
        Error::new(
            ErrorKind::UnknownOutcome,
            format!(
                "commit {lsn} may or may not be there after the next opening: open the database \
                 again and look ({cause})"
            ),
        )
    }
}
