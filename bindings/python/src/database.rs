//! Databases.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::batch::Batch;
use crate::bytes_like::BytesLike;
use crate::calls::{KeepOpen, PATIENCE, detached, in_turn, released, watched};
use crate::pending::PendingCommit;
use crate::progress::{Told, told};
use crate::retry::Transactions;
use crate::snapshot::Snapshot;
use crate::table::{NameOrTable, Table};
use crate::transaction::Transaction;
use crate::{dump, errors, json, options};

/// An open database. Any thread may use it, several at once.
#[pyclass(frozen, module = "terrace", weakref)]
pub(crate) struct Database {
    db: terrace::Database,
    /// Whether `db["name"]` creates a table.
    create_tables: bool,
    _keep: KeepOpen,
}

impl Database {
    pub(crate) fn new(db: terrace::Database, create_tables: bool) -> Database {
        let keep = KeepOpen::new(&db);
        Database { db, create_tables, _keep: keep }
    }

    /// Runs a call that may wait for its turn.
    fn in_turn<T: Send>(
        &self,
        py: Python<'_>,
        f: impl Fn(&terrace::Database) -> terrace::Result<T> + Send + Sync,
    ) -> PyResult<T> {
        in_turn(py, Some(PATIENCE), || f(&self.db))
    }

    /// All tables by name. One that is dropped meanwhile is left out, and not made again.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tables = PyDict::new(py);
        for name in self.table_names() {
            if let Some(table) = self.get(py, &name, None)? {
                tables.set_item(name, table)?;
            }
        }
        Ok(tables)
    }

    fn handle(&self, table: terrace::Table) -> Table {
        Table::new(self.db.clone(), table)
    }
}

/// Tables.
#[pymethods]
impl Database {
    /// The directory, as it was given.
    #[getter]
    fn path(&self) -> &Path {
        self.db.path()
    }

    /// Opens a database once more that is open read-only beside a process that writes: what comes
    /// back shows what is committed by now. This one goes on showing what it showed, and keeps disk
    /// space until it is closed. Of any other database it is one more handle.
    fn refresh(&self, py: Python<'_>) -> PyResult<Database> {
        let db = self.db.clone();
        Ok(Database::new(told(py, None, move || db.refresh())?, self.create_tables))
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        match self.create_tables {
            true => self.table(py, name, None),
            false => self.existing_table(py, name),
        }
    }

    fn __delitem__(&self, py: Python<'_>, name: NameOrTable) -> PyResult<()> {
        self.drop_table(py, name)
    }

    fn __contains__(&self, name: &str) -> bool {
        self.db.table_names().iter().any(|other| other == name)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.table_names().into_pyobject(py)?.call_method0("__iter__")
    }

