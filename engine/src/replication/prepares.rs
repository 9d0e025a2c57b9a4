//! Prepared transactions of the writer, as a reader of the log keeps them until their verdict: as
//! rows of its own table, beside its position. They lock nothing, and count for no read. A reader
//! that becomes the writer prepares them in its database.
//!
//! Thread safety: none of its own; its owner has a lock.
//!
//! Invariants:
//!
//! 1. The table has the rows of each prepare up to the position without a verdict up to it, and of
//!    no other one: rows come and go with the commit that moves the position past the prepare and
//!    past the verdict.
//! 2. Records in rows name tables by the numbers of the reader's own database, which stay.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::log::{PrepareHead, records_of};
use crate::base::error::{Error, Mismatch, Result};
use crate::base::options::Durability;
use crate::base::record::{Kind, Lsn, Reader, SYSTEM_TABLE, TableId, decode_end, put_u32, put_u64};
use crate::engine::Database;
use crate::memtable::{Record, encode_record};
use crate::table::{Table, WriteBatch};
use crate::txn::{Isolation, PreparedInfo, Transaction, TxnOptions};

/// Before the name of one: what it is.
const HEAD: &[u8] = b"prepared/";

/// Before the name of one and the number of a part: its records.
const PART: &[u8] = b"prepared-part/";

/// Before the LSN of one and the number of a piece: what it has spilled.
const SPILLED: &[u8] = b"prepared-rows/";

/// Bytes of a part.
const PART_BYTES: usize = 256 << 10;

/// Bytes of a piece of what was spilled.
pub(super) const SPILLED_BYTES: usize = PART_BYTES;

/// What a reader's table has of the rows that a prepare has spilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpilledRows {
    /// That of the prepare.
    lsn: Lsn,
    pub(super) pieces: u32,
    /// Rows in them.
    pub(super) writes: u64,
}

impl SpilledRows {
    /// None yet, of the prepare with this LSN.
    pub(super) fn of(lsn: Lsn) -> SpilledRows {
        SpilledRows { lsn, pieces: 0, writes: 0 }
    }

    fn keys(self) -> impl Iterator<Item = Vec<u8>> {
        (0..self.pieces).map(move |piece| spilled_key(self.lsn, piece))
    }
}

/// The key of a piece. Keys go up as the pieces do.
pub(super) fn spilled_key(lsn: Lsn, piece: u32) -> Vec<u8> {
    [SPILLED, &lsn.to_be_bytes(), &piece.to_be_bytes()].concat()
}

/// One that has rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KeptPrepare {
    writes: u64,
    locks: u64,
    parts: u32,
    spilled: SpilledRows,
}

/// One of which the rows go with the next commit.
#[derive(Debug)]
struct FreshPrepare {
    records: Vec<u8>,
    spilled: SpilledRows,
}

/// Those of one reader.
#[derive(Debug, Default)]
pub(super) struct FollowedPrepares {
    kept: BTreeMap<Vec<u8>, KeptPrepare>,
    /// Those of which the rows go with the next commit.
    fresh: BTreeMap<Vec<u8>, FreshPrepare>,
    /// Those of `kept` that are prepared in the reader's database, which is about to write.
    prepared: BTreeSet<Vec<u8>>,
    /// Those of them that have their verdict: they are rolled back before the next commit, which
    /// has what the verdict changes.
    resolved: Vec<Vec<u8>>,
    /// What the listing is to learn after the next commit.
    news: BTreeMap<Vec<u8>, Option<KeptPrepare>>,
    /// Whether rows stay after a verdict: a planted bug.
    keeps_rows: bool,
}

impl KeptPrepare {
    fn to_row(self) -> Vec<u8> {
        let mut row = Vec::new();
        put_u64(&mut row, self.writes);
        put_u64(&mut row, self.locks);
        put_u32(&mut row, self.parts);
        put_u64(&mut row, self.spilled.lsn);
        put_u32(&mut row, self.spilled.pieces);
        row
    }

    fn of_row(row: &[u8]) -> Option<KeptPrepare> {
        let mut reader = Reader::new(row);
        let (writes, locks, parts) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let spilled = SpilledRows { lsn: reader.u64()?, pieces: reader.u32()?, writes: 0 };
        reader.is_empty().then_some(KeptPrepare { writes, locks, parts, spilled })
    }

    /// Of one without parts yet.
    fn of(FreshPrepare { records, spilled }: &FreshPrepare) -> KeptPrepare {
        let locks = PrepareHead::of(records).map_or(0, |head| u64::from(head.locks));
        // The head counts each run once.
        let own = records_of(records).filter(|record| is_write(record.kind)).count();
        let writes = own as u64 + spilled.writes;
        KeptPrepare { writes, locks: writes + locks, parts: 0, spilled: *spilled }
    }

