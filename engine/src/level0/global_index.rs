//! The global index: one sorted index over all records that memtables have handed down, in memory
//! or in persistent memory. Ingestion moves pointers, not bytes. Rotating columns drain it.
//!
//! Source: the global index of X-Engine on persistent memory, drained by columns as MatrixKV's
//! level 0 is.
//!
//! Thread safety: as [`Level0`](super::Level0).
//!
//! Invariants: 1 and 3 of [`Level0`](super::Level0). The index leads to records in zones, each of
//! which counts in its zone until it is released. And:
//!
//! 4. Of the versions of a key that a memtable brings, the older ones are in the index before the
//!    newer ones. So a persistent index that a power cut leaves half-way has what its versions go
//!    on with, and an opening may leave out all that is older than one of them.

use std::sync::Arc;

use smallvec::SmallVec;

use super::versions::Versions;
use super::versions::{Keep, NewerRecord, Superseded};
use super::walk::{Walk, WalkUp};
use super::{LiveCount, Released, Size};
use crate::base::error::Result;
use crate::base::record::{Cursor, Kind, LSN_MAX, Lsn, MergingCursor, TableId, slice};
use crate::memtable::{Memtable, Rebuilt, Record, RecordCursor, record_at};
use crate::mvcc::{DrainedMap, KeptFor, KeyInterval, pin};
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;
use crate::pm::Region;

/// Records that one call of a walk in parts looks at.
const PART: u64 = 16 * 1024;

/// Records that a change of the index reads before it changes anything: a change of a persistent
/// one waits for a sync, and no epoch is pinned for longer than one of them. What is read stays,
/// since it counts in its zone until the change is done.
const SOME: usize = 256;

/// The records of level 0 that lie in zones.
#[derive(Debug)]
pub(crate) struct GlobalIndex {
    region: Arc<Region>,
    index: Versions,
    records: AtomicU64,
    bytes: AtomicU64,
    /// The readers for which superseded versions are kept. Some of them may be gone, until the next
    /// walk.
    kept_for: Mutex<KeptFor>,
}

impl GlobalIndex {
    /// One over `index`, whose records are not counted yet.
    pub(super) fn new(region: Arc<Region>, index: Versions) -> GlobalIndex {
        GlobalIndex {
            region,
            index,
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            kept_for: Mutex::default(),
        }
    }

    fn add(&self, record: &Record<'_>, at: u64) -> Result<()> {
        let _guard = pin();
        self.index.insert(record.key, record.seq, at)?;
        self.count_in(record);
        Ok(())
    }

    fn count_in(&self, record: &Record<'_>) {
        self.records.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(record.stored_len() as u64, Ordering::Relaxed);
    }

    fn count_out(&self, record: &Record<'_>) {
        let records = self.records.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(records > 0, "a record is counted in before it is counted out");
        let len = record.stored_len() as u64;
        let bytes = self.bytes.fetch_sub(len, Ordering::Relaxed);
        debug_assert!(bytes >= len, "a record takes out as many bytes as it brought in");
    }

    /// Takes a version out and counts it out; where its record lies. The offset comes from the
    /// removal: the cleaner may have moved the record since a cursor showed it, and has counted it
    /// out of its old zone then.
    fn remove(&self, key: &[u8], seq: Lsn) -> Result<Option<u64>> {
        let _guard = pin();
        let at = self.index.remove(key, seq)?;
        if let Some(at) = at {
            let record = record_at(&self.region, at);
            debug_assert_eq!(record.seq, seq, "an index leads to its record");
            self.count_out(&record);
        }
        Ok(at)
    }

    /// The first versions in an interval up to an LSN, from (`key`, `seq`) on.
    fn some_versions(
        &self,
        (key, seq): (&[u8], Lsn),
        (interval, upto): (&KeyInterval, Lsn),
    ) -> Result<Vec<(Vec<u8>, Lsn)>> {
        let _guard = pin();
        let mut some = Vec::new();
        let mut cursor = WalkUp::from(&self.region, &self.index, (key, seq))?;
        while let Some((_, record)) = cursor.record().filter(|(_, r)| interval.contains(r.key)) {
            if record.seq <= upto {
                some.push((record.key.to_vec(), record.seq));
            }
            if some.len() == SOME {
                break;
            }
            cursor.next()?;
        }
        Ok(some)
    }

