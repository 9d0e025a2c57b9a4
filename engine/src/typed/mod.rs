//! Tables with types: keys by an encoding that keeps their order, values by serde.
//!
//! A typed table is a view of a table of bytes. It stores nothing beside the rows, so both may be
//! used together, and every call of the table of bytes is there by [`TypedTable::table`].
//!
//! Keys are encoded as [`TypedKey`] says. Values are in the format `postcard`: small, without names
//! of fields. A struct may get new fields only as its own format allows; where that matters, have
//! an enum of versions as the value.

mod key;
mod range;

use std::any::type_name;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use key::{PrefixOf, TypedKey};
pub use range::TypedRange;

use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::Database;
use crate::table::{Range, ReadTables, Table, WriteBatch};
use crate::txn::Transaction;
use range::Encoded;

impl Database {
    /// The table of this name, with typed keys and values, created if there is none.
    ///
    /// # Errors
    ///
    /// As [`Database::table`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    /// struct Order {
    ///     item: String,
    ///     count: u32,
    /// }
    ///
    /// let orders = db.typed::<(u32, String), Order>("orders")?;
    /// let order = Order { item: "tea".into(), count: 3 };
    /// orders.put(&(7, "2026-01".into()), &order)?;
    /// assert_eq!(orders.get(&(7, "2026-01".into()))?, Some(order));
    ///
    /// // All orders of customer 7.
    /// for row in orders.prefix(&(7,)) {
    ///     let ((_, month), order) = row?;
    ///     assert_eq!((&month[..], order.count), ("2026-01", 3));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn typed<K: TypedKey, V: Serialize + DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<TypedTable<K, V>> {
        self.table(name).map(TypedTable::of)
    }
}

/// A table whose keys are `K` and whose values are `V`. See [`Database::typed`].
///
/// A handle is cheap to clone and may be used from any thread.
pub struct TypedTable<K, V> {
    table: Table,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for TypedTable<K, V> {
    fn clone(&self) -> Self {
        TypedTable { table: self.table.clone(), types: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for TypedTable<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, value) = (type_name::<K>(), type_name::<V>());
        write!(f, "TypedTable<{key}, {value}>({:?})", self.table.name())
    }
}

impl<K: TypedKey, V: Serialize + DeserializeOwned> TypedTable<K, V> {
    /// `table`, with these types.
    pub fn of(table: Table) -> TypedTable<K, V> {
        TypedTable { table, types: PhantomData }
    }

    /// The table of bytes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Stores a row, durably.
    ///
    /// # Errors
    ///
    /// As [`Table::put`]; `Invalid` if serde refuses the value.
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        self.table.put(key.to_bytes(), self.value_bytes(value)?)
    }

    /// Stores a row where none is, durably; whether there was none.
    ///
    /// # Errors
    ///
    /// As [`Table::insert_if_absent`]; `Invalid` if serde refuses the value.
    pub fn insert_if_absent(&self, key: &K, value: &V) -> Result<bool> {
        self.table.insert_if_absent(key.to_bytes(), self.value_bytes(value)?)
    }

    /// Removes a row, durably.
    ///
    /// # Errors
    ///
    /// As [`Table::delete`].
    pub fn delete(&self, key: &K) -> Result<()> {
        self.table.delete(key.to_bytes())
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// As [`Table::get`]; `WrongType` if the stored bytes are no `V`.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let key = key.to_bytes();
        self.table.get(&key)?.map(|value| self.read_value(&key, &value)).transpose()
    }

    /// Whether it has `key`. The value is not read.
    ///
    /// # Errors
    ///
    /// As [`Table::contains_key`].
    pub fn contains_key(&self, key: &K) -> Result<bool> {
        self.table.contains_key(key.to_bytes())
    }

