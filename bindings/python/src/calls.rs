//! How calls go to the engine: without the interpreter's lock, and with an eye on Ctrl-C where they
//! may wait for long.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use terrace::ErrorKind;

use crate::errors;

/// A wait is cut into slices of this length. Between two of them signals are looked at.
pub(crate) const SLICE: Duration = Duration::from_millis(200);

/// How long a write waits for its turn if nothing else is asked for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `f` without the interpreter's lock. A panic becomes an exception.
pub(crate) fn released<T: Send>(
    py: Python<'_>,
    f: impl FnOnce() -> terrace::Result<T> + Send,
) -> PyResult<T> {
    outcome(py, py.detach(|| catch_unwind(AssertUnwindSafe(f))))
}

type Caught<T> = std::thread::Result<terrace::Result<T>>;

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
/// again until `patience` is over. `None` is for ever.
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
        match py.detach(|| catch_unwind(AssertUnwindSafe(|| f(until)))) {
            Ok(Err(error)) if error.kind() == ErrorKind::Timeout && end != Some(until) => {
                py.check_signals()?;
            }
            caught => return outcome(py, caught),
        }
    }
}

/// Runs `f` on a thread of its own, and `look` in between, which may raise. After Ctrl-C the call
/// ends at once; what `f` does goes on to its end.
pub(crate) fn watched<T: Send + 'static>(
    py: Python<'_>,
    f: impl FnOnce() -> terrace::Result<T> + Send + 'static,
    mut look: impl FnMut() -> PyResult<()>,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let work = move || {
        // Without a receiver, which Ctrl-C has ended, the outcome goes nowhere.
        drop(sender.send(catch_unwind(AssertUnwindSafe(f))));
    };
    std::thread::Builder::new().name("terrace-python".into()).spawn(work)?;
    let receiver = parking_lot::Mutex::new(receiver);
    loop {
        match py.detach(|| receiver.lock().recv_timeout(SLICE / 2)) {
            Ok(caught) => return outcome(py, caught),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals()?;
                look()?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::internal(py, "a thread ended without an outcome"));
            }
        }
    }
}
