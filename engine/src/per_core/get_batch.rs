//! Batches of look-ups: grouped by shard as keys are added, one request for each shard.

use std::sync::Arc;

use super::executor::{Executor, PerCore, ShardedTable};
use super::request::{GetsReply, GetsRequest, Replies, ShardGets, ShardRequest};
use super::server::{ShardServer, is_shard};
use super::task::refuse_to_wait;
use crate::base::error::{Error, Result};
use crate::table::Snapshot;

/// Where the answer for a key will lie.
#[derive(Clone, Copy, Debug)]
struct AnswerPlace {
    shard: usize,
    number: usize,
}

/// Keys of any tables to be looked up together, each on the shard that owns it. Made by
/// [`PerCore::batch`](crate::PerCore::batch).
///
/// A batch costs a hand-over to each of its shards and back, some microseconds. So it pays from
/// some dozens of keys on. A single key is faster looked up by
/// [`Table::get_with`](crate::Table::get_with).
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let (users, orders) = (db.table("users")?, db.table("orders")?);
/// users.put("ada", "1815")?;
/// orders.put("1", "ada")?;
///
/// let cores = db.per_core(2)?;
/// let (users, orders) = (cores.table(&users)?, cores.table(&orders)?);
/// let mut batch = cores.batch();
/// batch.get(&users, "ada").get(&orders, "1").get(&orders, "2");
/// let values = batch.run()?;
/// let values: Vec<_> = values.iter().collect();
/// assert_eq!(values, [Some(&b"1815"[..]), Some(&b"ada"[..]), None]);
/// # Ok(())
/// # }
/// ```
pub struct GetBatch {
    executor: Arc<Executor>,
    /// By shard. `None` while the shard has it.
    shards: Vec<Option<Box<ShardGets>>>,
    places: Vec<AnswerPlace>,
    replies: Arc<Replies<GetsReply>>,
    /// Where replies go to from there.
    taken: Vec<GetsReply>,
    snapshot: Option<Snapshot>,
    /// The first key whose table is of another executor.
    foreign: Option<(usize, String)>,
}

impl PerCore {
    /// An empty batch of look-ups.
    pub fn batch(&self) -> GetBatch {
        GetBatch::new(&self.executor)
    }
}

impl GetBatch {
    pub(super) fn new(executor: &Arc<Executor>) -> GetBatch {
        let shards = (0..executor.shards()).map(|_| Some(Box::default()));
        GetBatch {
            executor: Arc::clone(executor),
            shards: shards.collect(),
            places: Vec::new(),
            replies: Arc::default(),
            taken: Vec::new(),
            snapshot: None,
            foreign: None,
        }
    }

    /// Adds a key of a table. Costs the choice of its shard and a copy of it.
    pub fn get(&mut self, table: &ShardedTable, key: impl AsRef<[u8]>) -> &mut GetBatch {
        let key = key.as_ref();
        if !table.is_of(&self.executor) && self.foreign.is_none() {
            self.foreign = Some((self.places.len(), table.table().name()));
        }
        let shard = table.shard_of(key).min(self.shards.len() - 1);
        if let Some(gets) = &mut self.shards[shard] {
            let number = gets.push(table.number, key);
            self.places.push(AnswerPlace { shard, number });
        }
        self
    }

