//! What a transaction has spilled of one table.
//!
//! Each spill is a piece: sorted records with epochs as their sequence numbers. A piece that
//! overlaps nothing of the one before is appended to it. So a load in the order of keys, or any
//! other without overlaps, stays one piece. Otherwise, as soon as a tier has eight pieces, they are
//! merged into one of the next: a record is rewritten once a tier. At commit all pieces become one
//! run.
//!
//! Invariants:
//!
//! 1. Pieces come oldest first: of a key, a later piece has the later writes.
//! 2. The extents of a piece are sorted and disjoint.
//! 3. A piece is clean if it has each key once, and no write that was rolled back.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::base::error::Result;
use crate::base::record::{Cursor, EntryRef, Kind, LSN_MAX, Lsn, MergingCursor};
use crate::mvcc::pin;
use crate::read::KeyRange;
use crate::sstable::{BlockCache, Blocks, Extent, ReadAhead};
use crate::table::ExtentWriter;
use crate::version::{Level, LevelCursor, VersionSet};

/// A key's new value; `None` deletes it.
pub(crate) type Write = Option<Bytes>;

/// A key that was written. Most keys lie in it: to compare two looks nowhere else.
pub(super) type OwnKey = SmallVec<[u8; 24]>;

/// A key with what was written to it.
pub(super) type Written = (OwnKey, Write);

/// What was written to a key in an epoch.
pub(crate) type Version = (Epoch, Write);

/// An end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

impl End {
    /// Whether `a` is met before `b` from this end.
    pub(super) fn is_before(self, a: &[u8], b: &[u8]) -> bool {
        if self == End::Front { a < b } else { a > b }
    }

    /// The keys from this end up to `key`, which is one of them.
    pub(super) fn up_to(self, key: &[u8]) -> KeyRange {
        let mut keys = KeyRange::from_bounds(&(..));
        let inner = if self == End::Front { &mut keys.upper } else { &mut keys.lower };
        *inner = Bound::Included(key.to_vec());
        keys
    }
}

/// This many pieces of a tier are merged into one of the next.
const FAN_IN: usize = 8;

/// Where pieces are kept, and blocks of them cached.
#[derive(Clone, Copy)]
pub(crate) struct Store<'a> {
    pub(crate) set: &'a Arc<VersionSet>,
    pub(crate) cache: &'a Arc<BlockCache>,
}

#[derive(Debug)]
struct Piece {
    extents: Level,
    /// Bytes of keys and values.
    bytes: u64,
    tier: u32,
    clean: bool,
}

impl Piece {
    fn new(extents: Level, tier: u32, clean: bool) -> Piece {
        let bytes = extents.extents().iter().map(|extent| extent.meta().raw_bytes).sum();
        Piece { extents, bytes, tier, clean }
    }

    fn cursor(&self, cache: &Arc<BlockCache>, ahead: &Arc<ReadAhead>) -> LevelCursor {
        let extents = Arc::clone(self.extents.extents());
        LevelCursor::new(extents, Arc::clone(cache), Arc::clone(ahead))
    }

    /// The oldest and the newest epoch in it.
    fn epochs(&self) -> (Epoch, Epoch) {
        let metas = || self.extents.extents().iter().map(|extent| extent.meta());
        let oldest = metas().map(|meta| meta.smallest_seq).min().unwrap_or(0);
        (oldest, metas().map(|meta| meta.greatest_seq).max().unwrap_or(0))
    }
}

/// What a walk over own writes on disk has read ahead: a search costs as much as many rows.
#[derive(Debug, Default)]
pub(super) struct WritesAhead {
    /// In the direction of the walk, each key once.
    rows: VecDeque<Written>,
    /// Whether the walk finds none beyond them.
    is_all: bool,
    /// How many were asked for last.
    most: usize,
    /// The change of what is spilled that they are as of.
    change: u64,
}

/// So many keys, or bytes of values, are read ahead at once at most.
const MOST_AHEAD: usize = 64;
const MOST_AHEAD_BYTES: usize = 64 << 10;

impl WritesAhead {
    fn has_last(&self, key: &[u8]) -> bool {
        self.rows.back().is_some_and(|(last, _)| last.as_slice() == key)
    }

