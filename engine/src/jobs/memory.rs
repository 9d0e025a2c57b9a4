//! The one memory limit. The image of the region comes first, with the locks of a persistent index;
//! it is as large as it is. What that leaves of the limit is the **room**. Shares, and what holds
//! each:
//!
//! - a quarter of the room, a fifth where there is an object store, or what as many jobs can use as
//!   there are threads for: **jobs**, what
//!   drains and compactions read and are about to write. Extents are cut at an eighth of it (64 KiB
//!   to 2 MiB). A job reads ahead a sixteenth of it (4 MiB at most) on each side of a merge. So two
//!   fit at a time, and no more compact beside each other than fit ([`MemoryLimit::most_workers`]);
//! - a sixteenth of the room where there is an object store: what jobs read ahead of **objects**
//!   beyond that. A request takes so long that several have to be under way;
//! - an eighteenth of the room for each job with objects: what it has on its way to the store or
//!   from it;
//! - a quarter of the room: **indexes** of memtables and level 0. As they come near it drains begin
//!   and writers are slowed down, as if the region were filling (`pacing.rs`);
//! - an eighth of the limit: **row locks**. No more are given;
//! - a sixteenth of the limit: what **transactions** have written. They spill;
//! - a thirty-second of the limit: chunks of **ranges**. The next ones are shorter;
//! - a sixteenth of the limit: what was taken since all was counted last.
//!
//! The cache and the filters have what the other parts leave of this, but for the jobs' share and
//! the last. The filters have half of it at most: those of extents that are not read go
//! (`sstable/reader/slot.rs`), and blocks leave the cache. So both give way as the others grow, and
//! grow again. Of what the cache has, long ranges take up to a quarter for what they read ahead, or
//! half where there is an object store.
//! The balance is made at each look of the background around itself, and after each of its jobs;
//! the cache leaves filters what they may grow by from one look to the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::base::options::{MemoryPlan, Mode, Options};
use crate::os::sync::atomic::Ordering::Relaxed;
use crate::os::sync::atomic::{AtomicU64, AtomicUsize};
use crate::os::sync::locks::Mutex;
use crate::os::{Pressure, give_back_freed, memory_pressure, time};
use crate::pindex::forest::Forest;
use crate::pm::Geometry;
use crate::storage::{EXTENT_BYTES, MOST_SENT};
use crate::table::Shared;

/// So many threads work on objects.
pub(crate) const OBJECT_THREADS: usize = 2;

/// One part of so many of the limit is for what is held for a moment.
const SLACK: u64 = 16;

/// And so many at most for row locks, for which the cache gives way.
const LOCKS: u64 = 8;

/// So many for the chunks of ranges, before they become shorter.
const ITERATORS: u64 = 32;

/// A node of a persistent index takes so many times the bytes of its lock.
const NODES_TO_LOCKS: u64 = 64;

/// One part of so many of the room is for jobs, without an object store and with one,
const JOBS: u64 = 4;
const JOBS_WITH_OBJECTS: u64 = 5;

/// One part of so many is for the indexes of memtables and level 0.
const INDEXES: u64 = 4;

/// Of the jobs' share an extent has one part of so many: it lies in memory, and perhaps a value
/// extent beside it,
const EXTENT: u64 = 8;

/// and what is read ahead on one side of a merge has one of so many, as far as that is of use.
const AHEAD: u64 = 16;
const MOST_AHEAD: u64 = 4 << 20;

/// One part of so many of the room is for what jobs read ahead of objects beside that, on so many
/// sides of merges.
const OBJECTS: u64 = 16;
const SIDES: u64 = 4;

/// One part of so many of the room is for what one job has on its way to an object store: two
/// extents with what lies beside them. Else a merge waits for each object that it sends. Without an
/// object store extents are longer, and a backup sends them into a bucket.
const SENDS: u64 = 18;
const SENDS_OF_BACKUPS: u64 = 15;

/// The least that extents are cut at, and the most.
const LEAST_EXTENT: u64 = 64 << 10;
const MOST_EXTENT: u64 = EXTENT_BYTES as u64;

/// So many jobs are under way at a time at least: a compaction, and a drain between two of its
/// extents.
const LEAST_JOBS: u64 = 2;

/// A limit that follows the machine is at least this.
const LEAST_AUTOMATIC: u64 = 8 << 20;

/// Under a limit of more what was freed stays with the heap: to look for it takes as long as there
/// are pieces of it, and threads that need memory wait meanwhile.
const MOST_GIVEN_BACK: u64 = 1 << 30;

