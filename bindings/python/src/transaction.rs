//! Transactions.
//!
//! Thread safety: any thread, and the engine lets calls pass one by one. What ends a transaction
//! waits for calls that are under way. All of it waits without the interpreter's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use terrace::{
    Durability, Isolation, LockWait, TransactionInfo, TxnOptions, TxnRange, with_deadline,
};

use crate::bytes_like::{self, BytesLike};
use crate::calls::{
    KeepOpen, PATIENCE, SLICE, detached, in_slices, released, watched, without_lock,
};
use crate::key_range::{Bounds, bounds};
use crate::pending::PendingCommit;
use crate::rows::{Limit, Part, Rows, row};
use crate::table::Table;
use crate::{errors, options};

/// A transaction, until it is committed, prepared or rolled back.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Transaction {
    id: u64,
    isolation: Isolation,
    optimistic: bool,
    running: RwLock<Option<terrace::Transaction>>,
    /// How long a call waits for a lock.
    wait: Mutex<LockWait>,
    durability: Durability,
    /// Counts what is written, for iterators that have read ahead.
    writes: Arc<AtomicU64>,
    db: terrace::Database,
    keep: KeepOpen,
}

impl Transaction {
    pub(crate) fn begin(
        py: Python<'_>,
        db: &terrace::Database,
        options: &TxnOptions,
    ) -> PyResult<Transaction> {
        let txn = released(py, || db.begin_with(options.clone()))?;
        Ok(Transaction {
            id: txn.id(),
            isolation: txn.isolation(),
            optimistic: options.is_optimistic(),
            running: RwLock::new(Some(txn)),
            wait: Mutex::new(options.longest_lock_wait()),
            durability: options.durability_of_commit(),
            writes: Arc::default(),
            db: db.clone(),
            keep: KeepOpen::new(db),
        })
    }

    /// How long it waits for locks.
    fn patience(&self) -> Option<Duration> {
        match *self.wait.lock() {
            // It waits for no lock, and so for nothing that a slice would end.
            LockWait::NoWait => Some(Duration::ZERO),
            LockWait::AtMost(time) => Some(time),
            LockWait::Endless => None,
        }
    }

    /// Runs `f` on the transaction, again and again until `patience` is over. It waits until the
    /// moment that it is given.
    fn sliced<T: Send>(
        &self,
        py: Python<'_>,
        patience: Option<Duration>,
        f: impl Fn(&terrace::Transaction, Instant) -> terrace::Result<T> + Send + Sync,
    ) -> PyResult<T> {
        self.keep.check_not_forked(py)?;
        let f = |until| self.running.read().as_ref().map(|txn| f(txn, until)).transpose();
        in_slices(py, patience, f)?.ok_or_else(|| self.ended(py))
    }

    /// Runs `f` on the transaction, again while it waits for a lock.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        f: impl Fn(&terrace::Transaction) -> terrace::Result<T> + Send + Sync,
    ) -> PyResult<T> {
        self.sliced(py, self.patience(), |txn, until| with_deadline(until, || f(txn)))
    }

    /// The same for what changes rows.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        f: impl Fn(&terrace::Transaction) -> terrace::Result<T> + Send + Sync,
    ) -> PyResult<T> {
        self.writes.fetch_add(1, Ordering::AcqRel);
        let done = self.call(py, f);
        self.writes.fetch_add(1, Ordering::AcqRel);
        done
    }

    /// Ends it by `f`, also where that fails or Ctrl-C comes first. An end waits for space as a
    /// write does, however long it may wait for locks. One that is optimistic waits for locks here,
    /// and each try waits for them anew: it has no more time than they may take, or one slice.
    fn end<T: Send>(
        &self,
        py: Python<'_>,
        f: impl Fn(&terrace::Transaction, Instant) -> terrace::Result<T> + Send + Sync,
    ) -> PyResult<T> {
        let least = if self.optimistic { SLICE } else { PATIENCE };
        let patience = self.patience().map(|time| time.max(least));
        let done = self.sliced(py, patience, f);
        self.give_up(py);
        done
    }

    fn take_if_running(&self, py: Python<'_>) -> Option<terrace::Transaction> {
        match self.keep.is_forked() {
            true => None,
            false => detached(py, || self.running.write().take()),
        }
    }

    fn ended(&self, py: Python<'_>) -> PyErr {
        errors::closed(py, format!("transaction {} has ended; begin another one", self.id))
    }

    /// Commits, unless it has ended.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let has_ended = detached(py, || !self.keep.is_forked() && self.running.read().is_none());
        if has_ended { Ok(()) } else { self.commit(py) }
    }

    /// Rolls back, unless it has ended.
    pub(crate) fn give_up(&self, py: Python<'_>) {
        if let Some(txn) = self.take_if_running(py) {
            detached(py, || txn.roll_back());
        }
    }

    fn rows(
        &self,
        table: &Bound<'_, Table>,
        range: &Bounds,
        how: &Scan<'_>,
        part: Part,
    ) -> PyResult<Rows> {
        let (py, table) = (table.py(), &table.get().table);
        let rows: TxnRange = self.call(py, |txn| match how.lock {
            None => txn.range(table, range),
            Some("for_update") => txn.range_for_update(table, range),
            Some(_) => txn.range_skip_locked(table, range),
        })?;
        let rows = if how.reverse { rows.rev() } else { rows };
        Ok(match how.lock {
            Some("skip_locked") => Rows::one_by_one(&self.db, rows, how.limit, part),
            _ => Rows::of_transaction(&self.db, rows, &self.writes, how.limit, part),
        })
    }
}

