//! What a reader pins: one consistent set of memtables, level 0, and a version with its D.

mod ranges;

use std::ops::Deref;
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::operator::TableOperator;
use crate::base::record::{Cursor, Kind, LSN_MAX, Lsn, MergingCursor, OperandList};
use crate::level0::Level0;
use crate::memtable::{Memtable, Record};
use crate::mvcc::KeyInterval;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::read::buffered::{BufferedCursor, clip};
use crate::sstable::{BlockCache, Blocks, Found, ReadAhead};
use crate::version::{Level, ReadRun, Version};

pub(crate) use ranges::RangeTombstones;

/// A memtable that takes no new groups.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) memtable: Arc<Memtable>,
    /// The greatest LSN it can hold. All of it is there once the visible watermark has passed.
    pub(crate) boundary: Lsn,
}

/// Tells the range tombstones in memory from those of another moment: there may be as many again
/// when some have gone and others came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeDeletes {
    pub(crate) count: u64,
    /// The greatest sequence number; 0 without any.
    pub(crate) newest: Lsn,
}

/// An immutable view of one table. Replaced as a whole, never changed.
///
/// Invariants:
///
/// 1. Newer comes first: active, frozen from the newest, level 0, level 1, …: the first of them
///    that has a version of a key at or below a read's LSN has the right one. Runs alone have no
///    place in this order: they are newer than the levels where they count, and may be older or
///    newer than any memtable and level 0.
/// 2. A record of level 0 counts if and only if its sequence number is above D of its key, and
///    then it is in no level of the version.
/// 3. A range tombstone hides every older version of its keys, wherever either lies; it lies in
///    no deeper place than they do.
/// 4. Versions that only reads below `pruned` could need may be missing, unless a registered
///    snapshot needs them.
/// 5. A run is joining or of the version from before its commit has a ticket until it is drained.
///    Nothing is drained at or above the LSN of one that is joining.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// The newest first.
    pub(crate) frozen: Vec<Frozen>,
    pub(crate) level0: Arc<Level0>,
    /// Runs whose commits the journal does not know of yet.
    pub(crate) pending_runs: Vec<PendingRun>,
    pub(crate) version: Arc<Version>,
    /// Whether the version has objects: reads may need something of the object store.
    pub(crate) is_remote: bool,
    /// What merges operands.
    pub(crate) operator: TableOperator,
    pub(crate) pruned: Lsn,
}

/// A view while an epoch is pinned, with the blocks that are lent until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PinnedView<'a> {
    pub(crate) view: &'a View,
    pub(crate) blocks: Blocks<'a>,
}

impl Deref for PinnedView<'_> {
    type Target = View;

    fn deref(&self) -> &View {
        self.view
    }
}

impl View {
    /// Has it show another version.
    pub(crate) fn show(&mut self, version: Arc<Version>) {
        (self.is_remote, self.version) = (version.has_objects(), version);
    }

