//! The state of one table, shared by its handles and the background.
//!
//! Thread safety: readers load the view and take no lock. Those that are short borrow it, while
//! their epoch is pinned, and count no reference. The view is replaced under `changing`,
//! or, for a freeze, in the sequencer **and** under `changing`.
//!
//! Invariants:
//!
//! 1. A dropped table's view is empty, and `dropped` was set before the view was emptied. A thread
//!    that pins an epoch, finds the flag unset and then loads the view may use it.
//! 2. `merged` ≤ the boundary of every frozen memtable of the view, and every record at or below
//!    it that is not drained is in level 0.
//! 3. What a round has drained never falls: `low` and its copy `drained_below` rise.
//! 4. A table with writes of prepared transactions is not dropped. A table is dropped once.
//! 5. A slot's tables follow each other in the order of their LSNs.

use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::base::record::{Lsn, TableId};
use crate::commit::{Batch, CommitTable, Step, Target, reached};
use crate::memtable::Memtable;
use crate::mvcc::{DeferQueue, EpochArc, EpochGuard, Replaced};
use crate::os::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::os::sync::locks::{Mutex, MutexGuard};
use crate::os::sync::shared::ArcSwap;
use crate::read::view::View;

/// How far a round of drains over the table's keys has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainRound {
    /// Where the next column starts.
    pub(crate) cursor: Vec<u8>,
    /// Every record at or below it is drained: the LSN that the last whole round began with.
    pub(crate) low: Lsn,
    /// The LSN that this round began with, once it has begun.
    pub(crate) began: Option<Lsn>,
    /// Extents of bulk loads up to here have been placed in levels, or have to be merged.
    pub(crate) placed: Lsn,
}

/// One table.
#[derive(Debug)]
pub(crate) struct TableCore {
    id: TableId,
    name: ArcSwap<String>,
    created: Lsn,
    view: ArcSwap<View>,
    /// The same for readers that borrow it. It is set first: a record that a commit puts into the
    /// memtable of a view is in sight of each reader that sees the commit.
    lent: EpochArc<View>,
    changing: Mutex<DrainRound>,
    merged: AtomicU64,
    dropped: AtomicBool,
    /// Prepared transactions that have written to it. Changed, and looked at, in the sequencer.
    held: AtomicU32,
    /// The stream that its records go to. Records name their table, so it may change at any time.
    stream: AtomicU32,
    /// Bytes that its records have taken in zones since it was opened.
    written: AtomicU64,
    /// `low` of the drain round, as of the end of the last change.
    drained_below: AtomicU64,
    /// How often the most that a job of it reads was halved, since the disk had no room for it.
    job_halvings: AtomicU32,
    /// How often of these it had been promised some, and wrote more.
    underestimates: AtomicU32,
    /// Whether it stands in `changed_tables`.
    changed: AtomicBool,
    changed_tables: Arc<ChangedTables>,
    queue: Arc<DeferQueue>,
}

impl TableCore {
    /// A table with a first view, which notes its changes in `changed_tables`, of the database that
    /// `queue` is of.
    pub(crate) fn new(
        id: TableId,
        name: &str,
        (created, merged): (Lsn, Lsn),
        view: View,
        (changed_tables, queue): (&Arc<ChangedTables>, &Arc<DeferQueue>),
    ) -> TableCore {
        let view = Arc::new(view);
        TableCore {
            id,
            name: ArcSwap::from_pointee(name.to_string()),
            created,
            lent: EpochArc::new(Arc::clone(&view), queue),
            view: ArcSwap::new(view),
            changing: Mutex::new(DrainRound::default()),
            merged: AtomicU64::new(merged),
            dropped: AtomicBool::new(false),
            held: AtomicU32::new(0),
            stream: AtomicU32::new(0),
            written: AtomicU64::new(0),
            drained_below: AtomicU64::new(0),
            job_halvings: AtomicU32::new(0),
            underestimates: AtomicU32::new(0),
            changed: AtomicBool::new(false),
            changed_tables: Arc::clone(changed_tables),
            queue: Arc::clone(queue),
        }
    }

    /// Has the scheduler look at it again: its view was replaced, or its level 0 lost records.
    pub(crate) fn mark_changed(&self) {
        self.changed_tables.note(self.id, &self.changed);
    }