/// What the database holds in memory, in bytes.
///
/// Each number is kept where memory is taken and given back, so what an old view, a running job or
/// an idle iterator holds is in it. Under [`Options::memory`](crate::Options::memory) the sum stays
/// within the limit; the share that bounds each part is named with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// The limit; 0 without one.
    pub limit: u64,
    /// The image of the region, in `file` mode: all of the region. With a persistent index also the
    /// locks of its nodes, a sixty-fourth of what the index takes.
    pub region: u64,
    /// Indexes over the records of the region, in memtables and level 0, and their range deletes,
    /// as long as a reader has them. Within a quarter of what the region leaves of the limit:
    /// writers are slowed down as they come near it.
    pub indexes: u64,
    /// Block indexes, filters and range deletes of extents that are in memory. Within half of what
    /// they and the cache have together: those that are not read are let go of, and are read again
    /// when they are needed.
    pub filters: u64,
    /// Descriptions of extents: where each lies, its first and its last key, what values it refers
    /// to. Some hundred bytes an extent, which by default is up to 2 MiB; as many as there are.
    pub extents: u64,
    /// What transactions have written and not committed, without what is on disk, and the extents
    /// under way of bulk loads. Transactions spill when they have a sixteenth of the limit.
    pub writes: u64,
    /// Row locks, and what optimistic transactions have to find unchanged: transactions with some
    /// dozens of locks or more. No more than an eighth of the limit.
    pub locks: u64,
    /// What ranges have read ahead: at most a sixteenth of the cache, or under a limit up to a
    /// quarter of what it and the cache have together. With an object store it is up to a quarter
    /// of the cache, or half of both.
    pub read_ahead: u64,
    /// Rows that iterators have read and not given out, and those given out that are still held: a
    /// chunk from each end of a range, of 256 KiB and a row at most. Of 16 KiB and a row where all
    /// of them hold a thirty-second of the limit. All iterators together are bounded by how many
    /// there are, and by nothing else.
    pub iterators: u64,
    /// What drains, compactions and spilling transactions have read ahead and are about to write.
    /// They take up to 17 MiB each, within a quarter of what the region leaves of the limit, or a
    /// fifth with an object store. Where
    /// that is little, extents are smaller, reads shorter and jobs fewer at a time. Beside that
    /// what is on its way to an object store, and what a backup or a verification reads.
    pub jobs: u64,
    /// Blocks in the cache, and memory that it keeps for the next ones.
    pub cache: u64,
    /// The most that the cache may hold now: what all others leave, and what jobs may take.
    pub cache_capacity: u64,
}

impl MemoryStats {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.apart_from_shares() + self.filters + self.jobs + self.cache
    }

    /// What is not the cache's, the filters' or of jobs.
    fn apart_from_shares(&self) -> u64 {
        let MemoryStats { region, indexes, extents, writes, locks, .. } = self;
        region + indexes + extents + writes + locks + self.read_ahead + self.iterators
    }
}

/// The most that transactions may have written, in memory, under a limit.
pub(crate) fn of_writes(limit: Option<u64>) -> usize {
    part(limit, SLACK)
}

/// The most that their row locks may take.
pub(crate) fn of_locks(limit: Option<u64>) -> usize {
    part(limit, LOCKS)
}

fn part(limit: Option<u64>, of: u64) -> usize {
    let most = limit.map_or(u64::MAX, |limit| limit / of);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// What a job may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    /// Where it cuts extents.
    extent: u64,
    /// What it reads ahead on one side of a merge.
    ahead: u64,
}

impl Job {
    /// The largest.
    const MOST: Job = Job { extent: MOST_EXTENT, ahead: MOST_AHEAD };

    /// One of two that have `share` together.
    fn within(share: u64) -> Job {
        let extent = (share / EXTENT).clamp(LEAST_EXTENT, MOST_EXTENT);
        Job { extent, ahead: (share / AHEAD).min(MOST_AHEAD) }
    }

    /// The most bytes that it holds, beside a record: a buffer for an extent, which may have grown,
    /// with what lies beside it, a value extent, and two sides of a merge. Their pieces may be half
    /// as long again at the ends of extents.
    const fn bytes(self) -> u64 {
        self.extent * 19 / 16 * 17 / 16 + self.extent + 2 * self.ahead * 3 / 2
    }
}

/// The shares of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    limit: u64,
    slack: u64,
    jobs: u64,
    /// What jobs read ahead of objects beside their share.
    objects: u64,
    /// What each job with objects has on its way to their store, beside that.
    sends: u64,
    indexes: u64,
}

