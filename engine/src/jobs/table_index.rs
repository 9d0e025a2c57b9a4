//! What the background knows of each table, with an index for each question that a step asks. Only
//! tables that changed are looked at again ([`ChangedTables`](crate::table::ChangedTables)), so a
//! step does not grow with the number of idle tables.
//!
//! It is a hint: what a thread has just done may not be in it yet. It says which table a job looks
//! at and when, and how writers are paced. A job decides by the views that it then finds.
//!
//! Thread safety: plain data; [`Tables`](super::tables::Tables) has it behind a mutex.
//!
//! Invariants:
//!
//! 1. An entry stands in each index as its summary says, and nowhere else; the sums are those of
//!    all summaries.
//! 2. A table that is not in a set of [`Checks`] gave a job nothing to do at that degree of rest,
//!    and has not changed since in what the job looks at.

mod checks;
mod invariants;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use crate::compaction::Shape;
use crate::level0::Size;
use crate::levels::{Level, SUBLEVELS, Version};
use crate::os::HashMap;
use crate::record::{Lsn, TableId};
use crate::table::TableCore;
use crate::view::{RangeDeletes, View};
use checks::Checks;

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
    Frozen,
    Runs,
    Ttl,
    /// A time to live, now or before.
    Aged,
    /// Steps in its drained map.
    Drained,
}

impl Has {
    const COUNT: usize = Has::Drained as usize + 1;
}

/// Why range deletes are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeLook {
    /// They may hide whole extents.
    Extents,
    /// They may hide enough for a drain.
    Drain,
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
    /// By [`Has`].
    has: [bool; Has::COUNT],
    /// Level 0 keeps versions for readers alone.
    keeps: bool,
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
        let options = &view.version.options;
        let in_frozen = view.frozen.iter().map(|frozen| frozen.memtable.bytes());
        Summary {
            age: in_level0.into_iter().chain(in_memtables).min(),
            in_memtables,
            level0_bytes,
            undrained: level0_bytes + in_frozen.sum::<u64>() + view.active.bytes(),
            active_bytes: view.active.bytes(),
            active_memory: view.active.memory(),
            has: [
                !view.frozen.is_empty(),
                !view.version.runs.is_empty(),
                options.ttl.is_some(),
                options.ttl.is_some() || view.version.expired > 0,
                !view.version.drained.steps().is_empty(),
            ],
            keeps: view.level0.in_zones.obsolete(&[]) > 0,
            ranges: view.range_deletes(),
            deletes: view.active.deletes().max(view.level0.deleted.most()),
        }
    }

    /// The oldest record of a table with nothing in level 0.
    fn fresh(&self) -> Option<Lsn> {
        self.in_memtables.filter(|_| self.level0_bytes == 0)
    }

    /// The oldest record in a memtable of a table with something in level 0 too.
    fn in_both(&self) -> Option<Lsn> {
        self.in_memtables.filter(|_| self.level0_bytes > 0)
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
}

/// The oldest record of some tables, as the index knows them. A commit that is durable may not be
/// noted yet. So this is no LSN, and nothing that a power cut may ask for takes it for one: the
/// views say that ([`Tables::merged_upto`](super::tables::Tables::merged_upto)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldestHint(Option<Lsn>);

impl OldestHint {
    /// Where to pace writers by: what lies below it of all that is visible.
    pub(crate) fn pace_upto(self, visible: Lsn) -> Lsn {
        self.0.map_or(visible, |oldest| visible.min(oldest - 1))
    }
}

/// Sums over all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Bytes of records that are not drained.
    pub(crate) undrained: u64,
    /// Of these, bytes in level 0.
    pub(crate) level0: u64,
}

