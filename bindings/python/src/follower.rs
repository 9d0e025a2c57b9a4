//! Databases that several machines share through an object store: takeovers, followers, standbys.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::{detached, released, watched, without_lock};
use crate::database::Database;
use crate::{errors, json, options};

/// A database that shows what the writer of a shared store commits: a follower, or a standby, which
/// can become the writer. Any thread may use it, several at once.
#[pyclass(frozen, module = "terrace", weakref)]
pub(crate) struct Follower(Option<Arc<Node>>);

enum Node {
    Follower(terrace::Follower),
    /// With the database of a promotion, until a call has given it.
    Standby(terrace::Standby, Kept),
}

/// The database of a promotion, and the process whose threads hold the lock.
struct Kept {
    db: Mutex<Option<terrace::Database>>,
    process: u32,
}

impl std::ops::Deref for Node {
    type Target = terrace::Follower;

    fn deref(&self) -> &terrace::Follower {
        match self {
            Node::Follower(follower) => follower,
            Node::Standby(standby, _) => standby,
        }
    }
}

/// Takes the shared database of a store over, whichever machine writes to it, and opens it to write
/// in `path`, which is missing or empty.
///
/// It has every commit with `durability="remote"`, and of the rest what had been shipped. The other
/// writer stops with `FencedError`. Later openings of `path` need the options `share` and
/// `object_store`. Ctrl-C raises at once, and the takeover goes on.
///
/// Raises `InvalidError` when there is no shared database; `ExistsError` when there is something in
/// `path`; `UnavailableError` when the store does not answer.
#[pyfunction]
#[pyo3(signature = (url, path, *, create_tables=true, **options))]
pub(crate) fn open_shared(
    py: Python<'_>,
    url: String,
    path: PathBuf,
    create_tables: bool,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Database> {
    let options = options::database(options)?;
    let open = move || options.open_shared(&url, path);
    Ok(Database::new(watched(py, open)?, create_tables))
}

/// Follows the shared database of a store, with data of its own in `path`, or in the store with the
/// option `object_cache`. It costs two requests a second while nothing is committed.
///
/// Raises as `open_shared`, and `UnavailableError` where the database has no checkpoint yet.
#[pyfunction]
#[pyo3(signature = (url, path, **options))]
pub(crate) fn follow(
    py: Python<'_>,
    url: String,
    path: PathBuf,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Follower> {
    Follower::new(py, options, move |options| options.follow(&url, path).map(Node::Follower))
}

/// Stands by for the shared database of a store, with all of its data in `path`. As `follow`;
/// `promote` makes it the writer.
#[pyfunction]
#[pyo3(signature = (url, path, **options))]
pub(crate) fn standby(
    py: Python<'_>,
    url: String,
    path: PathBuf,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Follower> {
    Follower::new(py, options, move |options| {
        let kept = Kept { db: Mutex::default(), process: std::process::id() };
        Ok(Node::Standby(options.standby(&url, path)?, kept))
    })
}

/// How far the shared database of a store is, as a dictionary. It costs about twenty small
/// requests, and changes nothing.
#[pyfunction]
#[pyo3(signature = (url, **options))]
pub(crate) fn shared_status(
    py: Python<'_>,
    url: String,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let options = options::database(options)?;
    json::to_python(py, &watched(py, move || options.shared_status(&url))?)
}

/// Forgets a follower that was registered by the option `follower_name`: the store keeps nothing
/// for it any more. A name that is not registered is no error.
#[pyfunction]
#[pyo3(signature = (url, name, **options))]
pub(crate) fn forget_follower(
    py: Python<'_>,
    url: String,
    name: String,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let options = options::database(options)?;
    watched(py, move || options.forget_follower(&url, &name))
}

impl Follower {
    fn new(
        py: Python<'_>,
        options: Option<&Bound<'_, PyDict>>,
        start: impl FnOnce(terrace::Options) -> terrace::Result<Node> + Send + 'static,
    ) -> PyResult<Follower> {
        let options = options::database(options)?;
        Ok(Follower(Some(Arc::new(watched(py, move || start(options))?))))
    }

    /// Runs what may wait for the store or for the node's thread.
    fn watched<T: Send + 'static>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&Node) -> terrace::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let node = self.node(py)?;
        watched(py, move || f(&node))
    }

    fn node(&self, py: Python<'_>) -> PyResult<Arc<Node>> {
        self.0.clone().ok_or_else(|| errors::internal(py, "a follower has ended before its object"))
    }
}

#[pymethods]
impl Follower {
    /// The database, to read. Its handles keep what they show where the follower had to start from
    /// a checkpoint.
    ///
    /// Ask again now and then, and when a read raises `UnavailableError`. A name that is no table
    /// raises `MissingTableError`. Closing it does nothing: the follower closes it.
    fn database(&self, py: Python<'_>) -> PyResult<Database> {
        Ok(Database::new(self.watched(py, |node| node.database())?, false))
    }

    /// How far it is, as a dictionary. `directory` is where its database lies.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (node, found) = (self.node(py)?, PyDict::new(py));
        let status = released(py, move || Ok(node.status()))?;
        found.set_item("store", status.store)?;
        found.set_item("directory", status.directory)?;
        found.set_item("commit", status.commit)?;
        found.set_item("entry", status.entry)?;
        // The engine's greatest number stands for a lag that is not known.
        found.set_item("lag_ms", (status.lag_ms < u64::MAX).then_some(status.lag_ms))?;
        found.set_item("restarts", status.restarts)?;
        found.set_item("missed", status.missed)?;
        found.set_item("gets", status.gets)?;
        found.set_item("note", status.note)?;
        Ok(found)
    }

    /// Makes a standby the writer: it applies what is left, claims the shared store, and opens the
    /// database to write, in the directory that `Database.path` names.
    ///
    /// Databases of the standby are closed by it, and the standby too, also after an error. Then
    /// stand by in the same directory again, and promote that. Raises as `open_shared`, and
    /// `InvalidError` for a follower, which may lack data. Ctrl-C raises at once, and the promotion
    /// goes on: a second call gives its database. Where it fails, the second call raises
    /// `ClosedError`, and the `note` of `status()` has the reason. `close`, and so the end of a
    /// `with`, ends the promotion or closes its database. `shared_status(url)["writer"]` tells
    /// which machine writes then.
    #[pyo3(signature = (*, create_tables=true))]
    fn promote(&self, py: Python<'_>, create_tables: bool) -> PyResult<Database> {
        let promote = |node: &Node| match node {
            Node::Follower(_) => Ok(None),
            Node::Standby(standby, kept) => {
                // The thread that has the lock may be the parent's: then the call fails.
                if kept.process != std::process::id() {
                    return standby.promote().map(Some);
                }
                let mut kept = kept.db.lock();
                if kept.is_none() {
                    *kept = Some(standby.promote()?);
                }
                Ok(kept.clone())
            }
        };
        let promoted = self.watched(py, promote)?.ok_or_else(|| {
            errors::invalid(py, "a follower cannot be promoted; use terrace.standby")
        })?;
        // Ctrl-C by now leaves it for the next call.
        py.check_signals()?;
        if let Node::Standby(_, kept) = &*self.node(py)? {
            detached(py, || kept.db.lock().take());
        }
        Ok(Database::new(promoted, create_tables))
    }

    /// Ends following. The next follower in the same directory goes on where it was. The database
    /// of a promotion that no call has given, for Ctrl-C, is closed. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.watched(py, |node| {
            node.close()?;
            let Node::Standby(_, kept) = node else { return Ok(()) };
            let promoted = kept.db.lock().take();
            promoted.map_or(Ok(()), terrace::Database::close)
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let instead = "pass the URL of the store, and follow in another directory";
        Err(errors::not_picklable(py, "a follower", instead))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let node = self.0.take();
        without_lock(move || drop(node));
    }
}