impl Shares {
    /// Of a limit of which the region takes some, with as many jobs at a time as `threads`.
    fn new(limit: u64, region: u64, (threads, has_objects): (u64, bool)) -> Shares {
        let room = limit.saturating_sub(region);
        let of_room = if has_objects { JOBS_WITH_OBJECTS } else { JOBS };
        let jobs = (room / of_room).min(threads.max(LEAST_JOBS).saturating_mul(Job::MOST.bytes()));
        let objects = if has_objects { (room / OBJECTS).min(SIDES * MOST_AHEAD) } else { 0 };
        let of_room = if has_objects { SENDS } else { SENDS_OF_BACKUPS };
        let sends = (room / of_room).min(MOST_SENT);
        let (slack, indexes) = (limit / SLACK, room / INDEXES);
        let shares = Shares { limit, slack, jobs, objects, sends, indexes };
        debug_assert!(shares.fit_beside(region), "shares and the region fit: {shares:?}");
        shares
    }

    /// Whether what is shared out and the region are no more than the limit, where the region is.
    fn fit_beside(&self, region: u64) -> bool {
        self.of_jobs() + self.indexes + region <= self.limit.max(region)
    }

    /// All that jobs may hold.
    fn of_jobs(&self) -> u64 {
        let senders = if self.objects > 0 { OBJECT_THREADS as u64 } else { 0 };
        self.jobs + self.objects + senders * self.sends
    }

    /// What a job reads ahead of objects, on one side of a merge.
    fn object_ahead(&self) -> u64 {
        (Job::within(self.jobs).ahead + self.objects / SIDES).min(MOST_AHEAD)
    }

    /// What is left for the cache, the filters and what ranges read ahead beside what is held of
    /// all else, and what transactions may write before the next look: half of their share.
    fn left_by(&self, memory: &MemoryStats) -> u64 {
        let soon = (self.slack / 2).saturating_sub(memory.writes);
        let apart = memory.apart_from_shares() - memory.read_ahead;
        let others = apart + soon + memory.jobs.max(self.of_jobs());
        self.limit.saturating_sub(self.slack + others)
    }
}

/// What bounds all parts together.
enum Limit {
    /// Nothing does.
    None,
    /// The caller named it.
    Named(u64),
    /// It follows the machine.
    Automatic(AutomaticLimit),
}

/// The limit, and the parts of the database that it bounds.
///
/// Thread safety: every method may be called from any thread.
pub(crate) struct MemoryLimit {
    shared: Arc<Shared>,
    index: Option<Arc<Forest>>,
    limit: Limit,
    /// How many jobs may run at a time.
    threads: AtomicU64,
    /// Bytes read and written when the heap last gave back what was freed.
    moved_before_giving_back: AtomicU64,
}

