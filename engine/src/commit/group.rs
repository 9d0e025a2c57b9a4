//! A commit group, encoded and ready for its ticket. All that can fail in it fails here.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::batch::{Batch, CommitTable, CommitTables, Sorted, Target};
use super::subentry::{Content, SUB_HEADER};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::{Kind, Lsn, SYSTEM_TABLE, TableId, encode_end, put_u32};
use crate::memtable::{RECORD_HEADER, RECORD_KIND, Record, encode_record, record_len, set_seq};
use crate::mvcc::KeyInterval;
use crate::os::{HashMap, HashSet};
use crate::pm::LINE;
use crate::pm::alloc::Frees;

/// Most groups have few of everything: no allocation for those.
pub(super) type Few<T> = SmallVec<[T; 2]>;

/// The records of a group that go to one stream.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) stream: u32,
    /// Room for the header, the payload, and zeros up to a whole line: as it goes to the zone.
    pub(super) bytes: Vec<u8>,
    payload_len: usize,
    pub(super) records: Few<Placed>,
    /// Whether range deletes are among them.
    pub(super) has_ranges: bool,
    /// Whether operands are among them.
    has_merges: bool,
}

/// Where in a part's bytes a record's key lies, and whose record it is.
/// Small numbers, since a part lies within a zone: groups are handed on by value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) at: u32,
    /// Index into the group's tables; `None` for the engine's own records.
    pub(super) table: Option<u32>,
    key_len: u32,
    /// Bytes that it takes.
    pub(super) stored: u32,
    /// Which of the group's batches it came with.
    batch: u32,
}

/// One or more batches that become durable together under one LSN.
pub(crate) struct Group {
    pub(super) tables: CommitTables,
    pub(super) parts: Few<Part>,
    /// What its records are.
    pub(super) content: Content,
    /// How many batches went into it.
    batches: u32,
    /// Whether it has a batch whose rows are not locked.
    pub(super) unlocked: bool,
    /// The table that it drops: not while a prepared transaction has written to it.
    pub(super) drops: Option<Arc<dyn CommitTable>>,
    /// How much of the region's reserve it may take.
    pub(super) frees: Frees,
    /// Whether some of its rows lie in extents, as runs.
    pub(super) has_runs: bool,
}

/// The stream that all tables share which have none of their own.
pub(super) const SHARED_STREAM: u32 = 0;

/// A lock of a prepared transaction, as a record.
pub(crate) struct LockRecord {
    pub(crate) table: TableId,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// The end of a prepared transaction.
pub(crate) struct Resolution<'a> {
    pub(crate) id: &'a [u8],
    /// The LSN of its prepare.
    pub(crate) prepared: Lsn,
    /// `CommitPrepared` or `RollbackPrepared`.
    pub(crate) verdict: Kind,
}

impl Group {
    /// Encodes a batch.
    pub(crate) fn encode<T: Target>(batch: &Batch<T>, largest: u64) -> Result<Group> {
        batch.check()?;
        let tables = tables_of(batch);
        let mut parts: Few<Part> = Few::new();
        let mut add = |target: usize, kind, key: &[u8], value: &[u8]| {
            let table = &tables[target];
            let part = part_of(&mut parts, table.stream(), batch.stored_len());
            part.push(Some(target), (table.table(), kind), key, value);
        };
        for (target, KeyInterval { start, end }) in &batch.effective_ranges() {
            add(*target, Kind::RangeDelete, start, &encode_end(end.as_deref()));
        }
        batch.each_sorted(|Sorted { table, kind, key, value }| add(table, kind, key, &value))?;
        if let Some(blob) = &batch.blob {
            // Whichever stream it goes to anyway.
            let stream = parts.first().map_or(SHARED_STREAM, |part| part.stream);
            let part = part_of(&mut parts, stream, blob.len());
            part.push(None, (SYSTEM_TABLE, Kind::Blob), &[], blob);
        }
        Group { tables, parts, frees: batch.frees(), ..Group::default() }.closed(largest)
    }

    /// Encodes a batch whose other rows are in runs, by their numbers. It frees no space at once.
    pub(crate) fn encode_beside<T: Target>(
        batch: &Batch<T>,
        runs: impl Iterator<Item = (Arc<dyn CommitTable>, u64)>,
        largest: u64,
    ) -> Result<Group> {
        let mut group = Group { frees: Frees::Nothing, ..Group::encode(batch, largest)? };
        group.add_runs(runs, largest)?;
        Ok(group)
    }