    fn __len__(&self) -> usize {
        self.db.table_names().len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The table called `name`, or `default` when there is none. It creates none.
    #[pyo3(signature = (name, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match released(py, || Ok(self.db.existing_table(name)))? {
            Err(error) if error.kind() == terrace::ErrorKind::MissingTable => Ok(default),
            Err(error) => Err(errors::engine(py, &error)),
            Ok(table) => Ok(Some(Bound::new(py, self.handle(table))?.into_any())),
        }
    }

    /// The names of the tables, as a view.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("collections.abc")?.getattr("KeysView")?.call1((slf,))
    }

    /// The tables that there are now, as a view.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.tables(py)?.call_method0("values")
    }

    /// Pairs of names and tables that there are now, as a view.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.tables(py)?.call_method0("items")
    }

    /// The table called `name`; creates it, with options, when there is none, in one step.
    ///
    /// Without options it opens the table with those that are stored. Raises `ExistsError` when
    /// other ones are asked for: `set_table_options` changes them. Raises `InvalidError` for a name
    /// that is empty, over 255 bytes, or has control characters.
    #[pyo3(signature = (name, **options))]
    fn table(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Table> {
        let asked = options.is_some_and(|given| !given.is_empty());
        let options = options::table(options)?;
        let table = self.in_turn(py, |db| match asked {
            true => db.table_with(name, options),
            false => db.table(name),
        })?;
        Ok(self.handle(table))
    }

    /// Creates a table with options, which it keeps. Raises `ExistsError` when there is one.
    #[pyo3(signature = (name, **options))]
    fn create_table(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Table> {
        let options = options::table(options)?;
        self.in_turn(py, |db| db.create_table(name, options)).map(|table| self.handle(table))
    }

    /// The table called `name`. Raises `MissingTableError`, with the names there are, when there is
    /// none.
    fn existing_table(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        released(py, || self.db.existing_table(name)).map(|table| self.handle(table))
    }

    /// The names of all tables, sorted.
    fn table_names(&self) -> Vec<String> {
        self.db.table_names()
    }

    /// Drops a table and all that is in it. Calls on its handles raise `MissingTableError` from
    /// then on.
    ///
    /// `name` may be a `Table`: then that table goes, also where it was renamed.
    fn drop_table(&self, py: Python<'_>, name: NameOrTable) -> PyResult<()> {
        self.in_turn(py, |db| db.drop_table(name.get()))
    }

    /// Gives a table another name. Handles follow it. `name` may be a `Table`.
    fn rename_table(&self, py: Python<'_>, name: NameOrTable, to: &str) -> PyResult<()> {
        self.in_turn(py, |db| db.rename_table(name.get(), to))
    }

    /// Empties a table, at no cost for each row. Handles stay valid. `name` may be a
    /// `Table`.
    fn truncate_table(&self, py: Python<'_>, name: NameOrTable) -> PyResult<()> {
        self.in_turn(py, |db| db.truncate_table(name.get()))
    }

    /// Changes options of a table, and leaves the others as they are. What is written to disk from
    /// now on follows them. `name` may be a `Table`.
    #[pyo3(signature = (name, **options))]
    fn set_table_options(
        &self,
        py: Python<'_>,
        name: NameOrTable,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let change = options::table_change(options)?;
        self.in_turn(py, |db| db.change_table_options(name.get(), &change))
    }

    /// A batch: operations on any tables that become visible together at the end of its block.
    fn batch(slf: &Bound<'_, Self>) -> Batch {
        Batch::new(slf.get().db.clone())
    }

    /// Gives a batch its place in the order of commits, and does not wait until it is durable.
    #[pyo3(signature = (batch, *, durability="durable"))]
    fn enqueue(
        &self,
        py: Python<'_>,
        batch: &Bound<'_, Batch>,
        durability: &str,
    ) -> PyResult<PendingCommit> {
        let batch = batch.get().take(py)?;
        let durability = options::durability(py, durability)?;
        let pending = self.in_turn(py, |db| db.enqueue(batch.clone(), durability))?;
        Ok(PendingCommit::new(&self.db, pending))
    }

    /// Makes durable all that was acknowledged or enqueued before: relaxed commits survive a power
    /// cut from then on. It costs one sync for any number of them.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.db.sync())
    }

    /// All tables as they are now, until it is closed or its block ends.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        released(py, || self.db.snapshot()).map(|taken| Snapshot::new(&self.db, taken))
    }

    /// Begins a transaction. It commits at the end of its block, and rolls back if the block
    /// raises.
    ///
    /// Options: `isolation` (`read_committed`, `snapshot`, `serializable`), `optimistic`,
    /// `lock_wait` (seconds; 10 by default), `durability`, and the sizes `write_limit`, `spill_at`,
    /// `lock_limit`.
    #[pyo3(signature = (**options))]
    fn begin(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Transaction> {
        Transaction::begin(py, &self.db, &options::transaction(options)?)
    }

    /// Attempts at one transaction, for a loop. The loop ends after the attempt that was committed.
    #[pyo3(signature = (*, attempts=64, **options))]
    fn transactions(
        &self,
        #[pyo3(from_py_with = options::attempts)] attempts: u32,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Transactions> {
        Ok(Transactions::new(self.db.clone(), options::transaction(options)?, attempts))
    }

    /// Runs `function(txn)` and commits, again after conflicts; what the function returned.
    #[pyo3(signature = (function, *, attempts=64, **options))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = options::attempts)] attempts: u32,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let begun = Transactions::new(self.db.clone(), options::transaction(options)?, attempts);
        if attempts == 0 {
            return Err(errors::invalid(py, "attempts=0 runs nothing; take 1 or more"));
        }
        // No frame of Rust lies below the function: a thread that it runs on may be ended by the
        // interpreter.
        py.import("terrace._transactional")?.call_method1("run", (begun, function))
    }

    /// Makes of `function(txn, …)` a function that runs in a transaction, again after conflicts.
    #[pyo3(signature = (function=None, /, **options))]
    fn transactional<'py>(
        slf: &Bound<'py, Self>,
        function: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let helpers = slf.py().import("terrace._transactional")?;
        let options = options.map_or_else(|| PyDict::new(slf.py()), Clone::clone);
        helpers.call_method1("transactional", (slf, function, options))
    }

    /// What is known of each running transaction.
    fn running_transactions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let all = self.db.transactions().into_iter();
        all.map(|info| crate::transaction::info(py, &info)).collect()
    }

    /// Rolls a running transaction back, also one that waits; whether there was one of that number.
    fn kill_transaction(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = options::id)] id: u64,
    ) -> bool {
        // It waits for a call of the transaction that is under way, which may need the interpreter.
        detached(py, || self.db.kill_transaction(id))
    }

    /// The transactions that are prepared and not resolved, also from before the opening.
    fn list_prepared<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let prepared = detached(py, || self.db.list_prepared());
        let one = |info: &terrace::PreparedInfo| {
            let found = PyDict::new(py);
            found.set_item("id", PyBytes::new(py, &info.id))?;
            found.set_item("writes", info.writes)?;
            found.set_item("locks", info.locks)?;
            Ok(found)
        };
        prepared.iter().map(one).collect()
    }

    /// Commits a prepared transaction. Raises `InvalidError` when there is none of that name.
    /// `durability="remote"` waits for the shared store.
    #[pyo3(signature = (id, *, durability="durable"))]
    fn commit_prepared(&self, py: Python<'_>, id: BytesLike, durability: &str) -> PyResult<()> {
        let durability = options::durability(py, durability)?;
        let pending = self.in_turn(py, |db| db.enqueue_prepared(&id, None, durability))?;
        PendingCommit::new(&self.db, pending).wait_for(py, None)
    }

    /// Rolls a prepared transaction back. Raises `InvalidError` when there is none of that name.
    /// `durability="remote"` waits for the shared store.
    #[pyo3(signature = (id, *, durability="durable"))]
    fn roll_back_prepared(&self, py: Python<'_>, id: BytesLike, durability: &str) -> PyResult<()> {
        let durability = options::durability(py, durability)?;
        if durability == terrace::Durability::Remote {
            let (db, id) = (self.db.clone(), id.to_vec());
            return watched(py, move || db.roll_back_prepared(id, durability));
        }
        self.in_turn(py, |db| db.roll_back_prepared(&id, durability))
    }

    /// The blob of the last commit that brought one, also from before the opening.
    fn last_blob<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        detached(py, || self.db.last_blob()).map(|blob| PyBytes::new(py, &blob))
    }

    /// All statistics, as dictionaries. Counters begin at the opening.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        json::to_python(py, &detached(py, || self.db.stats()))
    }

    /// Statistics, and histograms of how long things take, in the text format of OpenMetrics, which
    /// Prometheus reads. Counters begin at the opening.
    fn metrics_text(&self, py: Python<'_>) -> String {
        detached(py, || self.db.metrics_text())
    }

    /// Checks every structure on every tier against its checksum. Writers wait meanwhile.
    ///
    /// Damage is no exception but in the report. `progress` is as of `terrace.verify`.
    #[pyo3(signature = (*, progress=None))]
    fn verify(&self, py: Python<'_>, progress: Option<Told<'_>>) -> PyResult<Py<PyAny>> {
        let db = self.db.clone();
        json::to_python(py, &told(py, progress.as_ref(), move || db.verify())?)
    }

    /// Adds a backup to the set in a directory, which is made if it is missing. Writers go on.
    ///
    /// `progress` is called with a dictionary about ten times a second. If it returns `False` the
    /// backup is not in the set, and the call raises `CancelledError`. Ctrl-C ends it too.
    #[pyo3(signature = (path, *, progress=None))]
    fn backup(
        &self,
        py: Python<'_>,
        path: PathBuf,
        progress: Option<Told<'_>>,
    ) -> PyResult<Py<PyAny>> {
        let db = self.db.clone();
        json::to_python(py, &told(py, progress.as_ref(), move || db.backup(path))?)
    }

    /// Writes all tables with their options, their rows, and the last blob to a binary file, as one
    /// snapshot shows them, while writers go on; how many `tables` and `rows` there were. `load`
    /// takes them in. It has checksums and an end.
    ///
    /// `file` is anything with a method `write`. With `tables`, names, only these are dumped, and
    /// no blob. Ages of rows are left out: in a table with a `ttl` they live that long from the
    /// load on. What prepared transactions have written is in no dump: while some are prepared it
    /// raises `InvalidError`, unless `without_prepared` leaves their writes and locks out.
    ///
    /// What was written before an error or Ctrl-C has no end, and no load takes it for whole.
    #[pyo3(signature = (file, *, tables=None, without_prepared=false))]
    fn dump(
        &self,
        file: &Bound<'_, PyAny>,
        tables: Option<Vec<String>>,
        without_prepared: bool,
    ) -> PyResult<Py<PyAny>> {
        let mut options = dump::options(tables)?;
        if without_prepared {
            options = options.without_prepared();
        }
        dump::dump(&self.db, &options, file)
    }

    /// Takes in a dump out of a binary file: makes its tables, with their options and rows; how
    /// many `tables` and `rows` were loaded. The blob becomes the last one where there is none.
    ///
    /// `file` is anything with a method `read`. With `tables`, names, only these are loaded, and no
    /// blob. Raises `ExistsError`, before it loads anything, when a table is there already. Of one
    /// that is made meanwhile it tells at that table, and what is in. Raises `CorruptError` for a
    /// dump that is damaged or was cut off; `InvalidError` for what is no dump. After an error and
    /// Ctrl-C each table has all rows of the dump or is not there.
    #[pyo3(signature = (file, *, tables=None))]
    fn load(&self, file: &Bound<'_, PyAny>, tables: Option<Vec<String>>) -> PyResult<Py<PyAny>> {
        dump::load(&self.db, &dump::options(tables)?, file)
    }

    /// Makes the region larger, to so many bytes; its new length. After Ctrl-C it goes on to its
    /// end in a thread.
    fn grow_pm(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = options::size)] size: u64,
    ) -> PyResult<u64> {
        let db = self.db.clone();
        watched(py, move || db.grow_pm(size))
    }

    /// Closes the database for all handles. Raises `UnavailableError` when the last sync failed.
    ///
    /// A second call does nothing. `progress` is called with a dictionary of steps, and cannot end
    /// it. After Ctrl-C it goes on to its end in a thread.
    #[pyo3(signature = (*, progress=None))]
    fn close(&self, py: Python<'_>, progress: Option<Told<'_>>) -> PyResult<()> {
        let db = self.db.clone();
        // On another thread it would wait for the function that is told of an event.
        let progress = progress.as_ref().filter(|_| !crate::events::tells());
        told(py, progress, move || db.close())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py, None)
    }

    fn __repr__(&self) -> String {
        format!("<terrace.Database {:?}>", self.db.path().display().to_string())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let instead = "pass its path, and open it there once it is closed here";
        Err(errors::not_picklable(py, "a database", instead))
    }
}
