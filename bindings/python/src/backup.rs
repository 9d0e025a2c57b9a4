//! Backups, and databases made of them.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::watched;
use crate::progress::{Told, told};
use crate::{json, options};

/// A directory of backups of one database. Restored databases get the options of `open`.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct BackupSet {
    set: terrace::BackupSet,
    path: PathBuf,
}

#[pymethods]
impl BackupSet {
    #[new]
    #[pyo3(signature = (path, **options))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<BackupSet> {
        let (options, at) = (options::database(options)?, path.clone());
        let set = watched(py, move || options.backup_set(at))?;
        Ok(BackupSet { set, path })
    }

    /// Its backups, the oldest first.
    fn list(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let set = self.set.clone();
        json::to_python(py, &watched(py, move || set.list())?)
    }

    /// Makes a database of backup `number` in the directory `to`, which must be missing or empty.
    ///
    /// `progress` is called with a dictionary about ten times a second. If it returns `False` there
    /// is no database in `to`, and the call raises `CancelledError`. Ctrl-C ends it too.
    #[pyo3(signature = (number, to, *, progress=None))]
    fn restore(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = options::number)] number: u64,
        to: PathBuf,
        progress: Option<Told<'_>>,
    ) -> PyResult<()> {
        let set = self.set.clone();
        told(py, progress.as_ref(), move || set.restore(number, to))
    }

    /// Deletes backup `number`, and gives back space that no other one needs.
    fn delete(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = options::number)] number: u64,
    ) -> PyResult<()> {
        let set = self.set.clone();
        watched(py, move || set.delete(number))
    }

    /// Reads all that the set has, and checks it. Damage is in the report. `progress` is as of
    /// `terrace.verify`.
    #[pyo3(signature = (*, progress=None))]
    fn verify(&self, py: Python<'_>, progress: Option<Told<'_>>) -> PyResult<Py<PyAny>> {
        let set = self.set.clone();
        json::to_python(py, &told(py, progress.as_ref(), move || set.verify())?)
    }

    fn __repr__(&self) -> String {
        format!("<terrace.BackupSet {:?}>", self.path.display().to_string())
    }
}

/// Makes a database of the last backup of a set in the directory `to`, with the options of `open`.
///
/// `progress` is as of `BackupSet.restore`.
#[pyfunction]
#[pyo3(signature = (path, to, *, progress=None, **options))]
pub(crate) fn restore(
    py: Python<'_>,
    path: PathBuf,
    to: PathBuf,
    progress: Option<Told<'_>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let at = path.display().to_string();
    let set = BackupSet::new(py, path, options)?;
    let inner = set.set.clone();
    let all = watched(py, move || inner.list())?;
    let last = all.last().ok_or_else(|| {
        crate::errors::invalid(py, format!("the set in {at} has no backup; make one first"))
    })?;
    set.restore(py, last.number, to, progress)
}