    /// Encodes the writes of a transaction that is prepared, as one part. Behind the record that
    /// says so come its writes. Then come `locks`, what else it has locked, each the table, key and
    /// value of a record. At last come the numbers of `runs`, which count as writes.
    pub(crate) fn prepare<T: Target>(
        id: &[u8],
        batch: &Batch<T>,
        locks: &[LockRecord],
        runs: impl ExactSizeIterator<Item = (Arc<dyn CommitTable>, u64)>,
        largest: u64,
    ) -> Result<Group> {
        batch.check()?;
        let tables = tables_of(batch);
        let mut part = Part::with_capacity(SHARED_STREAM, batch.stored_len());
        let ranges = batch.effective_ranges();
        let writes = batch.sorted()?;
        let mut counts = Vec::new();
        put_u32(&mut counts, (ranges.len() + writes.len() + runs.len()) as u32);
        put_u32(&mut counts, locks.len() as u32);
        part.push(None, (SYSTEM_TABLE, Kind::Prepare), id, &counts);
        for (target, KeyInterval { start, end }) in &ranges {
            let place = (tables[*target].table(), Kind::RangeDelete);
            part.push(None, place, start, &encode_end(end.as_deref()));
        }
        for write in writes {
            let place = (tables[write.table].table(), write.kind);
            part.push(None, place, write.key, &write.value);
        }
        for LockRecord { table, key, value } in locks {
            part.push(None, (*table, Kind::Lock), key, value);
        }
        let (parts, content) = (smallvec![part], Content::Prepared);
        let mut group = Group { tables, parts, content, ..Group::default() }.closed(largest)?;
        group.add_runs(runs, largest)?;
        Ok(group)
    }

