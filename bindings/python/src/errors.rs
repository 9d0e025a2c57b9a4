//! Errors of the engine as exceptions of the module `terrace.errors`, one class for each kind.

use pyo3::prelude::*;
use pyo3::types::PyType;
use terrace::ErrorKind;

/// The exception of an error.
pub(crate) fn engine(py: Python<'_>, error: &terrace::Error) -> PyErr {
    let class = match error.kind() {
        ErrorKind::Invalid => "InvalidError",
        ErrorKind::Conflict => "ConflictError",
        ErrorKind::Deadlock => "DeadlockError",
        ErrorKind::Timeout => "TimeoutError",
        ErrorKind::Full => "FullError",
        ErrorKind::Unavailable => "UnavailableError",
        ErrorKind::UnknownOutcome => "UnknownOutcomeError",
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Closed => "ClosedError",
        ErrorKind::Cancelled => "CancelledError",
        ErrorKind::Fenced => "FencedError",
        ErrorKind::MissingDatabase => "MissingDatabaseError",
        ErrorKind::MissingTable => "MissingTableError",
        ErrorKind::Exists => "ExistsError",
        ErrorKind::TooLarge => "TooLargeError",
        ErrorKind::WrongType => "WrongTypeError",
        ErrorKind::Busy => "BusyError",
    };
    let exception = new(py, class, error.to_string());
    match with_damage(py, &exception, error).and_then(|()| with_report(py, &exception, error)) {
        Ok(()) => exception,
        Err(other) => other,
    }
}

/// What a verification had found that was cancelled goes with its exception.
fn with_report(py: Python<'_>, exception: &PyErr, error: &terrace::Error) -> PyResult<()> {
    let Some(report) = error.report() else { return Ok(()) };
    exception.value(py).setattr("report", crate::json::to_python(py, report)?)
}

/// A damaged place goes with its exception, as a dictionary.
fn with_damage(py: Python<'_>, exception: &PyErr, error: &terrace::Error) -> PyResult<()> {
    let Some(damage) = error.damage() else { return Ok(()) };
    exception.value(py).setattr("damage", crate::json::to_python(py, damage)?)
}

/// The exception for a request that can never succeed.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    new(py, "InvalidError", message.into())
}

/// The exception for a call whose time is over.
pub(crate) fn timeout(py: Python<'_>, message: String) -> PyErr {
    new(py, "TimeoutError", message)
}

/// The exception for a call that a function ended which was told how far it is.
pub(crate) fn cancelled(py: Python<'_>, message: String) -> PyErr {
    new(py, "CancelledError", message)
}

/// The exception for an object whose time is over.
pub(crate) fn closed(py: Python<'_>, message: impl Into<String>) -> PyErr {
    new(py, "ClosedError", message.into())
}

/// The exception for a panic.
pub(crate) fn internal(py: Python<'_>, words: &str) -> PyErr {
    let advice = "close the database, and report this";
    new(py, "InternalError", format!("the library has a bug: {words}; {advice}"))
}

/// The exception for a key that is not there, with the key as a dictionary gives it.
pub(crate) fn not_found(py: Python<'_>, key: &Bound<'_, PyAny>) -> PyErr {
    new(py, "NotFoundError", key.clone().unbind())
}

/// The refusal of pickle and copy, which would have to copy what is open.
pub(crate) fn not_picklable(py: Python<'_>, what: &str, instead: &str) -> PyErr {
    let message =
        format!("{what} cannot be pickled or copied: it stands for what is open here; {instead}");
    new(py, "PicklingError", message)
}

fn new(py: Python<'_>, class: &str, argument: impl IntoPyArgument) -> PyErr {
    match class_called(py, class) {
        Ok(class) => argument.raise(class),
        Err(error) => error,
    }
}

fn class_called<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("terrace.errors")?.getattr(name)?.cast_into::<PyType>()?)
}

/// What an exception is made with.
trait IntoPyArgument {
    fn raise(self, class: Bound<'_, PyType>) -> PyErr;
}

impl IntoPyArgument for String {
    fn raise(self, class: Bound<'_, PyType>) -> PyErr {
        PyErr::from_type(class, (self,))
    }
}

impl IntoPyArgument for Py<PyAny> {
    fn raise(self, class: Bound<'_, PyType>) -> PyErr {
        PyErr::from_type(class, (self,))
    }
}
