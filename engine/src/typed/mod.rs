//! Tables with types: keys by an encoding that keeps their order, values by serde.
//!
//! A typed table is a view of a table of bytes, so both may be used together, and every call of the
//! table of bytes is there by [`TypedTable::table`]. The options of the table have the names of its
//! types ([`TypeName`]), and an opening with other types fails.
//!
//! Keys are encoded as [`TypedKey`] says. Values are in the format `postcard`: small, without names
//! of fields. A struct may get new fields only as its own format allows; where that matters, have
//! an enum of versions as the value.

/// Calls a macro with the fields of each tuple that keys and names are made for.
macro_rules! for_tuples {
    ($call:ident) => {
        $call!(A);
        $call!(A, B);
        $call!(A, B, C);
        $call!(A, B, C, D);
        $call!(A, B, C, D, E);
        $call!(A, B, C, D, E, F);
    };
}

mod key;
mod name;
mod range;
mod transactions;

use std::marker::PhantomData;
use std::ops::RangeBounds;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use key::{PrefixOf, TypedKey};
pub use name::TypeName;
pub use range::TypedRange;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Durability;
use crate::base::options::types::TypeNames;
use crate::engine::Database;
use crate::engine::TableRef;
use crate::table::{BulkLoad, Range, Table, WriteBatch};
use range::Encoded;

/// What a change makes of the bytes of a value.
type Changing<'a> = dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>> + 'a;

/// A type that a typed table has as its value: one that serde stores, with a [`TypeName`].
pub trait TypedValue: TypeName + Serialize + DeserializeOwned {}

impl<V: TypeName + Serialize + DeserializeOwned> TypedValue for V {}

impl Database {
    /// The table of this name, with typed keys and values, created if there is none; or that of a
    /// handle. A table that has no types yet gets these. It goes without for now if the database
    /// cannot be written to, or the disk is full.
    ///
    /// # Errors
    ///
    /// `WrongType` if it was opened with other types before; `TooLarge` if a type's name has more
    /// than 47 bytes; otherwise as [`Database::table`], and, where a table gets types, as
    /// [`Database::set_table_options`].
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
    /// impl terrace::typed::TypeName for Order {
    ///     fn type_name() -> String {
    ///         "Order".into()
    ///     }
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
    ///
    /// let other = db.typed::<(u32, String), u64>("orders").unwrap_err();
    /// assert_eq!(other.kind(), terrace::ErrorKind::WrongType);
    /// # Ok(())
    /// # }
    /// ```
    pub fn typed<'a, K: TypedKey, V: TypedValue>(
        &self,
        table: impl Into<TableRef<'a>>,
    ) -> Result<TypedTable<K, V>> {
        let types = TypeNames::new(&K::type_name(), &V::type_name())?;
        let slot = self.inner.catalog.open_typed(table.into(), types)?;
        Ok(TypedTable { table: self.handle(slot), types: PhantomData })
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
        f.debug_tuple("TypedTable").field(&self.table.name()).finish()
    }
}

