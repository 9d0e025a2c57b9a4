//! Running a transaction again when that is all there is to do.

use std::sync::Arc;
use std::time::Duration;

use super::Transaction;
use crate::error::{Error, Result};
use crate::os::sync::locks::{Condvar, Mutex};

/// How often a transaction is run before its error goes to the caller.
const RUNS: u32 = 64;

/// The longest pause between two runs is this, doubled `DOUBLINGS` times.
const PAUSE: Duration = Duration::from_micros(50);
const DOUBLINGS: u32 = 8;

/// Begins, runs `f`, commits; again while a conflict or a deadlock ends the transaction, or
/// `is_retryable` says so of an error of `f`.
///
/// # Errors
///
/// The first other one; or the last, after 64 runs.
pub(crate) fn run<T, E: From<Error>>(
    begin: impl Fn() -> Result<Transaction>,
    f: impl Fn(&Transaction) -> std::result::Result<T, E>,
    is_retryable: impl Fn(&E) -> bool,
) -> std::result::Result<T, E> {
    let mut runs = 0;
    loop {
        let txn = begin()?;
        let inner = Arc::clone(txn.inner());
        let here = txn.runs_here();
        let done = f(&txn);
        drop(here);
        let failed = match done.and_then(|done| Ok(txn.commit().map(|()| done)?)) {
            Ok(done) => return Ok(done),
            Err(e) => e,
        };
        runs += 1;
        // `f` may have made another error of the one that ended the transaction, or none.
        if runs == RUNS || !(inner.met_another() || is_retryable(&failed)) {
            return Err(failed);
        }
        pause(runs, inner.id);
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
