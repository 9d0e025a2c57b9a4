//! Calls that take a shared database over, follow it, or stand by for it, and the handles of what
//! follows and what stands by.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use super::node::{Node, NodeKind};
use super::{NodeStatus, SharedStatus, status, takeover};
use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::engine::Database;
use crate::os::{ForkGuard, NotOpen};

impl Database {
    /// Lets the zones go that a shared database keeps for the store, as a full region does: a
    /// checkpoint has to take their place.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn forget_unshipped(&self) {
        // Where that fails, the database has stopped. A closed one changes no file.
        if let Ok(_inside) = self.inner.shared.gate.enter_call() {
            self.inner.ctx.let_go().unwrap_or(false);
        }
    }
}

impl Options {
    /// Takes the shared database of a store over, whichever machine writes to it, and opens it to
    /// write in `path`, which is missing or empty. It has everything that was committed with
    /// [`Durability::Remote`](crate::Durability::Remote), and of the rest what had been shipped: a
    /// prefix of the order of commits. What the other writer does from then on is void, and it
    /// stops with [`ErrorKind::Fenced`](crate::ErrorKind::Fenced).
    ///
    /// Data is read in the store at first, and comes to `path` in the background:
    /// [`TableStats::misplaced_bytes`](crate::TableStats::misplaced_bytes) says how much is left.
    /// So the first read and the first write wait for no copy. Later openings of `path` need
    /// [`Options::share`] and [`Options::object_store`].
    ///
    /// # Errors
    ///
    /// The other writer goes on after them, and `path` is as before, unless this machine fails in
    /// the last step, behind the claim: its disk, or an answer of the store that is lost. Try again
    /// then. If that is `Exists`, the database is there and is the writer's: open it with
    /// [`Options::share`].
    ///
    /// - `Invalid`: there is no shared database;
    /// - `Exists`: `path` is not empty;
    /// - `Unavailable`: the store does not answer, or the other writer is always faster;
    /// - `Corrupt`: an object is damaged or gone; `Full`: there is no space.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use terrace::{Durability, ErrorKind, Options};
    ///
    /// let bucket = format!("file://{}", dir.path().join("bucket").display());
    /// let options = Options::new().pm_size(4 << 20);
    /// let shared = options.clone().object_store(&bucket).share(true);
    /// let db = shared.open(dir.path().join("one"))?;
    /// let users = db.table("users")?;
    /// users.durability(Durability::Remote).put("ada", "1815")?;
    ///
    /// let db = options.open_shared(&bucket, dir.path().join("two"))?;
    /// assert_eq!(db.table("users")?.get("ada")?.as_deref(), Some(&b"1815"[..]));
    /// let error = users.durability(Durability::Remote).put("alan", "1912").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Fenced);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_shared(self, url: &str, path: impl AsRef<Path>) -> Result<Database> {
        takeover::open_shared(url, path.as_ref(), &self)
    }

    /// Follows the shared database of a store, in a directory of the node's own: its data is copied
    /// there, or read in the store with [`Options::object_cache`]. Costs two requests a second
    /// while nothing is committed.
    ///
    /// # Errors
    ///
    /// As [`Options::open_shared`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use std::time::Duration;
    /// use terrace::{Durability, Options};
    ///
    /// let bucket = format!("file://{}", dir.path().join("bucket").display());
    /// let options = Options::new().pm_size(4 << 20);
    /// let db = options.clone().object_store(&bucket).share(true).open(dir.path().join("one"))?;
    /// db.table("users")?.durability(Durability::Remote).put("ada", "1815")?;
    ///
    /// let follower = options.follow(&bucket, dir.path().join("two"))?;
    /// while follower.status().commit < db.stats().share.unwrap().shipped {
    ///     std::thread::sleep(Duration::from_millis(20));
    /// }
    /// let users = follower.database()?.existing_table("users")?;
    /// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
    /// assert!(users.put("alan", "1912").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow(self, url: &str, path: impl AsRef<Path>) -> Result<Follower> {
        Follower::start(url, path.as_ref(), (&self, NodeKind::Follower))
    }

    /// Says how far the shared database of a store is. Costs about twenty small requests, and
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is none; `Unavailable` if the store does not answer.
    pub fn shared_status(self, url: &str) -> Result<SharedStatus> {
        status::shared_status(url, &self)
    }

    /// Forgets a follower that was registered by [`Options::follower_name`]: nothing is kept for it
    /// any more.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that is none; `Unavailable` if the store does not answer.
    pub fn forget_follower(self, url: &str, name: &str) -> Result<()> {
        status::forget_follower(url, name, &self)
    }

    /// Stands by for the shared database of a store, with data of its own in `path`. As
    /// [`Options::follow`], and [`Standby::promote`] makes it the writer.
    ///
    /// # Errors
    ///
    /// As [`Options::follow`].
    pub fn standby(self, url: &str, path: impl AsRef<Path>) -> Result<Standby> {
        Follower::start(url, path.as_ref(), (&self, NodeKind::Standby)).map(Standby)
    }
}

