//! An internal failure poisons the database: every later call fails with its cause instead of
//! guessing.
//!
//! Thread safety: any thread may poison, once counts; checking is one load.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::events::Events;
use crate::os::sync::shared::OnceLock;
use crate::os::{Files, say_stopped};

/// The database stopped. What that means for a call is up to the call: before its commit has a
/// ticket nothing was done ([`Poison::unavailable`]), from there on the outcome is unknown
/// ([`Poison::unknown_outcome`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

/// Whether, and why, a database stopped.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    cause: OnceLock<(ErrorKind, String)>,
    events: Events,
    /// The directory that this process has locked: its lock file tells others.
    locked: Option<(Arc<dyn Files>, PathBuf)>,
}

impl Poison {
    /// Of a database that has not stopped.
    pub(crate) fn new(events: &Events, locked: Option<(Arc<dyn Files>, PathBuf)>) -> Poison {
        Poison { cause: OnceLock::new(), events: events.clone(), locked }
    }

    /// Where it tells that the database stopped.
    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Stops the database. The first cause stays.
    pub(crate) fn set(&self, cause: &Error) {
        // A writer that was fenced off stays so: its calls say it.
        let is_fenced = cause.kind() == ErrorKind::Fenced;
        let kind = if is_fenced { ErrorKind::Fenced } else { ErrorKind::Unavailable };
        if self.cause.set((kind, cause.to_string())).is_ok() {
            self.tell_others();
            self.events.failure(cause, true);
        }
    }

    /// Stops the database.
    pub(crate) fn set_because(&self, cause: String) {
        // A second failure is a consequence of the first, or as good as one.
        if self.cause.set((ErrorKind::Unavailable, cause)).is_ok() {
            self.tell_others();
            self.events.stopped_because(self.cause());
        }
    }

    /// A reader that cannot be told, since nothing can be written there, cannot begin there either.
    fn tell_others(&self) {
        let locked = self.locked.as_ref().and_then(|(files, path)| Some((files.real()?, path)));
        if let Some((files, path)) = locked {
            say_stopped(files, path).unwrap_or(());
        }
    }

    /// Whether the database has stopped.
    pub(crate) fn is_set(&self) -> bool {
        self.cause.get().is_some()
    }

    /// Fails when the database has stopped.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() { Err(self.unavailable()) } else { Ok(()) }
    }

    /// Why the database has stopped, if it has.
    pub(crate) fn why(&self) -> Option<&str> {
        self.cause.get().map(|(_, cause)| cause.as_str())
    }

    fn cause(&self) -> &str {
        self.why().unwrap_or("unknown cause")
    }

    /// The error of a call that did nothing, since the database had stopped.
    pub(crate) fn unavailable(&self) -> Error {
        Error::new(
            self.cause.get().map_or(ErrorKind::Unavailable, |(kind, _)| *kind),
            format!("the database stopped after a failure; open it again ({})", self.cause()),
        )
    }

    /// The error of a commit that had its own LSN, which is `lsn`, when the database stopped.
    pub(crate) fn unknown_outcome(&self, lsn: crate::base::record::Lsn) -> Error {
        Error::new(
            ErrorKind::UnknownOutcome,
            format!(
                "commit {lsn} may or may not be there after the next opening: open the database \
                 again and look ({})",
                self.cause()
            ),
        )
    }
}
