//! What jobs may touch, and what they hand back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::claims::Claims;
use super::manual::ManualCompactions;
use super::memory::MemoryLimit;
use super::metrics::Metrics;
use super::rate_limiter::RateLimiter;
use super::table_index::Rest;
use super::tables::Tables;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::{Failpoint, Making, Options, Tier};
use crate::base::record::{Lsn, TableId};
use crate::compaction::{Shape, Work, local_of};
use crate::os::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::time;
use crate::pindex::forest::Forest;
use crate::pm::Superblock;
use crate::table::Shared;
use crate::txn::Registry;
use crate::version::{Edit, Room, Version, VersionSet};

/// How much larger each level is than the one above.
const LEVEL_RATIO: u64 = 10;

/// Where no option says how large level 1 shall be: as many times the size of the region, or one
/// byte for so many below it if that is more. The larger, the less is written again, and the more
/// superseded versions lie about.
const LEVEL1_REGIONS: u64 = 2;
const LEVEL1_SHARE: u64 = 2;

/// The same while nothing is written: then no writer waits for the removal of such versions.
const QUIET_LEVEL1_SHARE: u64 = 16;

/// The bounds of what one compaction reads.
const LEAST_JOB: u64 = 8 << 20;
const MOST_JOB: u64 = 64 << 20;

/// The most bytes of a sublevel that a drain writes again rather than to use up another one.
const MOST_LITTLE: u64 = 128 << 10;

/// Extents of a sublevel that a drain rewrites at most.
const MOST_OVERLAP: usize = 8;

/// After so long without writes there is time to make level 1 small.
const QUIET: Duration = Duration::from_secs(1);

/// The tables of an open database and what jobs do with them.
///
/// Thread safety: every part is shared by all threads of the background; each has a lock of its
/// own, if any.
pub(crate) struct JobContext {
    pub(crate) shared: Arc<Shared>,
    pub(crate) set: Arc<VersionSet>,
    pub(crate) options: Options,
    pub(crate) tables: Tables,
    /// The persistent index of level 0, where it is kept so.
    pub(crate) forest: Option<Arc<Forest>>,
    /// As on the media.
    pub(crate) superblock: Mutex<Superblock>,
    /// Prepared transactions keep zones.
    pub(crate) transactions: Arc<Registry>,
    pub(crate) metrics: Metrics,
    /// Keys that compactions work on.
    pub(crate) claims: Claims,
    /// What calls of the user ask for.
    pub(crate) manual: ManualCompactions,
    pub(crate) rate: RateLimiter,
    pub(crate) memory: MemoryLimit,
    pub(crate) idle: Idle,
    pub(crate) object_work: ObjectWork,
    /// The table of the last compaction that the disk had no room for; 0 for none. Those behind it
    /// come first.
    pub(crate) refused: AtomicU32,
    /// What lies above levels up to here is to be drained: the log of the shared store shall not go
    /// further back.
    pub(crate) drains_upto: AtomicU64,
}