/// A database that shows what the writer of a shared store commits. Reads see a prefix of the
/// writer's order, over all tables at once.
pub struct Follower {
    pub(super) node: Arc<Node>,
    fork: ForkGuard,
}

impl Follower {
    /// Opens a node, and starts its thread.
    pub(super) fn start(
        url: &str,
        path: &Path,
        (options, kind): (&Options, NodeKind),
    ) -> Result<Follower> {
        let node = Node::open(url, path, (options, kind))?;
        let follower = Follower { node, fork: ForkGuard::new() };
        follower.node.start()?;
        Ok(follower)
    }

    /// The node, if it is this process's: in a forked child its locks may be held for ever.
    fn own(&self) -> Result<&Node> {
        match self.fork.is_forked() {
            true => Err(Error::not_open(NotOpen::Forked)),
            false => Ok(&self.node),
        }
    }

    /// The database, to read. Its handles keep what they show, also where the follower had to start
    /// from a checkpoint and has another database by now: ask again now and then. A read that needs
    /// data of the store which the writer has deleted fails as `Unavailable`. Ask again then: this
    /// call starts from the newest checkpoint. The database is to be read by snapshots: it refuses
    /// writes and locks of rows as `Invalid`.
    ///
    /// # Errors
    ///
    /// `Closed`; `Invalid` inside of a merge operator, or where it has to start from the newest
    /// checkpoint inside of a closure that a value is lent to; `Unavailable` in a forked child, or
    /// if it has to start from the newest checkpoint, and the store does
    /// not answer or has none that is newer than what the follower shows.
    pub fn database(&self) -> Result<Database> {
        self.own()?.database()
    }

    /// How far it is. In a forked child only [`NodeStatus::note`] says something: that the node is
    /// of another process.
    pub fn status(&self) -> NodeStatus {
        match self.fork.is_forked() {
            true => self.node.status_in_child(),
            false => self.node.status(),
        }
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
        self.own()?.step()
    }

    /// Ends following. The next one in the same directory goes on where it was.
    ///
    /// # Errors
    ///
    /// As [`Database::close`]. Where that is `Invalid`, it goes on: close it elsewhere.
    pub fn close(&self) -> Result<()> {
        self.own()?.close()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.fork.is_forked() {
            // The parent's node.
            std::mem::forget(Arc::clone(&self.node));
            return;
        }
        // No caller is left to take the error.
        let close = |node: &Node| drop(node.close());
        if self.node.check_closable().is_ok() {
            return close(&self.node);
        }
        // Without another thread the directory stays locked until the process ends.
        let (node, closes) = (Arc::clone(&self.node), crate::os::thread::Builder::new());
        drop(closes.name("terrace-close".into()).spawn(move || close(&node)));
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Follower").field(&self.node.directory).finish()
    }
}

/// A database that applies what the writer of a shared store commits, and can take its place. Until
/// then it is a follower that has all data itself, and has its calls.
#[derive(Debug)]
pub struct Standby(Follower);

impl Standby {
    /// Makes it the writer: applies what is left, claims the shared store, and opens the database
    /// to write, in the directory that [`Database::path`] and, from then on,
    /// [`NodeStatus::directory`] name. All handles of the standby's databases are closed by it.
    ///
    /// Later openings need [`Options::share`] and [`Options::object_store`], and the region's
    /// [`Options::pm_path`] where the standby has one.
    ///
    /// # Errors
    ///
    /// `Invalid` where [`Database::close`] is: it goes on then, and another thread can promote it.
    /// After each other error, as [`Options::open_shared`] has them, it is closed, and its
    /// directory is free. Open the standby again and promote that, or take over in an empty one.
    pub fn promote(&self) -> Result<Database> {
        self.0.own()?.promote()
    }
}

impl Deref for Standby {
    type Target = Follower;

    fn deref(&self) -> &Follower {
        &self.0
    }
}
