//! How far a reader of the log has come: a row of a table of its own database, written by the same
//! commit as what it says.

use std::collections::BTreeMap;

use crate::record::{Lsn, Reader, TableId, put_bytes, put_u32, put_u64};

/// Its row.
pub(super) const ROW: &[u8] = b"position";

/// The row with the checkpoint of which a reader reads data in the store, if it does.
pub(super) const BASE: &[u8] = b"base";

/// How far a reader has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogPosition {
    /// The last entry that is applied whole.
    pub(super) entry: u64,
    /// The claim of the writer whose table numbers these are.
    pub(super) claim: u64,
    /// The last commit that is applied.
    pub(super) lsn: Lsn,
    /// Tables of the writer, by its numbers.
    pub(super) tables: BTreeMap<TableId, String>,
}

impl LogPosition {
    pub(super) fn to_row(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.entry);
        put_u64(&mut out, self.claim);
        put_u64(&mut out, self.lsn);
        for (id, name) in &self.tables {
            put_u32(&mut out, *id);
            put_bytes(&mut out, name.as_bytes());
        }
        out
    }

    pub(super) fn of_row(bytes: &[u8]) -> Option<LogPosition> {
        let mut reader = Reader::new(bytes);
        let (entry, claim, lsn) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut tables = BTreeMap::new();
        while !reader.is_empty() {
            let id = reader.u32()?;
            let name = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
            tables.insert(id, name);
        }
        Some(LogPosition { entry, claim, lsn, tables })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_round_trips_and_a_cut_one_is_none() {
        let tables = [(3, "a".to_string()), (9, "b".to_string())].into();
        let position = LogPosition { entry: 7, claim: 2, lsn: 90, tables };
        let bytes = position.to_row();
        assert_eq!(LogPosition::of_row(&bytes), Some(position));
        for len in [0, 7, 23, 25, 30] {
            assert_eq!(LogPosition::of_row(&bytes[..len]), None, "{len}");
        }
    }
}