    /// Encodes the end of a prepared transaction. If it is committed, the `writes` that it prepared
    /// follow, each with the index of its table. What says so is the first record of the first
    /// part, on the stream that prepares go to.
    pub(crate) fn resolve<'a>(
        end: &Resolution<'_>,
        tables: CommitTables,
        writes: impl Iterator<Item = Record<'a>>,
        blob: Option<&[u8]>,
        largest: u64,
    ) -> Result<Group> {
        let mut parts: Few<Part> = smallvec![Part::with_capacity(SHARED_STREAM, end.id.len())];
        parts[0].push(None, (SYSTEM_TABLE, end.verdict), end.id, &end.prepared.to_le_bytes());
        for record in writes {
            let table = tables.iter().position(|table| table.table() == record.table);
            debug_assert!(table.is_some(), "a prepare holds its tables");
            let stream = table.map_or(SHARED_STREAM, |table| tables[table].stream());
            let place = (record.table, record.kind);
            let part = part_of(&mut parts, stream, record.stored_len());
            part.push(table, place, record.key, record.value);
        }
        if let Some(blob) = blob {
            parts[0].push(None, (SYSTEM_TABLE, Kind::Blob), &[], blob);
        }
        // Either verdict lets go of zones that the prepare keeps.
        Group { tables, parts, frees: Frees::Much, ..Group::default() }.closed(largest)
    }

    /// Completes the parts.
    fn closed(mut self, largest: u64) -> Result<Group> {
        for part in &mut self.parts {
            part.close();
            part.check(largest)?;
        }
        Ok(self)
    }

    /// Encodes a table event, which may drop a table, and so free space.
    pub(crate) fn event(key: &[u8], value: &[u8], drops: Option<Arc<dyn CommitTable>>) -> Group {
        let mut part = Part::with_capacity(SHARED_STREAM, key.len() + value.len());
        part.push(None, (SYSTEM_TABLE, Kind::TableEvent), key, value);
        part.close();
        let frees = if drops.is_some() { Frees::Much } else { Frees::Nothing };
        Group { parts: smallvec![part], drops, frees, ..Group::default() }
    }

    /// Encodes copies of records, for the cleaner's `stream`. They keep their sequence numbers,
    /// and lie in the payload one behind the other in the order given. Together they fit in a
    /// zone: the caller takes less than half of one.
    pub(crate) fn moved(stream: u32, records: &[Record<'_>]) -> Group {
        let payload = records.iter().map(Record::stored_len).sum();
        let mut part = Part::with_capacity(stream, payload);
        for record in records {
            let at = part.bytes.len();
            part.push(None, (record.table, record.kind), record.key, record.value);
            set_seq(&mut part.bytes[at..], record.seq);
        }
        part.close();
        let (parts, content) = (smallvec![part], Content::Moved);
        Group { parts, content, frees: Frees::Much, ..Group::default() }
    }

    /// Adds the records that make spilled runs part of the commit, or of the prepare, by the runs'
    /// numbers. They come in the first part.
    pub(crate) fn add_runs(
        &mut self,
        runs: impl Iterator<Item = (Arc<dyn CommitTable>, u64)>,
        largest: u64,
    ) -> Result<()> {
        let mut keys: Vec<[u8; 8]> = Vec::new();
        for (table, run) in runs {
            self.table(table);
            keys.push(run.to_le_bytes());
        }
        self.has_runs |= !keys.is_empty();
        part_of(&mut self.parts, SHARED_STREAM, keys.len() * record_len(8, 0));
        let at = self.parts.iter().position(|part| part.stream == SHARED_STREAM).unwrap_or(0);
        self.parts.swap(0, at);
        let part = &mut self.parts[0];
        part.open();
        for key in keys {
            part.push(None, (SYSTEM_TABLE, Kind::SpilledRun), &key, &[]);
        }
        part.close();
        part.check(largest)
    }

    /// The same group, of a batch whose rows are not locked: it is refused in the sequencer once
    /// transactions take locks.
    pub(crate) fn without_locks(mut self) -> Group {
        self.unlocked = true;
        self
    }

    /// How much space comes free by it.
    pub(crate) fn frees(&self) -> Frees {
        self.frees
    }

    /// Number of records.
    pub(crate) fn records(&self) -> u64 {
        self.parts.iter().map(|p| p.records.len() as u64).sum()
    }

    /// Bytes that it takes in zones.
    pub(crate) fn zone_len(&self) -> u64 {
        self.parts.iter().map(Part::zone_len).sum()
    }

    /// Bytes of the records of its first part.
    pub(crate) fn first_len(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.payload().len() as u64)
    }

    /// Writes the group's LSN into its records, but for moved ones.
    pub(super) fn number(&mut self, lsn: Lsn) {
        if self.content == Content::Moved {
            return;
        }
        for part in &mut self.parts {
            for record in &part.records {
                set_seq(&mut part.bytes[record.at as usize..], lsn);
            }
        }
    }

    /// Whether `next` may go in the same group, which then has at most `most` bytes.
    pub(super) fn takes(&self, next: &Group, most: usize) -> bool {
        let bytes = |group: &Group| group.parts.iter().map(|p| p.bytes.len()).sum::<usize>();
        let are_batches = !self.tables.is_empty() && !next.tables.is_empty();
        // In a group of one batch the order of range deletes was settled. So was what becomes of
        // several operands of a key: a group of several keeps the last record alone.
        let settles = |group: &Group| group.parts.iter().any(|p| p.has_ranges || p.has_merges);
        let settled = settles(self) || settles(next);
        are_batches && !settled && bytes(self) + bytes(next) <= most
    }

    /// Takes in the records of a group that came later; then [`Group::drop_superseded`].
    pub(super) fn absorb(&mut self, next: Group) {
        debug_assert!(
            self.content == Content::Commit && next.content == Content::Commit,
            "only groups of ordinary commits share a ticket"
        );
        debug_assert!(
            self.drops.is_none() && next.drops.is_none(),
            "a group that drops a table goes alone"
        );
        let tables: Few<u32> = next.tables.into_iter().map(|table| self.table(table)).collect();
        for part in next.parts {
            let own = part_of(&mut self.parts, part.stream, part.payload_len);
            own.open();
            let shift = (own.bytes.len() - SUB_HEADER) as u32;
            own.bytes.extend_from_slice(part.payload());
            own.records.extend(part.records.into_iter().map(|record| Placed {
                at: record.at + shift,
                table: record.table.map(|table| tables[table as usize]),
                batch: record.batch + self.batches,
                ..record
            }));
            own.close();
        }
        self.batches += next.batches;
        self.unlocked |= next.unlocked;
        self.frees = self.frees.min(next.frees);
        self.has_runs |= next.has_runs;
    }

    /// The index of a table, which is added if it is new. The table has to be there at the ticket.
    pub(crate) fn table(&mut self, table: Arc<dyn CommitTable>) -> u32 {
        let known = self.tables.iter().position(|h| h.table() == table.table());
        known.unwrap_or_else(|| {
            self.tables.push(table);
            self.tables.len() - 1
        }) as u32
    }

    /// Of several records of a key, leaves the last that was absorbed: within one LSN a key of a
    /// table occurs once.
    pub(super) fn drop_superseded(&mut self) {
        if self.batches == 1 {
            return;
        }
        let mut superseded: Vec<(u32, usize, usize)> = Vec::new();
        let mut newest = HashMap::with_capacity_and_hasher(
            self.records() as usize,
            crate::os::RandomKeys::new(),
        );
        for (p, part) in self.parts.iter().enumerate() {
            for (r, record) in part.records.iter().enumerate() {
                let this = (record.batch, p, r);
                let best = newest.entry((record.table, part.key(record))).or_insert(this);
                if *best != this {
                    superseded.push(this.min(*best));
                    *best = this.max(*best);
                }
            }
        }
        for (p, part) in self.parts.iter_mut().enumerate() {
            let gone = superseded.iter().filter(|(_, of, _)| *of == p).map(|(_, _, r)| *r);
            part.remove(&gone.collect());
        }
        self.parts.retain(|part| !part.records.is_empty());
    }
}