    /// The first records of a memtable behind all of a key, with all versions of the last of them.
    fn some_records<'a>(
        &'a self,
        memtable: &'a Memtable,
        behind: Option<&[u8]>,
    ) -> Vec<(u64, Record<'a>)> {
        let mut some: Vec<(u64, Record<'a>)> = Vec::with_capacity(SOME);
        let mut cursor = RecordCursor::new(&self.region, memtable.index());
        cursor.place(behind.unwrap_or_default(), if behind.is_some() { 0 } else { LSN_MAX });
        while let Some((at, record)) = cursor.record() {
            if some.len() >= SOME && some.last().is_some_and(|(_, last)| last.key != record.key) {
                break;
            }
            if behind != Some(record.key) {
                some.push((at, record));
            }
            cursor.step();
        }
        some
    }

    /// One in memory with what an opening found.
    pub(super) fn rebuilt(region: Arc<Region>, rebuilt: Rebuilt) -> GlobalIndex {
        let Rebuilt { index, bytes, .. } = rebuilt;
        let (records, bytes) = (AtomicU64::new(index.len() as u64), AtomicU64::new(bytes));
        let index = Versions::Memory(index);
        GlobalIndex { region, index, records, bytes, kept_for: Mutex::default() }
    }

    /// Whether a version whose next newer one is `newer` is kept; notes for which readers.
    fn stays(&self, seq: Lsn, newer: NewerRecord, keep: Keep<'_>) -> bool {
        if newer.goes_on {
            return true;
        }
        let readers = keep(seq, newer.seq);
        readers.inspect(|readers| self.kept_for.lock().add(*readers)).is_some()
    }

    /// Takes in the versions of a key that a memtable has, the newest first.
    fn ingest_key(
        &self,
        versions: &[(u64, Record<'_>)],
        keep: Keep<'_>,
        superseded: &mut Superseded,
    ) -> Result<()> {
        let mut last: Option<Record<'_>> = None;
        let mut taken: SmallVec<[(u64, Record<'_>); 4]> = SmallVec::new();
        for (at, record) in versions {
            let newer = NewerRecord::than(record, last.replace(*record));
            debug_assert!(
                newer.is_none_or(|newer| record.seq < newer.seq),
                "a memtable has the newest version of a key first"
            );
            debug_assert_ne!(
                record.kind,
                Kind::RangeDelete,
                "range tombstones are not among its records"
            );
            if newer.is_some_and(|newer| !self.stays(record.seq, newer, keep)) {
                superseded.leave_out(record, *at);
            } else {
                taken.push((*at, *record));
            }
        }
        // The oldest first (invariant 4).
        for (at, record) in taken.into_iter().rev() {
            self.add(&record, at)?;
        }
        // The last version decides on what the container has already.
        let Some(last) = last else { return Ok(()) };
        let _guard = pin();
        self.supersede(last.key, NewerRecord::of(&last), keep, superseded)
    }

    /// Collects the versions of a key that one with `newer` supersedes.
    fn supersede(
        &self,
        key: &[u8],
        mut newer: NewerRecord,
        keep: Keep<'_>,
        superseded: &mut Superseded,
    ) -> Result<()> {
        while newer.seq > 0
            && let Some((seq, at)) = self.index.get(key, newer.seq - 1)?
        {
            debug_assert!(seq < newer.seq, "versions of a key descend");
            let record = record_at(&self.region, at);
            if !self.stays(seq, newer, keep) {
                superseded.add(&record);
            }
            newer = NewerRecord::of(&record);
        }
        Ok(())
    }
}

/// Reading, ingestion and removal.
impl GlobalIndex {
    /// As [`Level0::ingest`](super::Level0::ingest), but for range tombstones.
    pub(super) fn ingest(&self, memtable: &Memtable, keep: Keep<'_>) -> Result<Superseded> {
        self.index.make_room(memtable.records())?;
        let mut superseded = Superseded::default();
        let mut behind = None;
        loop {
            let some = self.some_records(memtable, behind);
            let Some((_, last)) = some.last() else { return Ok(superseded) };
            behind = Some(last.key);
            for versions in some.chunk_by(|(_, a), (_, b)| a.key == b.key) {
                self.ingest_key(versions, keep, &mut superseded)?;
            }
        }
    }

    /// The newest version of `key` that is not newer than `at_most` and not drained.
    pub(super) fn get(
        &self,
        key: &[u8],
        at_most: Lsn,
        drained: &DrainedMap,
    ) -> Result<Option<Record<'_>>> {
        let found = self.index.get(key, at_most)?.filter(|(seq, _)| *seq > drained.get(key));
        debug_assert!(
            found.is_none_or(|(seq, _)| seq <= at_most),
            "a read finds no version newer than it asks for"
        );
        Ok(found.map(|(_, at)| record_at(&self.region, at)))
    }

    /// A cursor over all that is not drained.
    pub(super) fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a> {
        let cursor = Box::new(drained.filter(Walk::new(&self.region, &self.index)));
        let Some(position) = self.index.cursor_in_memory() else { return cursor };
        let in_memory = Box::new(drained.filter(Walk::at(&self.region, position)));
        Box::new(MergingCursor::new(vec![cursor, in_memory]))
    }

    /// Removes every record in `interval` with a sequence number of at most `upto`.
    pub(super) fn retire(&self, interval: &KeyInterval, upto: Lsn) -> Result<Released> {
        let mut released = Released::default();
        let mut from = (interval.start.clone(), LSN_MAX);
        loop {
            let some = self.some_versions((&from.0, from.1), (interval, upto))?;
            for (key, seq) in &some {
                released.records.extend(self.remove(key, *seq)?);
            }
            match some.into_iter().next_back() {
                Some(last) => from = last,
                None => return Ok(released),
            }
        }
    }

    /// Removes everything. The table is gone, and no reader is left.
    pub(super) fn clear(&self) -> Result<Released> {
        let mut released = Released::default();
        {
            let _guard = pin();
            let mut cursor = WalkUp::from(&self.region, &self.index, (&[], LSN_MAX))?;
            while let Some((at, _)) = cursor.record() {
                released.records.push(at);
                cursor.next()?;
            }
        }
        self.index.clear()?;
        Ok(released)
    }

    /// At most the sequence number of each record that the next opening finds in a zone alone, if
    /// a persistent index had no room for some.
    pub(crate) fn oldest_in_memory(&self) -> Option<Lsn> {
        self.index.oldest_in_memory()
    }

    /// Records and bytes that it holds.
    pub(super) fn size(&self) -> Size {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Size { records: of(&self.records), bytes: of(&self.bytes) }
    }

    /// Whether it has no record.
    pub(super) fn is_empty(&self) -> bool {
        self.records.load(Ordering::Relaxed) == 0
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        self.index.memory() + self.kept_for.lock().memory() as u64
    }
}

/// Records where commits wrote them.
impl GlobalIndex {
    /// Whether the record at `at` is the one that a read finds.
    pub(super) fn holds(&self, record: &Record<'_>, at: u64) -> Result<bool> {
        Ok(self.index.get(record.key, record.seq)? == Some((record.seq, at)))
    }

    /// Makes a read find the record at `to`, its copy, instead of at `from`. Returns whether it was
    /// at `from`.
    pub(super) fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> Result<bool> {
        self.index.relocate(record.key, record.seq, from, to)
    }

    /// Goes through a part of what an opening found in a persistent index, in the order of keys
    /// from the first version of `from` on. It removes what D covers and what a newer version
    /// supersedes, since no older reader is left. It counts the rest, and passes the offset of each
    /// record to `counts`. Nothing else changes the index until all of it was counted.
    pub(crate) fn count_live(
        &self,
        from: &[u8],
        drained: &DrainedMap,
        counts: &mut dyn FnMut(u64),
    ) -> Result<LiveCount> {
        let guard = pin();
        let mut cursor = WalkUp::from(&self.region, &self.index, (from, LSN_MAX))?;
        let mut counted = LiveCount { oldest: LSN_MAX, next: None };
        let (mut gone, mut seen, mut last): (Vec<_>, _, Option<Record<'_>>) = (Vec::new(), 0, None);
        while let Some((at, record)) = cursor.record() {
            let newer = NewerRecord::than(&record, last);
            let is_superseded = newer.is_some_and(|newer| !newer.goes_on);
            if seen >= PART && newer.is_none() {
                counted.next = Some(record.key.to_vec());
                break;
            }
            cursor.next()?;
            (seen, last) = (seen + 1, Some(record));
            if is_superseded || record.seq <= drained.get(record.key) {
                gone.push((record.key.to_vec(), record.seq));
            } else {
                self.count_in(&record);
                counts(at);
                counted.oldest = counted.oldest.min(record.seq);
            }
        }
        drop(cursor);
        drop(guard);
        for (key, seq) in gone {
            let _guard = pin();
            self.index.remove(&key, seq)?;
        }
        Ok(counted)
    }

    /// For verification: an offset in the index that is not that of a record of `table` with the
    /// index's key. `end_of` gives the end of the records that an offset is among, if it is.
    pub(crate) fn wrong_offset(
        &self,
        table: TableId,
        end_of: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<Option<u64>> {
        let _guard = pin();
        self.index.wrong_offset(&|at, prefix| {
            let record = end_of(at).and_then(|end| Record::decode(self.region.bytes(at, end - at)));
            record.is_some_and(|r| {
                r.table == table && r.kind != Kind::RangeDelete && slice(r.key, 0) == prefix
            })
        })
    }
}

/// Versions that no reader needs.
impl GlobalIndex {
    /// An estimate of how many versions it keeps that none of `readers`, which ascend, reads. Some
    /// of the versions may be gone.
    pub(crate) fn obsolete(&self, readers: &[Lsn]) -> u64 {
        self.kept_for.lock().obsolete(readers)
    }

    /// Finds superseded versions, a part at a time and in order, from the first version of `from`
    /// on. Also returns the first key that is left. No ingestion runs meanwhile.
    pub(crate) fn superseded(
        &self,
        from: &[u8],
        keep: Keep<'_>,
    ) -> Result<(Superseded, Option<Vec<u8>>)> {
        if from.is_empty() {
            // The walk notes again for which readers versions are kept.
            *self.kept_for.lock() = KeptFor::default();
        }
        let mut superseded = Superseded::default();
        let mut cursor = WalkUp::from(&self.region, &self.index, (from, LSN_MAX))?;
        let (mut seen, mut last): (u64, Option<Record<'_>>) = (0, None);
        while let Some((_, record)) = cursor.record() {
            let newer = NewerRecord::than(&record, last);
            if seen >= PART && newer.is_none() {
                return Ok((superseded, Some(record.key.to_vec())));
            }
            cursor.next()?;
            (seen, last) = (seen + 1, Some(record));
            if newer.is_some_and(|newer| !self.stays(record.seq, newer, keep)) {
                superseded.add(&record);
            }
        }
        Ok((superseded, None))
    }

    /// Removes superseded versions. No reader that could need them is left.
    pub(super) fn prune(&self, superseded: &Superseded) -> Result<Released> {
        let mut released = Released { records: Vec::with_capacity(superseded.versions_len()) };
        for (key, seq) in superseded.versions() {
            released.records.extend(self.remove(key, seq)?);
        }
        Ok(released)
    }
}

#[cfg(test)]
mod tests;