/// The index.
#[derive(Debug, Default)]
pub(crate) struct TableIndex {
    entries: HashMap<TableId, Entry>,
    by_age: BTreeSet<(Lsn, TableId)>,
    in_memtables: BTreeSet<(Lsn, TableId)>,
    in_both: BTreeSet<(Lsn, TableId)>,
    fresh: BTreeMap<(Lsn, TableId), u64>,
    /// Bytes of those tables in `fresh` whose oldest record is at or below an LSN.
    fresh_upto: (Lsn, u64),
    by_active_bytes: BTreeSet<(u64, TableId)>,
    by_active_memory: BTreeSet<(u64, TableId)>,
    /// By [`Has`].
    having: [BTreeSet<TableId>; Has::COUNT],
    by_fullness: BTreeSet<(u64, TableId)>,
    sums: Sums,
    /// What fullness was worked out with.
    shape: Option<Shape>,
    /// The last shapes of compactions: while the database is quiet, and else.
    shapes: [Option<Shape>; 2],
    compactions: Checks,
    prunes: Checks,
    /// Of tables with range deletes, wherever they lie, by [`RangeLook`].
    ranges: [Checks; 2],
    by_deletes: BTreeSet<(u64, TableId)>,
    /// Bytes that tables wrote since the streams were looked at.
    wrote: BTreeMap<TableId, u64>,
    /// The list of changed tables that is in use next.
    pub(crate) list: Vec<TableId>,
}

/// Puts a key into a set, or takes it out.
fn put<K: Ord>(set: &mut BTreeSet<K>, key: Option<K>, is_in: bool) {
    let Some(key) = key else { return };
    let changed = if is_in { set.insert(key) } else { set.remove(&key) };
    debug_assert!(changed, "an entry is where its summary says (invariant 1)");
}

impl TableIndex {
    /// Looks again at tables that changed; `find` gives those that are there.
    pub(crate) fn refresh(
        &mut self,
        changed: &[TableId],
        find: impl Fn(TableId) -> Option<Arc<TableCore>>,
    ) {
        for &id in changed {
            match find(id) {
                Some(core) => {
                    // Before it is looked at, so that what changes meanwhile is noted again.
                    core.take_changed();
                    if core.check().is_ok() {
                        self.update(id, core);
                    } else {
                        self.remove(id);
                    }
                }
                None => self.remove(id),
            }
        }
    }

    fn update(&mut self, id: TableId, core: Arc<TableCore>) {
        let summary = Summary::of(&core);
        let version = Arc::clone(&core.view().version);
        let written = core.written();
        let before = self.entries.remove(&id);
        let (was_written, was_version) =
            before.as_ref().map_or((0, None), |e| (e.written, Some(e.version.as_ptr())));
        debug_assert!(written >= was_written, "what was written only grows");
        if written > was_written {
            *self.wrote.entry(id).or_default() += written - was_written;
        }
        if before.as_ref().is_none_or(|entry| entry.summary != summary) {
            if let Some(entry) = &before {
                self.place(id, &entry.summary, false);
            }
            self.place(id, &summary, true);
        }
        if summary.keeps {
            self.prunes.open(id);
            self.prunes.by_readers.insert(id);
        } else {
            self.prunes.remove(id);
        }
        let before_ranges = before.as_ref().map(|entry| entry.summary.ranges);
        let mut level1 = before.and_then(|entry| entry.level1);
        if was_version != Some(Arc::as_ptr(&version)) {
            let fullness = self.fullness_of(&version);
            put(&mut self.by_fullness, level1.map(|full| (full, id)), false);
            put(&mut self.by_fullness, fullness.map(|full| (full, id)), true);
            level1 = fullness;
            self.compactions.open(id);
            let asks = |(_, extent): (u8, &Arc<crate::extent::Extent>)| {
                let meta = extent.meta();
                meta.deletes > 0 || meta.tombstones > 0 || meta.kept > 0
            };
            if version.extents().any(asks) {
                self.compactions.by_readers.insert(id);
            } else {
                self.compactions.by_readers.remove(&id);
            }
        }
        let was_ranges = before_ranges.filter(|_| was_version == Some(Arc::as_ptr(&version)));
        if summary.ranges.count == 0 && version.levels.iter().all(|level| level.tombstones() == 0) {
            self.ranges.iter_mut().for_each(|checks| checks.remove(id));
        } else if was_ranges != Some(summary.ranges) {
            for checks in &mut self.ranges {
                checks.open(id);
                checks.by_readers.insert(id);
            }
        }
        let version = Arc::downgrade(&version);
        debug_assert!(
            self.is_placed(id, &summary),
            "an entry stands where it belongs (invariant 1)"
        );
        debug_assert!(self.is_full_once(id, level1), "a table has one fullness (invariant 1)");
        self.entries.insert(id, Entry { core, summary, version, level1, written });
        debug_assert!(self.sums_are_whole(), "the sums are those of all summaries (invariant 1)");
        debug_assert!(self.checks_are_nested(), "rest finds more to do, never less (invariant 2)");
    }

