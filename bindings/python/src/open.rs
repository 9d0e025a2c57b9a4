//! Functions of the module: opening and creating databases, and what is done to closed ones.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::database::Database;
use crate::progress::{Told, told};
use crate::{json, options};

/// Opens the database in a directory, and creates one where the directory is missing or empty.
///
/// With `must_exist` it creates none. With `read_only` no data on disk is changed, and several
/// processes may do so at once, also beside the one that has it open to write: it
/// shows what was committed then, and `db.refresh()` what is committed later. With
/// `create_tables=False`, and read-only, `db["name"]` creates no table.
/// `option_names()["database"]` has the options: sizes are numbers of bytes or text such as
/// `"256MiB"`.
///
/// `progress` is called with a dictionary about ten times a second. If it returns `False` the
/// opening ends with `CancelledError`. Ctrl-C ends it too.
///
/// Raises `ExistsError` for other files in the directory; `MissingDatabaseError`; `InvalidError`
/// for options out of bounds; `BusyError` when another process has it open; `FullError`;
/// `CorruptError`.
#[pyfunction]
#[pyo3(signature = (
    path, *, read_only=false, must_exist=false, create_tables=true, progress=None, **options
))]
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    read_only: bool,
    must_exist: bool,
    create_tables: bool,
    progress: Option<Told<'_>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Database> {
    let options = options::database(options)?;
    let open = move || match (read_only, must_exist) {
        (true, _) => options.open_read_only(path),
        (false, true) => options.open_existing(path),
        (false, false) => options.open(path),
    };
    Ok(Database::new(told(py, progress.as_ref(), open)?, create_tables && !read_only))
}

/// Creates a database in a directory, which must be missing or empty. `progress` is as of `open`.
#[pyfunction]
#[pyo3(signature = (path, *, create_tables=true, progress=None, **options))]
pub(crate) fn create(
    py: Python<'_>,
    path: PathBuf,
    create_tables: bool,
    progress: Option<Told<'_>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Database> {
    let options = options::database(options)?;
    let create = move || options.create(path);
    Ok(Database::new(told(py, progress.as_ref(), create)?, create_tables))
}

/// Checks the database in a directory with the options of `open`; beside a process that writes, as
/// `open` with `read_only` shows it. Damage is no exception but in the report.
///
/// `pm_path` and `object_store` name the region and the store where the database has them
/// elsewhere. `progress` is as of `open`; `CancelledError.report` has what was found by then.
#[pyfunction]
#[pyo3(signature = (path, *, progress=None, **options))]
pub(crate) fn verify(
    py: Python<'_>,
    path: PathBuf,
    progress: Option<Told<'_>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let options = options::database(options)?;
    json::to_python(py, &told(py, progress.as_ref(), move || options.verify(path))?)
}

/// Writes what can be read of a damaged database to a new one in `to`, which must be missing or
/// empty. The report has what was lost. Options are as of `verify`, and
/// `progress` is as of `open`.
#[pyfunction]
#[pyo3(signature = (source, to, *, progress=None, **options))]
pub(crate) fn salvage(
    py: Python<'_>,
    source: PathBuf,
    to: PathBuf,
    progress: Option<Told<'_>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let options = options::database(options)?;
    let salvage = move || options.salvage(source, to);
    json::to_python(py, &told(py, progress.as_ref(), salvage)?)
}

/// The names of the options of databases, tables and transactions, each with what it takes.
#[pyfunction]
pub(crate) fn option_names<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    let of = |names: &mut dyn Iterator<Item = (&'static str, &'static str)>| {
        let one = PyDict::new(py);
        for (name, takes) in names {
            one.set_item(name, takes)?;
        }
        PyResult::Ok(one)
    };
    all.set_item("database", of(&mut terrace::Options::names())?)?;
    all.set_item("table", of(&mut terrace::TableOptions::names())?)?;
    all.set_item("transaction", of(&mut terrace::TxnOptions::names())?)?;
    Ok(all)
}
