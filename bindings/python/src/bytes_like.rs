//! Bytes that Python passes: `bytes` as they lie, other buffers as a copy.
//!
//! A call reads them without the interpreter's lock. Another thread could change a `bytearray` or
//! an array meanwhile, so of these a copy is taken while the lock is held.

use std::ops::Deref;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

/// A key, a value, or other bytes.
pub(crate) struct BytesLike(PyBackedBytes);

impl Deref for BytesLike {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for BytesLike {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for BytesLike {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<BytesLike> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(BytesLike(bytes.to_owned().into()));
        }
        if object.cast::<PyString>().is_ok() {
            let advice = "keys and values are bytes, not str; encode it, with .encode() for UTF-8";
            return Err(PyTypeError::new_err(advice));
        }
        let Ok(view) = PyMemoryView::from(&object) else {
            let found = object.get_type().name()?;
            let message = format!("keys and values are bytes-like objects, not {found}");
            return Err(PyTypeError::new_err(message));
        };
        let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        Ok(BytesLike(copy.into()))
    }
}

/// All of several, out of anything that can be iterated over.
pub(crate) fn all(several: &Bound<'_, PyAny>) -> PyResult<Vec<BytesLike>> {
    several.try_iter()?.map(|one| one?.extract()).collect()
}