/// The tables that a batch goes to now.
fn tables_of<T: Target>(batch: &Batch<T>) -> CommitTables {
    batch.tables().map(|table| table as Arc<dyn CommitTable>).collect()
}

fn part_of(parts: &mut Few<Part>, stream: u32, payload: usize) -> &mut Part {
    let known = parts.iter().position(|part| part.stream == stream);
    let at = known.unwrap_or_else(|| {
        parts.push(Part::with_capacity(stream, payload));
        parts.len() - 1
    });
    &mut parts[at]
}

impl Part {
    /// Whether every record puts or deletes one key of a table.
    pub(super) fn is_plain(&self) -> bool {
        !self.has_ranges && self.records.iter().all(|record| record.table.is_some())
    }

    fn with_capacity(stream: u32, payload: usize) -> Part {
        let mut bytes = Vec::with_capacity(SUB_HEADER + payload + LINE as usize);
        bytes.resize(SUB_HEADER, 0);
        Part {
            stream,
            bytes,
            payload_len: 0,
            records: Few::new(),
            has_ranges: false,
            has_merges: false,
        }
    }

    /// Adds a record of a table that the group has as `table`.
    fn push(
        &mut self,
        table: Option<usize>,
        (id, kind): (TableId, Kind),
        key: &[u8],
        value: &[u8],
    ) {
        self.records.push(Placed {
            at: self.bytes.len() as u32,
            table: table.map(|index| index as u32),
            key_len: key.len() as u32,
            stored: record_len(key.len(), value.len()) as u32,
            batch: 0,
        });
        self.has_ranges |= kind == Kind::RangeDelete;
        self.has_merges |= kind == Kind::Merge;
        encode_record(&mut self.bytes, id, kind, key, value);
    }

    /// Completes the payload.
    fn close(&mut self) {
        self.payload_len = self.bytes.len() - SUB_HEADER;
        self.bytes.resize(self.bytes.len().next_multiple_of(LINE as usize), 0);
    }

    /// Makes room behind the payload again.
    fn open(&mut self) {
        self.bytes.truncate(SUB_HEADER + self.payload_len);
    }

    /// The records.
    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[SUB_HEADER..SUB_HEADER + self.payload_len]
    }

    /// The key of a record.
    pub(super) fn key(&self, record: &Placed) -> &[u8] {
        let at = record.at as usize + RECORD_HEADER;
        &self.bytes[at..at + record.key_len as usize]
    }

    /// Whether a record is the delete of one key.
    pub(super) fn is_delete(&self, record: &Placed) -> bool {
        self.bytes[record.at as usize + RECORD_KIND] == Kind::Delete as u8
    }

    /// The room for the header and the records: what the payload's checksum is made of.
    pub(super) fn header_and_payload(&mut self) -> &mut [u8] {
        &mut self.bytes[..SUB_HEADER + self.payload_len]
    }

    /// Removes records, given by index.
    fn remove(&mut self, gone: &HashSet<usize>) {
        if gone.is_empty() {
            return;
        }
        let mut kept = Part::with_capacity(self.stream, self.payload_len);
        for (r, record) in self.records.iter().enumerate() {
            if !gone.contains(&r) {
                kept.records.push(Placed { at: kept.bytes.len() as u32, ..*record });
                let (at, len) = (record.at as usize, record.stored as usize);
                kept.bytes.extend_from_slice(&self.bytes[at..at + len]);
            }
        }
        kept.close();
        *self = kept;
    }

    /// Bytes that the part takes in its zone.
    pub(super) fn zone_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn check(&self, largest: u64) -> Result<()> {
        let room = largest - crate::pm::alloc::ZONE_HEADER;
        if self.zone_len() > room {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "a batch of {} bytes does not fit in the largest zone, which has room for \
                     {room}; commit it in parts, or create the database with a larger pm_size",
                    self.zone_len()
                ),
            ));
        }
        Ok(())
    }
}

impl Default for Group {
    fn default() -> Group {
        let (tables, parts, content) = (CommitTables::new(), Few::new(), Content::Commit);
        Group {
            tables,
            parts,
            content,
            batches: 1,
            unlocked: false,
            drops: None,
            frees: Frees::Nothing,
            has_runs: false,
        }
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("tables", &self.tables.len())
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}
