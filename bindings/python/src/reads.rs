//! Reads of one key, which keep the interpreter's lock as long as they find all they need in
//! memory. To give it back and to take it again costs as much as a part of such a read. Before one
//! waits for a device it gives the lock back.
//!
//! Thread safety: a thread looks at its own state alone.
//!
//! Invariant: a thread that has released the lock touches no object of Python until it holds the
//! lock again, at the end of [`keeping`]. Only the engine runs meanwhile.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::calls::outcome;
use crate::exit;

thread_local! {
    /// What the interpreter takes to give this thread the lock again; null while it has the lock.
    static SAVED: Cell<*mut ffi::PyThreadState> = const { Cell::new(ptr::null_mut()) };
}

/// Releases the lock. The engine calls it before a read waits.
fn let_go() {
    debug_assert!(SAVED.get().is_null(), "the engine tells once");
    // SAFETY: this thread holds the lock: it is inside of `keeping`, which was called with it.
    SAVED.set(unsafe { ffi::PyEval_SaveThread() });
}

/// When dropped, takes the lock again if this thread has released it.
struct TakeAgain;

impl Drop for TakeAgain {
    fn drop(&mut self) {
        let saved = SAVED.replace(ptr::null_mut());
        if !saved.is_null() {
            let _pass = exit::pass();
            // SAFETY: `let_go` has had it from the interpreter on this thread, and it is used once.
            unsafe { ffi::PyEval_RestoreThread(saved) };
        }
    }
}

/// Runs a read, which must wait for nothing but a device. A panic becomes an exception.
fn keeping<T>(py: Python<'_>, read: impl FnOnce() -> terrace::Result<T>) -> PyResult<T> {
    let take_again = TakeAgain;
    let read = || terrace::before_device_read(let_go, read);
    let caught = catch_unwind(AssertUnwindSafe(read));
    drop(take_again);
    outcome(py, caught)
}

/// A value that a read was lent: an object at once, or a copy where the lock was given back.
enum Value<'py> {
    Object(Bound<'py, PyBytes>),
    Copy(Vec<u8>),
}

/// The value of `key` in a table, as of now or of a snapshot.
pub(crate) fn find<'py>(
    py: Python<'py>,
    (table, at): (&terrace::Table, Option<&terrace::Snapshot>),
    key: &[u8],
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let take = |value: &[u8]| match SAVED.get().is_null() {
        true => Value::Object(PyBytes::new(py, value)),
        false => Value::Copy(value.to_vec()),
    };
    let found = keeping(py, || match at {
        None => table.get_with(key, take),
        Some(snapshot) => snapshot.get_with(table, key, take),
    })?;
    Ok(found.map(|value| match value {
        Value::Object(object) => object,
        Value::Copy(bytes) => PyBytes::new(py, &bytes),
    }))
}

/// Whether a table has `key`.
pub(crate) fn contains(py: Python<'_>, table: &terrace::Table, key: &[u8]) -> PyResult<bool> {
    keeping(py, || table.contains_key(key))
}
