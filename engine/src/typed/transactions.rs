//! Typed tables in snapshots and transactions.

use std::ops::RangeBounds;

use super::range::Encoded;
use super::{PrefixOf, TypedKey, TypedRange, TypedTable, TypedValue};
use crate::base::error::Result;
use crate::table::ReadTables;
use crate::txn::{Transaction, TxnRange};

impl<K: TypedKey, V: TypedValue> TypedTable<K, V> {
    /// The value of `key` in a snapshot or a transaction.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::get`]; `WrongType` if the stored bytes are no `V`.
    pub fn get_in(&self, reader: &impl ReadTables, key: &K) -> Result<Option<V>> {
        let key = key.to_bytes();
        self.read_some(&key, reader.get(&self.table, &key)?)
    }

    /// Whether a snapshot or a transaction has `key`.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::contains_key`].
    pub fn contains_key_in(&self, reader: &impl ReadTables, key: &K) -> Result<bool> {
        reader.contains_key(&self.table, key.to_bytes())
    }

    /// The values of several keys in a snapshot or a transaction, in the order of the keys.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::multi_get`]; `WrongType` if the stored bytes of one are no `V`.
    pub fn multi_get_in<'a>(
        &self,
        reader: &impl ReadTables,
        keys: impl IntoIterator<Item = &'a K>,
    ) -> Result<Vec<Option<V>>>
    where
        K: 'a,
    {
        self.multi_get_by(keys, |keys| reader.multi_get(&self.table, keys))
    }

    /// The row with the least key in a snapshot or a transaction.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::first`]; `WrongType` if its bytes are not of the table's types.
    pub fn first_in(&self, reader: &impl ReadTables) -> Result<Option<(K, V)>> {
        reader.first(&self.table)?.map(|row| self.read_row(&row)).transpose()
    }

    /// The row with the greatest key in a snapshot or a transaction.
    ///
    /// # Errors
    ///
    /// As [`TypedTable::first_in`].
    pub fn last_in(&self, reader: &impl ReadTables) -> Result<Option<(K, V)>> {
        reader.last(&self.table)?.map(|row| self.read_row(&row)).transpose()
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

    /// The rows whose keys begin with the fields of `prefix`, in a snapshot or a transaction.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::prefix`].
    pub fn prefix_in<R: ReadTables>(
        &self,
        reader: &R,
        prefix: &impl PrefixOf<K>,
    ) -> Result<TypedRange<K, V, R::Rows>> {
        Ok(TypedRange::new(self.clone(), reader.prefix(&self.table, prefix.to_bytes())?))
    }

    /// The newest value of `key`, whose row is locked for the transaction.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get_for_update`]; `WrongType` if the stored bytes are no `V`.
    pub fn get_for_update_in(&self, txn: &Transaction, key: &K) -> Result<Option<V>> {
        let key = key.to_bytes();
        self.read_some(&key, txn.get_for_update(&self.table, &key)?)
    }

    /// The newest rows in a range of keys, which is locked for the transaction.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range_for_update`].
    pub fn range_for_update_in(
        &self,
        txn: &Transaction,
        range: impl RangeBounds<K>,
    ) -> Result<TypedRange<K, V, TxnRange>> {
        let rows = txn.range_for_update(&self.table, Encoded::of(&range))?;
        Ok(TypedRange::new(self.clone(), rows))
    }

    /// Stores a row in a transaction, and returns the value that it had.
    ///
    /// # Errors
    ///
    /// As [`Transaction::replace`]; otherwise as [`TypedTable::replace`].
    pub fn replace_in(&self, txn: &Transaction, key: &K, value: &V) -> Result<Option<V>> {
        let key = key.to_bytes();
        self.read_some(&key, txn.replace(&self.table, &key, self.value_bytes(value)?)?)
    }

    /// Removes a row in a transaction, and returns the value that it had.
    ///
    /// # Errors
    ///
    /// As [`Transaction::take`]; otherwise as [`TypedTable::take`].
    pub fn take_in(&self, txn: &Transaction, key: &K) -> Result<Option<V>> {
        let key = key.to_bytes();
        self.read_some(&key, txn.take(&self.table, &key)?)
    }

    /// Gives `key` the value `new` in a transaction, if it has the value `expected`; whether it
    /// had. As [`TypedTable::compare_and_set`].
    ///
    /// # Errors
    ///
    /// As [`Transaction::compare_and_set`]; `Invalid` if serde refuses a value.
    pub fn compare_and_set_in(
        &self,
        txn: &Transaction,
        key: &K,
        expected: Option<&V>,
        new: Option<&V>,
    ) -> Result<bool> {
        let (expected, new) = (self.some_bytes(expected)?, self.some_bytes(new)?);
        txn.compare_and_set(&self.table, key.to_bytes(), expected.as_deref(), new.as_deref())
    }

    /// Changes a row in a transaction by a function of its value. As [`TypedTable::update`].
    ///
    /// # Errors
    ///
    /// As [`Transaction::update`]; otherwise as [`TypedTable::update`].
    pub fn update_in(
        &self,
        txn: &Transaction,
        key: &K,
        change: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>> {
        self.update_by(&key.to_bytes(), change, |bytes, f| txn.update(&self.table, bytes, f))
    }

    /// Stores a row where none is, in a transaction; whether there was none.
    ///
    /// # Errors
    ///
    /// As [`Transaction::insert_if_absent`]; `Invalid` if serde refuses the value.
    pub fn insert_if_absent_in(&self, txn: &Transaction, key: &K, value: &V) -> Result<bool> {
        txn.insert_if_absent(&self.table, key.to_bytes(), self.value_bytes(value)?)
    }

    /// Removes all rows in a range of keys, in a transaction.
    ///
    /// # Errors
    ///
    /// As [`Transaction::delete_range`].
    pub fn delete_range_in(&self, txn: &Transaction, range: impl RangeBounds<K>) -> Result<()> {
        txn.delete_range(&self.table, Encoded::of(&range))
    }

    /// Removes all rows whose keys begin with the fields of `prefix`, in a transaction.
    ///
    /// # Errors
    ///
    /// As [`Transaction::delete_prefix`].
    pub fn delete_prefix_in(&self, txn: &Transaction, prefix: &impl PrefixOf<K>) -> Result<()> {
        txn.delete_prefix(&self.table, prefix.to_bytes())
    }

    /// Removes the row with the least key in a transaction, and returns it.
    ///
    /// # Errors
    ///
    /// As [`Transaction::pop_first`]; `WrongType` if its bytes are not of the table's types.
    pub fn pop_first_in(&self, txn: &Transaction) -> Result<Option<(K, V)>> {
        txn.pop_first(&self.table)?.map(|row| self.read_row(&row)).transpose()
    }

    /// Removes the row with the greatest key in a transaction, and returns it.
    ///
    /// # Errors
    ///
    /// As [`TypedTable::pop_first_in`].
    pub fn pop_last_in(&self, txn: &Transaction) -> Result<Option<(K, V)>> {
        txn.pop_last(&self.table)?.map(|row| self.read_row(&row)).transpose()
    }

    /// Removes the rows in a range for which `goes` is true, in a transaction, and returns them in
    /// order from either end. A row goes when it is asked for. The range is locked at the call.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range_for_update`]. Those of a row come as items, and it stays: those of
    /// [`Transaction::delete`], and `WrongType` if its bytes are not of the table's types.
    pub fn extract_if_in<'a>(
        &'a self,
        txn: &'a Transaction,
        range: impl RangeBounds<K>,
        mut goes: impl FnMut(&K, &V) -> bool + 'a,
    ) -> Result<impl DoubleEndedIterator<Item = Result<(K, V)>> + 'a> {
        let rows = self.range_for_update_in(txn, range)?;
        Ok(rows.filter_map(move |row| match row {
            Ok((key, value)) if goes(&key, &value) => {
                Some(self.delete_in(txn, &key).map(|()| (key, value)))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }))
    }

    /// Removes the rows in a range for which `stays` is false, in a transaction; how many.
    ///
    /// # Errors
    ///
    /// As [`TypedTable::extract_if_in`]. What was removed before stays removed in the transaction.
    pub fn retain_in(
        &self,
        txn: &Transaction,
        range: impl RangeBounds<K>,
        mut stays: impl FnMut(&K, &V) -> bool,
    ) -> Result<u64> {
        let mut gone = self.extract_if_in(txn, range, |key, value| !stays(key, value))?;
        gone.try_fold(0, |count, row| row.map(|_| count + 1))
    }
}