    /// The scheduler is about to look at it: what changes from now on is noted again.
    pub(crate) fn take_changed(&self) {
        self.changed.swap(false, Ordering::AcqRel);
    }

    /// How often the most that a job of it reads is halved.
    pub(crate) fn job_halvings(&self) -> u32 {
        self.job_halvings.load(Ordering::Relaxed)
    }

    /// How often a job of it found no room for what it wrote beyond its promise.
    pub(crate) fn underestimates(&self) -> u32 {
        self.underestimates.load(Ordering::Relaxed)
    }

    /// A job of it found no room on the disk, maybe for what it wrote beyond its promise
    /// (`wrote_more`): a smaller one may.
    pub(crate) fn halve_jobs(&self, wrote_more: bool) {
        self.job_halvings.fetch_add(1, Ordering::Relaxed);
        self.underestimates.fetch_add(u32::from(wrote_more), Ordering::Relaxed);
    }

    /// A job of it found room.
    pub(crate) fn allow_large_jobs(&self) {
        self.job_halvings.store(0, Ordering::Relaxed);
        self.underestimates.store(0, Ordering::Relaxed);
    }

    /// Every record at or below it is drained, as of the end of the last change.
    pub(crate) fn drained_below(&self) -> Lsn {
        self.drained_below.load(Ordering::Acquire)
    }

    /// Its number.
    pub(crate) fn id(&self) -> TableId {
        self.id
    }

    /// Its name at present.
    pub(crate) fn name(&self) -> String {
        self.name.load().as_ref().clone()
    }

    /// The LSN of its creation.
    pub(crate) fn created(&self) -> Lsn {
        self.created
    }

    /// Gives it another name.
    pub(crate) fn rename(&self, name: &str) {
        self.name.store(Arc::new(name.to_string()));
    }

    /// The view of this moment. To read records through it, pin an epoch first.
    pub(crate) fn view(&self) -> Guard<Arc<View>> {
        self.view.load()
    }

    /// The same, borrowed while an epoch is pinned.
    #[inline]
    pub(crate) fn lent_view<'g>(&self, pinned: &'g EpochGuard) -> &'g View {
        self.lent.get(pinned)
    }

    /// The LSN up to which level 0 has everything that is not drained (invariant 2).
    pub(crate) fn merged(&self) -> Lsn {
        self.merged.load(Ordering::Acquire)
    }

    /// Raises [`TableCore::merged`].
    pub(crate) fn set_merged(&self, lsn: Lsn) {
        debug_assert!(self.merged() <= lsn, "merges go up in order");
        self.merged.store(lsn, Ordering::Release);
    }

    /// Bytes that its records have taken in zones since it was opened.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Sends its records to another stream from now on.
    pub(crate) fn set_stream(&self, stream: u32) {
        self.stream.store(stream, Ordering::Relaxed);
    }

    /// The right to change the view, with the state of the drain round.
    pub(crate) fn change(&self) -> Change<'_> {
        Change { core: self, round: self.changing.lock(), replaced: SmallVec::new() }
    }

    /// The same, unless another job or call has it.
    pub(crate) fn try_change(&self) -> Option<Change<'_>> {
        let round = self.changing.try_lock()?;
        Some(Change { core: self, round, replaced: SmallVec::new() })
    }

    /// Fails once the table was dropped.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::table_gone(&self.name()));
        }
        Ok(())
    }

    /// Takes a last view, of a closed database: no call reads it.
    pub(crate) fn release(&self, view: View) {
        let view = Arc::new(view);
        let alone = self.changing.lock();
        let replaced = self.lent.replace(Arc::clone(&view));
        self.view.store(view);
        drop(alone);
        drop(replaced);
    }

    /// Marks it as dropped, in the sequencer: later groups are refused.
    pub(crate) fn mark_dropped(&self) {
        debug_assert!(!self.is_held(), "a table with prepared writes is not dropped (invariant 4)");
        debug_assert!(self.check().is_ok(), "a table is dropped once (invariant 4)");
        self.dropped.store(true, Ordering::Release);
    }

    /// Takes the mark back, in a database that has stopped: the event may not be durable, and reads
    /// show what is.
    pub(crate) fn unmark_dropped(&self) {
        self.dropped.store(false, Ordering::Release);
    }

    /// Whether prepared transactions have written to it.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
    }
}

impl CommitTable for TableCore {
    fn table(&self) -> TableId {
        self.id
    }

