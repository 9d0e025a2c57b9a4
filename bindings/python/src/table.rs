//! Tables: the mapping protocol, and what databases have beyond it.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySlice, PyString, PyTuple};

use crate::bytes_like::{self, BytesLike};
use crate::calls::{KeepOpen, PATIENCE, commit, in_turn, released};
use crate::key_range::{self, bounds};
use crate::progress::Told;
use crate::rows::{Limit, Part, Rows, row};
use crate::{bulk_load, compact, errors, json, options, reads};

/// A named ordered map from bytes to bytes. Any thread may use it, several at once.
#[pyclass(frozen, module = "terrace", weakref)]
pub(crate) struct Table {
    pub(crate) table: terrace::Table,
    pub(crate) db: terrace::Database,
    _keep: KeepOpen,
}

/// A table as a call takes it: its name, or the table itself.
#[derive(FromPyObject)]
pub(crate) enum NameOrTable {
    #[pyo3(annotation = "str")]
    Name(String),
    #[pyo3(annotation = "Table")]
    Table(Py<Table>),
}

impl NameOrTable {
    /// The same for the engine.
    pub(crate) fn get(&self) -> terrace::TableRef<'_> {
        match self {
            NameOrTable::Name(name) => name.into(),
            NameOrTable::Table(table) => (&table.get().table).into(),
        }
    }
}

/// So many rows are counted between two looks for signals.
const COUNTED: usize = 4096;

impl Table {
    pub(crate) fn new(db: terrace::Database, table: terrace::Table) -> Table {
        let keep = KeepOpen::new(&db);
        Table { table, db, _keep: keep }
    }

    fn rows(
        &self,
        range: key_range::Bounds,
        reverse: bool,
        limit: Option<Limit>,
        part: Part,
    ) -> Rows {
        let rows = self.table.range(range);
        Rows::of_table(&self.db, if reverse { rows.rev() } else { rows }, limit, part)
    }

    /// Commits one operation. As durable as `durability` says, and within `timeout`.
    fn write(
        &self,
        py: Python<'_>,
        (durability, timeout): (&str, Option<&Bound<'_, PyAny>>),
        add: impl FnOnce(&mut terrace::WriteBatch),
    ) -> PyResult<()> {
        let durability = options::durability(py, durability)?;
        let patience = timeout.map(|time| options::time("timeout", time)).transpose()?;
        let mut batch = terrace::WriteBatch::new();
        add(&mut batch);
        commit(py, &self.db, &batch, (durability, patience))
    }

    /// Runs a call that locks a row, or the first ones.
    fn lock<T: Send>(
        &self,
        py: Python<'_>,
        f: impl Fn(&terrace::Table) -> terrace::Result<T> + Send + Sync,
    ) -> PyResult<T> {
        in_turn(py, Some(PATIENCE), || f(&self.table))
    }

    /// Removes a row; what it had.
    fn take(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        self.lock(py, |table| {
            let mut taken = None;
            table.update(key, |old| {
                taken = old.map(<[u8]>::to_vec);
                None::<&[u8]>
            })?;
            Ok(taken)
        })
    }

    fn remove_range(&self, py: Python<'_>, range: key_range::Bounds) -> PyResult<()> {
        self.write(py, ("durable", None), |batch| {
            batch.delete_range(&self.table, range);
        })
    }

    fn find<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        reads::find(py, (&self.table, None), key)
    }
}

#[pymethods]
impl Table {
    /// The name, as it is now.
    #[getter]
    fn name(&self) -> String {
        self.table.name()
    }

