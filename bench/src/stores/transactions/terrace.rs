//! Terrace's transactions.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use terrace::{Database, Isolation, Table, TxnOptions};

use super::super::terrace::{Region, database};
use super::{Kind, Memory, Transaction, Transactional, Visit};

struct Terrace {
    table: Table,
    db: Database,
    settings: String,
    /// Removed with it.
    _region: Option<Region>,
}

pub(super) fn open(dir: &Path, memory: Memory, kind: Kind) -> Result<Box<dyn Transactional>> {
    let (db, region, settings) = database(dir, memory, kind)?;
    let settings = format!("{settings}; read committed");
    Ok(Box::new(Terrace { table: db.table("t")?, db, settings, _region: region }))
}

struct Running<'a> {
    transaction: terrace::Transaction,
    table: &'a Table,
}

impl Transactional for Terrace {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>> {
        let options = TxnOptions::new().isolation(Isolation::ReadCommitted);
        let transaction = self.db.begin_with(options)?;
        Ok(Box::new(Running { transaction, table: &self.table }))
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

impl Transaction for Running<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.transaction.get(self.table, key)?.map(|value| value.to_vec()))
    }

    fn get_for_update(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.transaction.get_for_update(self.table, key)?.map(|value| value.to_vec()))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.transaction.put(self.table, key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.transaction.delete(self.table, key)?)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        for row in self.transaction.range(self.table, Range { start: from, end: to })? {
            let (key, value) = row?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(self.transaction.commit()?)
    }
}
