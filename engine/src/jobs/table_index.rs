//! What the background knows of each table. Only tables that changed are looked at again
//! ([`ChangedTables`](crate::table::ChangedTables)). What a step asks of all tables it finds by a
//! pass over what is known of them, which reads some 200 bytes a table and no view: with 10,000
//! tables that is a tenth of a millisecond.
//!
//! It is a hint: what a thread has just done may not be in it yet. It says which table a job looks
//! at and when, and how writers are paced. A job decides by the views that it then finds.
//!
//! Thread safety: plain data; [`Tables`](super::tables::Tables) has it behind a mutex.
//!
//! Invariant: a table that a job is not to look at gave it nothing to do at that degree of rest,
//! and has not changed since in what the job looks at.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::base::record::{Lsn, TableId};
use crate::compaction::Shape;
use crate::level0::Size;
use crate::read::view::{RangeDeletes, View};
use crate::sstable::Extent;
use crate::table::TableCore;
use crate::version::{Level, SUBLEVELS, Version};

/// How far the database is at rest. Jobs find the more to do, the further it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rest {
    /// Writes go on.
    #[default]
    Busy,
    /// Nothing was written since nothing was left to do.
    Resting,
    /// That has been so for a while.
    Quiet,
}

/// What a table may have that a job works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Has {
    /// Records that are not drained.
    Undrained,
    Frozen,
    Runs,
    Ttl,
    /// A time to live, now or before.
    Aged,
    /// Steps in its drained map.
    Drained,
    /// Versions in level 0 that are kept for readers alone.
    Kept,
    /// Range deletes, wherever they lie.
    Ranges,
    /// Deletes in its memtable, or in a place of level 0.
    Deletes,
}

impl Has {
    const COUNT: usize = Has::Deletes as usize + 1;
}

/// By [`Has`].
pub(crate) type HasFlags = [bool; Has::COUNT];

/// Jobs that look at a table again only where they may find something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckFor {
    Compaction,
    Prune,
    /// At range deletes, which may hide whole extents.
    HiddenExtents,
    /// At range deletes, which may hide enough for a drain.
    HiddenRecords,
}

impl CheckFor {
    const COUNT: usize = CheckFor::HiddenRecords as usize + 1;
    const AT_RANGES: [CheckFor; 2] = [CheckFor::HiddenExtents, CheckFor::HiddenRecords];
}

/// Whether one of these jobs has to look at a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Recheck {
    /// At how many degrees of rest, from the least on, it found nothing.
    closed: u8,
    /// Readers decide too whether there is something to do.
    by_readers: bool,
}

impl Recheck {
    const NEVER: Recheck = Recheck { closed: Rest::Quiet as u8 + 1, by_readers: false };
    const BY_READERS: Recheck = Recheck { closed: 0, by_readers: true };

    fn is_open(self, rest: Rest) -> bool {
        rest as u8 >= self.closed
    }

    /// A job found nothing: it would find nothing either with less rest.
    fn close(&mut self, rest: Rest) {
        self.closed = self.closed.max(rest as u8 + 1);
    }
}

/// What a step needs to know of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summary {
    /// The oldest sequence number that it may have records with in the region.
    age: Option<Lsn>,
    /// The oldest one in a memtable.
    in_memtables: Option<Lsn>,
    level0_bytes: u64,
    undrained: u64,
    active_bytes: u64,
    active_memory: u64,
    has: HasFlags,
    /// Range deletes in memtables and level 0.
    ranges: RangeDeletes,
    /// The most deletes that the memtable has, or a place of level 0.
    deletes: u64,
}

impl Summary {
    fn of(core: &TableCore) -> Summary {
        let view = core.view();
        let Size { records, bytes: level0_bytes } = view.level0.size();
        let in_memtables = view.oldest_in_memtables();
        let in_level0 = (records > 0).then(|| core.drained_below() + 1);
        let age = in_level0.into_iter().chain(in_memtables).min();
        let (version, ranges) = (&view.version, view.range_deletes());
        let has_ttl = version.options.ttl.is_some();
        let in_frozen = view.frozen.iter().map(|frozen| frozen.memtable.bytes());
        let deletes = view.active.deletes().max(view.level0.deleted.most());
        Summary {
            age,
            in_memtables,
            level0_bytes,
            undrained: level0_bytes + in_frozen.sum::<u64>() + view.active.bytes(),
            active_bytes: view.active.bytes(),
            active_memory: view.active.memory(),
            has: [
                age.is_some(),
                !view.frozen.is_empty(),
                !version.runs.is_empty(),
                has_ttl,
                has_ttl || version.expired > 0,
                !version.drained.steps().is_empty(),
                view.level0.in_zones.obsolete(&[]) > 0,
                ranges.count > 0 || version.levels.iter().any(|level| level.tombstones() > 0),
                deletes > 0,
            ],
            ranges,
            deletes,
        }
    }

