//! Long calls: a thread of the library works, and the thread of the call tells a function of Python
//! how far that is, and looks at signals. Both can end the work.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use serde::Serialize;
use terrace::Progress;

use crate::calls::{Caught, detached, lost, next, outcome, spawn};
use crate::{calls, errors, exit, json};

/// How long a call waits after Ctrl-C for its work to end. What takes longer, such as a closing,
/// ends in its thread.
const ENDING: Duration = Duration::from_secs(2);

/// A function is called once in such a time at most, but for the first and the last call.
const PAUSE: Duration = Duration::from_millis(100);

thread_local! {
    /// What the function is told of that this thread runs.
    static TOLD: Cell<Option<Progress>> = const { Cell::new(None) };
}

/// What runs `f` on another thread for this one: inside of a function that is told of progress,
/// what the engine refuses here it refuses there.
pub(crate) fn for_this_thread<T>(f: impl FnOnce() -> T) -> impl FnOnce() -> std::thread::Result<T> {
    let told = TOLD.get();
    move || match told {
        Some(at) => at.run(f),
        None => catch_unwind(AssertUnwindSafe(f)),
    }
}

/// A function of Python's that is told how far work is.
pub(crate) struct Told<'py>(Bound<'py, PyAny>);

impl<'a, 'py> FromPyObject<'a, 'py> for Told<'py> {
    type Error = PyErr;

    fn extract(function: Borrowed<'a, 'py, PyAny>) -> PyResult<Told<'py>> {
        match function.is_callable() {
            true => Ok(Told(function.to_owned())),
            false => {
                let class = function.get_type().name()?;
                Err(PyTypeError::new_err(format!("progress takes a function, not {class}")))
            }
        }
    }
}

impl Told<'_> {
    /// Calls it, and says whether the work goes on: it ends after `False`.
    fn tell(&self, at: &impl Serialize) -> PyResult<ControlFlow<()>> {
        let py = self.0.py();
        let at = json::to_python(py, at)?;
        let _pass = exit::pass_with_lock(py);
        match self.0.call1((at,))?.is(PyBool::new(py, false)) {
            true => Ok(ControlFlow::Break(())),
            false => Ok(ControlFlow::Continue(())),
        }
    }

    /// The same of work that waits for the answer: calls of its database fail.
    fn tell_work(&self, at: Progress) -> PyResult<ControlFlow<()>> {
        let before = TOLD.replace(Some(at));
        let answer = at.run(|| self.tell(&at));
        TOLD.set(before);
        answer.unwrap_or_else(|_| Err(errors::internal(self.0.py(), "a call of Python panicked")))
    }
}

/// What the thread of the work sends.
enum Sent<T> {
    Progress(Progress),
    Outcome(Caught<T>),
}

/// The thread of the work as that of the call sees it.
struct Work<T> {
    sent: Mutex<Receiver<Sent<T>>>,
    answers: std::sync::mpsc::SyncSender<ControlFlow<()>>,
    is_over: Arc<AtomicBool>,
}

impl<T: Send + 'static> Work<T> {
    fn begin(
        is_told: bool,
        f: impl FnOnce() -> terrace::Result<T> + Send + 'static,
    ) -> PyResult<Work<T>> {
        let (sender, sent) = sync_channel(1);
        let (answers, answered) = sync_channel(1);
        let is_over = Arc::new(AtomicBool::new(false));
        let (ends, answered, events) = (Arc::clone(&is_over), Mutex::new(answered), sender.clone());
        let tell = move |at: &Progress| {
            // Several pieces of work may be under way at once: each has its own answer.
            let answered = answered.lock();
            match ends.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false if !is_told => ControlFlow::Continue(()),
                // Without a receiver, which Ctrl-C has ended, it ends too.
                false => match events.send(Sent::Progress(*at)) {
                    Ok(()) => answered.recv().unwrap_or(ControlFlow::Break(())),
                    Err(_) => ControlFlow::Break(()),
                },
            }
        };
        let f = for_this_thread(|| terrace::with_progress(tell, f));
        spawn(move || drop(sender.send(Sent::Outcome(f()))))?;
        Ok(Work { sent: Mutex::new(sent), answers, is_over })
    }

    /// Ends it, and waits for that for a while, unless Ctrl-C comes once more.
    fn end(self, py: Python<'_>) -> PyResult<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let until = Instant::now() + ENDING;
        while Instant::now() < until {
            match next(py, &self.sent) {
                // What it made is dropped without the interpreter's lock.
                Some(Some(Sent::Outcome(made))) => {
                    detached(py, || drop(made));
                    break;
                }
                Some(Some(Sent::Progress(_))) => self.answer(ControlFlow::Break(())),
                Some(None) => break,
                None => py.check_signals()?,
            }
        }
        Ok(())
    }

    /// Sends the answer. Work that has ended does not take it.
    fn answer(&self, answer: ControlFlow<()>) {
        self.answers.send(answer).unwrap_or(());
    }
}

/// Runs `f`, whose work `progress` is told of, and which it ends by `False` or an exception. Ctrl-C
/// ends it too.
pub(crate) fn told<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Told<'_>>,
    f: impl FnOnce() -> terrace::Result<T> + Send + 'static,
) -> PyResult<T> {
    if progress.is_none() && crate::events::tells() {
        return calls::released(py, f);
    }
    let work = Work::begin(progress.is_some(), f)?;
    let mut raised = None;
    loop {
        match next(py, &work.sent) {
            Some(Some(Sent::Outcome(caught))) => {
                let Some(error) = raised else { return outcome(py, caught) };
                detached(py, || drop(caught));
                return Err(error);
            }
            Some(Some(Sent::Progress(at))) => {
                let answer = match progress {
                    Some(progress) if raised.is_none() => progress.tell_work(at),
                    _ => Ok(ControlFlow::Break(())),
                };
                work.answer(answer.unwrap_or_else(|error| {
                    raised = Some(error);
                    ControlFlow::Break(())
                }));
            }
            Some(None) => return Err(lost(py)),
            None => {}
        }
        if let Err(interrupt) = py.check_signals() {
            work.end(py)?;
            return Err(interrupt);
        }
    }
}

/// What work that takes rows from Python tells.
#[derive(Serialize)]
struct Rows {
    operation: &'static str,
    done: u64,
    total: u64,
    unit: &'static str,
}

/// Counts the rows of a bulk load.
pub(crate) struct Meter<'a, 'py> {
    progress: Option<&'a Told<'py>>,
    last: Option<Instant>,
}

impl<'a, 'py> Meter<'a, 'py> {
    pub(crate) fn new(progress: Option<&'a Told<'py>>) -> Meter<'a, 'py> {
        Meter { progress, last: None }
    }

    /// So many rows are done. Signals are looked at too.
    pub(crate) fn did(&mut self, py: Python<'_>, rows: u64, is_last: bool) -> PyResult<()> {
        py.check_signals()?;
        let is_due = is_last || self.last.is_none_or(|last| last.elapsed() >= PAUSE);
        let Some(progress) = self.progress.filter(|_| is_due) else { return Ok(()) };
        self.last = Some(Instant::now());
        let (operation, total) = ("bulk_load", if is_last { rows } else { 0 });
        match progress.tell(&Rows { operation, done: rows, total, unit: "rows" })? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                let message = format!("bulk_load was cancelled at {rows} rows; none is loaded");
                Err(errors::cancelled(py, message))
            }
        }
    }
}
