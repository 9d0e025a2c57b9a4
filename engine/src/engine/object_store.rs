//! The object store of an open database, for its owner: what is in it, what a crash left there, and
//! what it was asked for.

use super::{Database, Engine};
use crate::base::error::{Error, Result};
#[cfg(doc)]
use crate::base::options::TableOptions;
use crate::os::sync::atomic::Ordering;
use crate::storage::{Collected, ObjectId, ObjectTier};

/// What a look at all objects of a database found: see
/// [`Database::check_object_store`](crate::Database::check_object_store).
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ObjectStoreReport {
    /// Where the store is.
    pub store: String,
    /// Objects that the database has.
    pub objects: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Objects of the database that it does not need: what a crash left, or what is to be deleted.
    /// [`Database::collect_objects`](crate::Database::collect_objects) deletes them.
    pub left: Vec<String>,
    /// Bytes in them.
    pub left_bytes: u64,
    /// Objects beside them that Terrace did not make. They stay.
    pub foreign: Vec<String>,
    /// Objects that the database has and the store lacks: the data in them is lost.
    pub lost: Vec<String>,
}

/// An object store since the opening.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ObjectStats {
    /// Where it is.
    pub store: String,
    /// Objects that the database has.
    pub objects: u64,
    /// Objects that are to be deleted.
    pub deleting: u64,
    /// Reads of objects, whole or in part. Attempts and second requests count too, as in all
    /// numbers of requests.
    pub gets: u64,
    /// Writes of objects.
    pub puts: u64,
    /// Looks at objects.
    pub heads: u64,
    /// Deletions, each of up to 1000 objects.
    pub deletes: u64,
    /// Lists, each of up to 1000 objects.
    pub lists: u64,
    /// Requests that were made again after a failure.
    pub retries: u64,
    /// Reads that were made a second time because the first one took long.
    pub hedges: u64,
    /// Failures, by what happened.
    pub failures: Vec<(&'static str, u64)>,
    /// Bytes of objects that were sent.
    pub sent_bytes: u64,
    /// Bytes of objects that came.
    pub received_bytes: u64,
    /// Bytes of ends of objects that are kept on this machine.
    pub tail_bytes: u64,
    /// Compactions with objects that are under way: two at most.
    pub compacting: u32,
    /// Why work on objects fails, if it does: it is tried again.
    pub note: Option<String>,
}

impl Database {
    /// Looks at all objects of the database in its object store, and deletes none. A database that
    /// is open read-only may be looked at too. Costs a list of all objects, a request for each
    /// thousand.
    ///
    /// # Errors
    ///
    /// `Invalid` without an object store; `Unavailable` when it does not answer; `Fenced` when
    /// another opening has it; `Closed` once the database is being closed, which waits for one
    /// request of the call at most.
    pub fn check_object_store(&self) -> Result<ObjectStoreReport> {
        collect(&self.inner, true)
    }

    /// Deletes the objects that the database does not need: what crashes left, and closings while
    /// the store did not answer. What compactions replace is deleted without it, at the closing at
    /// the latest. An upload under way is not touched.
    ///
    /// # Errors
    ///
    /// As [`Database::check_object_store`]; `Invalid` for a database that is open read-only.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let bucket = format!("file://{}", dir.path().join("bucket").display());
    /// let db = terrace::Options::new().object_store(bucket).open(dir.path().join("db"))?;
    /// assert!(db.check_object_store()?.lost.is_empty());
    /// assert_eq!(db.collect_objects()?.left, Vec::<String>::new());
    /// # Ok(())
    /// # }
    /// ```
    pub fn collect_objects(&self) -> Result<ObjectStoreReport> {
        if self.inner.shared.read_only {
            return Err(Error::invalid("the database is open read-only; open it for writing"));
        }
        collect(&self.inner, false)
    }
}

fn tier(engine: &Engine) -> Result<&std::sync::Arc<ObjectTier>> {
    engine.shared.check_open()?;
    engine.set.store().objects().ok_or_else(|| {
        Error::invalid("the database was opened without an object store: name it at the opening")
    })
}

/// Looks at all objects; deletes those that are not needed unless it is a `dry_run`.
pub(crate) fn collect(engine: &Engine, dry_run: bool) -> Result<ObjectStoreReport> {
    let _inside = engine.shared.gate.enter_call().map_err(Error::not_open)?;
    let tier = tier(engine)?;
    let found = tier.collect(dry_run)?;
    let path = |id: &ObjectId| tier.path(*id).display().to_string();
    let Collected { live, live_bytes, left, left_bytes, foreign, lost } = found;
    Ok(ObjectStoreReport {
        store: tier.address(),
        objects: live,
        bytes: live_bytes,
        left: left.iter().map(path).collect(),
        left_bytes,
        foreign,
        lost: lost.iter().map(path).collect(),
    })
}

/// What the store was asked for.
pub(crate) fn stats(engine: &Engine) -> Option<ObjectStats> {
    let tier = engine.set.store().objects()?;
    let counts = tier.counts();
    let (objects, deleting) = tier.count();
    let failures = counts.failures.iter().filter(|(_, n)| *n > 0);
    Some(ObjectStats {
        store: tier.address(),
        objects,
        deleting,
        gets: counts.gets,
        puts: counts.puts,
        heads: counts.heads,
        deletes: counts.deletes,
        lists: counts.lists,
        retries: counts.retries,
        hedges: counts.hedges,
        failures: failures.map(|(kind, n)| (kind.as_str(), *n)).collect(),
        sent_bytes: counts.sent_bytes,
        received_bytes: counts.received_bytes,
        tail_bytes: tier.tail_bytes(),
        compacting: engine.ctx.object_work.running.load(Ordering::Relaxed),
        note: engine.ctx.object_work.failure(),
    })
}
