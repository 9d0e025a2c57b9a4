//! How calls go to the engine: without the interpreter's lock, and with an eye on Ctrl-C where they
//! may wait for long.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use terrace::{Durability, ErrorKind};

use crate::pending::PendingCommit;
use crate::{errors, events, exit, progress};

/// A wait is cut into slices of this length. Between two of them signals are looked at.
pub(crate) const SLICE: Duration = Duration::from_millis(200);

/// How long a write waits for its turn if nothing else is asked for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `f` without the interpreter's lock.
pub(crate) fn detached<T: Send>(py: Python<'_>, f: impl FnOnce() -> T + Send) -> T {
    let (done, pass) = py.detach(|| (f(), exit::pass()));
    drop(pass);
    done
}

/// Runs `f`, which waits for no other thread for long, without the interpreter's lock. A panic
/// becomes an exception.
pub(crate) fn released<T: Send>(
    py: Python<'_>,
    f: impl FnOnce() -> terrace::Result<T> + Send,
) -> PyResult<T> {
    outcome(py, detached(py, || catch_unwind(AssertUnwindSafe(f))))
}

pub(crate) type Caught<T> = std::thread::Result<terrace::Result<T>>;

/// What came of a call.
pub(crate) fn outcome<T>(py: Python<'_>, caught: Caught<T>) -> PyResult<T> {
    match caught {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(errors::engine(py, &error)),
        Err(panic) => Err(errors::internal(py, &words(&*panic))),
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Runs `f`, which waits until the moment it is given and then fails with `Timeout`, again and
/// again until `patience` is over. `None` is for ever. Nothing that `f` was to do is done after a
/// `Timeout`. All slices have one place in the queues for row locks.
pub(crate) fn in_slices<T: Send>(
    py: Python<'_>,
    patience: Option<Duration>,
    f: impl Fn(Instant) -> terrace::Result<T> + Send + Sync,
) -> PyResult<T> {
    let begin = Instant::now();
    let end = patience.and_then(|patience| begin.checked_add(patience));
    loop {
        let slice = Instant::now() + SLICE;
        let until = end.map_or(slice, |end| end.min(slice));
        let f = || terrace::with_arrival(begin, || f(until));
        match detached(py, || catch_unwind(AssertUnwindSafe(f))) {
            Ok(Err(error)) if error.kind() == ErrorKind::Timeout && end != Some(until) => {
                py.check_signals()?;
            }
            Ok(Err(error)) if error.kind() == ErrorKind::Timeout && begin.elapsed() > SLICE => {
                let waited = begin.elapsed().as_secs_f64();
                let message = format!("waited {waited:.1} s in all, and at last: {error}");
                return Err(errors::timeout(py, message));
            }
            caught => return outcome(py, caught),
        }
    }
}

/// The same for a call that waits for its turn and takes no moment itself.
pub(crate) fn in_turn<T: Send>(
    py: Python<'_>,
    patience: Option<Duration>,
    f: impl Fn() -> terrace::Result<T> + Send + Sync,
) -> PyResult<T> {
    in_slices(py, patience, |until| terrace::with_deadline(until, &f))
}

/// Commits a batch: each write of a table and of a batch goes this way. Before it has its place in
/// the order, Ctrl-C and the end of `patience` keep it from happening.
pub(crate) fn commit(
    py: Python<'_>,
    db: &terrace::Database,
    batch: &terrace::WriteBatch,
    (durability, patience): (Durability, Option<Duration>),
) -> PyResult<()> {
    let patience = Some(patience.unwrap_or(PATIENCE));
    if durability != Durability::Remote {
        return in_turn(py, patience, || db.write_with(batch, durability));
    }
    let pending = in_turn(py, patience, || db.enqueue(batch.clone(), durability))?;
    PendingCommit::new(db, pending).wait_for(py, None)
}

/// Runs `f` on a thread of its own. After Ctrl-C the call ends at once; what `f` does goes on to
/// its end. A function that is told of an event runs `f` on its own thread: a closing on another
/// one would wait until that function has returned.
pub(crate) fn watched<T: Send + 'static>(
    py: Python<'_>,
    f: impl FnOnce() -> terrace::Result<T> + Send + 'static,
) -> PyResult<T> {
    if events::tells() {
        return released(py, f);
    }
    let (sender, receiver) = sync_channel(1);
    let f = progress::for_this_thread(f);
    // Without a receiver, which Ctrl-C has ended, the outcome goes nowhere.
    spawn(move || drop(sender.send(f())))?;
    let receiver = parking_lot::Mutex::new(receiver);
    loop {
        match next(py, &receiver) {
            Some(caught) => return outcome(py, caught.ok_or_else(|| lost(py))?),
            None => py.check_signals()?,
        }
    }
}

/// Runs `f` on a thread of the library.
pub(crate) fn spawn(f: impl FnOnce() + Send + 'static) -> PyResult<()> {
    std::thread::Builder::new().name("terrace-python".into()).spawn(f)?;
    Ok(())
}

/// What comes next from a thread, within half a slice; `None` inside where it has ended.
pub(crate) fn next<T: Send>(
    py: Python<'_>,
    receiver: &parking_lot::Mutex<Receiver<T>>,
) -> Option<Option<T>> {
    match detached(py, || receiver.lock().recv_timeout(SLICE / 2)) {
        Ok(received) => Some(Some(received)),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(None),
    }
}

pub(crate) fn lost(py: Python<'_>) -> PyErr {
    errors::internal(py, "a thread ended without an outcome")
}

/// Keeps a database open for an object of Python. The last field of the object: where the object
/// was the last handle, the database closes without the interpreter's lock.
pub(crate) struct KeepOpen(Option<terrace::Database>);

impl KeepOpen {
    pub(crate) fn new(db: &terrace::Database) -> KeepOpen {
        KeepOpen(Some(db.clone()))
    }

    /// Whether this process was forked from the one that opened the database. Locks of the object
    /// may be held for ever then.
    pub(crate) fn is_forked(&self) -> bool {
        self.0.as_ref().is_some_and(terrace::Database::is_forked)
    }

    /// Fails in a forked child, before a lock of the object is waited for.
    pub(crate) fn check_not_forked(&self, py: Python<'_>) -> PyResult<()> {
        match &self.0 {
            Some(db) if db.is_forked() => released(py, || db.snapshot().map(drop)),
            _ => Ok(()),
        }
    }
}

impl Drop for KeepOpen {
    fn drop(&mut self) {
        if let Some(db) = self.0.take_if(|db| db.is_last_handle()) {
            without_lock(move || drop(db));
        }
    }
}

/// Runs what may wait, where an object of Python ends, without the interpreter's lock.
pub(crate) fn without_lock(f: impl FnOnce() + Send) {
    Python::attach(|py| detached(py, f));
}