    /// Changes a row by a function of its value, durably, with no other change between reading and
    /// writing. `None` is no row, as argument and as result. Returns the new value.
    ///
    /// # Errors
    ///
    /// As [`Table::update`]; `WrongType` if the stored bytes are no `V`, or serde refuses the new
    /// one.
    pub fn update(
        &self,
        key: &K,
        mut change: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>> {
        let bytes = key.to_bytes();
        // What fails inside is told behind the call. The row stays as it is then.
        let mut failed = None;
        let new = self.table.update(&bytes, |old| {
            let changed = old
                .map(|old| self.read_value(&bytes, old))
                .transpose()
                .and_then(|value| change(value).map(|new| self.value_bytes(&new)).transpose());
            changed.unwrap_or_else(|error| {
                failed = Some(error);
                old.map(<[u8]>::to_vec)
            })
        })?;
        match failed {
            Some(error) => Err(error),
            None => new.map(|new| self.read_value(&bytes, &new)).transpose(),
        }
    }

    /// The rows in a range of keys, in the order of the keys, from either end.
    pub fn range(&self, range: impl RangeBounds<K>) -> TypedRange<K, V, Range> {
        TypedRange::new(self.clone(), self.table.range(Encoded::of(&range)))
    }

    /// All rows.
    pub fn iter(&self) -> TypedRange<K, V, Range> {
        self.range(..)
    }

    /// The rows whose keys begin with the fields of `prefix`.
    pub fn prefix(&self, prefix: &impl PrefixOf<K>) -> TypedRange<K, V, Range> {
        TypedRange::new(self.clone(), self.table.prefix(prefix.to_bytes()))
    }

    /// The value of `key` in a snapshot or a transaction.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::get`]; `WrongType` if the stored bytes are no `V`.
    pub fn get_in(&self, reader: &impl ReadTables, key: &K) -> Result<Option<V>> {
        let key = key.to_bytes();
        reader.get(&self.table, &key)?.map(|value| self.read_value(&key, &value)).transpose()
    }

    /// The rows in a range of keys in a snapshot or a transaction.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::range`].
    pub fn range_in<R: ReadTables>(
        &self,
        reader: &R,
        range: impl RangeBounds<K>,
    ) -> Result<TypedRange<K, V, R::Rows>> {
        Ok(TypedRange::new(self.clone(), reader.range(&self.table, Encoded::of(&range))?))
    }

    /// Stores a row in a transaction.
    ///
    /// # Errors
    ///
    /// As [`Transaction::put`]; `Invalid` if serde refuses the value.
    pub fn put_in(&self, txn: &Transaction, key: &K, value: &V) -> Result<()> {
        txn.put(&self.table, key.to_bytes(), self.value_bytes(value)?)
    }

    /// Removes a row in a transaction.
    ///
    /// # Errors
    ///
    /// As [`Transaction::delete`].
    pub fn delete_in(&self, txn: &Transaction, key: &K) -> Result<()> {
        txn.delete(&self.table, key.to_bytes())
    }

    /// Adds a row to a batch.
    ///
    /// # Errors
    ///
    /// `Invalid` if serde refuses the value.
    pub fn add_put(&self, batch: &mut WriteBatch, key: &K, value: &V) -> Result<()> {
        batch.put(&self.table, key.to_bytes(), self.value_bytes(value)?);
        Ok(())
    }

    /// Adds the removal of a row to a batch.
    pub fn add_delete(&self, batch: &mut WriteBatch, key: &K) {
        batch.delete(&self.table, key.to_bytes());
    }

    fn value_bytes(&self, value: &V) -> Result<Vec<u8>> {
        postcard::to_allocvec(value).map_err(|e| {
            let (table, kind) = (self.table.name(), type_name::<V>());
            Error::invalid(format!("table {table:?} cannot store this {kind}: {e}"))
        })
    }

    fn read_value(&self, key: &[u8], value: &[u8]) -> Result<V> {
        let read = postcard::take_from_bytes(value);
        match read {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(self.wrong(key, &format!("{} bytes too many", rest.len()))),
            Err(e) => Err(self.wrong(key, &e.to_string())),
        }
    }

    fn read_key(&self, key: &[u8]) -> Result<K> {
        K::from_bytes(key).ok_or_else(|| {
            let (table, kind) = (self.table.name(), type_name::<K>());
            let key = key.escape_ascii();
            Error::new(ErrorKind::WrongType, format!(
                "table {table:?} has the key \"{key}\", which is no {kind}: open it with the type \
                 that wrote it"
            ))
        })
    }

    fn wrong(&self, key: &[u8], what: &str) -> Error {
        let (table, kind) = (self.table.name(), type_name::<V>());
        let key = key.escape_ascii();
        Error::new(
            ErrorKind::WrongType,
            format!(
                "table {table:?} has a value at \"{key}\" that is no {kind} ({what}): open it with \
                 the type that wrote it"
            ),
        )
    }
}