    /// One cursor over everything in the view, for the user that `ahead` is of. The caller holds an
    /// epoch guard while it lives.
    pub(crate) fn cursor<'a>(
        &'a self,
        cache: &Arc<BlockCache>,
        ahead: &Arc<ReadAhead>,
    ) -> MergingCursor<'a> {
        let mut inputs = self.in_memory();
        for run in self.runs() {
            inputs.push(Box::new(run.cursor(&self.version.drained, cache, ahead)));
        }
        for level in self.version.cursors(cache, ahead) {
            inputs.push(Box::new(level));
        }
        ahead.goes_through(inputs.len());
        MergingCursor::new(inputs)
    }

    /// One over memory, and what runs and levels may have above `since` in `interval`.
    pub(crate) fn cursor_above<'a>(
        &'a self,
        interval: &KeyInterval,
        since: Lsn,
        (cache, ahead): (&Arc<BlockCache>, &Arc<ReadAhead>),
    ) -> MergingCursor<'a> {
        let mut inputs = self.in_memory();
        for run in self.runs().filter(|run| run.lsn > since) {
            inputs.push(Box::new(run.cursor(&self.version.drained, cache, ahead)));
        }
        for level in self.version.cursors_above(interval, since, cache, ahead) {
            inputs.push(Box::new(level));
        }
        ahead.goes_through(inputs.len());
        MergingCursor::new(inputs)
    }

    /// One over memtables, level 0 and runs, up to `at`. No epoch is pinned between its steps: the
    /// caller has a hold from before it loaded the view.
    pub(crate) fn cursor_above_levels<'a>(
        &'a self,
        at: Lsn,
        cache: &Arc<BlockCache>,
        ahead: &Arc<ReadAhead>,
    ) -> MergingCursor<'a> {
        let memory = BufferedCursor::new(move || {
            Box::new(clip(MergingCursor::new(self.in_memory()), KeyInterval::all(), at))
        });
        let mut inputs: Vec<Box<dyn Cursor + 'a>> = vec![Box::new(memory)];
        for run in self.runs().filter(|run| run.lsn <= at) {
            inputs.push(Box::new(run.cursor(&self.version.drained, cache, ahead)));
        }
        MergingCursor::new(inputs)
    }

    fn in_memory<'a>(&'a self) -> Vec<Box<dyn Cursor + 'a>> {
        let mut inputs: Vec<Box<dyn Cursor + 'a>> = Vec::with_capacity(4 + self.frozen.len());
        inputs.push(Box::new(self.active.cursor()));
        for frozen in &self.frozen {
            inputs.push(Box::new(frozen.memtable.cursor()));
        }
        inputs.push(self.level0.cursor(&self.version.drained));
        inputs
    }

    /// Whether reads have to look at runs.
    pub(crate) fn has_runs(&self) -> bool {
        !self.version.runs.is_empty() || !self.pending_runs.is_empty()
    }

    /// The runs that have their LSN.
    pub(crate) fn runs(&self) -> impl Iterator<Item = ReadRun<'_>> {
        let joining = self.pending_runs.iter().filter_map(PendingRun::as_read);
        joining.chain(self.version.runs.iter().map(|run| run.as_read()))
    }

    /// What the newest run says of `key` of those above the LSN `above` and at or below `at`.
    pub(crate) fn newest_in_runs<'g>(
        &self,
        key: &[u8],
        mut above: Lsn,
        at: Lsn,
        blocks: Blocks<'g>,
    ) -> Result<Option<Found<'g>>> {
        let mut newest = None;
        for run in self.runs().filter(|run| run.lsn <= at) {
            if run.lsn > above
                && let Some(found) = run.get(key, &self.version.drained, blocks)?
            {
                above = run.lsn;
                newest = Some(found);
            }
        }
        Ok(newest)
    }

    /// Drains stay below this (invariant 5).
    pub(crate) fn drains_below(&self) -> Lsn {
        self.pending_runs.iter().filter_map(|run| run.lsn.get()).min().unwrap_or(Lsn::MAX)
    }

    /// Records in memtables that are not in level 0 yet.
    pub(crate) fn memtable_records(&self) -> u64 {
        let frozen: u64 = self.frozen.iter().map(|f| f.memtable.records()).sum();
        self.active.records() + frozen
    }

    /// Of these, deletes of one key.
    pub(crate) fn memtable_deletes(&self) -> u64 {
        self.memtables().map(|memtable| memtable.deletes()).sum()
    }

    /// Range tombstones in memtables and level 0.
    pub(crate) fn range_deletes(&self) -> RangeDeletes {
        let memtables = self.memtables().filter_map(|memtable| memtable.tombstones());
        let sets = memtables.chain(self.level0.tombstones.load());
        sets.fold(RangeDeletes::default(), |all, set| RangeDeletes {
            count: all.count + set.len() as u64,
            newest: all.newest.max(set.newest()),
        })
    }

    fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.frozen.iter().map(|f| &f.memtable).chain([&self.active])
    }

    /// The sequence number of the newest version of a key that a memtable has.
    pub(crate) fn newest_in_memtables(&self, key: &[u8]) -> Option<Lsn> {
        self.memtables().filter_map(|m| m.get(key, LSN_MAX)).map(|record| record.seq).max()
    }

    /// The newest version of `key` at or below `at` in memtables and level 0. The newest place that
    /// has one decides (invariant 1).
    #[inline(always)]
    pub(crate) fn newest_in_memory(&self, key: &[u8], at: Lsn) -> Result<Option<Record<'_>>> {
        let in_frozen = || self.frozen.iter().find_map(|frozen| frozen.memtable.get(key, at));
        match self.active.get(key, at).or_else(in_frozen) {
            None => self.level0.get(key, at, &self.version.drained),
            found => Ok(found),
        }
    }

    /// About how many records of operands of a key lie in memory, over its newest value there.
    pub(crate) fn operands_in_memory(&self, key: &[u8]) -> Result<u8> {
        let newest = self.newest_in_memory(key, LSN_MAX)?;
        let operands = newest.filter(|record| record.kind == Kind::Merge);
        let chain = operands.and_then(|record| OperandList::decode(record.value));
        Ok(chain.map_or(0, |chain| chain.depth))
    }

    /// Whether a read can find the record at `at`.
    pub(crate) fn holds(&self, record: &Record<'_>, at: u64) -> Result<bool> {
        Ok(self.level0.holds(record, at)? || self.memtables().any(|m| m.holds(record, at)))
    }

    /// Has a record be found at `to`, where it was copied to, instead of `from`; whether it was
    /// there. No merge may run meanwhile.
    pub(crate) fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> Result<bool> {
        Ok(self.level0.relocate(record, from, to)?
            || self.memtables().any(|m| m.relocate(record, from, to)))
    }

    /// Bytes of memory that the indexes of memtables and level 0 take.
    pub(crate) fn index_memory(&self) -> u64 {
        self.level0.memory() + self.memtables().map(|m| m.memory()).sum::<u64>()
    }

    /// Bytes in the region of what is not drained.
    pub(crate) fn undrained_bytes(&self) -> u64 {
        self.level0.size().bytes + self.memtables().map(|m| m.bytes()).sum::<u64>()
    }

    /// The smallest sequence number in a memtable.
    pub(crate) fn oldest_in_memtables(&self) -> Option<Lsn> {
        self.memtables().filter_map(|m| m.oldest()).min()
    }

    /// Whether newer memtables come first (invariant 1).
    fn is_in_order(&self) -> bool {
        self.frozen.is_sorted_by(|newer, older| newer.boundary >= older.boundary)
    }

    /// Whether D is nowhere below what it was in `before`, but where it was forgotten, since no
    /// record is left to ask about (invariant 2).
    fn keeps_drained(&self, before: &View) -> bool {
        let (drained, was) = (&self.version.drained, &before.version.drained);
        let keeps = |now: Lsn, was: Lsn| now >= was || now == 0;
        was.steps().iter().all(|(start, seq)| keeps(drained.get(start), *seq))
    }

    /// Whether readers that `before` served by its mark are served by this one's (invariant 4).
    fn keeps_pruned(&self, before: &View) -> bool {
        self.pruned >= before.pruned
    }

    /// Whether each run is joining or of the version, and newer runs come first (invariant 5).
    fn has_runs_once(&self) -> bool {
        let runs = &self.version.runs;
        let is_committed = |run: &PendingRun| runs.iter().any(|other| other.id == run.id);
        runs.is_sorted_by(|newer, older| newer.lsn >= older.lsn)
            && !self.pending_runs.iter().any(is_committed)
    }

    /// Asserts the invariants of a view that is about to take the place of `before`. (What lies
    /// where of range tombstones, invariant 3, is asserted where they are merged.)
    pub(crate) fn debug_assert_follows(&self, before: &View) {
        debug_assert_eq!(self.version.table, before.version.table, "a view is of one table");
        debug_assert!(self.is_in_order(), "newer memtables come first (invariant 1)");
        debug_assert!(self.keeps_drained(before), "D never falls (invariant 2)");
        debug_assert!(self.keeps_pruned(before), "pruned never falls (invariant 4)");
        debug_assert!(self.has_runs_once(), "each run has one place (invariant 5)");
    }
}

