//! Threads and the end of the interpreter.
//!
//! Before CPython 3.14 a thread that asks for the interpreter's lock once the interpreter ends is
//! unwound by the system, through whatever lies on its stack. Rust ends the process then. So such a
//! thread stops here, for good, as CPython 3.14 has it.
//!
//! Thread safety: a thread that is about to take the lock counts itself first and looks at the flag
//! then. The thread that ends the interpreter sets the flag first and looks at the count then. All
//! agree on one order of these steps, so one of the two sees the other.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3::prelude::*;

/// Threads that are about to take the interpreter's lock, or that have Python run below them.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static ENDS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread ends the interpreter. It may call until the end.
    static ENDS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// The right to take the interpreter's lock, for as long as this lives.
pub(crate) struct Pass(());

/// Waits for ever once the interpreter ends. The caller does not hold its lock.
pub(crate) fn pass() -> Pass {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let pass = Pass(());
    if ENDS.load(Ordering::SeqCst) && !ENDS_HERE.get() {
        drop(pass);
        loop {
            std::thread::park();
        }
    }
    pass
}

/// The same for a thread that holds the lock and is about to have Python run for a moment.
pub(crate) fn pass_with_lock(py: Python<'_>) -> Pass {
    match ENDS.load(Ordering::SeqCst) && !ENDS_HERE.get() {
        true => py.detach(pass),
        false => {
            INSIDE.fetch_add(1, Ordering::SeqCst);
            Pass(())
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Stops other threads before they take the interpreter's lock again. The interpreter calls it as
/// the first step of its end.
#[pyfunction]
fn stop_threads(py: Python<'_>) {
    ENDS_HERE.set(true);
    ENDS.store(true, Ordering::SeqCst);
    py.detach(|| {
        while INSIDE.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    });
}

/// Has the interpreter call [`stop_threads`] at its end.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let function = wrap_pyfunction!(stop_threads, module)?;
    module.py().import("atexit")?.call_method1("register", (function,)).map(drop)
}