impl MemoryLimit {
    /// The limit of a database, if it has one.
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: Option<Arc<Forest>>,
        plan: MemoryPlan,
    ) -> MemoryLimit {
        let limit = match plan {
            MemoryPlan::Cache(_) => Limit::None,
            MemoryPlan::Limit(bytes) => Limit::Named(bytes),
            MemoryPlan::Automatic(share) => Limit::Automatic(AutomaticLimit::new(share)),
        };
        let (threads, moved_before_giving_back) = (AtomicU64::new(1), AtomicU64::new(0));
        MemoryLimit { shared, index, limit, threads, moved_before_giving_back }
    }

    /// Sets how many jobs may run at a time.
    pub(crate) fn set_threads(&self, threads: usize) {
        self.threads.store(threads as u64, Relaxed);
    }

    /// The limit now, if there is one. One that follows the machine is never below what leaves
    /// blocks and jobs as much as the region and the indexes take.
    fn limit(&self) -> Option<u64> {
        match &self.limit {
            Limit::None => None,
            Limit::Named(bytes) => Some(*bytes),
            Limit::Automatic(limit) => {
                let fixed = self.image_bytes() + self.shared.region.indexes().bytes();
                Some(limit.bytes().max(2 * fixed).max(LEAST_AUTOMATIC))
            }
        }
    }

    /// What is held at this moment.
    pub(crate) fn held(&self) -> MemoryStats {
        let (region, held) = (&self.shared.region, self.shared.set.store().memory());
        MemoryStats {
            limit: self.limit().unwrap_or(0),
            region: self.image_bytes(),
            indexes: region.indexes().bytes(),
            filters: held.parts.bytes(),
            extents: held.descriptions.bytes(),
            writes: self.shared.write_memory.taken() as u64,
            locks: self.shared.locks.memory() as u64,
            read_ahead: held.ahead.bytes(),
            iterators: held.iterators.bytes(),
            jobs: held.jobs.bytes(),
            cache: self.shared.cache.taken(),
            cache_capacity: self.shared.cache.capacity(),
        }
    }

    /// What the region's image takes, and the locks of a persistent index.
    fn image_bytes(&self) -> u64 {
        let region = &self.shared.region;
        let image = if region.mode() == "file" { region.len() } else { 0 };
        image + self.index.as_ref().map_or(0, |index| index.memory().bytes())
    }

    /// What it takes once the region has grown, and all nodes of the index were touched.
    fn most_image_bytes(&self) -> u64 {
        let (region, zones) = (&self.shared.region, &self.shared.zones);
        let image = if region.mode() == "file" { zones.region_len().max(region.len()) } else { 0 };
        let locks =
            |index: &Arc<Forest>| index.memory().bytes().max(index.bytes() / NODES_TO_LOCKS);
        image + self.index.as_ref().map_or(0, locks)
    }

    fn has_objects(&self) -> bool {
        self.shared.set.store().objects().is_some()
    }

    fn shares(&self) -> Option<Shares> {
        let has_objects = self.has_objects();
        let of_objects = if has_objects { OBJECT_THREADS as u64 } else { 0 };
        let jobs = (self.threads.load(Relaxed) + of_objects, has_objects);
        self.limit().map(|limit| Shares::new(limit, self.most_image_bytes(), jobs))
    }

    /// The most that the indexes of memtables and level 0 should take; `None` without a limit. What
    /// they take without any record is beside it.
    pub(crate) fn most_indexes(&self) -> Option<u64> {
        self.shares().map(|shares| shares.indexes)
    }

    /// How many threads may compact beside the background's own.
    pub(crate) fn most_workers(&self) -> usize {
        let Some(shares) = self.shares() else { return usize::MAX };
        let at_a_time = (shares.jobs / Job::within(shares.jobs).bytes()).max(LEAST_JOBS);
        usize::try_from(at_a_time - 1).unwrap_or(usize::MAX)
    }

    /// Gives filters and cache what the limit leaves them, and jobs their bounds.
    pub(crate) fn balance(&self) {
        let is_short = matches!(&self.limit, Limit::Automatic(limit) if limit.follow_machine());
        let Some(shares) = self.shares() else { return };
        let held = self.shared.set.store().memory();
        let job = Job::within(shares.jobs);
        held.set_job(job.extent, (job.ahead, shares.object_ahead()), shares.sends);
        held.set_most_iterators(shares.limit / ITERATORS);
        let left = shares.left_by(&self.held());
        // So that they do not outgrow the limit before the next look. Where some had to go already
        // there is room for twice as many, since one extent may have more than that. The room
        // shrinks step by step when no reader asks for it, as looks may follow each other at once.
        let growth = shares.slack / 4;
        let clock = &held.clock;
        let before = Some(clock.most()).filter(|most| *most < u64::MAX).unwrap_or(0);
        let room = if clock.was_short() { before * 2 } else { before - before / 64 };
        clock.set_most(room.max(clock.kept() + growth).min(left / 2));
        // Some that were let go of may still be looked into.
        let gone = held.parts.bytes().saturating_sub(held.clock.kept());
        let left = left.saturating_sub(held.clock.most() + gone);
        let left = left.saturating_sub(held.share_ahead(left, self.has_objects()));
        // In steps: not for every page more or less.
        let (left, now) = (left / growth.max(1) * growth, self.shared.cache.capacity());
        if left < now || left - now > shares.slack {
            self.shared.cache.set_capacity(left);
        }
        if is_short {
            give_back_freed();
        }
        self.give_back_freed(shares.limit);
    }

    /// Has the heap give back what was freed, each time that as much as the limit was read and
    /// written: else the process comes to hold up to twice what is counted here.
    fn give_back_freed(&self, limit: u64) {
        let (store, before) = (self.shared.set.store(), &self.moved_before_giving_back);
        let moved = store.bytes_read() + store.bytes_written();
        let last = before.load(Relaxed);
        if limit <= MOST_GIVEN_BACK
            && moved.saturating_sub(last) >= limit
            && before.compare_exchange(last, moved, Relaxed, Relaxed).is_ok()
        {
            give_back_freed();
        }
    }

    /// Whether what drains write may enter the cache. Under a limit that grows and gives way as
    /// jobs come and go; if it cannot hold all there is, drains would fill it each time.
    pub(crate) fn drains_fill(&self) -> bool {
        let taken = self.shared.set.store().space().taken_bytes;
        matches!(self.limit, Limit::None) || taken <= self.shared.cache.capacity()
    }

    /// Refuses a limit that leaves the cache nothing worth having.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(limit) = self.limit() else { return Ok(()) };
        let memory = self.held();
        // The shares leave out the region that is to come, and so does this.
        let region = match self.limit {
            Limit::Named(_) => self.most_image_bytes(),
            _ => memory.region,
        };
        check_limit(limit, region + memory.indexes)?;
        self.balance();
        Ok(())
    }
}

