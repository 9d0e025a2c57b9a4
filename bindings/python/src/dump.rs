//! Dumps into binary files of Python, and loads out of them.
//!
//! Thread safety: the engine runs without the interpreter's lock. Each call of the file takes it.

use std::io::{self, BufReader, Read, Write};

use pyo3::exceptions::{PyBlockingIOError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use terrace::{Database, DumpOptions, DumpReport};

use crate::calls::released;
use crate::{exit, json};

/// A file reads at least so many bytes at once.
const READ: usize = 64 * 1024;

/// Some tables by name, or all. None of them is refused: it would mean all.
pub(crate) fn options(tables: Option<Vec<String>>) -> PyResult<DumpOptions> {
    if tables.as_ref().is_some_and(Vec::is_empty) {
        let message = "tables is empty; name a table at least, or leave it out for all of them";
        return Err(PyValueError::new_err(message));
    }
    Ok(tables.into_iter().flatten().fold(DumpOptions::new(), DumpOptions::table))
}

pub(crate) fn dump(
    db: &Database,
    options: &DumpOptions,
    file: &Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    through(file, |stream| db.dump(options, stream))
}

pub(crate) fn load(
    db: &Database,
    options: &DumpOptions,
    file: &Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    through(file, |stream| db.load(options, BufReader::with_capacity(READ, stream)))
}

/// Runs `f` with a file. What the file raises is raised, with a note of what the engine made of it.
fn through(
    file: &Bound<'_, PyAny>,
    f: impl FnOnce(&mut Stream) -> terrace::Result<DumpReport> + Send,
) -> PyResult<Py<PyAny>> {
    let py = file.py();
    let mut stream = Stream { file: file.clone().unbind(), raised: None };
    let done = released(py, || f(&mut stream));
    let Some(raised) = stream.raised else { return json::to_python(py, &done?) };
    if let Err(error) = done {
        raised.value(py).call_method1("add_note", (error.value(py).str()?,))?;
    }
    Err(raised)
}

/// A file of Python, and what it has raised.
struct Stream {
    file: Py<PyAny>,
    raised: Option<PyErr>,
}

impl Stream {
    /// Calls the file. Signals are looked at first.
    fn call<T>(&mut self, f: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        let _pass = exit::pass();
        Python::attach(|py| {
            let done = py.check_signals().and_then(|()| f(self.file.bind(py)));
            done.map_err(|raised| {
                let told = io::Error::other(raised.to_string());
                self.raised = Some(raised);
                told
            })
        })
    }
}

impl Write for &mut Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call(|file| {
            let written = file.call_method1("write", (PyBytes::new(file.py(), bytes),))?;
            written_of(file, &written, bytes.len())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many of `len` bytes a file says that it has written. One that does not count has written
/// all, but for a raw one: its `None` is that it would have to wait.
fn written_of(file: &Bound<'_, PyAny>, written: &Bound<'_, PyAny>, len: usize) -> PyResult<usize> {
    if written.is_none() {
        let raw = file.py().import("io")?.getattr("RawIOBase")?;
        return match file.is_instance(&raw)? {
            true => Err(PyBlockingIOError::new_err(
                "the file takes no more without a wait, and does not wait; dump into one that does",
            )),
            false => Ok(len),
        };
    }
    match written.extract() {
        Ok(count) if count <= len && !written.is_instance_of::<PyBool>() => Ok(count),
        _ => {
            let gave = written.repr()?;
            let message = format!("dump takes a binary file, and write of {len} bytes gave {gave}");
            Err(PyTypeError::new_err(message))
        }
    }
}

impl Read for &mut Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.call(|file| {
            let read = file.call_method1("read", (to.len(),))?;
            let Ok(bytes) = read.cast::<PyBytes>() else {
                let class = read.get_type().name()?;
                let message = format!("load takes a binary file, and read() gave {class}");
                return Err(PyTypeError::new_err(message));
            };
            let (bytes, room) = (bytes.as_bytes(), to.len());
            let part = to.get_mut(..bytes.len()).ok_or_else(|| {
                PyValueError::new_err(format!("read({room}) gave {} bytes", bytes.len()))
            })?;
            part.copy_from_slice(bytes);
            Ok(bytes.len())
        })
    }
}
