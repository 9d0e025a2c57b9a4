//! An immutable snapshot of one table's metadata. Readers pin one and take no lock.
//!
//! Everything here works on extents, or on their descriptions alone: see [`Described`].

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{LevelCursor, Run};
use crate::base::error::Result;
use crate::base::operations::note;
use crate::base::options::{TableOptions, Tier};
use crate::base::record::{LSN_MAX, Lsn, RowTable, TableId};
use crate::cache::{LOT, completes_a_lot};
use crate::mvcc::{DrainedMap, KeyInterval, Time, Timeline};
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::sstable::{
    BlockCache, Blocks, Described, Extent, Found, InLevel, LookUpStep, MissingPart, OwnedHeads,
    ReadAhead, ValueMeta, WHOLE,
};
use crate::storage::Location;

/// Level 1 is kept in so many sublevels, the levels 1 to `SUBLEVELS` of a version. What drains have
/// brought lies in them as it came, a turn over the other. A compaction merges it into level 2 all
/// at once.
pub(crate) const SUBLEVELS: u8 = 12;

/// The level under the sublevels, which people know as level 2.
pub(crate) const LEVEL_2: u8 = SUBLEVELS + 1;

/// The most levels below level 0.
pub(crate) const MAX_LEVELS: u8 = SUBLEVELS + 6;

/// Above so many, answers are counted by lots.
const MANY: u64 = 64 << 10;

/// What people know level `n` as: all sublevels are level 1.
pub(crate) const fn known_as(n: u8) -> u8 {
    n.saturating_sub(SUBLEVELS) + 1
}

/// One level: extents sorted by key, no key in two of them.
///
/// Invariant: each extent's greatest key is smaller than the next one's smallest. So all versions
/// of a key that are in the level are in one extent.
#[derive(Clone, Debug)]
pub(crate) struct Level<E = Arc<Extent>> {
    extents: Arc<[E]>,
    /// Of the greatest keys.
    heads: Arc<OwnedHeads>,
    bytes: u64,
    records: u64,
    deletes: u64,
    tombstones: u64,
    referred: u64,
    /// Of these, bytes in value extents that are objects.
    referred_objects: u64,
    objects: u64,
    object_bytes: u64,
}

impl<E: Described> Default for Level<E> {
    fn default() -> Level<E> {
        Level::new(Vec::new())
    }
}

impl<E: Described> Level<E> {
    /// A level of these extents, in any order.
    pub(crate) fn new(mut extents: Vec<E>) -> Level<E> {
        extents.sort_by(|a, b| a.meta().smallest_key.cmp(&b.meta().smallest_key));
        let bytes = extents.iter().map(|e| u64::from(e.meta().location.len)).sum();
        let records = extents.iter().map(|e| e.meta().records).sum();
        let deletes = extents.iter().map(|e| e.meta().deletes).sum();
        let tombstones = extents.iter().map(|e| u64::from(e.meta().tombstones)).sum();
        let lists = extents.iter().flat_map(|e| &*e.meta().values);
        let (referred, referred_objects) = lists.fold((0, 0), |(all, objects), one| {
            let in_object = if one.of.location.is_object() { one.bytes } else { 0 };
            (all + one.bytes, objects + in_object)
        });
        let objects = extents.iter().map(|e| e.meta().location).filter(Location::is_object);
        let (objects, object_bytes) =
            objects.fold((0, 0), |(n, bytes), at| (n + 1, bytes + u64::from(at.len)));
        let heads = extents.iter().map(|e| e.meta().greatest_key.as_slice());
        let heads = Arc::new(OwnedHeads::of(heads));
        Level {
            extents: extents.into(),
            heads,
            bytes,
            records,
            deletes,
            tombstones,
            referred,
            referred_objects,
            objects,
            object_bytes,
        }
    }