    fn has(&self, what: Has) -> bool {
        self.has[what as usize]
    }
}

#[derive(Debug)]
struct Entry {
    core: Arc<TableCore>,
    summary: Summary,
    /// What the summary was made of. Weak, so that replaced extents can go.
    version: Weak<Version>,
    /// Fullness of level 1 in thousandths, where it has something.
    level1: Option<u64>,
    written: u64,
    /// Bytes written since the streams were looked at.
    wrote: u64,
    /// By [`CheckFor`].
    checks: [Recheck; CheckFor::COUNT],
}

impl Entry {
    fn new(core: Arc<TableCore>) -> Entry {
        let (summary, version, checks) = (Summary::default(), Weak::new(), <_>::default());
        Entry { core, summary, version, level1: None, written: 0, wrote: 0, checks }
    }

    /// Looks at the table again.
    fn update(&mut self, shape: Option<&Shape>) {
        let summary = Summary::of(&self.core);
        let version = Arc::clone(&self.core.view().version);
        let written = self.core.written();
        debug_assert!(written >= self.written, "what was written only grows");
        self.wrote += written - self.written;
        let is_new = self.version.as_ptr() != Arc::as_ptr(&version);
        let is_kept = summary.has(Has::Kept);
        self.checks[CheckFor::Prune as usize] =
            if is_kept { Recheck::BY_READERS } else { Recheck::NEVER };
        if is_new {
            self.level1 = fullness(shape, &version);
            let asks = |(_, extent): (u8, &Arc<Extent>)| {
                let meta = extent.meta();
                meta.deletes > 0 || meta.tombstones > 0 || meta.kept > 0
            };
            let by_readers = version.extents().any(asks);
            self.checks[CheckFor::Compaction as usize] = Recheck { closed: 0, by_readers };
        }
        let are_new = is_new || self.summary.ranges != summary.ranges;
        for look in CheckFor::AT_RANGES {
            match summary.has(Has::Ranges) {
                true if are_new => self.checks[look as usize] = Recheck::BY_READERS,
                true => {}
                false => self.checks[look as usize] = Recheck::NEVER,
            }
        }
        (self.summary, self.version, self.written) = (summary, Arc::downgrade(&version), written);
    }
}

/// The oldest record of some tables, as the index knows them. A commit that is durable may not be
/// noted yet. So this is no LSN, and nothing that a power cut may ask for takes it for one: the
/// views say that ([`Tables::merged_upto`](super::tables::Tables::merged_upto)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OldestHint(Option<Lsn>);

impl OldestHint {
    /// Where to pace writers by: what lies below it of all that is visible.
    pub(crate) fn pace_upto(self, visible: Lsn) -> Lsn {
        self.0.map_or(visible, |oldest| visible.min(oldest - 1))
    }

    fn note(&mut self, oldest: Option<Lsn>) {
        self.0 = self.0.into_iter().chain(oldest).min();
    }
}

/// What all tables have together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes of records that are not drained.
    pub(crate) undrained: u64,
    /// Of these, bytes in level 0.
    pub(crate) level0: u64,
    /// The oldest record of any table.
    pub(crate) oldest: OldestHint,
    /// The oldest record in a memtable of a table that has something in level 0.
    pub(crate) oldest_over_level0: OldestHint,
    /// How full the fullest level 1 is, in thousandths of its target.
    pub(crate) level1: u64,
    /// Of memtables that take records, the most bytes, and the most memory of an index.
    pub(crate) active_bytes: u64,
    pub(crate) active_memory: u64,
    /// What some table has.
    pub(crate) has: HasFlags,
    /// Of tables with records in memtables alone, the oldest, and bytes.
    fresh: Vec<(Lsn, u64)>,
}

impl Totals {
    /// Bytes of the tables with records in memtables alone, the oldest of which is at or below
    /// `upto`.
    pub(crate) fn fresh_upto(&self, upto: Lsn) -> u64 {
        self.fresh.iter().filter(|(oldest, _)| *oldest <= upto).map(|(_, bytes)| bytes).sum()
    }

