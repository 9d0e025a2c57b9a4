//! The memory that the writes of all transactions take together.
//!
//! Thread safety: counters. A transaction reports what it takes after each call.

use crate::os::sync::atomic::{AtomicUsize, Ordering};

/// What is taken, and the most that may be.
#[derive(Debug)]
pub(crate) struct WriteMemory {
    taken: AtomicUsize,
    most: usize,
}

impl WriteMemory {
    /// Transactions are asked to spill once they take more than `most` bytes.
    pub(crate) fn new(most: usize) -> WriteMemory {
        WriteMemory { taken: AtomicUsize::new(0), most }
    }

    /// A transaction takes `now` bytes, and took `before`.
    pub(crate) fn changed(&self, before: usize, now: usize) {
        if now >= before {
            self.taken.fetch_add(now - before, Ordering::Relaxed);
        } else {
            let taken = self.taken.fetch_sub(before - now, Ordering::Relaxed);
            debug_assert!(taken >= before - now, "a transaction gives back what it had reported");
        }
    }

    /// Bytes that all of them take.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether they take more than they should.
    pub(crate) fn is_short(&self) -> bool {
        self.taken() > self.most
    }
}
