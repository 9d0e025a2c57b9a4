//! Followers: databases that others read while the writer writes elsewhere.

use std::path::Path;

use super::node::{NodeHandle, NodeKind, NodeStatus};
use crate::engine::Database;
use crate::error::Result;
use crate::options::Options;

/// A database that shows what the writer of a shared store commits. Reads see a prefix of the
/// writer's order, over all tables at once.
#[derive(Debug)]
pub struct Follower(NodeHandle);

impl Follower {
    pub(super) fn start(url: &str, path: &Path, options: &Options) -> Result<Follower> {
        NodeHandle::start(url, path, (options, NodeKind::Follower)).map(Follower)
    }

    /// The database, to read. Its handles keep what they show, also where the follower had to start
    /// from a checkpoint and has another database by now: ask again now and then. A read that needs
    /// data of the store which the writer has deleted fails as `Unavailable`. Ask again then: this
    /// call starts from the newest checkpoint.
    ///
    /// # Errors
    ///
    /// `Closed`; `Unavailable` if it has to start from the newest checkpoint, and the store does
    /// not answer or has none that is newer than what the follower shows.
    pub fn database(&self) -> Result<Database> {
        self.0.database()
    }

    /// How far it is.
    pub fn status(&self) -> NodeStatus {
        self.0.status()
    }

    /// Applies the next entry of the log, if there is one: for followers that were opened
    /// [`stepped`](Options::stepped).
    ///
    /// # Errors
    ///
    /// Those of the store and of writes.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn step(&self) -> Result<bool> {
        self.0.step()
    }

    /// Ends following. The next one in the same directory goes on where it was.
    ///
    /// # Errors
    ///
    /// As [`Database::close`].
    pub fn close(self) -> Result<()> {
        self.0.close()
    }
}