    fn check_alive(&self) -> Result<()> {
        self.check()
    }

    fn active(&self) -> Arc<Memtable> {
        Arc::clone(&self.view.load().active)
    }

    fn stream(&self) -> u32 {
        self.stream.load(Ordering::Relaxed)
    }

    fn count(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
        // After the memtable has counted the records too.
        self.mark_changed();
    }

    fn hold(&self) {
        debug_assert!(
            self.check().is_ok(),
            "a prepare takes no ticket for a table that was dropped (invariant 4)"
        );
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    fn release_hold(&self) {
        let before = self.held.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "what is let go was held");
    }

    fn check_droppable(&self) -> Result<()> {
        match self.held.load(Ordering::Relaxed) {
            0 => Ok(()),
            n => Err(Error::invalid(format!(
                "table {:?} has writes of {n} prepared transactions; commit them or roll them \
                 back first, list_prepared names them",
                self.name()
            ))),
        }
    }
}

/// The right to change one table's view.
pub(crate) struct Change<'a> {
    core: &'a TableCore,
    pub(crate) round: MutexGuard<'a, DrainRound>,
    /// What readers may still borrow. It is let go of after the right, since work that was deferred
    /// may run then.
    replaced: SmallVec<[Replaced<View>; 2]>,
}

impl Change<'_> {
    /// Replaces the view by a changed copy; returns the one before.
    pub(crate) fn apply(&mut self, change: impl FnOnce(&mut View)) -> Arc<View> {
        let changed = self.changed(change);
        self.install(changed)
    }

    /// A changed copy of the view, which no reader sees before it is installed.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut View)) -> Arc<View> {
        let mut view = View::clone(&self.core.view.load());
        change(&mut view);
        Arc::new(view)
    }

    /// Replaces the view; returns the one before. Allocates nothing.
    pub(crate) fn install(&mut self, view: Arc<View>) -> Arc<View> {
        // A dropped table's view is emptied (invariant 1).
        if cfg!(debug_assertions) && self.core.check().is_ok() {
            view.debug_assert_follows(&self.core.view.load());
            debug_assert!(
                view.frozen.iter().all(|frozen| self.core.merged() <= frozen.boundary),
                "what is merged lies at or below what is frozen (invariant 2)"
            );
        }
        self.replaced.push(self.core.lent.replace(Arc::clone(&view)));
        self.core.view.swap(view)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        debug_assert!(
            self.core.drained_below() <= self.round.low,
            "what a round has drained never falls (invariant 3)"
        );
        self.core.drained_below.store(self.round.low, Ordering::Release);
        self.core.mark_changed();
    }
}

/// What a handle points to: the table that has the name. Truncating a table puts a new one here.
#[derive(Debug)]
pub(crate) struct TableSlot {
    /// The number under which its rows are locked: the same for every table in the slot.
    lock_space: u64,
    core: ArcSwap<TableCore>,
    /// The same for readers that borrow it.
    lent: EpochArc<TableCore>,
    /// The LSN of the last truncation, 0 without one: older snapshots fail.
    emptied: AtomicU64,
}

impl TableSlot {
    /// A slot with its table.
    pub(crate) fn new(core: TableCore) -> TableSlot {
        let core = Arc::new(core);
        TableSlot {
            // No other table of the database has had it, nor will have.
            lock_space: u64::from(core.id()),
            lent: EpochArc::new(Arc::clone(&core), &core.queue),
            core: ArcSwap::new(core),
            emptied: AtomicU64::new(0),
        }
    }

    /// The table.
    pub(crate) fn core(&self) -> Arc<TableCore> {
        self.core.load_full()
    }

    /// The same, borrowed while an epoch is pinned.
    #[inline]
    pub(crate) fn lent_core<'g>(&self, pinned: &'g EpochGuard) -> &'g TableCore {
        self.lent.get(pinned)
    }

    /// About the bytes of its blocks.
    pub(crate) fn block_size(&self) -> u32 {
        self.core().view().version.options.block_size
    }

    /// The number under which its rows are locked. No other slot of the process has it.
    pub(crate) fn lock_space(&self) -> u64 {
        self.lock_space
    }

    /// The table of this moment, and no later one.
    pub(crate) fn pin(&self) -> Pinned {
        Pinned { core: self.core(), lock_space: self.lock_space }
    }

    /// Puts an empty table in its place.
    pub(crate) fn replace(&self, core: Arc<TableCore>) -> Arc<TableCore> {
        debug_assert!(
            core.created() > self.core().created(),
            "a table begins after the one that it replaces (invariant 5)"
        );
        self.emptied.store(core.created(), Ordering::Release);
        drop(self.lent.replace(Arc::clone(&core)));
        self.core.swap(core)
    }

    /// Fails when the table was truncated after `lsn`.
    pub(crate) fn check_not_emptied_since(&self, lsn: Lsn) -> Result<()> {
        if lsn < self.emptied.load(Ordering::Acquire) {
            return Err(Error::truncated(&self.core().name()));
        }
        Ok(())
    }
}

