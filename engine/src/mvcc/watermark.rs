//! A number that only rises.

use crate::os::sync::{AtomicU64, Ordering};
use crate::record::Lsn;

/// An LSN up to which something holds (visible, durable).
///
/// Thread safety: any thread raises, any number read. A reader that sees `n` sees everything that
/// was done before `n` was raised to (release/acquire).
#[derive(Debug)]
pub(crate) struct Watermark(AtomicU64);

impl Watermark {
    /// A watermark at `lsn`.
    pub(crate) fn new(lsn: Lsn) -> Watermark {
        Watermark(AtomicU64::new(lsn))
    }

    /// The LSN it stands at.
    pub(crate) fn get(&self) -> Lsn {
        self.0.load(Ordering::Acquire)
    }

    /// Raises it to `lsn`, unless it is higher already.
    pub(crate) fn raise(&self, lsn: Lsn) {
        self.0.fetch_max(lsn, Ordering::AcqRel);
    }
}