    /// The first two neighbours that break the invariant.
    pub(crate) fn overlap(&self) -> Option<(&E, &E)> {
        let pairs = self.extents.windows(2).map(|pair| (&pair[0], &pair[1]));
        pairs.into_iter().find(|(a, b)| a.meta().greatest_key >= b.meta().smallest_key)
    }

    /// The extents, by key.
    pub(crate) fn extents(&self) -> &Arc<[E]> {
        &self.extents
    }

    /// The extent whose keys surround `key`, if there is one.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&E> {
        // Sublevels of level 1 that hold nothing are passed without a search.
        if self.extents.is_empty() {
            return None;
        }
        let extent = self.extents.get(self.first_reaching(key))?;
        (extent.meta().smallest_key.as_slice() <= key).then_some(extent)
    }

    /// The number of the first extent that does not end before `key`.
    fn first_reaching(&self, key: &[u8]) -> usize {
        let ends_before = |n: usize| self.extents[n].meta().greatest_key.as_slice() < key;
        self.heads.partition_point(key, ends_before)
    }

    /// The extents that have keys in `interval`, perhaps.
    pub(crate) fn overlapping(&self, interval: &KeyInterval) -> &[E] {
        let start = interval.start.as_slice();
        let from = self.first_reaching(start);
        let to = match &interval.end {
            Some(end) => self.extents.partition_point(|e| e.meta().smallest_key < *end),
            None => self.extents.len(),
        };
        &self.extents[from..to.max(from)]
    }

    /// The extents that have keys from `smallest` to `greatest`, perhaps.
    pub(crate) fn overlapping_closed(&self, smallest: &[u8], greatest: &[u8]) -> &[E] {
        let from = self.first_reaching(smallest);
        let to = self.extents.partition_point(|e| e.meta().smallest_key.as_slice() <= greatest);
        &self.extents[from..to.max(from)]
    }

    /// Bytes on the tier.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of values that its extents refer to.
    pub(crate) fn referred(&self) -> u64 {
        self.referred
    }

    /// Of these, bytes in objects.
    pub(crate) fn referred_objects(&self) -> u64 {
        self.referred_objects
    }

    /// Records, superseded ones and deletes included.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// How much of `all` records it has, of [`WHOLE`].
    fn share_of(&self, all: u64) -> u32 {
        let share = u128::from(self.records) * u128::from(WHOLE) / u128::from(all.max(1));
        share as u32 + 1
    }

    /// Of these, deletes, range tombstones included.
    pub(crate) fn deletes(&self) -> u64 {
        self.deletes
    }

    /// Range tombstones: those of each extent.
    pub(crate) fn tombstones(&self) -> u64 {
        self.tombstones
    }

    /// Extents that are objects, and their bytes.
    pub(crate) fn objects(&self) -> (u64, u64) {
        (self.objects, self.object_bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }
}

/// How many look-ups each level has answered, over all versions of a table. Once they are many
/// they are counted by lots, so that threads meet seldom.
#[derive(Debug, Default)]
pub(crate) struct Answers([AtomicU64; MAX_LEVELS as usize]);

impl Answers {
    fn count(&self, level: usize) {
        let count = &self.0[level];
        let before = count.load(Ordering::Relaxed);
        if before < MANY {
            count.fetch_add(1, Ordering::Relaxed);
        } else if completes_a_lot() {
            count.fetch_add(u64::from(LOT), Ordering::Relaxed);
        }
    }