/// How rows are read.
struct Scan<'a> {
    reverse: bool,
    limit: Option<Limit>,
    lock: Option<&'a str>,
}

impl<'a> Scan<'a> {
    fn new(
        py: Python<'_>,
        reverse: bool,
        limit: Option<Limit>,
        lock: Option<&'a str>,
    ) -> PyResult<Scan<'a>> {
        match lock {
            None | Some("for_update" | "skip_locked") => Ok(Scan { reverse, limit, lock }),
            Some(other) => {
                let message = format!("lock={other:?}; there are for_update and skip_locked");
                Err(errors::invalid(py, message))
            }
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(txn) = self.running.get_mut().take() {
            // An iterator may have a call under way, which a rollback waits for.
            match self.keep.is_forked() {
                true => std::mem::forget(txn),
                false => without_lock(move || drop(txn)),
            }
        }
    }
}

#[pymethods]
impl Transaction {
    /// Its number, which errors name it by.
    #[getter]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Its isolation level: `read_committed`, `snapshot` or `serializable`.
    #[getter]
    fn isolation(&self) -> &'static str {
        options::isolation(self.isolation)
    }

    /// The value of `key` in `table`, or `default`. A serializable transaction locks the row.
    #[pyo3(signature = (table, key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
        key: BytesLike,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let table = &table.get().table;
        let found = self.call(py, |txn| txn.get(table, &key))?;
        Ok(found.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// The value of `key`, or None. No other transaction changes it until this one ends.
    ///
    /// Raises `ConflictError` when it was changed after the snapshot, `DeadlockError`, and
    /// `TimeoutError` when another transaction has it locked for as long as this one waits.
    fn get_for_update<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
        key: BytesLike,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let table = &table.get().table;
        let found = self.call(py, |txn| txn.get_for_update(table, &key))?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    /// The value of `key`, or None. No one changes it until the transaction ends, and other
    /// transactions may lock it in this way too. Raises as `get_for_update`.
    fn get_for_share<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
        key: BytesLike,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let table = &table.get().table;
        let found = self.call(py, |txn| txn.get_for_share(table, &key))?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    /// The row with the least key, or None. A serializable transaction locks the whole table.
    fn first<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let table = &table.get().table;
        self.call(py, |txn| txn.first(table))?.map(|found| row(py, &found)).transpose()
    }

    /// The row with the greatest key, or None. As `first`.
    fn last<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let table = &table.get().table;
        self.call(py, |txn| txn.last(table))?.map(|found| row(py, &found)).transpose()
    }

    /// The values of several keys; with `for_update` they are locked in this order.
    #[pyo3(signature = (table, keys, *, for_update=false))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
        keys: &Bound<'py, PyAny>,
        for_update: bool,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let (keys, table) = (bytes_like::all(keys)?, &table.get().table);
        let found = self.call(py, |txn| match for_update {
            true => txn.multi_get_for_update(table, &keys),
            false => txn.multi_get(table, &keys),
        })?;
        Ok(found.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value))).collect())
    }

    /// Whether `table` has `key`.
    fn contains_key(
        &self,
        py: Python<'_>,
        table: &Bound<'_, Table>,
        key: BytesLike,
    ) -> PyResult<bool> {
        let table = &table.get().table;
        self.call(py, |txn| txn.contains_key(table, &key))
    }

    /// Sets `key` to `value`, for this transaction until it commits. Raises as `get_for_update`.
    fn put(
        &self,
        py: Python<'_>,
        table: &Bound<'_, Table>,
        key: BytesLike,
        value: BytesLike,
    ) -> PyResult<()> {
        let table = &table.get().table;
        self.change(py, |txn| txn.put(table, &key, &value))
    }

    /// Merges `operand` into the value of `key`, with the merge operator of the table.
    ///
    /// The row is locked, and the value is made at once. Raises `InvalidError` if the table has no
    /// merge operator or it fails, and writes nothing then; otherwise as `get_for_update`.
    fn merge(
        &self,
        py: Python<'_>,
        table: &Bound<'_, Table>,
        key: BytesLike,
        operand: BytesLike,
    ) -> PyResult<()> {
        let table = &table.get().table;
        self.change(py, |txn| txn.merge(table, &key, &operand))
    }

    /// Removes `key`, for this transaction until it commits. Raises as `get_for_update`.
    fn delete(&self, py: Python<'_>, table: &Bound<'_, Table>, key: BytesLike) -> PyResult<()> {
        let table = &table.get().table;
        self.change(py, |txn| txn.delete(table, &key))
    }

    /// Removes every key of a range, which is locked with its gaps.
    #[pyo3(signature = (table, *, prefix=None, start=None, stop=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        table: &Bound<'_, Table>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
    ) -> PyResult<()> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        let table = &table.get().table;
        self.change(py, |txn| txn.delete_range(table, &range))
    }

    /// Gives `key` the value `new` if it has `expected`; whether it had. None stands for no value.
    fn compare_and_set(
        &self,
        py: Python<'_>,
        table: &Bound<'_, Table>,
        key: BytesLike,
        expected: Option<BytesLike>,
        new: Option<BytesLike>,
    ) -> PyResult<bool> {
        let (table, expected, new) = (&table.get().table, expected.as_deref(), new.as_deref());
        self.change(py, |txn| txn.compare_and_set(table, &key, expected, new))
    }

    /// Sets `key` to `value` if it has none; whether it had none.
    fn insert_if_absent(
        &self,
        py: Python<'_>,
        table: &Bound<'_, Table>,
        key: BytesLike,
        value: BytesLike,
    ) -> PyResult<bool> {
        let table = &table.get().table;
        self.change(py, |txn| txn.insert_if_absent(table, &key, &value))
    }

    /// Removes the row with the least key and returns it, or None.
    fn pop_first<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let table = &table.get().table;
        let found = self.change(py, |txn| txn.pop_first(table))?;
        found.map(|found| row(py, &found)).transpose()
    }

    /// Removes the row with the greatest key and returns it, or None.
    fn pop_last<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let table = &table.get().table;
        let found = self.change(py, |txn| txn.pop_last(table))?;
        found.map(|found| row(py, &found)).transpose()
    }

    /// Pairs of keys and values, with what the transaction has written.
    ///
    /// `lock="for_update"` locks the range with its gaps first. `lock="skip_locked"` locks each row
    /// as it comes, and leaves out those that others have locked. As `Table.items` else.
    #[pyo3(signature = (
        table, *, prefix=None, start=None, stop=None, reverse=false, limit=None, lock=None
    ))]
    fn items(
        &self,
        table: &Bound<'_, Table>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        reverse: bool,
        limit: Option<Limit>,
        lock: Option<&str>,
    ) -> PyResult<Rows> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.rows(table, &range, &Scan::new(table.py(), reverse, limit, lock)?, Part::Items)
    }

    /// Keys. As `items`.
    #[pyo3(signature = (
        table, *, prefix=None, start=None, stop=None, reverse=false, limit=None, lock=None
    ))]
    fn keys(
        &self,
        table: &Bound<'_, Table>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        reverse: bool,
        limit: Option<Limit>,
        lock: Option<&str>,
    ) -> PyResult<Rows> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.rows(table, &range, &Scan::new(table.py(), reverse, limit, lock)?, Part::Keys)
    }

    /// Values, in the order of their keys. As `items`.
    #[pyo3(signature = (
        table, *, prefix=None, start=None, stop=None, reverse=false, limit=None, lock=None
    ))]
    fn values(
        &self,
        table: &Bound<'_, Table>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        reverse: bool,
        limit: Option<Limit>,
        lock: Option<&str>,
    ) -> PyResult<Rows> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.rows(table, &range, &Scan::new(table.py(), reverse, limit, lock)?, Part::Values)
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        table: &Bound<'py, Table>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terrace._views")?.call_method1("WritableTableView", (slf, table))
    }

    /// Takes a view of what is committed now, for plain reads of a `read_committed` transaction.
    ///
    /// They see that until the next call or `drop_view`. Reads with locks, and writes, see the
    /// newest rows all the same.
    fn take_view(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |txn| txn.take_view(None))
    }

    /// Gives the view back. Plain reads see what is committed when they are made.
    fn drop_view(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, terrace::Transaction::drop_view)
    }

    /// How long later calls wait for a lock: seconds, `"no_wait"` or `"endless"`.
    #[pyo3(signature = (lock_wait))]
    fn set_lock_wait(&self, py: Python<'_>, lock_wait: &Bound<'_, PyAny>) -> PyResult<()> {
        let named = PyDict::new(py);
        named.set_item("lock_wait", lock_wait)?;
        let wait = options::transaction(Some(&named))?.longest_lock_wait();
        self.call(py, |txn| txn.set_lock_wait(wait))?;
        *self.wait.lock() = wait;
        Ok(())
    }

    /// Sets a savepoint. One of the same name is hidden by it.
    fn set_savepoint(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.call(py, |txn| txn.set_savepoint(name))
    }

    /// Undoes what was written since the savepoint. The savepoint and all locks stay.
    fn roll_back_to(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.change(py, |txn| txn.roll_back_to(name))
    }

    /// Forgets a savepoint and those set after it. What was written stays.
    fn release_savepoint(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.call(py, |txn| txn.release_savepoint(name))
    }

    /// A savepoint for a block, whose writes are undone if it raises.
    #[pyo3(signature = (name="with"))]
    fn savepoint<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terrace._views")?.call_method1("Savepoint", (slf, name))
    }

    /// Sets the blob of the commit, up to 4 KiB, which `Database.last_blob` gives back.
    fn set_blob(&self, py: Python<'_>, blob: BytesLike) -> PyResult<()> {
        self.call(py, |txn| txn.set_blob(&blob))
    }

    /// Makes all that was written visible and durable. The transaction ends, also after an error.
    ///
    /// An optimistic one locks rows first, and waits for each as long as `lock_wait` says.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        if self.durability == Durability::Remote {
            return self.enqueue(py)?.wait_for(py, None);
        }
        self.end(py, terrace::Transaction::try_commit)
    }

    /// Gives the commit its place in the order, and does not wait until it is durable.
    fn enqueue(&self, py: Python<'_>) -> PyResult<PendingCommit> {
        let pending = self.end(py, terrace::Transaction::try_enqueue)?;
        Ok(PendingCommit::new(&self.db, pending))
    }

    /// Prepares it under a name of 1 to 140 bytes: the first phase of a commit in two.
    ///
    /// It survives everything until `Database.commit_prepared` or `roll_back_prepared`.
    fn prepare(&self, py: Python<'_>, id: BytesLike) -> PyResult<()> {
        if self.durability == Durability::Remote {
            self.keep.check_not_forked(py)?;
            let txn = self.take_if_running(py).ok_or_else(|| self.ended(py))?;
            let id = id.to_vec();
            return watched(py, move || txn.prepare(id));
        }
        self.end(py, |txn, until| txn.try_prepare(&id, until))
    }

    /// Ends it without a trace.
    fn roll_back(&self, py: Python<'_>) -> PyResult<()> {
        self.keep.check_not_forked(py)?;
        let txn = self.take_if_running(py).ok_or_else(|| self.ended(py))?;
        detached(py, || txn.roll_back());
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if class.is_none() {
            return self.finish(py);
        }
        self.give_up(py);
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<terrace.Transaction {}>", self.id)
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let instead = "prepare() is what hands one on";
        Err(errors::not_picklable(py, "a transaction", instead))
    }
}

/// What is known of a running transaction, as a dictionary.
pub(crate) fn info<'py>(py: Python<'py>, info: &TransactionInfo) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("id", info.id)?;
    all.set_item("isolation", options::isolation(info.isolation))?;
    all.set_item("optimistic", info.optimistic)?;
    all.set_item("age", info.age.as_secs_f64())?;
    all.set_item("snapshot", info.snapshot)?;
    all.set_item("locks", info.locks)?;
    all.set_item("lock_memory", info.lock_memory)?;
    all.set_item("writes", info.writes)?;
    all.set_item("memory", info.memory)?;
    all.set_item("spilled", info.spilled)?;
    all.set_item("waits_for", info.waits_for.as_deref())?;
    Ok(all)
}