    /// The keys of its rows.
    fn keys(self, id: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        let parts = (0..self.parts).map(move |part| part_key(id, part));
        parts.chain(self.spilled.keys()).chain([head_key(id)])
    }
}

fn part_key(id: &[u8], part: u32) -> Vec<u8> {
    // No name is longer than 140 bytes.
    [PART, &[id.len() as u8], id, &part.to_be_bytes()].concat()
}

fn head_key(id: &[u8]) -> Vec<u8> {
    [HEAD, id].concat()
}

/// The records of a prepare with the table numbers of the reader.
pub(super) fn with_own_tables<'a>(
    records: impl Iterator<Item = Record<'a>>,
    own: impl Fn(TableId) -> Result<TableId>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for record in records.filter(|record| record.kind != Kind::SpilledRun) {
        let table = match record.table {
            SYSTEM_TABLE => SYSTEM_TABLE,
            other => own(other)?,
        };
        encode_record(&mut bytes, table, record.kind, record.key, record.value);
    }
    Ok(bytes)
}

impl FollowedPrepares {
    /// What a reader's table has.
    pub(super) fn load(db: &Database, table: &Table, keeps_rows: bool) -> Result<Self> {
        let mut prepares = FollowedPrepares { keeps_rows, ..FollowedPrepares::default() };
        for row in table.prefix(HEAD) {
            let (key, row) = row?;
            let kept = KeptPrepare::of_row(&row).ok_or_else(|| damage(db, "a row of one"))?;
            let id = key[HEAD.len()..].to_vec();
            prepares.news.insert(id.clone(), Some(kept));
            prepares.kept.insert(id, kept);
        }
        prepares.tell(db);
        Ok(prepares)
    }

    /// Takes note of a prepare, with the reader's table numbers. Its rows go with the next commit,
    /// which has those that it has spilled too.
    pub(super) fn add(&mut self, records: Vec<u8>, spilled: Option<SpilledRows>) {
        let Some(head) = PrepareHead::of(&records) else { return };
        let id = head.id.to_vec();
        debug_assert!(!self.kept.contains_key(&id), "a name is prepared once at a time");
        let spilled = spilled.unwrap_or_default();
        self.fresh.insert(id, FreshPrepare { records, spilled });
    }

    /// Adds one whose records come in several pieces, all of them in commits of their own: no
    /// position speaks of it yet.
    pub(super) fn add_whole(
        &mut self,
        (db, table): (&Database, &Table),
        records: &[u8],
        pieces: impl Iterator<Item = Result<Vec<u8>>>,
    ) -> Result<()> {
        let Some(head) = PrepareHead::of(records) else { return Ok(()) };
        let (id, mut batch) = (head.id.to_vec(), WriteBatch::new());
        // The head counts each run once.
        let mut writes = records_of(records).filter(|record| is_write(record.kind)).count();
        let mut parts = put_parts(&mut batch, table, &id, (0, records));
        for piece in pieces {
            let piece = piece?;
            writes += records_of(&piece).count();
            parts = put_parts(&mut batch, table, &id, (parts, &piece));
            db.write(std::mem::take(&mut batch))?;
        }
        let writes = writes as u64;
        let (locks, spilled) = (writes + u64::from(head.locks), SpilledRows::default());
        let kept = KeptPrepare { writes, locks, parts, spilled };
        batch.put(table, head_key(&id), kept.to_row());
        db.write(batch)?;
        self.news.insert(id.clone(), Some(kept));
        self.kept.insert(id, kept);
        self.tell(db);
        Ok(())
    }

    /// One has its verdict, which `batch` carries out.
    pub(super) fn resolve(&mut self, id: &[u8], batch: &mut WriteBatch, table: &Table) {
        if self.fresh.remove(id).is_some() {
            return;
        }
        let Some(kept) = self.kept.remove(id) else { return };
        self.resolved.extend(self.prepared.take(id));
        self.news.insert(id.to_vec(), None);
        for key in kept.keys(id).filter(|_| !self.keeps_rows) {
            batch.delete(table, key);
        }
    }

    /// Bytes that the next commit takes along.
    pub(super) fn fresh_bytes(&self) -> usize {
        self.fresh.values().map(|fresh| fresh.records.len()).sum()
    }

