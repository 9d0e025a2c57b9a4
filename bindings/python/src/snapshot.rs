//! Snapshots.

use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::bytes_like::{self, BytesLike};
use crate::calls::{KeepOpen, detached, released};
use crate::key_range::bounds;
use crate::rows::{Limit, Part, Rows, row};
use crate::table::Table;
use crate::{errors, reads};

/// Every table as it was at one moment. Any thread may use it, several at once.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Snapshot {
    lsn: u64,
    /// `None` once it was closed.
    snapshot: RwLock<Option<terrace::Snapshot>>,
    db: terrace::Database,
    keep: KeepOpen,
}

impl Snapshot {
    pub(crate) fn new(db: &terrace::Database, snapshot: terrace::Snapshot) -> Snapshot {
        let (db, keep) = (db.clone(), KeepOpen::new(db));
        Snapshot { lsn: snapshot.lsn(), snapshot: RwLock::new(Some(snapshot)), db, keep }
    }

    /// The snapshot itself. No lock is held while it is used.
    fn open(&self, py: Python<'_>) -> PyResult<terrace::Snapshot> {
        self.keep.check_not_forked(py)?;
        let at_once = self.snapshot.try_read().map(|snapshot| snapshot.clone());
        let snapshot = at_once.unwrap_or_else(|| detached(py, || self.snapshot.read().clone()));
        snapshot.ok_or_else(|| errors::closed(py, "the snapshot was closed; take another one"))
    }

    fn rows(
        &self,
        table: &Bound<'_, Table>,
        range: crate::key_range::Bounds,
        (reverse, limit): (bool, Option<Limit>),
        part: Part,
    ) -> PyResult<Rows> {
        let rows = self.open(table.py())?.range(&table.get().table, range);
        Ok(Rows::of_table(&self.db, if reverse { rows.rev() } else { rows }, limit, part))
    }
}

#[pymethods]
impl Snapshot {
    /// The number of the last commit that it sees.
    #[getter]
    fn lsn(&self) -> u64 {
        self.lsn
    }

    /// The value that `key` of `table` had, or `default`.
    #[pyo3(signature = (table, key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
        key: BytesLike,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (snapshot, table) = (self.open(py)?, &table.get().table);
        let found = reads::find(py, (table, Some(&snapshot)), &key)?;
        Ok(found.map(Bound::into_any).or(default))
    }

    /// The values that several keys of `table` had.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let (snapshot, table) = (self.open(py)?, &table.get().table);
        let keys = bytes_like::all(keys)?;
        let found = released(py, || snapshot.multi_get(table, &keys))?;
        Ok(found.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value))).collect())
    }

    /// Whether `table` had `key`.
    fn contains_key(
        &self,
        py: Python<'_>,
        table: &Bound<'_, Table>,
        key: BytesLike,
    ) -> PyResult<bool> {
        let (snapshot, table) = (self.open(py)?, &table.get().table);
        released(py, || snapshot.contains_key(table, &key))
    }

    /// Pairs of keys and values of `table`. As `Table.items`.
    #[pyo3(signature = (table, *, prefix=None, start=None, stop=None, reverse=false, limit=None))]
    fn items(
        &self,
        table: &Bound<'_, Table>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        reverse: bool,
        limit: Option<Limit>,
    ) -> PyResult<Rows> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.rows(table, range, (reverse, limit), Part::Items)
    }

    /// Keys of `table`. As `Table.keys`.
    #[pyo3(signature = (table, *, prefix=None, start=None, stop=None, reverse=false, limit=None))]
    fn keys(
        &self,
        table: &Bound<'_, Table>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        reverse: bool,
        limit: Option<Limit>,
    ) -> PyResult<Rows> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.rows(table, range, (reverse, limit), Part::Keys)
    }

    /// Values of `table`. As `Table.values`.
    #[pyo3(signature = (table, *, prefix=None, start=None, stop=None, reverse=false, limit=None))]
    fn values(
        &self,
        table: &Bound<'_, Table>,
        prefix: Option<BytesLike>,
        start: Option<BytesLike>,
        stop: Option<BytesLike>,
        reverse: bool,
        limit: Option<Limit>,
    ) -> PyResult<Rows> {
        let range = bounds(prefix.as_ref(), start.as_ref(), stop.as_ref());
        self.rows(table, range, (reverse, limit), Part::Values)
    }

    /// The row of `table` with the least key, or None.
    fn first<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (snapshot, table) = (self.open(py)?, &table.get().table);
        released(py, || snapshot.first(table))?.map(|found| row(py, &found)).transpose()
    }

    /// The row of `table` with the greatest key, or None.
    fn last<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, Table>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (snapshot, table) = (self.open(py)?, &table.get().table);
        released(py, || snapshot.last(table))?.map(|found| row(py, &found)).transpose()
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        table: &Bound<'py, Table>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terrace._views")?.call_method1("TableView", (slf, table))
    }

    /// Ends it: versions that it alone sees need not be kept any more.
    fn close(&self, py: Python<'_>) {
        // In a forked child a thread of the parent may hold the lock for ever.
        if !self.keep.is_forked() {
            detached(py, || drop(self.snapshot.write().take()));
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let instead = "take one where it is needed";
        Err(errors::not_picklable(py, "a snapshot", instead))
    }
}