/// Refuses a limit that leaves a database that is still to be created nothing worth having.
pub(crate) fn check_new(options: &Options) -> Result<()> {
    let image = match options.mode {
        Mode::File => Geometry::for_size(options.pm_size).region_len(),
        Mode::Dax | Mode::Emulated { .. } => 0,
    };
    match options.memory_plan() {
        MemoryPlan::Limit(limit) => check_limit(limit, image),
        MemoryPlan::Automatic(_) | MemoryPlan::Cache(_) => Ok(()),
    }
}

/// Of the limit, `fixed` bytes are taken by region and indexes.
fn check_limit(limit: u64, fixed: u64) -> Result<()> {
    if fixed + limit / 4 <= limit {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a memory limit of {limit} bytes is too low: region and indexes take {fixed} bytes, and a \
         quarter of it is for blocks and jobs; set at least {}, or create the database with a \
         smaller region (pm_size)",
        fixed / 3 * 4 + 4
    )))
}

// The memory limit of a database whose options name none: a quarter of what the process may use,
// shared by all such databases of the process, and less while the machine is short of memory.
//
// The limit bounds what the database may take. It takes nothing before it needs it.
//
// Thread safety: every method may be called from any thread.
//
// Invariants:
//
// 1. `SHARING` is the number of these limits that exist.
// 2. The limit is never above the share, and falls below an eighth of it only where more databases
//    share.
//
// Sources: WiredTiger's default cache (half of the memory) and `innodb_dedicated_server`, for the
// share; the kernel's pressure stall information, for when to give back.

/// The limits of this kind that exist in the process.
static SHARING: AtomicUsize = AtomicUsize::new(0);

/// Pressure is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Under pressure the limit falls by one part of so many at each look,
const FALL: u64 = 16;

/// to no less than one of so many,
const LEAST: u64 = 8;

/// and where there is enough it rises by one of so many.
const RISE: u64 = 64;

/// A limit that follows the machine.
#[derive(Debug)]
pub(crate) struct AutomaticLimit {
    /// All such databases together, where memory is not short.
    share: u64,
    /// All such databases together, now.
    now: AtomicU64,
    looked: Mutex<Instant>,
}

impl AutomaticLimit {
    /// A limit of at most `share` bytes.
    pub(crate) fn new(share: u64) -> AutomaticLimit {
        SHARING.fetch_add(1, Relaxed);
        AutomaticLimit { share, now: AtomicU64::new(share), looked: Mutex::new(time::now()) }
    }

    /// The limit of one database, now.
    pub(crate) fn bytes(&self) -> u64 {
        self.now.load(Relaxed) / SHARING.load(Relaxed).max(1) as u64
    }

    /// Looks at the machine, if it is time; whether memory is to be given back.
    pub(crate) fn follow_machine(&self) -> bool {
        let Some(mut looked) = self.looked.try_lock() else { return false };
        let now = time::now();
        if !is_due(*looked, now) {
            return false;
        }
        *looked = now;
        self.follow(memory_pressure())
    }

    fn follow(&self, pressure: Pressure) -> bool {
        let now = self.now.load(Relaxed);
        let next = match pressure {
            Pressure::Short => (now - now / FALL).max(self.share / LEAST),
            Pressure::Tight => now,
            Pressure::Enough => (now + self.share / RISE).min(self.share),
        };
        debug_assert!(next <= self.share && next >= self.share / LEAST, "invariant 2");
        self.now.store(next, Relaxed);
        pressure == Pressure::Short
    }
}

/// Whether it is time to look at the machine, at `now`, after a look at `last`.
fn is_due(last: Instant, now: Instant) -> bool {
    now.duration_since(last) >= LOOK_EVERY
}

impl Drop for AutomaticLimit {
    fn drop(&mut self) {
        let before = SHARING.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "each limit was counted (invariant 1)");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests;
