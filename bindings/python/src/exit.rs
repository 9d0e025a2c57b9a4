//! Threads and the end of the interpreter.
//!
//! Before CPython 3.14 a thread that asks for the interpreter's lock once the interpreter ends is
//! unwound by the system, through all frames of its stack. Rust ends the process at a frame of its
//! own. So such a thread stops here, for good, as CPython 3.14 has it.
//!
//! Thread safety: a thread that is about to take the lock counts itself first and looks at the flag
//! then. The thread that ends the interpreter sets the flag first and looks at the count then. All
//! agree on one order of these steps, so one of the two sees the other. A forked child has one
//! thread, and counts those of its parent no longer.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Threads that are about to take the interpreter's lock, or that have Python run below them.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static ENDS: AtomicBool = AtomicBool::new(false);

/// How long the end waits for a callback that another thread runs.
const END_WAITS: Duration = Duration::from_secs(10);

thread_local! {
    /// How often this thread is counted.
    static INSIDE_HERE: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread ends the interpreter. It may call until the end.
    static ENDS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// The right to take the interpreter's lock, for as long as this lives. It stays on its thread.
pub(crate) struct Pass(());

/// Waits for ever once the interpreter ends. The caller does not hold its lock.
pub(crate) fn pass() -> Pass {
    loop {
        match pass_unless_ended() {
            Some(pass) => return pass,
            None => std::thread::park(),
        }
    }
}

/// The same where the caller has something to end first: `None` once the interpreter ends.
pub(crate) fn pass_unless_ended() -> Option<Pass> {
    let may_go_on = is_counted();
    let pass = Pass::count();
    let is_over = ENDS.load(Ordering::SeqCst) && !may_go_on;
    (!is_over).then_some(pass)
}

/// The same for a thread that holds the lock and is about to have Python run for a moment.
pub(crate) fn pass_with_lock(py: Python<'_>) -> Pass {
    match ENDS.load(Ordering::SeqCst) && !is_counted() {
        true => py.detach(pass),
        false => Pass::count(),
    }
}

/// Whether the end waits for this thread, or is this thread's: such a one goes on. Else it would
/// stop for good as one that the end waits for.
fn is_counted() -> bool {
    ENDS_HERE.get() || INSIDE_HERE.get() > 0
}

impl Pass {
    fn count() -> Pass {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        INSIDE_HERE.set(INSIDE_HERE.get() + 1);
        Pass(())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        INSIDE_HERE.set(INSIDE_HERE.get() - 1);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Forgets the threads of the parent. The interpreter calls it in a forked child.
#[pyfunction]
fn forget_other_threads() {
    INSIDE.store(INSIDE_HERE.get(), Ordering::SeqCst);
}

/// What an iterable of Python gives. The end waits for the object that is being made, and for no
/// more of them.
pub(crate) fn pulled<'py>(
    objects: &Bound<'py, PyAny>,
) -> PyResult<impl Iterator<Item = PyResult<Bound<'py, PyAny>>> + use<'py>> {
    let pass = pass_with_lock(objects.py());
    let mut objects = objects.try_iter()?;
    drop(pass);
    Ok(std::iter::from_fn(move || {
        let _pass = pass_with_lock(objects.py());
        objects.next()
    }))
}

/// A callback of `atexit` that lives until all of them have been called: the interpreter drops them
/// together. One may wait for a thread that calls the engine, so threads are stopped behind them.
#[pyclass(frozen)]
struct AtExit {
    /// Whether the end has begun. Callbacks are dropped in a forked child too, which goes on.
    is_called: AtomicBool,
}

#[pymethods]
impl AtExit {
    fn __call__(&self) {
        self.is_called.store(true, Ordering::SeqCst);
    }
}

impl Drop for AtExit {
    fn drop(&mut self) {
        if self.is_called.load(Ordering::SeqCst) {
            Python::attach(stop_threads);
        }
    }
}

/// Stops other threads before they take the interpreter's lock again. It waits for threads that
/// have Python run below them, at most [`END_WAITS`]: a callback may run for ever. One that still
/// runs then is the interpreter's to stop, as any thread of Python.
fn stop_threads(py: Python<'_>) {
    ENDS_HERE.set(true);
    ENDS.store(true, Ordering::SeqCst);
    py.detach(|| {
        let until = Instant::now() + END_WAITS;
        // A pass that ends wakes no thread: passes are taken often, and an end comes once.
        while INSIDE.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
}

/// Has the interpreter call [`stop_threads`] at its end, and [`forget_other_threads`] after a fork.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    if cfg!(unix) {
        let after = PyDict::new(py);
        after.set_item("after_in_child", wrap_pyfunction!(forget_other_threads, module)?)?;
        py.import("os")?.call_method("register_at_fork", (), Some(&after))?;
    }
    let at_exit = AtExit { is_called: AtomicBool::new(false) };
    py.import("atexit")?.call_method1("register", (at_exit,)).map(drop)
}