    fn remove(&mut self, id: TableId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.place(id, &entry.summary, false);
        put(&mut self.by_fullness, entry.level1.map(|full| (full, id)), false);
        self.compactions.remove(id);
        self.prunes.remove(id);
        self.ranges.iter_mut().for_each(|checks| checks.remove(id));
        self.wrote.remove(&id);
        debug_assert!(
            self.is_nowhere(id, &entry.summary),
            "what is gone stands nowhere (invariant 1)"
        );
        debug_assert!(
            !self.entries.is_empty() || self.sums == Sums::default(),
            "the sums are those of all summaries (invariant 1)"
        );
    }

    /// Puts a table into the indexes that its summary names, or takes it out.
    fn place(&mut self, id: TableId, summary: &Summary, is_in: bool) {
        put(&mut self.by_age, summary.age.map(|age| (age, id)), is_in);
        put(&mut self.in_memtables, summary.in_memtables.map(|lsn| (lsn, id)), is_in);
        put(&mut self.in_both, summary.in_both().map(|lsn| (lsn, id)), is_in);
        put(&mut self.by_active_bytes, Some((summary.active_bytes, id)), is_in);
        put(&mut self.by_active_memory, Some((summary.active_memory, id)), is_in);
        for (having, has) in self.having.iter_mut().zip(summary.has) {
            put(having, has.then_some(id), is_in);
        }
        let deletes = Some((summary.deletes, id)).filter(|(deletes, _)| *deletes > 0);
        put(&mut self.by_deletes, deletes, is_in);
        let count = |sum: &mut u64, bytes: u64| {
            debug_assert!(is_in || *sum >= bytes, "a sum has what each gave (invariant 1)");
            *sum = if is_in { *sum + bytes } else { *sum - bytes };
        };
        count(&mut self.sums.undrained, summary.undrained);
        count(&mut self.sums.level0, summary.level0_bytes);
        let Some(oldest) = summary.fresh() else { return };
        if is_in {
            self.fresh.insert((oldest, id), summary.undrained);
        } else {
            self.fresh.remove(&(oldest, id));
        }
        if oldest <= self.fresh_upto.0 {
            count(&mut self.fresh_upto.1, summary.undrained);
        }
    }

    /// Sums over all tables.
    pub(crate) fn sums(&self) -> Sums {
        self.sums
    }

    /// The oldest record of any table.
    pub(crate) fn oldest(&self) -> OldestHint {
        OldestHint(self.by_age.first().map(|(age, _)| *age))
    }

    /// The oldest record in a memtable of a table that has something in level 0.
    pub(crate) fn oldest_over_level0(&self) -> OldestHint {
        OldestHint(self.in_both.first().map(|(lsn, _)| *lsn))
    }

    /// Bytes of the tables with records in memtables alone, the oldest of which is at or below
    /// `upto`. It costs what lies between `upto` and that of the call before.
    pub(crate) fn fresh_upto(&mut self, upto: Lsn) -> u64 {
        let (before, bytes) = self.fresh_upto;
        let between = |low: Lsn, high: Lsn| -> u64 {
            let above = Bound::Excluded((low, TableId::MAX));
            let upto = Bound::Included((high, TableId::MAX));
            self.fresh.range((above, upto)).map(|(_, bytes)| bytes).sum()
        };
        let bytes = match upto >= before {
            true => bytes + between(before, upto),
            false => bytes - between(upto, before),
        };
        self.fresh_upto = (upto, bytes);
        debug_assert!(self.fresh_is_whole(), "the sum up to an LSN is that of the tables below it");
        bytes
    }

