//! Transactions that are run again after a conflict.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use terrace::TxnOptions;

use crate::calls::{KeepOpen, detached};
use crate::errors;
use crate::transaction::Transaction;

/// The longest pause between two runs is this, doubled `DOUBLINGS` times.
const PAUSE: Duration = Duration::from_micros(50);
const DOUBLINGS: u32 = 8;

/// How the last run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// It was handed out, and its block has not ended.
    Open,
    /// It met another transaction: there is one more.
    Again,
    /// It is done, or failed for good.
    Done,
}

#[derive(Debug)]
struct Progress {
    runs: u32,
    last: Last,
    /// The number of the last transaction.
    id: u64,
}

struct Inner {
    db: terrace::Database,
    options: TxnOptions,
    attempts: u32,
    progress: Mutex<Progress>,
    _keep: KeepOpen,
}

impl Inner {
    /// Whether what has failed is to be run again.
    fn runs_again(&self, py: Python<'_>, error: &PyErr) -> PyResult<bool> {
        let retryable = py.import("terrace.errors")?.getattr("RetryableError")?;
        let mut progress = self.progress.lock();
        let again = progress.runs < self.attempts && error.matches(py, &retryable)?;
        progress.last = if again { Last::Again } else { Last::Done };
        Ok(again)
    }
}

/// The attempts at one transaction: an iterator that ends after the one that was committed.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Transactions(Arc<Inner>);

impl Transactions {
    pub(crate) fn new(db: terrace::Database, options: TxnOptions, attempts: u32) -> Transactions {
        let progress = Mutex::new(Progress { runs: 0, last: Last::Again, id: 0 });
        let keep = KeepOpen::new(&db);
        Transactions(Arc::new(Inner { db, options, attempts, progress, _keep: keep }))
    }
}

#[pymethods]
impl Transactions {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Attempt>> {
        let (runs, id) = {
            let mut progress = self.0.progress.lock();
            match progress.last {
                Last::Done => return Ok(None),
                Last::Open => {
                    let advice = "use each attempt: for attempt in db.transactions(): \
                                  with attempt as txn: ...";
                    return Err(errors::invalid(py, advice));
                }
                Last::Again if progress.runs >= self.0.attempts => return Ok(None),
                Last::Again => {}
            }
            (progress.runs, progress.last) = (progress.runs + 1, Last::Open);
            (progress.runs - 1, progress.id)
        };
        if runs > 0 {
            py.check_signals()?;
            detached(py, || pause(runs, id));
        }
        Ok(Some(Attempt { inner: Arc::clone(&self.0), number: runs + 1, txn: Mutex::new(None) }))
    }
}

/// One attempt at a transaction: a `with` block that commits at its end.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Attempt {
    inner: Arc<Inner>,
    number: u32,
    txn: Mutex<Option<Py<Transaction>>>,
}

#[pymethods]
impl Attempt {
    /// Which attempt it is, from 1.
    #[getter]
    fn number(&self) -> u32 {
        self.number
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Transaction>> {
        if self.txn.lock().is_some() {
            return Err(errors::invalid(py, "an attempt is entered once; take the next one"));
        }
        let txn = Transaction::begin(py, &self.inner.db, &self.inner.options);
        let txn = txn.inspect_err(|_| self.inner.progress.lock().last = Last::Done)?;
        let txn = Py::new(py, txn)?;
        self.inner.progress.lock().id = txn.get().id();
        *self.txn.lock() = Some(txn.clone_ref(py));
        Ok(txn)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let txn = self.txn.lock().as_ref().map(|txn| txn.clone_ref(py));
        let Some(txn) = txn else { return Ok(false) };
        if !value.is_none() {
            txn.get().give_up(py);
            return self.inner.runs_again(py, &PyErr::from_value(value.clone()));
        }
        match txn.get().finish(py) {
            Ok(()) => self.inner.progress.lock().last = Last::Done,
            Err(error) if self.inner.runs_again(py, &error)? => {}
            Err(error) => return Err(error),
        }
        Ok(false)
    }
}

/// Keeps two transactions that met once from meeting again: they go on at different times.
fn pause(runs: u32, id: u64) {
    let longest = PAUSE * (1 << runs.min(DOUBLINGS));
    // Multiplied by the golden ratio, neighbouring numbers are far apart.
    let share = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
    let pause = longest.mul_f64(f64::from(share) / f64::from(u32::MAX));
    // No thread notifies: the wait is for the time alone.
    Condvar::new().wait_for(&mut Mutex::new(()).lock(), pause);
}
