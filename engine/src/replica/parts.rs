//! Parts of commits that are too large for a segment (`docs/format.md`, "Shared store"): rows that
//! the writer has in extents. They count for nothing until the segment behind them says so.

use super::groups::records_of;
use crate::memtable::{Record, encode_record};
use crate::record::{Kind, Lsn, Reader, TableId, put_u32, put_u64};

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
    /// Whether a bulk load has laid the run out.
    pub(crate) loaded: bool,
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
        for field in [self.index, self.run, self.table, u32::from(self.loaded)] {
            put_u32(out, field);
        }
        out.extend_from_slice(&self.records);
    }

    /// Reads one that comes after the LSN `last`; `None` for other bytes.
    pub(super) fn decode(bytes: &[u8], last: Lsn) -> Option<LargePart> {
        let mut reader = Reader::new(bytes);
        let (lsn, index, run, table) = (reader.u64()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let loaded = match reader.u32()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let records = bytes.get(24..)?.to_vec();
        let part = LargePart { lsn, index, run, table, loaded, records };
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