impl JobContext {
    /// What jobs of an open database may touch; it has no table yet.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        options: &Options,
        (superblock, forest): (Superblock, Option<Arc<Forest>>),
    ) -> JobContext {
        JobContext {
            shared: Arc::clone(shared),
            set: Arc::clone(&shared.set),
            options: options.clone(),
            tables: Tables::new(options.has(Failpoint::NoteBeforeRegister)),
            forest: forest.clone(),
            superblock: Mutex::new(superblock),
            transactions: Arc::default(),
            metrics: Metrics::default(),
            claims: Claims::default(),
            manual: ManualCompactions::default(),
            rate: RateLimiter::default(),
            memory: MemoryLimit::new(Arc::clone(shared), forest, options.memory_plan()),
            idle: Idle::default(),
            object_work: ObjectWork::default(),
            refused: AtomicU32::new(0),
            drains_upto: AtomicU64::new(0),
        }
    }

    /// Asks for drains of what lies above levels up to an LSN.
    pub(crate) fn drain_upto(&self, lsn: Lsn) {
        self.drains_upto.fetch_max(lsn, Ordering::AcqRel);
        self.shared.wakeup.wake();
    }

    /// A job failed, and is tried again.
    pub(crate) fn count_failure(&self, error: &Error) {
        self.metrics.failures.add(1);
        self.options.events.failure(error, false);
    }

    /// Applies an edit by which space comes free to the journal, durably. `Full` when the disk is
    /// full, and nothing was changed; any other error poisons the database.
    pub(crate) fn apply_freeing(&self, edit: Edit) -> Result<Vec<(TableId, Arc<Version>)>> {
        self.shared.apply_in(edit, Room::Freeing)
    }

    /// Shows edits of some tables that are not in the journal: a planted bug.
    pub(crate) fn adopt_unjournaled(
        &self,
        edit: &Edit,
        tables: impl Iterator<Item = TableId>,
    ) -> Result<Vec<(TableId, Arc<Version>)>> {
        self.set.adopt(edit)?;
        Ok(tables.filter_map(|id| Some((id, self.set.version(id)?))).collect())
    }

    /// Which compactions run on threads that have others to run: where there is an object store,
    /// the threads of objects have those with objects. Stepped jobs have one thread for all.
    pub(crate) fn work_of_files(&self) -> Work {
        let has_thread = self.set.store().objects().is_some() && !self.options.stepped;
        if has_thread { Work::Files } else { Work::Any }
    }

    /// Whether the database is being closed: jobs end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.gate.is_shut()
    }

    /// Makes everything committed durable and writes the floor.
    pub(crate) fn sync_floor(&self) -> Result<Lsn> {
        self.shared.committer.sync_floor()
    }

    /// Lets zones go with commits that the shared store lacks: a checkpoint will take their place.
    /// The superblock says so first. Whether it did: not beside a growth of the region, which
    /// brings room.
    pub(crate) fn let_go(&self) -> Result<bool> {
        let Some(feed) = self.shared.committer.feed() else { return Ok(false) };
        let Some(mut superblock) = self.superblock.try_lock() else { return Ok(false) };
        if superblock.kept.is_some() {
            let without = Superblock { kept: None, ..superblock.clone() };
            self.write(&mut superblock, without)?;
            let message = format!(
                "the shared store lacks commits above {}, and the region needs their space: a \
                 checkpoint will take their place",
                feed.kept()
            );
            self.count_failure(&Error::new(ErrorKind::Unavailable, message));
        }
        feed.let_go();
        Ok(true)
    }

    /// Notes that zones with commits above `lsn` are kept until the shared store has them, if that
    /// is so and this opening has not noted it yet.
    pub(crate) fn note_kept(&self, lsn: Lsn) -> Result<()> {
        let Some(feed) = self.shared.committer.feed() else { return Ok(()) };
        // A growth of the region has the superblock for long.
        if feed.is_noted() {
            return Ok(());
        }
        let mut superblock = self.superblock.lock();
        if feed.has_lost() {
            return Ok(());
        }
        if superblock.kept != Some(lsn) {
            let with = Superblock { kept: Some(lsn), ..superblock.clone() };
            self.write(&mut superblock, with)?;
        }
        feed.set_noted(true);
        Ok(())
    }

    /// Writes the superblock, and notes that. A verification reads it while all is quiet.
    pub(crate) fn write(&self, superblock: &mut Superblock, mut next: Superblock) -> Result<()> {
        let written = self.shared.committer.while_quiet(|| next.write(&self.shared.region));
        written.inspect_err(|e| self.shared.stop_because(&e.to_string()))?;
        *superblock = next;
        Ok(())
    }

    /// The floor on the media, written first where it is below `lsn`, which is visible.
    pub(crate) fn floor_from(&self, lsn: Lsn) -> Result<Lsn> {
        let there = self.shared.committer.floor_there();
        let floor = if there >= lsn { there } else { self.sync_floor()? };
        debug_assert!(floor >= there, "the floor never falls");
        debug_assert!(floor >= lsn, "what is visible is at or below a floor written for it");
        Ok(floor)
    }

    /// Bytes at which a memtable is frozen: a sixteenth of the region.
    pub(crate) fn freeze_at(&self) -> u64 {
        self.options.freeze_bytes.unwrap_or(self.shared.zones.region_len() / 16)
    }

    /// How far the database is at rest. Stepped jobs go by no clock, so they are never quiet. Nor
    /// is one quiet whose writers wait for space: making level 1 small would come before drains.
    pub(crate) fn rest(&self) -> Rest {
        let may_be_quiet = || !self.options.stepped && !self.shared.zones.keeps_waiting();
        match self.idle.since(self.shared.committer.visible()) {
            None => Rest::Busy,
            Some(since) if time::since(since) >= QUIET && may_be_quiet() => Rest::Quiet,
            Some(_) => Rest::Resting,
        }
    }

    /// Whether there is time for what no reader or writer waits for. Stepped jobs are never quiet:
    /// theirs is at rest.
    pub(crate) fn is_idle(&self) -> bool {
        match self.rest() {
            Rest::Busy => false,
            Rest::Resting => self.options.stepped,
            Rest::Quiet => true,
        }
    }

    /// How large levels and extents shall be.
    pub(crate) fn shape(&self) -> Shape {
        self.shape_at(self.rest())
    }

    /// The same while the database rests so much.
    pub(super) fn shape_at(&self, rest: Rest) -> Shape {
        let (level1, region) = (self.options.level1_size, self.shared.zones.region_len());
        let (bytes, share) = match rest {
            Rest::Quiet => (0, QUIET_LEVEL1_SHARE),
            _ => (region * LEVEL1_REGIONS, LEVEL1_SHARE),
        };
        Shape {
            level1_bytes: level1.unwrap_or(bytes),
            level1_share: level1.is_none().then_some(share),
            job_bytes: (region * 4).clamp(LEAST_JOB, MOST_JOB),
            ratio: LEVEL_RATIO,
            little_bytes: (region / 64).min(MOST_LITTLE),
            overlap: MOST_OVERLAP,
            extent_bytes: self.set.store().memory().extent_bytes(),
            compression: self.options.compression,
            reuse: self.options.reuse,
            fills: self.memory.drains_fill(),
            has_objects: self.writes_objects(),
            stays_far: self.options.stays_far || self.takes_over(),
            local_room: self.local_room(),
            drops_tombstones: self.options.has(Failpoint::PruneTombstones),
            forgets_below: self.options.has(Failpoint::ForgetBelow),
            deletes_early: self.options.has(Failpoint::DeleteBeforeEdit),
        }
    }
}