    fn add(&mut self, Entry { summary, level1, .. }: &Entry) {
        self.undrained += summary.undrained;
        self.level0 += summary.level0_bytes;
        self.oldest.note(summary.age);
        match summary.in_memtables {
            Some(oldest) if summary.level0_bytes == 0 => {
                self.fresh.push((oldest, summary.undrained));
            }
            in_memtables => self.oldest_over_level0.note(in_memtables),
        }
        self.level1 = self.level1.max(level1.unwrap_or(0));
        self.active_bytes = self.active_bytes.max(summary.active_bytes);
        self.active_memory = self.active_memory.max(summary.active_memory);
        self.has.iter_mut().zip(summary.has).for_each(|(any, has)| *any |= has);
    }
}

/// The index.
#[derive(Debug, Default)]
pub(crate) struct TableIndex {
    entries: BTreeMap<TableId, Entry>,
    /// What fullness was worked out with.
    shape: Option<Shape>,
    /// The last shapes of compactions: while the database is quiet, and else.
    shapes: [Option<Shape>; 2],
    /// Snapshots that had been released at the last look of each job, by [`CheckFor`].
    releases: [u64; CheckFor::COUNT],
    /// The list of changed tables that is in use next.
    pub(crate) list: Vec<TableId>,
}

impl TableIndex {
    /// Looks again at tables that changed; `find` gives those that are there.
    pub(crate) fn refresh(
        &mut self,
        changed: &[TableId],
        find: impl Fn(TableId) -> Option<Arc<TableCore>>,
    ) {
        for &id in changed {
            // Before it is looked at, so that what changes meanwhile is noted again.
            let found = find(id).inspect(|core| core.take_changed());
            match found.filter(|core| core.check().is_ok()) {
                Some(core) => {
                    let entry = self.entries.entry(id).or_insert_with(|| Entry::new(core));
                    entry.update(self.shape.as_ref());
                }
                None => drop(self.entries.remove(&id)),
            }
        }
    }

    /// What all tables have together. A new shape has the fullness of each level 1 worked out
    /// again.
    pub(crate) fn totals(&mut self, shape: &Shape) -> Totals {
        let shape = decisive(shape);
        if self.shape.replace(shape) != Some(shape) {
            for entry in self.entries.values_mut() {
                entry.level1 = fullness(Some(&shape), &entry.core.view().version);
            }
        }
        let mut totals = Totals::default();
        self.entries.values().for_each(|entry| totals.add(entry));
        totals
    }

    /// Tables in the order of the age of their records; of the same age by name.
    pub(crate) fn by_age(&self) -> Vec<Arc<TableCore>> {
        let aged = self.entries.values().filter_map(|entry| Some((entry.summary.age?, entry)));
        let mut tables: Vec<_> = aged.map(|(age, entry)| (age, Arc::clone(&entry.core))).collect();
        tables.sort_unstable_by_key(|(age, _)| *age);
        let is_tie = |two: &[(Lsn, Arc<TableCore>)]| two[0].0 == two[1].0;
        if tables.windows(2).any(is_tie) {
            tables.sort_by_cached_key(|(age, table)| (*age, table.name()));
        }
        tables.into_iter().map(|(_, table)| table).collect()
    }

    /// The first table by name whose active memtable has so many bytes, or an index of so much
    /// memory.
    pub(crate) fn large(&self, bytes: u64, memory: u64) -> Option<Arc<TableCore>> {
        self.select(|of| of.active_bytes >= bytes || of.active_memory >= memory).into_iter().next()
    }

    /// Tables with a record in a memtable below an LSN.
    pub(crate) fn in_memtables_below(&self, lsn: Lsn) -> Vec<Arc<TableCore>> {
        self.select(|of| of.in_memtables.is_some_and(|oldest| oldest < lsn))
    }

    /// Tables that have it, by name.
    pub(crate) fn having(&self, what: Has) -> Vec<Arc<TableCore>> {
        self.select(|of| of.has(what))
    }

    /// Whether some table has it.
    pub(crate) fn has(&self, what: Has) -> bool {
        self.entries.values().any(|entry| entry.summary.has(what))
    }

    /// Tables with `least` deletes in the memtable, or in a place of level 0, by name.
    pub(crate) fn with_deletes(&self, least: u64) -> Vec<Arc<TableCore>> {
        self.select(|of| of.deletes >= least)
    }