impl<K: TypedKey, V: TypedValue> TypedTable<K, V> {
    /// The table of bytes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The same table by a handle whose writes are as durable as is asked for. See
    /// [`Table::durability`].
    #[must_use]
    pub fn durability(&self, durability: Durability) -> Self {
        TypedTable { table: self.table.durability(durability), types: PhantomData }
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

    /// Stores a row, durably, and returns the value that it had.
    ///
    /// # Errors
    ///
    /// As [`Table::replace`]; `Invalid` if serde refuses the value; `WrongType` if the bytes that
    /// were there are no `V`: they are replaced.
    pub fn replace(&self, key: &K, value: &V) -> Result<Option<V>> {
        let key = key.to_bytes();
        self.read_some(&key, self.table.replace(&key, self.value_bytes(value)?)?)
    }

    /// Removes a row, durably, and returns the value that it had.
    ///
    /// # Errors
    ///
    /// As [`Table::take`]; `WrongType` if the bytes that were there are no `V`: they are removed.
    pub fn take(&self, key: &K) -> Result<Option<V>> {
        let key = key.to_bytes();
        self.read_some(&key, self.table.take(&key)?)
    }

    /// Removes a row, durably.
    ///
    /// # Errors
    ///
    /// As [`Table::delete`].
    pub fn delete(&self, key: &K) -> Result<()> {
        self.table.delete(key.to_bytes())
    }

    /// Removes all rows in a range of keys, durably and at once. See [`Table::delete_range`].
    ///
    /// # Errors
    ///
    /// As [`Table::delete_range`].
    pub fn delete_range(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.table.delete_range(Encoded::of(&range))
    }

    /// Removes all rows whose keys begin with the fields of `prefix`, durably and at once.
    ///
    /// # Errors
    ///
    /// As [`Table::delete_range`].
    pub fn delete_prefix(&self, prefix: &impl PrefixOf<K>) -> Result<()> {
        self.table.delete_prefix(prefix.to_bytes())
    }

    /// Removes the row with the least key, durably, and returns it. See [`Table::pop_first`].
    ///
    /// # Errors
    ///
    /// As [`Table::pop_first`]; `WrongType` if its bytes are not of the table's types: it is
    /// removed.
    pub fn pop_first(&self) -> Result<Option<(K, V)>> {
        self.table.pop_first()?.map(|row| self.read_row(&row)).transpose()
    }

    /// Removes the row with the greatest key, durably, and returns it.
    ///
    /// # Errors
    ///
    /// As [`TypedTable::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(K, V)>> {
        self.table.pop_last()?.map(|row| self.read_row(&row)).transpose()
    }

    /// The row with the least key.
    ///
    /// # Errors
    ///
    /// As [`Table::first`]; `WrongType` if its bytes are not of the table's types.
    pub fn first(&self) -> Result<Option<(K, V)>> {
        self.table.first()?.map(|row| self.read_row(&row)).transpose()
    }

    /// The row with the greatest key.
    ///
    /// # Errors
    ///
    /// As [`TypedTable::first`].
    pub fn last(&self) -> Result<Option<(K, V)>> {
        self.table.last()?.map(|row| self.read_row(&row)).transpose()
    }

    /// The values of several keys, all as of one moment, in the order of the keys.
    ///
    /// # Errors
    ///
    /// As [`Table::multi_get`]; `WrongType` if the stored bytes of one are no `V`.
    pub fn multi_get<'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> Result<Vec<Option<V>>>
    where
        K: 'a,
    {
        self.multi_get_by(keys, |keys| self.table.multi_get(keys))
    }

    /// About how many rows lie in a range of keys. See [`Table::approximate_len`].
    ///
    /// # Errors
    ///
    /// As [`Table::approximate_len`].
    pub fn approximate_len(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.table.approximate_len(Encoded::of(&range))
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// As [`Table::get`]; `WrongType` if the stored bytes are no `V`.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let key = key.to_bytes();
        self.read_some(&key, self.table.get(&key)?)
    }

    /// Whether it has `key`. The value is not read.
    ///
    /// # Errors
    ///
    /// As [`Table::contains_key`].
    pub fn contains_key(&self, key: &K) -> Result<bool> {
        self.table.contains_key(key.to_bytes())
    }

    /// Gives `key` the value `new`, durably, if it has the value `expected`; whether it had. `None`
    /// stands for no value. Values are compared as bytes.
    ///
    /// # Errors
    ///
    /// As [`Table::compare_and_set`]; `Invalid` if serde refuses a value.
    pub fn compare_and_set(&self, key: &K, expected: Option<&V>, new: Option<&V>) -> Result<bool> {
        let (expected, new) = (self.some_bytes(expected)?, self.some_bytes(new)?);
        self.table.compare_and_set(key.to_bytes(), expected.as_deref(), new.as_deref())
    }

    /// Changes a row by a function of its value, durably, with no other change between reading and
    /// writing. `None` is no row, as argument and as result. Returns the new value.
    ///
    /// # Errors
    ///
    /// As [`Table::update`]; `WrongType` if the stored bytes are no `V`, or serde refuses the new
    /// one.
    pub fn update(&self, key: &K, change: impl FnMut(Option<V>) -> Option<V>) -> Result<Option<V>> {
        self.update_by(&key.to_bytes(), change, |bytes, f| self.table.update(bytes, f))
    }

