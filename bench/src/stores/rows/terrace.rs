//! Terrace, as it opens with no option set.

use std::ops::Bound;
use std::path::Path;

use anyhow::Result;
use terrace::{Database, Durability, Options, Snapshot, Table, Transaction, TxnOptions};

use super::{Meant, ReadWork, RowReader, RowStore, RowWriter, WriteWork};
use crate::stores::read_value;

struct Terrace {
    table: Table,
    db: Database,
    settings: String,
}

pub(super) fn open(dir: &Path) -> Result<Box<dyn RowStore>> {
    let options = Options::new();
    let settings = format!("{options:?}, no option set");
    let db = options.open(dir.join("db"))?;
    Ok(Box::new(Terrace { table: db.table("t")?, db, settings }))
}

impl RowStore for Terrace {
    fn write(&self, sync: bool, work: WriteWork<'_>) -> Result<()> {
        let durability = if sync { Durability::Durable } else { Durability::Relaxed };
        let txn = self.db.begin_with(TxnOptions::new().durability(durability))?;
        let mut writer = Writer { txn, table: &self.table };
        work(&mut writer)?;
        Ok(writer.txn.commit()?)
    }

    fn read(&self, work: ReadWork<'_>) -> Result<()> {
        work(&mut Reader { snapshot: self.db.snapshot()?, table: &self.table })
    }

    fn compact(&mut self) -> Result<()> {
        self.db.compact_range(&self.table, ..)?;
        Ok(())
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

struct Writer<'a> {
    txn: Transaction,
    table: &'a Table,
}

impl RowWriter for Writer<'_> {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.txn.put(self.table, key, value)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.txn.delete(self.table, key)?)
    }

    fn pop(&mut self, from_back: bool) -> Result<bool> {
        let popped = match from_back {
            true => self.txn.pop_last(self.table)?,
            false => self.txn.pop_first(self.table)?,
        };
        Ok(popped.is_some())
    }

    fn retain(&mut self, stays: Meant<'_>) -> Result<u64> {
        Ok(self.txn.retain(self.table, .., stays)?)
    }

    fn extract_if(&mut self, from: &[u8], to: &[u8], goes: Meant<'_>) -> Result<u64> {
        let range = (Bound::Included(from), Bound::Excluded(to));
        let mut extracted = 0;
        for row in self.txn.extract_if(self.table, range, goes)? {
            std::hint::black_box(row?);
            extracted += 1;
        }
        Ok(extracted)
    }
}

struct Reader<'a> {
    snapshot: Snapshot,
    table: &'a Table,
}

impl RowReader for Reader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.snapshot.get_with(self.table, key, read_value)?.is_some())
    }

    fn range(&mut self, from: &[u8], rows: usize) -> Result<usize> {
        let mut range = self.snapshot.range(self.table, from..).limit(rows);
        let mut found = 0;
        while let Some(row) = range.next_with(|_, value| read_value(value)) {
            std::hint::black_box(row?);
            found += 1;
        }
        Ok(found)
    }
}
