//! A commit that has its place in the order and has not been waited for.

use std::sync::Arc;

use super::shared::{Keep, Shared};
use crate::error::Result;
use crate::locks::Locker;
use crate::options::Durability;
use crate::record::Lsn;

/// A commit that nothing can keep from happening but a failure of the device: its place in the
/// order is taken, and it waits to be visible and durable. Commits become so in the order in which
/// they were enqueued.
///
/// It owns what it needs and may be waited for by any thread, at any time. Dropping it undoes
/// nothing: the commit becomes visible, and durable if that was asked for, a moment later; if it
/// has rows locked, dropping it waits until they can be given back.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// use terrace::{Durability, WriteBatch};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let users = db.table("users")?;
/// let mut batch = WriteBatch::new();
/// batch.put(&users, "ada", "1815").set_blob("position 4711");
/// let first = db.enqueue(batch, Durability::Durable)?;
/// let mut batch = WriteBatch::new();
/// batch.put(&users, "ada", "1852");
/// let second = db.enqueue(batch, Durability::Durable)?;
/// assert!(first.number() < second.number());
/// second.wait()?; // and hence the first one too
/// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1852"[..]));
/// assert_eq!(db.last_blob().as_deref(), Some(&b"position 4711"[..]));
/// # Ok(())
/// # }
/// ```
#[must_use = "the commit is not known to be durable before it was waited for"]
pub struct PendingCommit {
    shared: Arc<Shared>,
    /// Keeps the database open.
    _keep: Keep,
    lsn: Lsn,
    durability: Durability,
    locks: Option<Locker>,
    waited: bool,
}

impl PendingCommit {
    /// A commit at an LSN; without one there was nothing to commit.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        keep: Keep,
        (lsn, durability): (Option<Lsn>, Durability),
        locks: Option<Locker>,
    ) -> PendingCommit {
        let (waited, shared) = (lsn.is_none(), Arc::clone(shared));
        let lsn = lsn.unwrap_or_else(|| shared.committer.visible());
        let locks = locks.filter(|locks| locks.held() > 0);
        PendingCommit { shared, _keep: keep, lsn, durability, locks, waited }
    }

    /// Its number: a commit that was enqueued later has a greater one. Of an empty transaction or
    /// batch, the number of a commit before it.
    pub fn number(&self) -> u64 {
        self.lsn
    }

    /// Waits until it is visible and as durable as was asked for, and gives its row locks back.
    ///
    /// # Errors
    ///
    /// `UnknownOutcome` when the device failed meanwhile: it may or may not be there at the next
    /// opening.
    pub fn wait(mut self) -> Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.waited, true) {
            return Ok(());
        }
        self.shared.committer.wait_for(self.lsn, self.durability)
    }
}

impl Drop for PendingCommit {
    fn drop(&mut self) {
        // Whoever gets a lock sees the commits of those who held it before.
        if self.locks.is_some() {
            // A failure stops the database, and is told to everybody who asks it for something.
            drop(self.finish());
        } else if !self.waited {
            self.shared.bell.ring();
        }
    }
}

impl std::fmt::Debug for PendingCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingCommit")
            .field("number", &self.lsn)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}