    fn is_full(&self) -> bool {
        let bytes = self.rows.iter().flat_map(|(_, write)| write).map(Bytes::len).sum::<usize>();
        self.rows.len() >= self.most || bytes >= MOST_AHEAD_BYTES
    }
}

/// What was spilled of one table.
#[derive(Debug, Default)]
pub(crate) struct Spilled {
    pieces: Vec<Piece>,
    /// How often these have changed, or writes in them were rolled back.
    change: u64,
    /// What [`Spilled::run`] has merged of these pieces, where savepoints need them beside it.
    run: Option<Vec<Arc<Extent>>>,
}

impl Spilled {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The number of records. Several versions of a key count, and so do writes that were rolled
    /// back.
    pub(crate) fn records(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.extents.records()).sum()
    }

    /// Bytes of keys and values in them.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// Spills keys of `bytes` together, in order, each with its versions from the oldest to the
    /// newest, all alive.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room, and nothing was changed; or on an I/O error.
    pub(crate) fn add<'a>(
        &mut self,
        store: Store<'_>,
        epochs: &Epochs,
        bytes: u64,
        keys: impl Iterator<Item = (&'a [u8], &'a [Version])>,
    ) -> Result<()> {
        self.join_tiers(store, epochs)?;
        let (mut writer, mut clean) = (ExtentWriter::new(store.set, bytes, false)?, true);
        for (key, versions) in keys {
            let mut newer: Option<Epoch> = None;
            for (epoch, write) in versions.iter().rev() {
                if newer.is_some_and(|newer| !epochs.needs(*epoch, newer)) {
                    continue;
                }
                clean &= newer.replace(*epoch).is_none();
                let kind = if write.is_some() { Kind::Put } else { Kind::Delete };
                let value = write.as_deref().unwrap_or_default();
                writer.add(EntryRef { key, seq: *epoch, kind, value })?;
            }
        }
        self.push(writer.finish()?, clean);
        Ok(())
    }

    /// Appends a piece.
    fn push(&mut self, extents: Vec<Arc<Extent>>, clean: bool) {
        if extents.is_empty() {
            return;
        }
        self.run = None;
        self.change += 1;
        if let Some(last) = self.pieces.last_mut() {
            let both = [last.extents.extents(), extents.as_slice()].concat();
            let both = Level::new(both);
            if both.overlap().is_none() {
                *last = Piece::new(both, last.tier, last.clean && clean);
                return;
            }
        }
        self.pieces.push(Piece::new(Level::new(extents), 0, clean));
    }

    /// Merges pieces while a tier has too many.
    fn join_tiers(&mut self, store: Store<'_>, epochs: &Epochs) -> Result<()> {
        while let Some(tier) = self.pieces.last().map(|piece| piece.tier) {
            let alike = self.pieces.iter().rev().take_while(|piece| piece.tier == tier).count();
            if alike < FAN_IN {
                break;
            }
            let from = self.pieces.len() - alike;
            let (extents, has_older) = merge(&self.pieces[from..], store, epochs, true)?;
            self.replace(from, extents, (tier + 1, !has_older));
        }
        Ok(())
    }

    /// Replaces the pieces from a place on by what was merged of them.
    fn replace(&mut self, from: usize, merged: Vec<Arc<Extent>>, (tier, clean): (u32, bool)) {
        self.change += 1;
        self.pieces.truncate(from);
        if !merged.is_empty() {
            self.pieces.push(Piece::new(Level::new(merged), tier, clean));
        }
    }

    /// Forgets writes after the epoch `before`; they are dead already.
    pub(crate) fn roll_back(&mut self, before: Epoch) {
        self.run = None;
        self.change += 1;
        self.pieces.retain(|piece| piece.epochs().0 <= before);
        for piece in &mut self.pieces {
            piece.clean &= piece.epochs().1 <= before;
        }
    }

    /// The last living write of `key`.
    pub(crate) fn get(
        &self,
        key: &[u8],
        epochs: &Epochs,
        cache: &BlockCache,
    ) -> Result<Option<Write>> {
        for piece in self.pieces.iter().rev() {
            let Some(extent) = piece.extents.find(key) else { continue };
            let guard = pin();
            let mut at = LSN_MAX;
            while let Some(found) = extent.get(key, at, Blocks::new(cache, &guard))? {
                if epochs.is_alive(found.seq) {
                    let put = found.kind == Kind::Put;
                    return put.then(|| found.into_value()).transpose().map(Some);
                }
                at = found.seq - 1;
            }
        }
        Ok(None)
    }

    /// The first key between the bounds from an end that has a living write, with the last of
    /// them; `ahead` has what was read for the steps before, whose bounds were no narrower.
    pub(crate) fn outermost(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        end: End,
        (epochs, cache): (&Epochs, &Arc<BlockCache>),
        ahead: &mut WritesAhead,
    ) -> Result<Option<Written>> {
        if ahead.change != self.change {
            *ahead = WritesAhead { change: self.change, ..WritesAhead::default() };
        }
        let is_between = |key: &[u8]| RangeBounds::<[u8]>::contains(&bounds, key);
        // The bounds of the side that the walk comes from.
        let (lower, upper) = match end {
            End::Front => (bounds.0, Bound::Unbounded),
            End::Back => (Bound::Unbounded, bounds.1),
        };
        let is_passed = |(key, _): &mut Written| {
            !RangeBounds::<[u8]>::contains(&(lower, upper), key.as_slice())
        };
        while ahead.rows.pop_front_if(is_passed).is_some() {}
        if ahead.rows.is_empty() && !ahead.is_all {
            ahead.most = (2 * ahead.most).clamp(1, MOST_AHEAD);
            let read = match end {
                End::Front => self.fetch_up(bounds, (epochs, cache), ahead),
                End::Back => self.fetch_down(bounds, (epochs, cache), ahead),
            };
            // The last of them may be a version that a newer one replaces.
            read.inspect_err(|_| *ahead = WritesAhead::default())?;
        }
        Ok(ahead.rows.front().filter(|(key, _)| is_between(key)).cloned())
    }

    fn fetch_up(
        &self,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        (epochs, cache): (&Epochs, &Arc<BlockCache>),
        ahead: &mut WritesAhead,
    ) -> Result<()> {
        let mut cursor = merging(&self.pieces, cache, &ReadAhead::for_user());
        match lower {
            Bound::Unbounded => cursor.seek(b"", LSN_MAX)?,
            Bound::Included(key) => cursor.seek(key, LSN_MAX)?,
            // Epochs begin with 1.
            Bound::Excluded(key) => cursor.seek(key, 0)?,
        }
        while let Some(entry) = cursor.entry() {
            if !RangeBounds::<[u8]>::contains(&(Bound::Unbounded, upper), entry.key) {
                break;
            }
            // The newest version comes first: the first one that lives counts.
            if epochs.is_alive(entry.seq) && !ahead.has_last(entry.key) {
                if ahead.is_full() {
                    return Ok(());
                }
                ahead.rows.push_back(owned(&entry));
            }
            cursor.next()?;
        }
        ahead.is_all = true;
        Ok(())
    }

    fn fetch_down(
        &self,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        (epochs, cache): (&Epochs, &Arc<BlockCache>),
        ahead: &mut WritesAhead,
    ) -> Result<()> {
        let mut cursor = merging(&self.pieces, cache, &ReadAhead::for_user());
        match upper {
            Bound::Unbounded => cursor.seek_before(None)?,
            Bound::Excluded(key) => cursor.seek_before(Some(key))?,
            Bound::Included(key) => cursor.seek_before(Some(&[key, &[0]].concat()))?,
        }
        while let Some(entry) = cursor.entry() {
            if !RangeBounds::<[u8]>::contains(&(lower, Bound::Unbounded), entry.key) {
                break;
            }
            // The oldest version comes first: the last one that lives counts.
            if epochs.is_alive(entry.seq) {
                match ahead.has_last(entry.key) {
                    true => drop(ahead.rows.pop_back()),
                    false if ahead.is_full() => return Ok(()),
                    false => {}
                }
                ahead.rows.push_back(owned(&entry));
            }
            cursor.prev()?;
        }
        ahead.is_all = true;
        Ok(())
    }

    /// The last living write of each key, as extents that are sorted and disjoint, and not synced.
    /// A commit that is tried again has the same ones, unless something was written or rolled back.
    pub(crate) fn run(&mut self, store: Store<'_>, epochs: &Epochs) -> Result<Vec<Arc<Extent>>> {
        let are_new = |extents: &[Arc<Extent>]| extents.iter().all(|extent| extent.is_new());
        if let [piece] = self.pieces.as_slice()
            && piece.clean
        {
            debug_assert!(are_new(piece.extents.extents()), "no edit has named them");
            return Ok(piece.extents.extents().to_vec());
        }
        if let Some(run) = &self.run {
            debug_assert!(are_new(run), "a commit whose runs an edit has named is not tried again");
            return Ok(run.clone());
        }
        let (run, has_older) = merge(&self.pieces, store, epochs, false)?;
        if has_older {
            self.run = Some(run.clone());
        } else {
            let tier = self.pieces.iter().map(|piece| piece.tier).max().unwrap_or(0);
            self.replace(0, run.clone(), (tier, true));
        }
        Ok(run)
    }
}