// Pending runs: readers find them before the journal knows that they are committed.
//
// A run is in its table's view before its commit has a ticket. No reader sees it then. The ticket
// gives the run its LSN. From then on every read at or above that LSN sees it.
//
// Thread safety: the LSN is stored once, in the sequencer, before the commit is visible. A thread
// that reads at or above it has loaded the visible watermark after that.

/// The LSN of a commit that may not have its ticket yet.
#[derive(Debug)]
pub(crate) struct TicketLsn(AtomicU64);

impl TicketLsn {
    /// Of a commit without a ticket.
    pub(crate) fn unknown() -> Arc<TicketLsn> {
        Arc::new(TicketLsn(AtomicU64::new(LSN_MAX)))
    }

    /// It has its ticket.
    pub(crate) fn set(&self, lsn: Lsn) {
        debug_assert_eq!(self.get(), None, "a commit takes one ticket");
        self.0.store(lsn, Ordering::Release);
    }

    /// The LSN, once there is one.
    pub(crate) fn get(&self) -> Option<Lsn> {
        Some(self.0.load(Ordering::Acquire)).filter(|&lsn| lsn != LSN_MAX)
    }
}

/// A run that the journal has as pending.
#[derive(Clone, Debug)]
pub(crate) struct PendingRun {
    pub(crate) id: u64,
    pub(crate) extents: Level,
    /// The same for all runs of a commit.
    pub(crate) lsn: Arc<TicketLsn>,
}

impl PendingRun {
    /// The run, to read, once it has its LSN.
    fn as_read(&self) -> Option<ReadRun<'_>> {
        Some(ReadRun { lsn: self.lsn.get()?, extents: &self.extents })
    }
}