    /// Removes the rows in a range for which `goes` is true, durably and together, and returns
    /// them. See [`Table::extract_if`].
    ///
    /// # Errors
    ///
    /// As [`Table::extract_if`]; `WrongType` if the bytes of a row are not of the table's types.
    pub fn extract_if(
        &self,
        range: impl RangeBounds<K>,
        goes: impl FnMut(&K, &V) -> bool,
    ) -> Result<Vec<(K, V)>> {
        self.table.in_transaction(|txn| self.extract_if_in(txn, range, goes)?.collect())
    }

    /// Removes the rows in a range for which `stays` is false, durably and together; how many.
    ///
    /// # Errors
    ///
    /// As [`TypedTable::extract_if`].
    pub fn retain(
        &self,
        range: impl RangeBounds<K>,
        stays: impl FnMut(&K, &V) -> bool,
    ) -> Result<u64> {
        self.table.in_transaction(|txn| self.retain_in(txn, range, stays))
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

    /// Adds a row to a bulk load of the table, whose rows come in the order of their keys.
    ///
    /// # Errors
    ///
    /// As [`BulkLoad::put`]; `Invalid` if serde refuses the value.
    pub fn add_to_load(&self, load: &mut BulkLoad, key: &K, value: &V) -> Result<()> {
        load.put(key.to_bytes(), self.value_bytes(value)?)
    }

    /// Changes a row by `update`, the call of a table or a transaction.
    fn update_by(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<V>) -> Option<V>,
        update: impl FnOnce(&[u8], &mut Changing<'_>) -> Result<Option<Bytes>>,
    ) -> Result<Option<V>> {
        // What fails inside is told behind the call. The row stays as it is then.
        let mut failed = None;
        let new = update(key, &mut |old| {
            // An earlier try does not count.
            failed = None;
            let changed = old
                .map(|old| self.read_value(key, old))
                .transpose()
                .and_then(|value| change(value).map(|new| self.value_bytes(&new)).transpose());
            changed.unwrap_or_else(|error| {
                failed = Some(error);
                old.map(<[u8]>::to_vec)
            })
        })?;
        failed.map_or_else(|| self.read_some(key, new), Err)
    }

    /// Reads several values by `multi_get`, the call of a table, a snapshot or a transaction.
    fn multi_get_by<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a K>,
        multi_get: impl FnOnce(&[Vec<u8>]) -> Result<Vec<Option<Bytes>>>,
    ) -> Result<Vec<Option<V>>>
    where
        K: 'a,
    {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(TypedKey::to_bytes).collect();
        let values = multi_get(&keys)?.into_iter().zip(&keys);
        values.map(|(value, key)| self.read_some(key, value)).collect()
    }

    fn some_bytes(&self, value: Option<&V>) -> Result<Option<Vec<u8>>> {
        value.map(|value| self.value_bytes(value)).transpose()
    }

    fn read_some(&self, key: &[u8], value: Option<Bytes>) -> Result<Option<V>> {
        value.map(|value| self.read_value(key, &value)).transpose()
    }

    fn value_bytes(&self, value: &V) -> Result<Vec<u8>> {
        postcard::to_allocvec(value).map_err(|e| {
            let (table, kind) = (self.table.name(), V::type_name());
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

    fn read_row(&self, (key, value): &(Bytes, Bytes)) -> Result<(K, V)> {
        Ok((self.read_key(key)?, self.read_value(key, value)?))
    }

    fn read_key(&self, key: &[u8]) -> Result<K> {
        K::from_bytes(key).ok_or_else(|| {
            let (table, kind) = (self.table.name(), K::type_name());
            let key = key.escape_ascii();
            Error::new(ErrorKind::WrongType, format!(
                "table {table:?} has the key \"{key}\", which is no {kind}: open it with the type \
                 that wrote it"
            ))
        })
    }

    fn wrong(&self, key: &[u8], what: &str) -> Error {
        let (table, kind) = (self.table.name(), V::type_name());
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