fn owned(entry: &EntryRef<'_>) -> Written {
    let value = || Bytes::copy_from_slice(entry.value);
    (OwnKey::from_slice(entry.key), (entry.kind == Kind::Put).then(value))
}

/// One cursor over pieces. Of a key in several pieces, the latest shows.
fn merging(
    pieces: &[Piece],
    cache: &Arc<BlockCache>,
    ahead: &Arc<ReadAhead>,
) -> MergingCursor<'static> {
    ahead.goes_through(pieces.len());
    let cursor = |piece: &Piece| Box::new(piece.cursor(cache, ahead)) as Box<dyn Cursor>;
    MergingCursor::new(pieces.iter().rev().map(cursor).collect())
}

/// Merges pieces into one, without dead versions and those that no savepoint needs. Whether
/// savepoints need older versions of keys: without `keeps_older` these are left out.
fn merge(
    pieces: &[Piece],
    store: Store<'_>,
    epochs: &Epochs,
    keeps_older: bool,
) -> Result<(Vec<Arc<Extent>>, bool)> {
    let mut cursor = merging(pieces, store.cache, &ReadAhead::for_job(pieces.len()));
    let bytes = pieces.iter().map(|piece| piece.extents.bytes()).sum();
    let (mut writer, mut has_older) = (ExtentWriter::new(store.set, bytes, true)?, false);
    let mut kept: Option<(Vec<u8>, Epoch)> = None;
    cursor.seek(b"", LSN_MAX)?;
    while let Some(entry) = cursor.entry() {
        let newer = kept.as_ref().filter(|(key, _)| key == entry.key).map(|(_, newer)| *newer);
        let is_needed =
            epochs.is_alive(entry.seq) && newer.is_none_or(|newer| epochs.needs(entry.seq, newer));
        has_older |= is_needed && newer.is_some();
        if is_needed && (keeps_older || newer.is_none()) {
            let (key, newest) = kept.get_or_insert_default();
            key.clear();
            key.extend_from_slice(entry.key);
            *newest = entry.seq;
            writer.add(entry)?;
        }
        cursor.next()?;
    }
    Ok((writer.finish()?, has_older))
}

