//! Reads of tables through the database: each as of its own moment.

use std::sync::Arc;

use bytes::Bytes;

use super::Database;
use crate::error::{Error, Result};
use crate::read::KeyBounds;
use crate::table::{Range, ReadTables, Table};

impl Database {
    fn check_own(&self, table: &Table) -> Result<()> {
        if Arc::ptr_eq(self.inner.shared(), &table.shared) {
            return Ok(());
        }
        let name = table.name();
        Err(Error::invalid(format!("table {name:?} is of another database than the one asked")))
    }
}

impl ReadTables for Database {
    type Rows = Range;

    fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.check_own(table)?;
        table.get(key)
    }

    fn range(&self, table: &Table, range: impl KeyBounds) -> Result<Range> {
        self.check_own(table)?;
        Ok(table.range(range))
    }

    fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.check_own(table)?;
        Ok(table.prefix(prefix))
    }

    fn contains_key(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_own(table)?;
        table.contains_key(key)
    }

    fn multi_get<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        self.check_own(table)?;
        table.multi_get(keys)
    }

    fn first(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.check_own(table)?;
        table.first()
    }

    fn last(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.check_own(table)?;
        table.last()
    }
}
