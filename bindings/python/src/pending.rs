//! Commits that have their place in the order and were not waited for.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::calls::{KeepOpen, SLICE, detached, without_lock};
use crate::{errors, options};

/// A commit that nothing but a failure of the device can keep from happening.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct PendingCommit {
    number: u64,
    outcome: Arc<Outcome>,
    keep: KeepOpen,
}

/// What becomes of a commit, for all that wait for it.
///
/// Thread safety: any thread waits. The mutex is held for a poll, which waits for nothing, and for
/// as long as it takes to look. The engine wakes without a lock of its own.
struct Outcome {
    state: Mutex<State>,
    changed: Condvar,
    /// Event loops that wait for it, each with its name of the commit.
    loops: Mutex<Vec<(Arc<Loop>, u64)>>,
}

enum State {
    Waits(terrace::PendingCommit),
    Ended(Result<(), Arc<terrace::Error>>),
    /// The object is gone, and the engine has the commit.
    LeftAlone,
}

impl Wake for Outcome {
    fn wake(self: Arc<Outcome>) {
        // A thread that has polled and is about to wait holds it.
        drop(self.state.lock());
        self.wake_all();
    }
}

impl Outcome {
    /// Wakes each thread and each event loop that waits. The engine wakes for one end once, and not
    /// at all if a poll has seen that first.
    fn wake_all(&self) {
        self.changed.notify_all();
        for (wakeup, commit) in self.loops.lock().drain(..) {
            wakeup.ended.lock().push(commit);
            // A pipe that takes no byte has some that its loop has not seen, or no loop any more.
            drop((&wakeup.pipe).write(&[0]));
        }
    }
}

/// What wakes an event loop from another thread: the engine writes a byte, and needs no lock of the
/// interpreter for that. The loop watches the other end.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Wakeup {
    ours: Arc<Loop>,
    of_loop: UnixStream,
}

/// What the engine has of an event loop.
struct Loop {
    pipe: UnixStream,
    /// The commits that it has not looked at since they ended.
    ended: Mutex<Vec<u64>>,
}

#[pymethods]
impl Wakeup {
    #[new]
    fn new() -> PyResult<Wakeup> {
        let (ours, of_loop) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        of_loop.set_nonblocking(true)?;
        let ours = Loop { pipe: ours, ended: Mutex::default() };
        Ok(Wakeup { ours: Arc::new(ours), of_loop })
    }

    fn fileno(&self) -> i32 {
        self.of_loop.as_raw_fd()
    }

    /// The commits that have ended. One that ends from now on wakes the loop again.
    fn ended(&self) -> Vec<u64> {
        let mut bytes = [0; 256];
        while (&self.of_loop).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
        std::mem::take(&mut *self.ours.ended.lock())
    }
}

impl Outcome {
    /// What became of it, if that is known by `until`.
    fn wait(self: &Arc<Outcome>, until: Instant) -> Option<Result<(), Arc<terrace::Error>>> {
        let waker = Waker::from(Arc::clone(self));
        let mut state = self.state.lock();
        loop {
            if let State::Waits(commit) = &mut *state
                && let Poll::Ready(done) = Pin::new(commit).poll(&mut Context::from_waker(&waker))
            {
                *state = State::Ended(done.map_err(Arc::new));
                self.wake_all();
            }
            if let State::Ended(done) = &*state {
                return Some(done.clone());
            }
            if self.changed.wait_until(&mut state, until).timed_out() {
                return None;
            }
        }
    }

    /// Leaves it to the engine. One that was polled gives its row locks back by itself, and is not
    /// waited for.
    fn leave_alone(&self) {
        let left = std::mem::replace(&mut *self.state.lock(), State::LeftAlone);
        if let State::Waits(mut commit) = left {
            let polled = Pin::new(&mut commit).poll(&mut Context::from_waker(Waker::noop()));
            drop((polled, commit));
        }
    }
}

impl PendingCommit {
    pub(crate) fn new(db: &terrace::Database, commit: terrace::PendingCommit) -> PendingCommit {
        let (number, state) = (commit.number(), Mutex::new(State::Waits(commit)));
        let outcome = Arc::new(Outcome { state, changed: Condvar::new(), loops: Mutex::default() });
        PendingCommit { number, outcome, keep: KeepOpen::new(db) }
    }

    /// Waits until it is done, or until `patience` is over.
    pub(crate) fn wait_for(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<()> {
        self.keep.check_not_forked(py)?;
        let begin = Instant::now();
        let end = patience.and_then(|patience| begin.checked_add(patience));
        loop {
            let slice = Instant::now() + SLICE;
            let until = end.map_or(slice, |end| end.min(slice));
            match detached(py, || self.outcome.wait(until)) {
                Some(done) => return done.map_err(|error| errors::engine(py, &error)),
                None if end == Some(until) => {
                    let waited = begin.elapsed().as_secs_f64();
                    let message = format!(
                        "commit {} has its place in the order and is not done after {waited:.1} s; \
                         it goes on: wait again",
                        self.number
                    );
                    return Err(errors::timeout(py, message));
                }
                None => py.check_signals()?,
            }
        }
    }
}

impl Drop for PendingCommit {
    fn drop(&mut self) {
        if self.keep.is_forked() {
            // Threads of the parent may have held locks of the commit.
            std::mem::forget(Arc::clone(&self.outcome));
            return;
        }
        if matches!(*self.outcome.state.lock(), State::Waits(_)) {
            let outcome = &self.outcome;
            without_lock(move || outcome.leave_alone());
        }
    }
}

#[pymethods]
impl PendingCommit {
    /// Its number. A commit that was enqueued later has a greater one.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// Waits until it is visible, and as durable as was asked for. Any number of threads may wait,
    /// and each gets the same outcome.
    ///
    /// With `timeout`, raises `TimeoutError` after so many seconds. After that, and after Ctrl-C,
    /// the commit goes on. Raises `UnknownOutcomeError` when the device failed meanwhile, or the
    /// shared store did not acknowledge a remote commit, which is here then.
    #[pyo3(name = "wait", signature = (timeout=None))]
    fn wait_in_python(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.wait_for(py, timeout.map(|time| options::time("timeout", time)).transpose()?)
    }

    /// `await`, in any task of an event loop of asyncio. As `wait`. A task that is cancelled leaves
    /// nothing behind; the commit goes on.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terrace._await")?.call_method1("wait", (slf,))
    }

    /// Has a loop woken when the commit has ended; whether it has not by now. The loop calls it
    /// `commit`.
    fn _wake(&self, py: Python<'_>, wakeup: &Bound<'_, Wakeup>, commit: u64) -> PyResult<bool> {
        self.keep.check_not_forked(py)?;
        let ours = &wakeup.get().ours;
        Ok(detached(py, || {
            {
                let mut loops = self.outcome.loops.lock();
                if !loops.iter().any(|(other, _)| Arc::ptr_eq(other, ours)) {
                    loops.push((Arc::clone(ours), commit));
                }
            }
            // Looked at after it was registered, so that no end is missed.
            self.outcome.wait(Instant::now()).is_none()
        }))
    }

    fn __repr__(&self) -> String {
        format!("<terrace.PendingCommit {}>", self.number)
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(errors::not_picklable(py, "a pending commit", "wait for it"))
    }
}