// Which versions of a key count, of those that a transaction has written.
//
// Writes are numbered by epochs, and a savepoint ends an epoch. Rolling back to the savepoint
// makes every later epoch dead, wherever its writes are by then, and begins a new one.
//
// Invariants:
//
// 1. `saved` ascends; each is an epoch below `now`.
// 2. `dead` has disjoint intervals, ascending, all below `now`.

/// The number of the writes between two savepoints, from 1 on. It takes the place of a committed
/// record's sequence number.
pub(crate) type Epoch = Lsn;

/// The epochs of one transaction.
#[derive(Clone, Debug)]
pub(crate) struct Epochs {
    now: Epoch,
    /// For each savepoint the last epoch before it.
    saved: Vec<Epoch>,
    /// What was rolled back: (the last epoch before, the last epoch of it).
    dead: Vec<(Epoch, Epoch)>,
}

impl Default for Epochs {
    fn default() -> Epochs {
        Epochs { now: 1, saved: Vec::new(), dead: Vec::new() }
    }
}

impl Epochs {
    /// The number of what is written now.
    pub(crate) fn now(&self) -> Epoch {
        self.now
    }

    /// Sets a savepoint.
    pub(crate) fn save(&mut self) {
        debug_assert!(
            self.saved.last().is_none_or(|last| *last < self.now),
            "savepoints ascend (invariant 1)"
        );
        self.saved.push(self.now);
        self.now += 1;
    }

    /// How many savepoints there are.
    pub(crate) fn savepoints(&self) -> usize {
        self.saved.len()
    }

