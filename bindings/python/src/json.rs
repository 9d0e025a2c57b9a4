//! Structures of the engine as dictionaries, by way of JSON.

use pyo3::prelude::*;
use serde::Serialize;

use crate::{errors, exit};

/// A structure as dictionaries, lists, text and numbers.
pub(crate) fn to_python(py: Python<'_>, value: &impl Serialize) -> PyResult<Py<PyAny>> {
    let text = serde_json::to_string(value);
    let text = text.map_err(|error| errors::internal(py, &error.to_string()))?;
    // The module `json` is written in Python.
    let _pass = exit::pass_with_lock(py);
    Ok(py.import("json")?.call_method1("loads", (text,))?.unbind())
}
