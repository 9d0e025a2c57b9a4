//! Events: a thread of the engine calls a function of Python's with each.

use std::cell::Cell;

use pyo3::prelude::*;

use crate::{exit, json};

thread_local! {
    /// Whether this thread runs a function that is told of an event.
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// Has databases that are opened with `options` call `function` with each event, as a dictionary.
/// An exception goes to `sys.unraisablehook`. Once the interpreter ends, nothing calls `function`.
pub(crate) fn tell(options: terrace::Options, function: Py<PyAny>) -> terrace::Options {
    options.on_event(move |event| {
        let Some(_pass) = exit::pass_unless_ended() else { return };
        TELLS.set(true);
        Python::attach(|py| {
            let told = json::to_python(py, event).and_then(|event| function.call1(py, (event,)));
            if let Err(error) = told {
                error.write_unraisable(py, Some(function.bind(py)));
            }
        });
        TELLS.set(false);
    })
}

/// Whether this thread runs a function that is told of an event.
pub(crate) fn tells() -> bool {
    TELLS.get()
}