impl JobContext {
    /// Whether there is an object store, and jobs may write to it. A node replaces its
    /// database at each start from a checkpoint, and a takeover does until its claim. Nothing would
    /// remove the old one's objects.
    fn writes_objects(&self) -> bool {
        let has_store = self.set.store().objects().is_some();
        has_store && self.options.follows.is_none() && !self.takes_over()
    }

    /// Whether this is a takeover that has not claimed the log yet.
    pub(crate) fn takes_over(&self) -> bool {
        self.options.making == Some(Making::Takeover)
    }

    /// How many bytes more of what belongs into objects may lie on this machine.
    fn local_room(&self) -> Option<i64> {
        let most = self.options.object_cache;
        if most == 0 || !self.writes_objects() {
            return None;
        }
        let views = self.tables.all().into_iter().map(|table| table.view());
        let cold = views.filter(|view| view.version.options.cold == Tier::Object);
        let local: u64 = cold.map(|view| local_of(&view.version)).sum();
        Some(most as i64 - local as i64)
    }
}

/// Since when the database is at rest, and what was visible then.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<Option<(Lsn, Instant)>>);

impl Idle {
    /// Since when there has been nothing to do, if nothing was written since: `visible` is the
    /// last commit.
    fn since(&self, visible: Lsn) -> Option<Instant> {
        self.0.lock().filter(|(lsn, _)| *lsn == visible).map(|(_, since)| since)
    }