    /// Tables in which a compaction may find something, by name.
    pub(crate) fn compactable(
        &mut self,
        (rest, releases): (Rest, u64),
        shape: &Shape,
    ) -> Vec<Arc<TableCore>> {
        let shape = decisive(shape);
        if self.shapes[usize::from(rest == Rest::Quiet)].replace(shape) != Some(shape) {
            for entry in self.entries.values_mut() {
                entry.checks[CheckFor::Compaction as usize].closed = 0;
            }
        }
        self.candidates(CheckFor::Compaction, (rest, releases))
    }

    /// A compaction found nothing to do in a version of a table.
    pub(crate) fn not_compactable(&mut self, id: TableId, version: &Arc<Version>, rest: Rest) {
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.version.as_ptr() == Arc::as_ptr(version)
        {
            entry.checks[CheckFor::Compaction as usize].close(rest);
        }
    }

    /// The first table by name of those that keep versions for readers in level 0 which `is_worth`
    /// a walk.
    pub(crate) fn prunable(
        &mut self,
        (rest, releases): (Rest, u64),
        is_worth: impl Fn(&View) -> bool,
    ) -> Option<Arc<TableCore>> {
        for table in self.candidates(CheckFor::Prune, (rest, releases)) {
            if is_worth(&table.view()) {
                return Some(table);
            }
            if let Some(entry) = self.entries.get_mut(&table.id()) {
                entry.checks[CheckFor::Prune as usize].close(rest);
            }
        }
        None
    }

    /// Tables with range deletes that have to be looked at again, by name.
    pub(crate) fn with_ranges(&mut self, look: CheckFor, releases: u64) -> Vec<Arc<TableCore>> {
        self.candidates(look, (Rest::Quiet, releases))
    }

    /// The range deletes of a table, of which `ranges` are in memory, were looked at beside a
    /// version. Where there are others by now they are looked at again.
    pub(crate) fn looked_at_ranges(
        &mut self,
        look: CheckFor,
        id: TableId,
        version: &Arc<Version>,
        ranges: RangeDeletes,
    ) {
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.version.as_ptr() == Arc::as_ptr(version)
            && entry.summary.ranges == ranges
        {
            entry.checks[look as usize].close(Rest::Quiet);
        }
    }

    /// Bytes that tables wrote since the last [`TableIndex::reset_wrote`]; of those in `also` that
    /// are there it says so if they wrote none.
    pub(crate) fn wrote(&self, also: &[TableId]) -> BTreeMap<TableId, u64> {
        let all = self.entries.iter().map(|(id, entry)| (*id, entry.wrote));
        all.filter(|(id, wrote)| *wrote > 0 || also.contains(id)).collect()
    }

    /// All that was written up to now is behind.
    pub(crate) fn reset_wrote(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.wrote = 0);
    }

    /// Tables that a job has to look at, by name, with `releases` snapshots released so far.
    fn candidates(&mut self, look: CheckFor, (rest, releases): (Rest, u64)) -> Vec<Arc<TableCore>> {
        let look = look as usize;
        if std::mem::replace(&mut self.releases[look], releases) != releases {
            let checks = self.entries.values_mut().map(|entry| &mut entry.checks[look]);
            checks.filter(|check| check.by_readers).for_each(|check| check.closed = 0);
        }
        self.named(|entry| entry.checks[look].is_open(rest))
    }

    fn select(&self, is_wanted: impl Fn(&Summary) -> bool) -> Vec<Arc<TableCore>> {
        self.named(|entry| is_wanted(&entry.summary))
    }

    /// Tables by name: jobs go through them in this order.
    fn named(&self, is_wanted: impl Fn(&Entry) -> bool) -> Vec<Arc<TableCore>> {
        let wanted = self.entries.values().filter(|entry| is_wanted(entry));
        let mut tables: Vec<_> = wanted.map(|entry| Arc::clone(&entry.core)).collect();
        tables.sort_by_cached_key(|table| table.name());
        tables
    }
}

/// A shape without what is put into the cache: that decides nothing.
fn decisive(shape: &Shape) -> Shape {
    Shape { fills: false, ..*shape }
}

/// Fullness of level 1 in thousandths of its target, where it has something.
fn fullness(shape: Option<&Shape>, version: &Version) -> Option<u64> {
    let mut sublevels = version.levels.iter().take(usize::from(SUBLEVELS));
    let shape = shape.filter(|_| !sublevels.all(Level::is_empty))?;
    Some((shape.fullness(version) * 1000.0) as u64)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