    /// The options, as they are now.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (options, all) = (self.table.options(), PyDict::new(py));
        all.set_item("block_size", options.block_bytes())?;
        all.set_item("filter_bits", options.filter_bits_per_key())?;
        all.set_item("ttl", options.time_to_live())?;
        all.set_item("large_values", options.large_values_from())?;
        all.set_item("cold", options.cold_tier().as_str())?;
        all.set_item("merge_operator", options.merge_operator_name())?;
        let both = options.compressions();
        let both = both.map(|(level1, deeper)| format!("{},{}", level1.name(), deeper.name()));
        all.set_item("compression", both.unwrap_or_else(|| "database".into()))?;
        all.set_item("level0", options.level0_container().name())?;
        all.set_item("tag", options.tag_number())?;
        Ok(all)
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let rows = self.rows(key_range::of_slice(slice)?, false, None, Part::Items);
            return Ok(Bound::new(py, rows)?.into_any());
        }
        let bytes: BytesLike = key.extract()?;
        let found = self.find(py, &bytes)?.ok_or_else(|| errors::not_found(py, key))?;
        Ok(found.into_any())
    }

    fn __setitem__(&self, py: Python<'_>, key: BytesLike, value: BytesLike) -> PyResult<()> {
        self.write(py, ("durable", None), |batch| {
            batch.put(&self.table, &key, &value);
        })
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let range = key_range::of_slice(slice)?;
            return self.remove_range(py, range);
        }
        let bytes: BytesLike = key.extract()?;
        match self.take(py, &bytes)? {
            Some(_) => Ok(()),
            None => Err(errors::not_found(py, key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: BytesLike) -> PyResult<bool> {
        reads::contains(py, &self.table, &key)
    }

    fn __iter__(&self) -> Rows {
        self.rows(bounds(None, None, None), false, None, Part::Keys)
    }

    fn __reversed__(&self) -> Rows {
        self.rows(bounds(None, None, None), true, None, Part::Keys)
    }

    /// How many rows there are now. It reads every key: `approximate_len` reads none.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let (mut keys, mut len) = (self.table.iter().keys(), 0);
        loop {
            let mut keys = keys.by_ref().take(COUNTED);
            let count = move || keys.try_fold(0, |found, key| key.map(|_| found + 1));
            let found = released(py, count)?;
            len += found;
            if found < COUNTED {
                return Ok(len);
            }
            py.check_signals()?;
        }
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The value of `key`, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: BytesLike,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(py, &key)?.map(Bound::into_any).or(default))
    }

    /// The values of several keys, all as of one moment. None stands for a key that is not there.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = bytes_like::all(keys)?;
        let found = released(py, || self.table.multi_get(&keys))?;
        Ok(found.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value))).collect())
    }

    /// Sets `key` to `value`. It survives a power cut once this returns.
    ///
    /// With `durability="relaxed"` it survives the process only, with `"remote"` the machine too.
    /// It waits up to 10 s, or `timeout` seconds, for its turn: for a row that a transaction has
    /// locked, or for space. Then it raises `TimeoutError`, and nothing was written. Raises
    /// `TooLargeError` for a key over 64 KiB or a value over 1 MiB, and `FullError`.
    #[pyo3(signature = (key, value, *, durability="durable", timeout=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: BytesLike,
        value: BytesLike,
        durability: &str,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.write(py, (durability, timeout), |batch| {
            batch.put(&self.table, &key, &value);
        })
    }

    /// Removes `key`. It is no error if it is not there. As `put`.
    #[pyo3(signature = (key, *, durability="durable", timeout=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: BytesLike,
        durability: &str,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.write(py, (durability, timeout), |batch| {
            batch.delete(&self.table, &key);
        })
    }

    /// Merges `operand` into the value of `key`, with the merge operator of the table. It reads no
    /// value: reads merge.
    ///
    /// Raises `InvalidError` if the table has no merge operator. An operand that the operator
    /// refuses is written all the same: reads of the key raise then. Otherwise as `put`.
    #[pyo3(signature = (key, operand, *, durability="durable", timeout=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: BytesLike,
        operand: BytesLike,
        durability: &str,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.write(py, (durability, timeout), |batch| {
            batch.merge(&self.table, &key, &operand);
        })
    }

    /// Removes `key` and returns its value; the default, or `NotFoundError`, if it is not there.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes: BytesLike = key.extract()?;
        let default = at_most_one(default)?;
        match self.take(py, &bytes)? {
            Some(value) => Ok(PyBytes::new(py, &value).into_any()),
            None => default.ok_or_else(|| errors::not_found(py, key)),
        }
    }

    /// Removes the row with the greatest key and returns it; `NotFoundError` if there is none.
    fn popitem<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let empty = || errors::not_found(py, PyString::new(py, "the table is empty").as_any());
        self.pop_last(py)?.ok_or_else(empty)
    }

    /// Removes every row, at the cost of one small record. Snapshots and iterators keep theirs.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.remove_range(py, bounds(None, None, None))
    }

    /// The value of `key`, which is set to `value` if it has none.
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: BytesLike,
        value: BytesLike,
    ) -> PyResult<Bound<'py, PyBytes>> {
        loop {
            if let Some(found) = self.find(py, &key)? {
                return Ok(found);
            }
            if self.lock(py, |table| table.insert_if_absent(&key, &value))? {
                return Ok(PyBytes::new(py, &value));
            }
        }
    }

    /// Sets `key` to `value` if it has none; whether it had none.
    fn insert_if_absent(&self, py: Python<'_>, key: BytesLike, value: BytesLike) -> PyResult<bool> {
        self.lock(py, |table| table.insert_if_absent(&key, &value))
    }

    /// Gives `key` the value `new` if it has `expected`; whether it had. None stands for no value.
    fn compare_and_set(
        &self,
        py: Python<'_>,
        key: BytesLike,
        expected: Option<BytesLike>,
        new: Option<BytesLike>,
    ) -> PyResult<bool> {
        let (expected, new) = (expected.as_deref(), new.as_deref());
        self.lock(py, |table| table.compare_and_set(&key, expected, new))
    }

    /// Puts all pairs of a mapping or an iterable, as one commit.
    #[pyo3(signature = (rows, *, durability="durable"))]
    fn update(&self, py: Python<'_>, rows: &Bound<'_, PyAny>, durability: &str) -> PyResult<()> {
        let durability = options::durability(py, durability)?;
        let mut batch = terrace::WriteBatch::new();
        for pair in bulk_load::pairs(rows)? {
            let pair = pair?;
            if let Ok(pair) = pair.cast::<PyTuple>()
                && pair.len() == 2
            {
                let (key, value) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
                let (key, value): (BytesLike, BytesLike) = (key.extract()?, value.extract()?);
                batch.put(&self.table, &key, &value);
                continue;
            }
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            let (key, value): (BytesLike, BytesLike) = (key.extract()?, value.extract()?);
            batch.put(&self.table, &key, &value);
        }
        commit(py, &self.db, &batch, (durability, None))
    }

    /// Pairs of keys and values, in the order of the keys, as of now.
    ///
    /// `prefix`, `start` (inclusive), `stop` (exclusive), `reverse` and `limit` say which and in
    /// what order.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None, reverse=false, limit=None))]
    fn items(
        &self,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        reverse: bool,
        limit: Option<Limit>,
    ) -> Rows {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.rows(range, reverse, limit, Part::Items)
    }

    /// Keys in their order, as of now. Values are not read.
    ///
    /// `prefix`, `start` (inclusive), `stop` (exclusive), `reverse` and `limit` say which and in
    /// what order.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None, reverse=false, limit=None))]
    fn keys(
        &self,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        reverse: bool,
        limit: Option<Limit>,
    ) -> Rows {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.rows(range, reverse, limit, Part::Keys)
    }

    /// Values, in the order of their keys, as of now.
    ///
    /// `prefix`, `start` (inclusive), `stop` (exclusive), `reverse` and `limit` say which and in
    /// what order.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None, reverse=false, limit=None))]
    fn values(
        &self,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        reverse: bool,
        limit: Option<Limit>,
    ) -> Rows {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.rows(range, reverse, limit, Part::Values)
    }

    /// The row with the least key, or None.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        released(py, || self.table.first())?.map(|found| row(py, &found)).transpose()
    }

    /// The row with the greatest key, or None.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        released(py, || self.table.last())?.map(|found| row(py, &found)).transpose()
    }

    /// Removes the row with the least key and returns it, or None. No two callers get the same row.
    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.lock(py, terrace::Table::pop_first)?.map(|found| row(py, &found)).transpose()
    }

    /// Removes the row with the greatest key and returns it, or None.
    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.lock(py, terrace::Table::pop_last)?.map(|found| row(py, &found)).transpose()
    }

    /// Removes every key of a range, at the cost of one small record. Without bounds, all keys.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
    ) -> PyResult<()> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.remove_range(py, range)
    }

    /// Empties the table, at no cost for each row. Raises `MissingTableError` once it was dropped,
    /// also where another table has its name.
    fn truncate(&self, py: Python<'_>) -> PyResult<()> {
        self.lock(py, |table| self.db.truncate_table(table))
    }

    /// What the table has where: the numbers that `Database.stats` has of it.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        json::to_python(py, &released(py, || self.db.table_stats(&self.table))?)
    }

    /// About how many keys a range has. It reads no more than the ends of the range, and counts
    /// what compaction will drop.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None))]
    fn approximate_len(
        &self,
        py: Python<'_>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
    ) -> PyResult<u64> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        released(py, || self.table.approximate_len(range))
    }

    /// About how many bytes the keys and values of a range have. As `approximate_len`.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None))]
    fn approximate_size(
        &self,
        py: Python<'_>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
    ) -> PyResult<u64> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        released(py, || self.table.approximate_size(range))
    }

    /// Compacts a range until its last level has all of it. The background does what is needed.
    ///
    /// `progress` is called with a dictionary. The compaction stops if it raises or returns
    /// `False`, or after Ctrl-C.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None, progress=None))]
    fn compact_range(
        &self,
        py: Python<'_>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        compact::compact(py, self, range, progress)
    }

    /// Loads pairs in ascending order of keys, all of them at once; how many there were.
    ///
    /// It raises `ExistsError` for a key that the table has, and changes nothing then, unless
    /// `existing="replace"`. It holds about 2 MiB of memory. `progress` is called with a dictionary
    /// about ten times a second. If it returns `False` nothing is loaded, and the call raises
    /// `CancelledError`. Ctrl-C ends it too.
    #[pyo3(signature = (rows, *, existing="refuse", progress=None))]
    fn bulk_load(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        existing: &str,
        progress: Option<Told<'_>>,
    ) -> PyResult<u64> {
        let existing = options::existing(py, existing)?;
        bulk_load::load(&self.table, rows, existing, progress.as_ref())
    }

    /// The rows of a range as a `pyarrow.Table` with the columns key and value.
    #[pyo3(signature = (**range))]
    fn to_arrow<'py>(
        slf: &Bound<'py, Self>,
        range: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terrace.arrow")?.call_method("to_arrow", (slf,), range)
    }

    /// The rows of a range as a `pyarrow.RecordBatchReader`, which holds one batch at a time.
    #[pyo3(signature = (**range))]
    fn to_batches<'py>(
        slf: &Bound<'py, Self>,
        range: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terrace.arrow")?.call_method("to_batches", (slf,), range)
    }

    /// Loads a table of `pyarrow`, `polars` or `pandas`, or record batches, whose key column
    /// ascends; how many rows there were.
    #[pyo3(signature = (rows, **options))]
    fn load_arrow<'py>(
        slf: &Bound<'py, Self>,
        rows: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terrace.arrow")?.call_method("load_arrow", (slf, rows), options)
    }

    /// The rows of a range as a `pandas.DataFrame` with the keys as its index.
    #[pyo3(signature = (**range))]
    fn to_pandas<'py>(
        slf: &Bound<'py, Self>,
        range: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terrace.arrow")?.call_method("to_pandas", (slf,), range)
    }

    fn __repr__(&self) -> String {
        format!("<terrace.Table {:?}>", self.table.name())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let instead = "pass the path of the database and the name of the table";
        Err(errors::not_picklable(py, "a table", instead))
    }
}

/// What stands behind a key: nothing, or one default.
fn at_most_one<'py>(default: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if default.len() > 1 {
        let message = format!("pop takes a key and one default, not {} defaults", default.len());
        return Err(PyTypeError::new_err(message));
    }
    default.iter().next().map_or(Ok(None), |default| Ok(Some(default)))
}
