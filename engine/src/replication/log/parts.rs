//! Parts of commits that are too large for a segment (`docs/format.md`, "Shared store"): rows that
//! the writer has in extents. They count for nothing until the segment behind them says so.

use super::groups::records_of;
use crate::memtable::{Record, encode_record};
use crate::record::{Kind, Lsn, Reader, TableId, put_u32, put_u64};

/// What the rows of a part are. The numbers are in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum PartKind {
    /// A commit's that fits in no zone.
    Written = 0,
    /// A bulk load's, which has laid them out.
    Loaded = 1,
    /// Those that a transaction has spilled which is prepared: they count for no reader.
    Prepared = 2,
}

impl PartKind {
    fn of(n: u32) -> Option<PartKind> {
        use PartKind::{Loaded, Prepared, Written};
        [Written, Loaded, Prepared].into_iter().find(|kind| *kind as u32 == n)
    }
}

/// Rows of one run of a large commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LargePart {
    /// That of the commit.
    pub(crate) lsn: Lsn,
    /// Its place among the parts of the commit, from 0.
    pub(crate) index: u32,
    /// Which of the commit's runs it is of, from 0.
    pub(crate) run: u32,
    /// By the writer's number.
    pub(crate) table: TableId,
    pub(crate) kind: PartKind,
    /// Records of the table, by their keys. No key comes twice in a run.
    pub(crate) records: Vec<u8>,
}

impl LargePart {
    /// Adds a row, of which the key is greater than all before.
    pub(crate) fn add(&mut self, kind: Kind, key: &[u8], value: &[u8]) {
        encode_record(&mut self.records, self.table, kind, key, value);
    }

    /// Its rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Record<'_>> {
        records_of(&self.records)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.lsn);
        for field in [self.index, self.run, self.table, self.kind as u32] {
            put_u32(out, field);
        }
        out.extend_from_slice(&self.records);
    }

    /// Reads one that comes after the LSN `last`; `None` for other bytes.
    pub(super) fn decode(bytes: &[u8], last: Lsn) -> Option<LargePart> {
        let mut reader = Reader::new(bytes);
        let (lsn, index, run, table) = (reader.u64()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let kind = PartKind::of(reader.u32()?)?;
        let records = bytes.get(24..)?.to_vec();
        let part = LargePart { lsn, index, run, table, kind, records };
        (lsn > last && run <= index && part.is_sound()).then_some(part)
    }

    fn is_sound(&self) -> bool {
        let (mut len, mut before): (usize, Option<&[u8]>) = (0, None);
        for row in self.rows() {
            let is_row = matches!(row.kind, Kind::Put | Kind::Delete | Kind::Merge);
            if !is_row || row.table != self.table || before.is_some_and(|key| key >= row.key) {
                return false;
            }
            (len, before) = (len + row.stored_len(), Some(row.key));
        }
        len > 0 && len == self.records.len()
    }
}