    /// Nothing is left to do, or nothing was written yet, from now on.
    pub(crate) fn begin(&self, visible: Lsn) {
        let mut idle = self.0.lock();
        debug_assert!(idle.is_none_or(|(lsn, _)| lsn <= visible), "commits never go back");
        *idle = Some((visible, time::now()));
    }
}

/// How the work on objects goes.
///
/// Thread safety: the mutex is held for a few instructions.
#[derive(Debug, Default)]
pub(crate) struct ObjectWork {
    /// Compactions with objects that are under way.
    pub(crate) running: AtomicU32,
    /// Why the last job ended that failed, if none has succeeded since.
    failure: Mutex<Option<String>>,
}

impl ObjectWork {
    /// A job failed, since the store did.
    pub(crate) fn failed(&self, error: &Error) {
        *self.failure.lock() = Some(error.to_string());
    }

    /// A job succeeded.
    pub(crate) fn succeeded(&self) {
        *self.failure.lock() = None;
    }

    /// Why jobs fail, if they do.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}

/// How many zones a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Batch {
    /// Many, so that they share its syncs.
    Large,
    /// As many as there are.
    Any,
}

/// What drains moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrainedBytes {
    /// Bytes of level 0.
    pub(crate) level0: u64,
    /// Bytes of runs.
    pub(crate) runs: u64,
    /// Bytes that level 1 has more for it.
    pub(crate) added: u64,
    /// Time since the drain before it, where one followed the other.
    pub(crate) took: Duration,
}

/// What a job did, for the scheduler's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether it did anything: else the next job has its turn.
    pub(crate) did: bool,
    /// Bytes of superseded records that level 0 drops.
    pub(crate) pruned: u64,
    pub(crate) drained: Option<DrainedBytes>,
    /// Bytes that a compaction took out of level 1.
    pub(crate) left_level1: Option<u64>,
    /// How long a compaction rested for its rate.
    pub(crate) waited: Duration,
}

impl Outcome {
    /// There was nothing to do after all.
    pub(crate) const NOTHING: Outcome =
        Outcome { did: false, pruned: 0, drained: None, left_level1: None, waited: Duration::ZERO };

    /// Something was done.
    pub(crate) const DONE: Outcome = Outcome { did: true, ..Outcome::NOTHING };

    /// Whether something was done.
    pub(crate) fn did(did: bool) -> Outcome {
        Outcome { did, ..Outcome::NOTHING }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Database;
    use crate::pm::alloc::{Frees, Link};

    /// Bug: writers that waited for space at an opening waited until level 1 was small. Cause: a
    /// database without commits was quiet, though writers waited. Fix: with such writers it is not.
    #[test]
    fn a_database_whose_writers_wait_for_space_is_not_quiet() {
        let dir = tempfile::tempdir().unwrap();
        let db: Database = Options::new().pm_size(2 << 20).stepped().create(dir.path()).unwrap();
        // As the background sees it that has threads.
        let (of_steps, options) = (&db.inner.ctx, Options::new());
        let superblock = of_steps.superblock.lock().clone();
        let ctx = JobContext::new(&of_steps.shared, &options, (superblock, None));
        let begin = || {
            let long_ago = time::now().checked_sub(2 * QUIET).unwrap();
            *ctx.idle.0.lock() = Some((ctx.shared.committer.visible(), long_ago));
        };
        begin();
        assert_eq!(ctx.rest(), Rest::Quiet);
        assert_eq!(ctx.shape().level1_share, Some(QUIET_LEVEL1_SHARE));
        let frees = Frees::Nothing;
        let units = ctx.shared.zones.geometry().units.next_power_of_two();
        let all = Link { stream: 1, ordinal: 9, incarnation: 1, units, least: units, frees };
        ctx.shared.zones.link(&all).unwrap_err();
        assert_eq!(ctx.rest(), Rest::Resting);
        assert_eq!(ctx.shape().level1_share, Some(LEVEL1_SHARE));
    }
}
