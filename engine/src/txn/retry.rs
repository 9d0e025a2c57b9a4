//! Running a transaction again when that is all there is to do.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Transaction;
use crate::error::{Error, Result};

/// How often a transaction is run before its error goes to the caller.
const RUNS: u32 = 64;

/// The longest pause between two runs is this, doubled `DOUBLINGS` times.
const PAUSE: Duration = Duration::from_micros(50);
const DOUBLINGS: u32 = 8;

/// Begins, runs `f`, commits; again while that fails with something to be run again for.
///
/// # Errors
///
/// The first other one; or the last, after 64 runs.
pub(crate) fn run<T>(
    begin: impl Fn() -> Result<Transaction>,
    f: impl Fn(&Transaction) -> Result<T>,
) -> Result<T> {
    let mut runs = 0;
    loop {
        let txn = begin()?;
        let id = txn.id();
        let here = txn.runs_here();
        let done = f(&txn);
        drop(here);
        let failed: Error = match done.and_then(|done| txn.commit().map(|()| done)) {
            Ok(done) => return Ok(done),
            Err(e) => e,
        };
        runs += 1;
        if !failed.is_retryable() || runs == RUNS {
            return Err(failed);
        }
        pause(runs, id);
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
