//! Commits that have their place in the order and were not waited for.

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::calls::released;
use crate::errors;

/// A commit that nothing but a failure of the device can keep from happening.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct PendingCommit {
    number: u64,
    commit: Mutex<Option<terrace::PendingCommit>>,
}

impl PendingCommit {
    pub(crate) fn new(commit: terrace::PendingCommit) -> PendingCommit {
        PendingCommit { number: commit.number(), commit: Mutex::new(Some(commit)) }
    }
}

#[pymethods]
impl PendingCommit {
    /// Its number. A commit that was enqueued later has a greater one.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// Waits until it is visible, and as durable as was asked for.
    ///
    /// Raises `UnknownOutcomeError` when the device failed meanwhile.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || {
            let commit = self.commit.lock().take();
            commit.map_or(Ok(()), terrace::PendingCommit::wait)
        })
    }

    fn __repr__(&self) -> String {
        format!("<terrace.PendingCommit {}>", self.number)
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(errors::not_picklable(py, "a pending commit", "wait for it"))
    }
}
