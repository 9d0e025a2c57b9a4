//! Standbys: databases that take the writer's place.

use std::path::Path;

use super::node::{NodeHandle, NodeKind, NodeStatus};
use crate::engine::Database;
use crate::error::Result;
use crate::options::Options;

/// A database that applies what the writer of a shared store commits, and can take its place.
#[derive(Debug)]
pub struct Standby(NodeHandle);

impl Standby {
    pub(super) fn start(url: &str, path: &Path, options: &Options) -> Result<Standby> {
        NodeHandle::start(url, path, (options, NodeKind::Standby)).map(Standby)
    }

    /// As [`Follower::database`](crate::Follower::database).
    ///
    /// # Errors
    ///
    /// `Closed`.
    pub fn database(&self) -> Result<Database> {
        self.0.database()
    }

    /// How far it is.
    pub fn status(&self) -> NodeStatus {
        self.0.status()
    }

    /// As [`Follower::step`](crate::Follower::step).
    ///
    /// # Errors
    ///
    /// Those of the store and of writes.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn step(&self) -> Result<bool> {
        self.0.step()
    }

    /// Makes it the writer: applies what is left, claims the shared store, and opens the database
    /// to write. It lies in the directory that [`NodeStatus::directory`] names. All handles of the
    /// standby's database are closed by it.
    ///
    /// # Errors
    ///
    /// As [`Database::open_shared`]. Open the standby again and promote that, or take over in an
    /// empty directory.
    pub fn promote(self) -> Result<Database> {
        self.0.promote()
    }

    /// As [`Follower::close`](crate::Follower::close).
    ///
    /// # Errors
    ///
    /// As [`Database::close`].
    pub fn close(self) -> Result<()> {
        self.0.close()
    }
}