    /// Look-ups that level `n`, counted from 1, has answered.
    pub(crate) fn of(&self, n: u8) -> u64 {
        let count = usize::from(n).checked_sub(1).and_then(|n| self.0.get(n));
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// The levels of one table with their drained map.
///
/// Invariants:
///
/// 1. Of two versions of a key, the newer one is in the upper level, or both are in one extent.
/// 2. A record of a run counts if and only if the run's LSN is above D of its key; then it is newer
///    than what the levels have of that key.
#[derive(Clone, Debug)]
pub(crate) struct Version<E = Arc<Extent>> {
    pub(crate) table: TableId,
    /// The first is sublevel 1 of level 1.
    pub(crate) levels: Vec<Level<E>>,
    /// Runs that are not drained, the newest first.
    pub(crate) runs: Vec<Arc<Run<E>>>,
    /// Row tables of level 0, the oldest first.
    pub(crate) rows: Vec<RowTable>,
    pub(crate) drained: DrainedMap,
    pub(crate) answers: Arc<Answers>,
    pub(crate) options: TableOptions,
    /// All at or below it had expired when the time to live was changed last.
    pub(crate) expired: Lsn,
}

impl<E: Described> Version<E> {
    /// A table without extents.
    pub(crate) fn empty(table: TableId) -> Version<E> {
        let (levels, runs, drained) = (Vec::new(), Vec::new(), DrainedMap::default());
        let options = TableOptions::new();
        let (rows, answers) = (Vec::new(), Arc::default());
        Version { table, levels, runs, rows, drained, answers, options, expired: 0 }
    }

    /// The LSN up to which everything has expired at a moment: as if all of it were deleted.
    pub(crate) fn expired_at(&self, timeline: &Timeline, time: Time) -> Lsn {
        let ttl = self.options.ttl_micros();
        ttl.map_or(0, |ttl| timeline.expired(ttl, time)).max(self.expired)
    }

    /// Level `n`, counted from 1; `None` where nothing was ever put.
    pub(crate) fn level(&self, n: u8) -> Option<&Level<E>> {
        self.levels.get(usize::from(n).checked_sub(1)?)
    }

    /// Whether it has objects.
    pub(crate) fn has_objects(&self) -> bool {
        self.levels.iter().any(|level| level.objects > 0 || level.referred_objects > 0)
    }

    /// Whether it has objects, or is to have some.
    pub(crate) fn concerns_objects(&self) -> bool {
        self.options.cold == Tier::Object || self.has_objects()
    }

    /// The extents of level `n` that have keys in `interval`, perhaps.
    pub(crate) fn overlapping(&self, n: u8, interval: &KeyInterval) -> &[E] {
        self.level(n).map_or(&[], |level| level.overlapping(interval))
    }

    /// All extents of levels with the numbers of those, the upper ones first.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u8, &E)> {
        let levels = (1..).zip(&self.levels);
        levels.flat_map(|(n, level)| level.extents().iter().map(move |extent| (n, extent)))
    }

    /// The value extents that extents of levels and runs refer to, by id, with the bytes that they
    /// refer to. Costs a look at each entry of their lists.
    pub(crate) fn live_values(&self) -> BTreeMap<u64, (ValueMeta, u64)> {
        let mut live = BTreeMap::new();
        let all = self.levels.iter().chain(self.runs.iter().map(|run| &run.extents));
        for one in all.flat_map(|level| level.extents().iter()).flat_map(|e| &*e.meta().values) {
            live.entry(one.of.id).or_insert((one.of, 0)).1 += one.bytes;
        }
        live
    }

    /// Whether no level deeper than `n` can have `key`: a tombstone in level `n` hides nothing
    /// there.
    pub(crate) fn is_bottom(&self, n: u8, key: &[u8]) -> bool {
        self.levels.iter().skip(usize::from(n)).all(|level| level.find(key).is_none())
    }
}

impl Version {
    /// The newest version of `key` with a sequence number of at most `at`.
    ///
    /// # Errors
    ///
    /// `Corrupt` if what has to be read does not check out; or on an I/O error.
    pub(crate) fn get<'g>(
        &self,
        key: &[u8],
        at: Lsn,
        blocks: Blocks<'g>,
    ) -> Result<Option<Found<'g>>> {
        for (n, level) in self.levels.iter().enumerate() {
            let Some(extent) = level.find(key) else { continue };
            note(|spent| spent.extents += 1);
            if let Some(found) = extent.get(key, at, blocks)? {
                self.answers.count(n);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The newest version of `key` in the extents that have records above `since`: one of all
    /// levels, if it is above that.
    ///
    /// # Errors
    ///
    /// As [`Version::get`].
    pub(crate) fn get_above<'g>(
        &self,
        key: &[u8],
        since: Lsn,
        blocks: Blocks<'g>,
    ) -> Result<Option<Found<'g>>> {
        let extents = self.levels.iter().filter_map(|level| level.find(key));
        for extent in extents.filter(|extent| extent.meta().greatest_seq > since) {
            let found = extent.get(key, LSN_MAX, blocks)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Has a look-up of `key` ask for the part that it lacks next in the extents that have records
    /// above `since`; if it asks of all levels at once, for the next part of each that may have the
    /// key.
    ///
    /// # Errors
    ///
    /// As [`Version::get`].
    pub(crate) fn ask(
        &self,
        key: &[u8],
        (since, at): (Lsn, Lsn),
        (blocks, of_all): (Blocks<'_>, bool),
        mut ask: impl FnMut(MissingPart),
    ) -> Result<()> {
        let extents = self.levels.iter().filter_map(|level| level.find(key));
        for extent in extents.filter(|extent| extent.meta().greatest_seq > since) {
            match extent.step(key, at, blocks)? {
                LookUpStep::Passes => {}
                LookUpStep::Ends => return Ok(()),
                LookUpStep::Asks(part) => {
                    ask(part);
                    if !of_all {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// A range is about to seek a key, or what lies before it: asks for what it needs of objects
    /// then, of all levels side by side.
    pub(crate) fn begin_range(
        &self,
        (key, is_backward): (Option<&[u8]>, bool),
        cache: &BlockCache,
        ahead: &ReadAhead,
    ) {
        if !self.has_objects() {
            return;
        }
        let all = self.all_records();
        for level in &self.levels {
            let extents = level.extents();
            let n = match (key, is_backward) {
                (Some(key), false) => Some(level.first_reaching(key)),
                (Some(key), true) => {
                    let before = |e: &Arc<Extent>| e.meta().smallest_key.as_slice() < key;
                    extents.partition_point(before).checked_sub(1)
                }
                (None, false) => Some(0),
                (None, true) => extents.len().checked_sub(1),
            };
            if let Some(number) = n {
                let at = InLevel { level: extents, number, share: level.share_of(all) };
                Extent::begin_at(at, (key, is_backward), cache, ahead);
            }
        }
    }

    fn all_records(&self) -> u64 {
        self.levels.iter().map(Level::records).sum()
    }

    /// A cursor for each level that is not empty, the upper ones first.
    pub(crate) fn cursors(
        &self,
        cache: &Arc<BlockCache>,
        ahead: &Arc<ReadAhead>,
    ) -> impl Iterator<Item = LevelCursor> {
        let levels = self.levels.iter().filter(|level| !level.is_empty());
        let (cache, ahead, all) = (Arc::clone(cache), Arc::clone(ahead), self.all_records());
        levels.map(move |level| {
            let (extents, share) = (Arc::clone(level.extents()), level.share_of(all));
            LevelCursor::new(extents, Arc::clone(&cache), Arc::clone(&ahead)).with_share(share)
        })
    }

    /// The same over the extents that may have keys in `interval` with records above `since`.
    pub(crate) fn cursors_above(
        &self,
        interval: &KeyInterval,
        since: Lsn,
        cache: &Arc<BlockCache>,
        ahead: &Arc<ReadAhead>,
    ) -> impl Iterator<Item = LevelCursor> {
        let levels = self.levels.iter().map(move |level| {
            let extents = level.overlapping(interval).iter();
            extents.filter(|extent| extent.meta().greatest_seq > since).cloned().collect()
        });
        let newer = levels.filter(|extents: &Arc<[_]>| !extents.is_empty());
        newer.map(|extents| LevelCursor::new(extents, Arc::clone(cache), Arc::clone(ahead)))
    }
}
