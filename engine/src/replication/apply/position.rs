//! The rows that say how far a reader has come, and what the tables of its writer are.

use std::collections::BTreeMap;

use crate::base::error::Result;
use crate::base::record::{Lsn, Reader, TableId, put_u64};
use crate::engine::Database;
use crate::engine::catalog::{READER_POSITION, READER_TABLE};
use crate::table::Table;
use crate::version::{Manifest, Op};

/// The tables of a writer by its numbers, as a reader's table has them.
pub(super) fn named_in(table: &Table) -> Result<BTreeMap<TableId, String>> {
    let mut tables = BTreeMap::new();
    for row in table.prefix(TABLE) {
        let (key, name) = row?;
        if let Ok(id) = key[TABLE.len()..].try_into()
            && let Ok(name) = String::from_utf8(name.to_vec())
        {
            tables.insert(TableId::from_be_bytes(id), name);
        }
    }
    Ok(tables)
}

/// The numbers of a database's tables, by name.
pub(super) fn own_tables(db: &Database) -> Result<BTreeMap<String, TableId>> {
    let number = |name: String| {
        let table = db.existing_table(&name)?;
        Ok((name, table.slot.core().id()))
    };
    db.table_names().into_iter().map(number).collect()
}

/// The tables of a checkpoint.
pub(super) fn tables_of(manifest: &Manifest) -> impl Iterator<Item = (TableId, &str)> {
    manifest.edit.ops.iter().filter_map(|op| match op {
        Op::CreateTable { table, name, .. } => Some((*table, name.as_str())),
        _ => None,
    })
}

/// Tables of a writer by its numbers, but for the one that a reader keeps its position in.
pub(super) fn followed<'a>(
    tables: impl Iterator<Item = (TableId, &'a str)>,
) -> BTreeMap<TableId, String> {
    tables
        .filter(|(_, name)| *name != READER_TABLE)
        .map(|(id, name)| (id, name.to_string()))
        .collect()
}

/// Before the number of a table of the writer: its name.
const TABLE: &[u8] = b"table/";

pub(super) fn table_key(id: TableId) -> Vec<u8> {
    [TABLE, &id.to_be_bytes()].concat()
}

/// Its row.
pub(in crate::replication) const ROW: &[u8] = READER_POSITION;

/// The row with the nonce of the first claim of its log.
pub(super) const LOG: &[u8] = b"log";

/// The row with the checkpoint of which a reader reads data in the store, if it does.
pub(in crate::replication) const BASE: &[u8] = b"base";

/// The row with the checkpoint that the database was restored from. Up to there it may lack what an
/// earlier database of the reader has shown.
pub(super) const START: &[u8] = b"start";

/// How far a reader has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::replication) struct LogPosition {
    /// The last entry that is applied whole.
    pub(in crate::replication) entry: u64,
    /// The claim of the writer whose table numbers these are.
    pub(in crate::replication) claim: u64,
    /// The last commit that is applied.
    pub(in crate::replication) lsn: Lsn,
}

impl LogPosition {
    pub(in crate::replication) fn to_row(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.entry);
        put_u64(&mut out, self.claim);
        put_u64(&mut out, self.lsn);
        out
    }

    pub(in crate::replication) fn of_row(bytes: &[u8]) -> Option<LogPosition> {
        let mut reader = Reader::new(bytes);
        let position =
            LogPosition { entry: reader.u64()?, claim: reader.u64()?, lsn: reader.u64()? };
        reader.is_empty().then_some(position)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::*;
    use crate::engine::catalog::READER_POSITION_LEN;

    #[test]
    fn a_position_round_trips_and_a_cut_one_is_none() {
        let position = LogPosition { entry: 7, claim: 2, lsn: 90 };
        let bytes = position.to_row();
        assert_eq!(LogPosition::of_row(&bytes), Some(position));
        assert_eq!(bytes.len(), READER_POSITION_LEN);
        for len in 0..bytes.len() {
            assert_eq!(LogPosition::of_row(&bytes[..len]), None, "{len}");
        }
    }
}