    /// How full the fullest level 1 is, in thousandths of its target. A new shape has it worked out
    /// again for all tables.
    pub(crate) fn fullness(&mut self, shape: &Shape) -> u64 {
        // What is put into the cache decides nothing.
        let shape = &Shape { fills: false, ..*shape };
        if self.shape != Some(*shape) {
            self.shape = Some(*shape);
            self.by_fullness.clear();
            let fullness = |entry: &mut Entry| {
                entry.level1 = fullness(Some(shape), &entry.core.view().version);
                entry.level1
            };
            let all = self.entries.iter_mut().filter_map(|(id, e)| Some((fullness(e)?, *id)));
            self.by_fullness = all.collect();
            debug_assert!(self.by_fullness.len() <= self.entries.len(), "a table has one fullness");
        }
        self.by_fullness.last().map_or(0, |(full, _)| *full)
    }

    fn fullness_of(&self, version: &Version) -> Option<u64> {
        fullness(self.shape.as_ref(), version)
    }

    /// Tables in the order of the age of their records; of the same age by name.
    pub(crate) fn by_age(&self) -> Vec<Arc<TableCore>> {
        let mut tables: Vec<(Lsn, Arc<TableCore>)> =
            self.by_age.iter().map(|(age, id)| (*age, self.core(*id))).collect();
        let is_tie = |two: &[(Lsn, Arc<TableCore>)]| two[0].0 == two[1].0;
        if tables.windows(2).any(is_tie) {
            tables.sort_by_cached_key(|(age, table)| (*age, table.name()));
        }
        tables.into_iter().map(|(_, table)| table).collect()
    }

    /// Whether any table has undrained records.
    pub(crate) fn has_undrained(&self) -> bool {
        !self.by_age.is_empty()
    }

    /// The first table by name whose active memtable has so many bytes, or an index of so much
    /// memory.
    pub(crate) fn large(&self, bytes: u64, memory: u64) -> Option<Arc<TableCore>> {
        let by_bytes = self.by_active_bytes.range((bytes, 0)..);
        let by_memory = self.by_active_memory.range((memory, 0)..);
        let large = by_bytes.chain(by_memory).map(|(_, id)| self.core(*id));
        large.min_by_key(|table| table.name())
    }

    /// Tables with a record in a memtable below an LSN.
    pub(crate) fn in_memtables_below(&self, lsn: Lsn) -> Vec<Arc<TableCore>> {
        self.named(self.in_memtables.range(..(lsn, 0)).map(|(_, id)| *id))
    }

    /// Tables that have it, by name.
    pub(crate) fn having(&self, what: Has) -> Vec<Arc<TableCore>> {
        self.named(self.ids_having(what).iter().copied())
    }

    /// The numbers of these tables.
    pub(crate) fn ids_having(&self, what: Has) -> &BTreeSet<TableId> {
        &self.having[what as usize]
    }

    /// Whether some table has it.
    pub(crate) fn has(&self, what: Has) -> bool {
        !self.ids_having(what).is_empty()
    }

    /// Tables in which a compaction may find something, by name.
    pub(crate) fn compactable(
        &mut self,
        (rest, releases): (Rest, u64),
        shape: &Shape,
    ) -> Vec<Arc<TableCore>> {
        debug_assert!(self.checks_are_known(), "what is looked at is there (invariant 2)");
        // What is put into the cache decides nothing.
        let shape = Shape { fills: false, ..*shape };
        let known = &mut self.shapes[usize::from(rest == Rest::Quiet)];
        if known.replace(shape) != Some(shape) {
            self.entries.keys().for_each(|id| self.compactions.open(*id));
        }
        let ids: Vec<TableId> =
            self.compactions.candidates(rest, releases).iter().copied().collect();
        self.named(ids.into_iter())
    }