    /// Makes everything since savepoint number `at` dead. That savepoint stays, and later ones go.
    /// Returns the last epoch before it.
    pub(crate) fn roll_back_to(&mut self, at: usize) -> Epoch {
        self.saved.truncate(at + 1);
        let before = self.saved[at];
        self.dead.retain(|dead| dead.0 < before);
        debug_assert!(
            self.dead.last().is_none_or(|(_, last)| *last <= before),
            "what was rolled back is disjoint, and ascends (invariant 2)"
        );
        self.dead.push((before, self.now));
        self.now += 1;
        before
    }

    /// Forgets savepoint number `at` and later ones.
    pub(crate) fn release(&mut self, at: usize) {
        self.saved.truncate(at);
    }

    /// Forgets which epochs are dead, once no write of them is left.
    pub(crate) fn forget_dead(&mut self) {
        self.dead.clear();
    }

    /// Whether what was written in `epoch` was not rolled back.
    pub(crate) fn is_alive(&self, epoch: Epoch) -> bool {
        let after = self.dead.partition_point(|(before, _)| *before < epoch);
        after.checked_sub(1).is_none_or(|i| self.dead[i].1 < epoch)
    }

    /// Whether rolling back could bring the version `epoch` of a key back. `newer` is its next
    /// newer living version.
    pub(crate) fn needs(&self, epoch: Epoch, newer: Epoch) -> bool {
        let at = self.saved.partition_point(|saved| *saved < epoch);
        self.saved.get(at).is_some_and(|saved| *saved < newer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::*;
    use crate::base::options::Options;

    /// Bug: a transaction with many spilled pieces read one block at a time. Cause: its reader did
    /// not say how many pieces it reads, and walks for sixteen of them made room for each other.
    /// Fix: it says so, as a reader of a table does.
    #[test]
    fn a_walk_through_many_pieces_reads_ahead_in_all_of_them() {
        const PIECES: u32 = 24;
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        let (set, cache) = (&table.shared.set, &table.shared.cache);
        let piece = |number: u32| {
            let mut writer = ExtentWriter::new(set, 512 << 10, false).unwrap();
            for n in 0..400 {
                let (key, value) = ((n * PIECES + number).to_be_bytes(), [n as u8; 600]);
                let record = EntryRef { key: &key, seq: 1, kind: Kind::Put, value: &value };
                writer.add(record).unwrap();
            }
            Piece::new(Level::new(writer.finish().unwrap()), 0, true)
        };
        let pieces: Vec<Piece> = (0..PIECES).map(piece).collect();
        let (store, before) = (set.store(), set.store().reads());
        let mut cursor = merging(&pieces, cache, &ReadAhead::for_user());
        cursor.seek(b"", LSN_MAX).unwrap();
        let mut records = 0;
        while cursor.entry().is_some() {
            records += 1;
            cursor.next().unwrap();
        }
        assert_eq!(records, 400 * PIECES);
        let reads = store.reads() - before;
        assert!(reads <= 12 * u64::from(PIECES), "{reads} reads of {PIECES} pieces");
    }

    mod epochs {
        use super::super::*;

        #[test]
        fn what_was_rolled_back_is_dead_and_what_a_savepoint_needs_is_kept() {
            let mut epochs = Epochs::default();
            epochs.save(); // after 1
            epochs.save(); // after 2
            assert_eq!(epochs.now(), 3);
            assert!(epochs.needs(1, 2) && epochs.needs(2, 3) && epochs.needs(1, 3));
            assert!(!epochs.needs(3, 4));
            epochs.release(1);
            assert!(!epochs.needs(2, 3), "the savepoint between them is gone");
            assert_eq!(epochs.roll_back_to(0), 1);
            let alive =
                |epochs: &Epochs| (1..=6).filter(|e| epochs.is_alive(*e)).collect::<Vec<_>>();
            assert_eq!(alive(&epochs), [1, 4, 5, 6]);
            epochs.save(); // after 4
            epochs.roll_back_to(1);
            assert_eq!(alive(&epochs), [1, 4, 6]);
            epochs.roll_back_to(0);
            assert_eq!(alive(&epochs), [1]);
            assert_eq!(epochs.dead, [(1, 6)], "one interval for what is rolled back twice");
        }
    }
}
