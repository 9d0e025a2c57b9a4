//! Bytes that Python passes: `bytes` as they lie, other buffers as a copy.
//!
//! A call reads them without the interpreter's lock. Another thread could change a `bytearray` or
//! an array meanwhile, so of these a copy is taken while the lock is held.

use std::ops::Deref;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

use crate::exit;

/// A key, a value, or other bytes.
pub(crate) enum BytesLike<'a> {
    /// Those of an object that the caller keeps, for as long.
    Lent(&'a [u8]),
    /// Those of an object that this keeps.
    Kept(PyBackedBytes),
}

impl Deref for BytesLike<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            BytesLike::Lent(bytes) => bytes,
            BytesLike::Kept(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for BytesLike<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl BytesLike<'_> {
    /// The bytes of an object, which is kept with them.
    pub(crate) fn kept(object: &Bound<'_, PyAny>) -> PyResult<BytesLike<'static>> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(BytesLike::Kept(bytes.clone().into())),
            Err(_) => copy(object),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for BytesLike<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<BytesLike<'a>> {
        match object.extract::<&'a [u8]>() {
            Ok(bytes) => Ok(BytesLike::Lent(bytes)),
            Err(_) => copy(&object),
        }
    }
}

/// A copy of the bytes of an object that is no `bytes`.
#[cold]
fn copy(object: &Bound<'_, PyAny>) -> PyResult<BytesLike<'static>> {
    if object.cast::<PyString>().is_ok() {
        let advice = "keys and values are bytes, not str; encode it, with .encode() for UTF-8";
        return Err(PyTypeError::new_err(advice));
    }
    let Ok(view) = PyMemoryView::from(object) else {
        let found = object.get_type().name()?;
        let message = format!("keys and values are bytes-like objects, not {found}");
        return Err(PyTypeError::new_err(message));
    };
    let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    Ok(BytesLike::Kept(copy.into()))
}

/// All of several, out of anything that can be iterated over.
pub(crate) fn all(several: &Bound<'_, PyAny>) -> PyResult<Vec<BytesLike<'static>>> {
    exit::pulled(several)?.map(|one| BytesLike::kept(&one?)).collect()
}
