//! Write batches, which commit where their `with` block ends.

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::bytes_like::BytesLike;
use crate::calls::{KeepOpen, commit, detached};
use crate::key_range::bounds;
use crate::table::Table;
use crate::{errors, options};

/// Operations that become visible and durable together, or not at all.
///
/// Thread safety: any thread. Its lock is held for as long as an operation takes to be added.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Batch {
    db: terrace::Database,
    /// `None` once it was committed or given up.
    batch: Mutex<Option<terrace::WriteBatch>>,
    _keep: KeepOpen,
}

impl Batch {
    pub(crate) fn new(db: terrace::Database) -> Batch {
        let keep = KeepOpen::new(&db);
        Batch { db, batch: Mutex::new(Some(terrace::WriteBatch::new())), _keep: keep }
    }

    /// What it holds, which ends it.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<terrace::WriteBatch> {
        let taken = detached(py, || self.batch.lock().take());
        taken.ok_or_else(|| ended(py))
    }

    fn change<T>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut terrace::WriteBatch) -> T + Send,
    ) -> PyResult<T>
    where
        T: Send,
    {
        let Some(mut batch) = self.batch.try_lock() else {
            let done = detached(py, || self.batch.lock().as_mut().map(f));
            return done.ok_or_else(|| ended(py));
        };
        batch.as_mut().map(f).ok_or_else(|| ended(py))
    }
}

fn ended(py: Python<'_>) -> PyErr {
    errors::closed(py, "the batch was committed or given up; begin another one")
}

#[pymethods]
impl Batch {
    /// Sets `key` of `table` to `value`.
    fn put(
        &self,
        py: Python<'_>,
        table: &Bound<'_, Table>,
        key: BytesLike,
        value: BytesLike,
    ) -> PyResult<()> {
        let table = &table.get().table;
        self.change(py, |batch| {
            batch.put(table, &key, &value);
        })
    }

    /// Merges `operand` into the value of `key`, after what the batch does to the key before.
    ///
    /// As `Table.merge`. Without a merge operator the commit raises `InvalidError`.
    fn merge(
        &self,
        py: Python<'_>,
        table: &Bound<'_, Table>,
        key: BytesLike,
        operand: BytesLike,
    ) -> PyResult<()> {
        let table = &table.get().table;
        self.change(py, |batch| {
            batch.merge(table, &key, &operand);
        })
    }

    /// Removes `key` from `table`.
    fn delete(&self, py: Python<'_>, table: &Bound<'_, Table>, key: BytesLike) -> PyResult<()> {
        let table = &table.get().table;
        self.change(py, |batch| {
            batch.delete(table, &key);
        })
    }

    /// Removes every key of a range of `table`, those that the batch has put before included.
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
        self.change(py, |batch| {
            batch.delete_range(table, range);
        })
    }

    /// Sets the blob of the commit, up to 4 KiB, which `Database.last_blob` gives back.
    fn set_blob(&self, py: Python<'_>, blob: BytesLike) -> PyResult<()> {
        self.change(py, |batch| {
            batch.set_blob(&blob);
        })
    }

    /// Forgets all operations.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, terrace::WriteBatch::clear)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.change(py, |batch| batch.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// Commits it, which ends it, also after an error. Durability and `timeout` are as of
    /// `Table.put`, and so is what it raises.
    #[pyo3(signature = (*, durability="durable", timeout=None))]
    fn commit(
        &self,
        py: Python<'_>,
        durability: &str,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let batch = self.take(py)?;
        let durability = options::durability(py, durability)?;
        let patience = timeout.map(|time| options::time("timeout", time)).transpose()?;
        commit(py, &self.db, &batch, (durability, patience))
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
            // One that was committed inside of the block is done.
            let batch = detached(py, || self.batch.lock().take());
            let how = (terrace::Durability::Durable, None);
            return batch.map_or(Ok(()), |batch| commit(py, &self.db, &batch, how));
        }
        detached(py, || drop(self.batch.lock().take()));
        Ok(())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(errors::not_picklable(py, "a batch", "pass the rows"))
    }
}