    /// Has all keys be looked up as of `snapshot`: of all tables and shards at one moment.
    pub fn at(&mut self, snapshot: &Snapshot) -> &mut GetBatch {
        self.snapshot = Some(snapshot.clone());
        self
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Looks the keys up, and waits for the values.
    ///
    /// Without a snapshot each sees what was committed before this call. The keys of one table that
    /// one shard owns are read as of one moment; others as of moments of their own.
    ///
    /// # Errors
    ///
    /// - `MissingTable`: a table was dropped;
    /// - `Invalid`: a table is of another executor; the snapshot is of another
    ///   database, or a table was truncated after it;
    /// - `Corrupt`: a block is damaged;
    /// - `Unavailable`: a file could not be read;
    /// - `Closed`: the executor or the database was closed.
    ///
    /// After any error no value is returned.
    pub fn run(self) -> Result<FoundValues> {
        self.submit()?.wait()
    }

    /// Has the shards look the keys up, and does not wait. While the queue of a shard is full, it
    /// waits for a place in it.
    ///
    /// On the thread of a shard, as in a closure, all keys are looked up by this call: a shard
    /// waits for no other one.
    ///
    /// # Errors
    ///
    /// `Invalid`, if a table or the snapshot is of another executor or database; `Closed`. Those of
    /// look-ups come from [`PendingGets::wait`].
    pub fn submit(mut self) -> Result<PendingGets> {
        self.check()?;
        let asked = (0..self.shards.len()).map(|shard| usize::from(self.ask(shard))).sum();
        Ok(PendingGets { batch: self, asked })
    }

    fn check(&self) -> Result<()> {
        let state = &self.executor.state;
        state.check_open()?;
        if let Some((n, name)) = &self.foreign {
            let message = format!("table {name:?} of key {n} is of another executor");
            return Err(Error::invalid(message));
        }
        let is_own = |snapshot: &Snapshot| Arc::ptr_eq(&snapshot.shared, &state.shared);
        if self.snapshot.as_ref().is_some_and(|snapshot| !is_own(snapshot)) {
            return Err(Error::invalid("the snapshot is of another database than the executor"));
        }
        Ok(())
    }

    /// Asks a shard for its keys; whether it has any.
    fn ask(&mut self, shard: usize) -> bool {
        let Some(gets) = self.shards[shard].take_if(|gets| gets.len() > 0) else { return false };
        let snapshot = self.snapshot.as_ref().map(|snapshot| Arc::clone(&snapshot.registered));
        let request = GetsRequest::new(shard, gets, &self.replies, snapshot);
        if is_shard() {
            let mut server = ShardServer::new(&self.executor.state);
            request.answer(|gets, snapshot| server.look_up(gets, snapshot));
        } else {
            // A request that cannot be sent answers itself.
            drop(self.executor.send(shard, ShardRequest::Gets(request)));
        }
        true
    }

    /// The value of key `n`.
    pub(super) fn value(&self, n: usize) -> Option<&[u8]> {
        let AnswerPlace { shard, number } = *self.places.get(n)?;
        self.shards[shard].as_ref()?.value(number)
    }

    /// Forgets the keys and the snapshot, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.shards.iter_mut().flatten().for_each(|gets| gets.clear());
        self.places.clear();
        self.snapshot = None;
        self.foreign = None;
    }
}

impl std::fmt::Debug for GetBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GetBatch({} keys)", self.len())
    }
}

/// Look-ups that shards are doing. Dropping it drops what they find.
#[must_use = "the values are not known before they were waited for"]
pub struct PendingGets {
    batch: GetBatch,
    /// How many shards answer.
    asked: usize,
}

impl PendingGets {
    /// Whether all shards have answered: [`PendingGets::wait`] returns at once then.
    pub fn is_done(&self) -> bool {
        self.batch.replies.has(self.asked)
    }

    /// Waits for the values.
    ///
    /// # Errors
    ///
    /// As [`GetBatch::run`]; and `Invalid` if this is the thread of a shard and not all shards have
    /// answered.
    pub fn wait(self) -> Result<FoundValues> {
        refuse_to_wait(!self.is_done())?;
        let PendingGets { mut batch, asked } = self;
        let mut taken = std::mem::take(&mut batch.taken);
        batch.replies.take(asked, &mut taken);
        debug_assert_eq!(taken.len(), asked, "each shard answers once (invariant 2)");
        let mut outcome = Ok(());
        for reply in taken.drain(..) {
            batch.shards[reply.shard] = Some(reply.gets);
            outcome = outcome.and(reply.outcome);
        }
        batch.taken = taken;
        outcome.map(|()| FoundValues { batch })
    }
}

impl std::fmt::Debug for PendingGets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PendingGets({} keys)", self.batch.len())
    }
}

/// The values of a [`GetBatch`], by the order in which the keys were added. They lie in one buffer
/// for each shard.
pub struct FoundValues {
    batch: GetBatch,
}

impl FoundValues {
    /// How many keys the batch had.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether the batch had no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of the key that was added as number `n`, from 0 on; `None` without one.
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        self.batch.value(n)
    }

    /// All values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        (0..self.len()).map(|n| self.get(n))
    }

    /// The batch again, without keys and without a snapshot. It has kept its memory, so the next
    /// look-ups allocate nothing.
    pub fn into_batch(self) -> GetBatch {
        let mut batch = self.batch;
        batch.clear();
        batch
    }
}

impl std::fmt::Debug for FoundValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FoundValues({} keys)", self.len())
    }
}