    /// Adds the rows of fresh ones to a commit that moves the position past them.
    pub(super) fn write(
        &mut self,
        db: &Database,
        batch: &mut WriteBatch,
        table: &Table,
    ) -> Result<()> {
        self.roll_back(db)?;
        for (id, fresh) in std::mem::take(&mut self.fresh) {
            let mut kept = KeptPrepare::of(&fresh);
            kept.parts = put_parts(batch, table, &id, (0, &fresh.records));
            batch.put(table, head_key(&id), kept.to_row());
            self.news.insert(id.clone(), Some(kept));
            self.kept.insert(id, kept);
        }
        Ok(())
    }

    /// Takes [`FollowedPrepares::prepare_all`] back.
    pub(super) fn give_up(&mut self, db: &Database) -> Result<()> {
        self.resolved.extend(std::mem::take(&mut self.prepared));
        self.roll_back(db)
    }

    fn roll_back(&mut self, db: &Database) -> Result<()> {
        while let Some(id) = self.resolved.last() {
            db.roll_back_prepared(id, Durability::Durable)?;
            self.resolved.pop();
        }
        Ok(())
    }

    /// The commit is done: what it changed is listed.
    pub(super) fn tell(&mut self, db: &Database) {
        let listed = &db.inner.transactions.prepared;
        for (id, kept) in std::mem::take(&mut self.news) {
            let info = kept.map(|kept| PreparedInfo::new(&id, kept.writes, kept.locks));
            listed.follow(&id, info);
        }
    }

    /// Prepares each of them in the reader's database, which is about to write. Those that are
    /// prepared stay so while the log goes on.
    pub(super) fn prepare_all(&mut self, db: &Database, table: &Table) -> Result<()> {
        debug_assert!(self.fresh.is_empty(), "the last commit took them along");
        let mut tables = BTreeMap::new();
        for name in db.table_names() {
            let table = db.existing_table(&name)?;
            tables.insert(table.slot.core().id(), table);
        }
        for (id, kept) in &self.kept {
            if self.prepared.contains(id) {
                continue;
            }
            // Rows that were written lie in ranges that are locked, or are locked one by one. The
            // writer had the locks, so there is no snapshot to compare rows with.
            let unread = TxnOptions::new().isolation(Isolation::ReadCommitted);
            let txn = db.begin_with(unread)?;
            let mut bytes = Vec::new();
            // The loop replays the records in memory first, then the spilled rows: these are newer
            // than the range deletes among the records.
            for key in kept.keys(id).filter(|key| *key != head_key(id)) {
                let row = table.get(key)?;
                bytes.extend_from_slice(&row.ok_or_else(|| damage(db, "each of its parts"))?);
                let mut done = 0;
                for record in records_of(&bytes) {
                    done += record.stored_len();
                    if record.table != SYSTEM_TABLE {
                        let table = tables.get(&record.table);
                        let table = table.ok_or_else(|| damage(db, "a table that is there"))?;
                        replay(&txn, table, &record)?;
                    }
                }
                bytes.drain(..done);
            }
            if !bytes.is_empty() {
                return Err(damage(db, "whole records"));
            }
            db.inner.transactions.prepared.follow(id, None);
            txn.prepare(id)?;
            self.prepared.insert(id.clone());
        }
        Ok(())
    }
}

/// Does again what a prepared transaction did.
fn replay(txn: &Transaction, table: &Table, record: &Record<'_>) -> Result<()> {
    match record.kind {
        Kind::Put => txn.put(table, record.key, record.value),
        Kind::Delete => txn.delete(table, record.key),
        Kind::RangeDelete => {
            let end = decode_end(record.key, record.value).flatten();
            let end = end.map_or(Bound::Unbounded, Bound::Excluded);
            txn.delete_range(table, (Bound::Included(record.key), end))
        }
        Kind::Lock => txn.lock_again(table, record),
        _ => Ok(()),
    }
}

fn is_write(kind: Kind) -> bool {
    matches!(kind, Kind::Put | Kind::Delete | Kind::Merge | Kind::RangeDelete)
}

/// Puts bytes behind the parts that there are; how many there are then.
fn put_parts(
    batch: &mut WriteBatch,
    table: &Table,
    id: &[u8],
    (mut parts, bytes): (u32, &[u8]),
) -> u32 {
    for part in bytes.chunks(PART_BYTES) {
        batch.put(table, part_key(id, parts), part);
        parts += 1;
    }
    parts
}

fn damage(db: &Database, expected: &str) -> Error {
    let found = Mismatch::new(expected, "other bytes");
    let what = "a prepared transaction of the shared database";
    Error::corrupt(found.at(what, "ssd", &db.inner.path, 0))
}