    /// A compaction found nothing to do in a version of a table.
    pub(crate) fn not_compactable(&mut self, id: TableId, version: &Arc<Version>, rest: Rest) {
        let known = self.entries.get(&id).map(|entry| entry.version.as_ptr());
        if known == Some(Arc::as_ptr(version)) {
            self.compactions.close(id, rest);
        }
    }

    /// The first table by name of those that keep versions for readers in level 0 which `is_worth`
    /// a walk.
    pub(crate) fn prunable(
        &mut self,
        (rest, releases): (Rest, u64),
        is_worth: impl Fn(&View) -> bool,
    ) -> Option<Arc<TableCore>> {
        let ids: Vec<TableId> = self.prunes.candidates(rest, releases).iter().copied().collect();
        for table in self.named(ids.into_iter()) {
            if is_worth(&table.view()) {
                return Some(table);
            }
            self.prunes.close(table.id(), rest);
        }
        None
    }

    /// Tables with range deletes that have to be looked at again, by name.
    pub(crate) fn with_ranges(&mut self, look: RangeLook, releases: u64) -> Vec<Arc<TableCore>> {
        let ids = self.ranges[look as usize].candidates(Rest::Quiet, releases);
        let ids: Vec<TableId> = ids.iter().copied().collect();
        self.named(ids.into_iter())
    }

    /// The range deletes of a table, of which `ranges` are in memory, were looked at beside a
    /// version. Where there are others by now they are looked at again.
    pub(crate) fn looked_at_ranges(
        &mut self,
        look: RangeLook,
        id: TableId,
        version: &Arc<Version>,
        ranges: RangeDeletes,
    ) {
        let is_known = self.entries.get(&id).is_some_and(|entry| {
            entry.version.as_ptr() == Arc::as_ptr(version) && entry.summary.ranges == ranges
        });
        if is_known {
            self.ranges[look as usize].close(id, Rest::Quiet);
        }
    }

    /// Whether any table may have such range deletes.
    pub(crate) fn has_ranges(&self) -> bool {
        !self.ranges[0].by_readers.is_empty()
    }

    /// Tables with `least` deletes in the memtable, or in a place of level 0, by name.
    pub(crate) fn with_deletes(&self, least: u64) -> Vec<Arc<TableCore>> {
        self.named(self.by_deletes.range((least, 0)..).map(|(_, id)| *id))
    }

    /// Whether any table has deletes in memory.
    pub(crate) fn has_deletes(&self) -> bool {
        !self.by_deletes.is_empty() || self.has_ranges()
    }

    /// Whether level 0 of any table keeps versions for readers alone.
    pub(crate) fn has_kept(&self) -> bool {
        !self.prunes.by_readers.is_empty()
    }

    /// Bytes that tables wrote since the last [`TableIndex::reset_wrote`]; of those in `also` that
    /// are there it says so if they wrote none.
    pub(crate) fn wrote(&self, also: &[TableId]) -> BTreeMap<TableId, u64> {
        let mut wrote = self.wrote.clone();
        for id in also.iter().filter(|id| self.entries.contains_key(*id)) {
            wrote.entry(*id).or_default();
        }
        wrote
    }

    /// All that was written up to now is behind.
    pub(crate) fn reset_wrote(&mut self) {
        self.wrote.clear();
    }

    fn core(&self, id: TableId) -> Arc<TableCore> {
        Arc::clone(&self.entries[&id].core)
    }

    /// Tables by name: jobs go through them in this order.
    fn named(&self, ids: impl Iterator<Item = TableId>) -> Vec<Arc<TableCore>> {
        let mut tables: Vec<_> = ids.map(|id| self.core(id)).collect();
        tables.sort_by_cached_key(|table| table.name());
        tables
    }
}

/// Fullness of level 1 in thousandths of its target, where it has something.
fn fullness(shape: Option<&Shape>, version: &Version) -> Option<u64> {
    let mut sublevels = version.levels.iter().take(usize::from(SUBLEVELS));
    let shape = shape.filter(|_| !sublevels.all(Level::is_empty))?;
    Some((shape.fullness(version) * 1000.0) as u64)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
