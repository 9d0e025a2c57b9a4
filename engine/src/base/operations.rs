//! Where the time of an operation went: a call of a user, while it is timed.
//!
//! The places where a thread waits for others, or for a device, add to a record of the thread. While
//! its operation is not timed they look at a flag of the thread, and read no clock.
//!
//! Thread safety: an operation and its record are one thread's.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::events::SlowOperationInfo;
use crate::os::time;

/// What an operation is, as its event names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OperationKind {
    /// A look-up of one key or of several.
    Get,
    /// A chunk of a range.
    Range,
    /// A commit that is waited for.
    Commit,
    /// A call of a transaction on one row.
    Transaction,
}

impl OperationKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            OperationKind::Get => "get",
            OperationKind::Range => "range",
            OperationKind::Commit => "commit",
            OperationKind::Transaction => "transaction",
        }
    }
}

/// Where the time of an operation went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeSpent {
    pub(crate) locks: Duration,
    pub(crate) pace: Duration,
    pub(crate) sync: Duration,
    pub(crate) remote: Duration,
    pub(crate) reading: Duration,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) extents: u64,
}

impl TimeSpent {
    pub(crate) fn count_read(&mut self, bytes: u32) {
        self.reads += 1;
        self.read_bytes += u64::from(bytes);
    }
}

const NOTHING: TimeSpent = TimeSpent {
    locks: Duration::ZERO,
    pace: Duration::ZERO,
    sync: Duration::ZERO,
    remote: Duration::ZERO,
    reading: Duration::ZERO,
    reads: 0,
    read_bytes: 0,
    extents: 0,
};

thread_local! {
    /// Whether the operation of this thread is timed.
    static IS_TIMED: Cell<bool> = const { Cell::new(false) };
    /// Where its time went so far.
    static SPENT: Cell<TimeSpent> = const { Cell::new(NOTHING) };
}

/// Whether the operation of this thread is timed.
#[inline]
pub(crate) fn is_timed() -> bool {
    IS_TIMED.get()
}

/// Adds to the record of this thread, if its operation is timed.
#[inline]
pub(crate) fn note(add: impl FnOnce(&mut TimeSpent)) {
    if is_timed() {
        let mut spent = SPENT.get();
        add(&mut spent);
        SPENT.set(spent);
    }
}

/// Runs a wait, which is in no other one, and adds its time.
#[inline]
pub(crate) fn wait<T>(kind: fn(&mut TimeSpent) -> &mut Duration, f: impl FnOnce() -> T) -> T {
    if !is_timed() {
        return f();
    }
    let began = time::now();
    let done = f();
    note(|spent| *kind(spent) += time::since(began));
    done
}

/// The operation of this thread, for as long as it is timed.
pub(crate) struct TimedOperation {
    operation: OperationKind,
    slow: Duration,
    began: Instant,
}

impl TimedOperation {
    /// Begins one that is slow if it takes longer; none inside of another one.
    pub(super) fn begin(operation: OperationKind, slow: Duration) -> Option<TimedOperation> {
        if IS_TIMED.replace(true) {
            return None;
        }
        SPENT.set(NOTHING);
        Some(TimedOperation { operation, slow, began: time::now() })
    }

    /// Where its time went, if it was slow. The table is not known here.
    pub(super) fn end(self) -> Option<SlowOperationInfo> {
        let (took, spent) = (time::since(self.began), SPENT.get());
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        (took > self.slow).then(|| SlowOperationInfo {
            operation: self.operation.name(),
            ms: ms(took),
            lock_ms: ms(spent.locks),
            pace_ms: ms(spent.pace),
            sync_ms: ms(spent.sync),
            remote_ms: ms(spent.remote),
            read_ms: ms(spent.reading),
            reads: spent.reads,
            read_bytes: spent.read_bytes,
            extents: spent.extents,
            ..SlowOperationInfo::default()
        })
    }
}

impl Drop for TimedOperation {
    fn drop(&mut self) {
        IS_TIMED.set(false);
    }
}
