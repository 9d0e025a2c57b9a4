//! Calls of a transaction that are made of others.

use bytes::Bytes;

use super::spilled::Write;
use super::state::Running;
use super::transaction::unless_truncated;
use super::{Transaction, TxnRange};
use crate::base::error::Result;
use crate::locks::Mode;
use crate::read::{self, KeyBounds, KeyRange, Lookups};
use crate::table::{ReadTables, Table, TableReader};

impl Transaction {
    /// Whether `table` has `key`.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`].
    pub fn contains_key(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(table, key)?.is_some())
    }

    /// The values of several keys, in the order of the keys. At read committed each is read as of
    /// its own moment.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let mut values = Vec::with_capacity(keys.len());
        let moment = self.on(table, |running, _| Ok(running.moment()))?;
        let reader = TableReader { snapshot: moment.as_deref(), ..table.reader() };
        for all in read::together(&keys) {
            let mut asked = unless_truncated(reader.ask_ahead(all))?;
            for some in reader.side_by_side(all) {
                let _brought = unless_truncated(reader.fetch_beside(some, &mut asked))?;
                values.extend(reader.values_of(self.find_some(table, some)?)?);
            }
        }
        Ok(values)
    }

    fn find_some<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<Lookups> {
        let mut found = Lookups::with_capacity(keys.len());
        for key in keys.iter().map(AsRef::as_ref) {
            let find = |running: &mut Running, at| running.find(self.inner(), at, key);
            found.add(self.on(table, find)?);
        }
        Ok(found)
    }

    /// The values of several keys, in the order of the keys. No other transaction changes them
    /// until this one ends. It locks them in this order: callers that name keys in one order do
    /// not wait for each other in a circle.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get_for_update`].
    pub fn multi_get_for_update<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let mut values = Vec::with_capacity(keys.len());
        let moment = self.on(table, |running, _| Ok(running.moment_of_locked()))?;
        let reader = TableReader { snapshot: moment.as_deref(), ..table.reader() };
        for all in read::together(&keys) {
            let mut asked = unless_truncated(reader.ask_ahead(all))?;
            for some in reader.side_by_side(all) {
                let _brought = unless_truncated(reader.fetch_beside(some, &mut asked))?;
                let locked = some.iter().map(|key| self.get_for_update(table, key));
                values.extend(locked.collect::<Result<Vec<_>>>()?);
            }
        }
        Ok(values)
    }

    /// All rows of `table`. As [`Transaction::range`].
    ///
    /// # Errors
    ///
    /// As [`Transaction::range`].
    pub fn iter(&self, table: &Table) -> Result<TxnRange> {
        self.range(table, ..)
    }

    /// The row with the least key. A serializable transaction locks the whole table.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range`].
    pub fn first(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.range(table, ..)?.limit(1).next().transpose()
    }

    /// The row with the greatest key. A serializable transaction locks the whole table.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range`].
    pub fn last(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.range(table, ..)?.rev().limit(1).next().transpose()
    }

    /// The rows whose keys begin with `prefix`. As [`Transaction::range_for_update`].
    ///
    /// # Errors
    ///
    /// As [`Transaction::range_for_update`].
    pub fn prefix_for_update(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<TxnRange> {
        let KeyRange { lower, upper } = KeyRange::prefix(prefix.as_ref());
        self.range_for_update(table, (lower, upper))
    }

    /// The rows whose keys begin with `prefix`, but for those that others have locked. As
    /// [`Transaction::range_skip_locked`].
    ///
    /// # Errors
    ///
    /// As [`Transaction::range_skip_locked`].
    pub fn prefix_skip_locked(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<TxnRange> {
        let KeyRange { lower, upper } = KeyRange::prefix(prefix.as_ref());
        self.range_skip_locked(table, (lower, upper))
    }

    /// Removes every key that begins with `prefix`. As [`Transaction::delete_range`].
    ///
    /// # Errors
    ///
    /// As [`Transaction::delete_range`].
    pub fn delete_prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<()> {
        let KeyRange { lower, upper } = KeyRange::prefix(prefix.as_ref());
        self.delete_range(table, (lower, upper))
    }

    /// Sets `key` to `value` if it has no value; whether it had none.
    ///
    /// # Errors
    ///
    /// As [`Transaction::put`].
    pub fn insert_if_absent(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool> {
        let value = value.as_ref();
        let put = || Some(Bytes::copy_from_slice(value));
        self.change(table, key.as_ref(), |old| old.is_none().then(put))
    }

    /// Gives `key` the value `new` if it has the value `expected`; whether it had. `None` stands
    /// for no value.
    ///
    /// # Errors
    ///
    /// As [`Transaction::put`].
    pub fn compare_and_set(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let new = || new.map(Bytes::copy_from_slice);
        self.change(table, key.as_ref(), |old| (old == expected).then(new))
    }

    /// Sets `key` to `value`, and returns the value that it had. See [`Table::replace`].
    ///
    /// # Errors
    ///
    /// As [`Transaction::put`].
    pub fn replace(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Bytes>> {
        let (key, new, mut old) = (key.as_ref(), Bytes::copy_from_slice(value.as_ref()), None);
        self.change(table, key, |value| {
            old = value.map(Bytes::copy_from_slice);
            Some(Some(new))
        })?;
        Ok(old)
    }

    /// Removes `key`, and returns the value that it had.
    ///
    /// # Errors
    ///
    /// As [`Transaction::delete`].
    pub fn take(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let mut old = None;
        self.change(table, key.as_ref(), |value| {
            old = value.map(Bytes::copy_from_slice);
            value.map(|_| None)
        })?;
        Ok(old)
    }

    /// Gives `key` the value that `f` makes of the one it has; returns it. `None` stands for no
    /// value, before and after. Nothing is written where the value stays the same. `f` may use the
    /// transaction. It is called again if another thread has changed the row through this
    /// transaction meanwhile, and must not write to the row by itself.
    ///
    /// # Errors
    ///
    /// As [`Transaction::put`].
    pub fn update<V: AsRef<[u8]>>(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        mut f: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Bytes>> {
        self.update_by(table, key.as_ref(), |old| {
            let new = f(old).map(|value| Bytes::copy_from_slice(value.as_ref()));
            Ok((new.as_deref() != old).then_some(new))
        })
    }

    /// As [`Transaction::update`]; fails if `f` does, and writes what `f` says, if anything. `f` is
    /// a user's, so it runs between two calls and holds up no other one.
    fn update_by(
        &self,
        table: &Table,
        key: &[u8],
        mut f: impl FnMut(Option<&[u8]>) -> Result<Option<Write>>,
    ) -> Result<Write> {
        let mut old = self.get_for_update(table, key)?;
        loop {
            let Some(new) = f(old.as_deref())? else { return Ok(old) };
            let mut changed = None;
            let is_done = self.change(table, key, |now| {
                let is_same = now == old.as_deref();
                changed = now.filter(|_| !is_same).map(Bytes::copy_from_slice);
                is_same.then(|| new.clone())
            })?;
            if is_done {
                return Ok(new);
            }
            old = changed;
        }
    }

    /// Merges `operand` into the value of `key`, for this transaction until it commits, with the
    /// table's merge operator: see [`Table::merge`]. A transaction locks the rows that it writes,
    /// so it merges at once, and costs what [`Transaction::update`] does.
    ///
    /// # Errors
    ///
    /// `Invalid` if the table has no merge operator, if it is not registered, or if it fails; then
    /// nothing was written. Otherwise as [`Transaction::update`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let counter = terrace::TableOptions::new().merge_operator(terrace::operators::COUNTER);
    /// let hits = db.create_table("hits", counter)?;
    /// db.run(|t| {
    ///     t.merge(&hits, "page", 1i64.to_be_bytes())?;
    ///     assert_eq!(t.get(&hits, "page")?.as_deref(), Some(&1i64.to_be_bytes()[..]));
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        let operator = table.operator()?;
        let merged = self.update_by(table, key, |old| {
            let new = operator.fold(key, old, [operand].into_iter());
            Ok(Some(Some(new.map_err(|e| e.in_table(|| table.name()))?.into())))
        });
        merged.map(drop)
    }

    /// Gives a key what `decide` makes of its value, if anything, in one call; whether it did.
    /// `decide` runs under the transaction's state: it is none of a user's.
    fn change(
        &self,
        table: &Table,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Option<Write>,
    ) -> Result<bool> {
        let _brought = self.fetch(table, key, Running::moment_of_locked)?;
        self.on(table, |running, at| {
            running.own(self.inner(), (at, key), Mode::Exclusive)?;
            let old = running.read(self.inner(), at, key)?;
            match decide(old.as_deref()) {
                Some(new) => running.write(self.inner(), at, key, new).map(|()| true),
                None => Ok(false),
            }
        })
    }
}

impl ReadTables for Transaction {
    type Rows = TxnRange;

    fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        Transaction::get(self, table, key)
    }

    fn range(&self, table: &Table, range: impl KeyBounds) -> Result<TxnRange> {
        Transaction::range(self, table, range)
    }

    fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<TxnRange> {
        Transaction::prefix(self, table, prefix)
    }

    fn contains_key(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        Transaction::contains_key(self, table, key)
    }

    fn multi_get<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        Transaction::multi_get(self, table, keys)
    }

    fn first(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        Transaction::first(self, table)
    }

    fn last(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        Transaction::last(self, table)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use crate::base::operator::MergeOperator;
    use crate::base::options::{Options, TableOptions};
    use crate::table::Table;
    use crate::txn::Transaction;

    const PATIENCE: Duration = Duration::from_mins(1);

    /// Tells when it runs, and goes on when it is told.
    struct Waits(SyncSender<()>, Mutex<Receiver<()>>);

    impl MergeOperator for Waits {
        fn name(&self) -> &str {
            "test.waits"
        }

        fn merge(&self, _: &[u8], _: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
            self.0.send(()).map_err(|e| e.to_string())?;
            self.1.lock().unwrap().recv_timeout(PATIENCE).map_err(|e| e.to_string())?;
            Ok(operand.to_vec())
        }
    }

    /// Bug: an update that kept the value, or that failed in a typed table, was a write: the row's
    /// time to live began anew, and others conflicted. Cause: what the function returned was
    /// written, whatever it was. Fix: a value that stays the same is not written.
    #[test]
    fn an_update_that_keeps_the_value_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        table.put("row", "1").unwrap();
        let txn = db.begin().unwrap();
        let same = |key: &str| {
            txn.update(&table, key, |old| old.map(<[u8]>::to_vec)).unwrap().map(|it| it.to_vec())
        };
        assert_eq!([same("row"), same("none")], [Some(b"1".to_vec()), None]);
        assert_eq!(db.transactions()[0].writes, 0);
        txn.update(&table, "row", |_| Some("2")).unwrap();
        assert_eq!(db.transactions()[0].writes, 1);
    }

    /// Bug: while an operator ran for a transaction, other threads waited in their calls on that
    /// transaction, a kill among them. Cause: the operator ran under the transaction's mutex. Fix:
    /// it runs between two calls.
    #[test]
    fn an_operator_holds_up_no_other_call_of_its_transaction() {
        let ((runs, running), (go, goes)) = (sync_channel(1), sync_channel(1));
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().pm_size(4 << 20).stepped();
        let options = options.merge_operator(Waits(runs, Mutex::new(goes)));
        let db = options.open(dir.path().join("db")).unwrap();
        let table = db.create_table("t", TableOptions::new().merge_operator("test.waits")).unwrap();
        let txn = db.begin().unwrap();
        std::thread::scope(|scope| {
            let merges = scope.spawn(|| txn.merge(&table, "k", "operand"));
            running.recv_timeout(PATIENCE).unwrap();
            assert_eq!(txn.get(&table, "k").unwrap(), None);
            go.send(()).unwrap();
            merges.join().unwrap().unwrap();
        });
        assert_eq!(txn.get(&table, "k").unwrap().as_deref(), Some(&b"operand"[..]));
    }

    /// A key that looks into the transaction to say what it is.
    struct Asks(Arc<Transaction>, Table);

    impl AsRef<[u8]> for Asks {
        fn as_ref(&self) -> &[u8] {
            match self.0.get(&self.1, "asked") {
                Ok(Some(_)) => b"some",
                _ => b"none",
            }
        }
    }

    /// Bug: a call with a key of a user's type waited for itself. Cause: `as_ref` of the key ran
    /// under the transaction's mutex. Fix: it runs before.
    #[test]
    fn a_key_of_a_users_type_may_use_the_transaction() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let (table, txn) = (db.table("t").unwrap(), Arc::new(db.begin().unwrap()));
        let (done, is_done) = sync_channel(1);
        std::thread::spawn(move || {
            let key = || Asks(Arc::clone(&txn), table.clone());
            txn.put(&table, key(), "1").unwrap();
            txn.put(&table, "asked", "").unwrap();
            txn.put(&table, key(), "2").unwrap();
            txn.delete(&table, key()).unwrap();
            assert_eq!(txn.multi_get(&table, [key()]).unwrap(), [None]);
            let left = txn.iter(&table).unwrap().map(|row| row.unwrap().0);
            done.send(left.collect::<Vec<_>>()).unwrap();
        });
        assert_eq!(is_done.recv_timeout(PATIENCE).unwrap(), ["asked", "none"]);
    }
}
