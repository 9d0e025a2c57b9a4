//! Backups, and databases made of them.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::{detached, watched};
use crate::{exit, json, options};

/// Adds a backup to a set. `progress` is called with the bytes that the set has gained.
pub(crate) fn take(
    py: Python<'_>,
    db: &terrace::Database,
    set: PathBuf,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<terrace::BackupInfo> {
    let (db, at) = (db.clone(), set.clone());
    let before = progress.map_or(0, |_| detached(py, || size(&set)));
    let look = || tell(progress, || size(&set).saturating_sub(before));
    let info = watched(py, move || db.backup(at), look)?;
    tell(progress, || info.added_bytes)?;
    Ok(info)
}

/// Bytes are counted without the interpreter's lock: a set may have many files.
fn tell(progress: Option<&Bound<'_, PyAny>>, bytes: impl FnOnce() -> u64 + Send) -> PyResult<()> {
    let Some(progress) = progress else { return Ok(()) };
    let bytes = detached(progress.py(), bytes);
    let _pass = exit::pass_with_lock(progress.py());
    progress.call1((bytes,)).map(drop)
}

/// The bytes of all files in a directory. What cannot be looked at counts as empty: this is for
/// people that watch.
fn size(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = files.map(|file| match file.metadata() {
        Ok(found) if found.is_dir() => size(&file.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

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
        let set = watched(py, move || options.backup_set(at), || Ok(()))?;
        Ok(BackupSet { set, path })
    }

    /// Its backups, the oldest first.
    fn list(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let set = self.set.clone();
        json::to_python(py, &watched(py, move || set.list(), || Ok(()))?)
    }

    /// Makes a database of backup `number` in the directory `to`, which must be missing or empty.
    ///
    /// `progress` is called about ten times a second with the bytes written.
    #[pyo3(signature = (number, to, *, progress=None))]
    fn restore(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = options::number)] number: u64,
        to: PathBuf,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (set, at) = (self.set.clone(), to.clone());
        watched(py, move || set.restore(number, at), || tell(progress, || size(&to)))?;
        tell(progress, || size(&to))
    }

    /// Deletes backup `number`, and gives back space that no other one needs.
    fn delete(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = options::number)] number: u64,
    ) -> PyResult<()> {
        let set = self.set.clone();
        watched(py, move || set.delete(number), || Ok(()))
    }

    /// Reads all that the set has, and checks it. Damage is in the report.
    fn verify(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let set = self.set.clone();
        json::to_python(py, &watched(py, move || set.verify(), || Ok(()))?)
    }

    fn __repr__(&self) -> String {
        format!("<terrace.BackupSet {:?}>", self.path.display().to_string())
    }
}

/// Makes a database of the last backup of a set in the directory `to`, with the options of `open`.
///
/// `progress` is called about ten times a second with the bytes written.
#[pyfunction]
#[pyo3(signature = (path, to, *, progress=None, **options))]
pub(crate) fn restore(
    py: Python<'_>,
    path: PathBuf,
    to: PathBuf,
    progress: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let at = path.display().to_string();
    let set = BackupSet::new(py, path, options)?;
    let inner = set.set.clone();
    let all = watched(py, move || inner.list(), || Ok(()))?;
    let last = all.last().ok_or_else(|| {
        crate::errors::invalid(py, format!("the set in {at} has no backup; make one first"))
    })?;
    set.restore(py, last.number, to, progress)
}