/// What a batch names: a slot with whatever table stands there, or the table of one moment.
#[derive(Clone)]
pub(crate) enum TableTarget {
    Slot(Arc<TableSlot>),
    Pinned(Arc<Pinned>),
}

/// A batch of operations on tables.
pub(crate) type TableBatch = Batch<TableTarget>;

impl TableTarget {
    /// The number under which rows of the table are locked. It stays through truncations.
    pub(crate) fn lock_space(&self) -> u64 {
        match self {
            TableTarget::Slot(slot) => slot.lock_space,
            TableTarget::Pinned(pinned) => pinned.lock_space,
        }
    }

    /// Its name, for messages.
    pub(crate) fn label(&self) -> String {
        self.resolve().name()
    }
}

impl Target for TableTarget {
    type Table = TableCore;

    fn resolve(&self) -> Arc<TableCore> {
        match self {
            TableTarget::Slot(slot) => slot.core(),
            TableTarget::Pinned(pinned) => Arc::clone(&pinned.core),
        }
    }

    fn is_same(&self, other: &TableTarget) -> bool {
        match (self, other) {
            (TableTarget::Slot(one), TableTarget::Slot(other)) => Arc::ptr_eq(one, other),
            (TableTarget::Pinned(one), TableTarget::Pinned(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The table that stands in a slot at one moment: once it is truncated, batches for it fail
/// instead of going to its successor.
pub(crate) struct Pinned {
    pub(crate) core: Arc<TableCore>,
    lock_space: u64,
}

impl Pinned {
    /// The number under which its rows are locked.
    pub(crate) fn lock_space(&self) -> u64 {
        self.lock_space
    }

    /// Its name, for messages.
    pub(crate) fn label(&self) -> String {
        self.core.name()
    }
}

// The tables that changed since the scheduler refreshed what it knows of them: they gained
// records, their view was replaced, or their level 0 lost records. So a step costs nothing for
// tables in which nothing happens.
//
// It is a hint for the scheduler. A thread may have changed a table and not have noted it yet, so
// nothing that a power cut may ask for is decided by it: the views say what tables have.
//
// Thread safety: any thread notes a table; the scheduler takes the list. Each table has a flag of
// its own.
//
// Invariants:
//
// 1. A flag that is set stands for an entry: in the list, or in one that the scheduler has taken
//    and whose table it has not looked at yet. So a table stands in the list once at most.
// 2. Of a note after a change and the clearing of the flag before a look one writes the flag
//    first: either the look sees the change, or the note adds an entry.

/// The list.
#[derive(Debug, Default)]
pub(crate) struct ChangedTables(Mutex<Vec<TableId>>);

impl ChangedTables {
    /// Adds a table that has changed, unless its flag says that it is there.
    fn note(&self, table: TableId, is_listed: &AtomicBool) {
        // It writes what it finds, so that a clearing after it sees the change (invariant 2).
        let is_there = || {
            let written =
                is_listed.compare_exchange(true, true, Ordering::AcqRel, Ordering::Acquire);
            written.is_ok()
        };
        if is_there() {
            return;
        }
        reached(Step::TableChanged);
        let mut list = self.0.lock();
        if is_there() {
            return;
        }
        debug_assert!(
            !cfg!(test) || !list.contains(&table),
            "a table stands in the list once at most"
        );
        list.push(table);
        // Last: who finds it set relies on the entry (invariant 1).
        is_listed.store(true, Ordering::Release);
    }

    /// Takes all of them, in exchange for an empty list: so neither allocates each time.
    pub(crate) fn take_into(&self, list: &mut Vec<TableId>) {
        list.clear();
        std::mem::swap(&mut *self.0.lock(), list);
    }
}
