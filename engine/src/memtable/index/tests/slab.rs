//! Records for tests: a slab that notices when a record is read that could have been reused.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::base::record::Lsn;
use crate::memtable::index::Records;

/// Records that are written once.
pub(crate) struct Slab {
    records: Vec<OnceLock<(Box<[u8]>, Lsn)>>,
    reused: Vec<AtomicBool>,
    len: AtomicUsize,
}

impl Slab {
    /// Room for so many.
    pub(crate) fn new(room: usize) -> Arc<Slab> {
        Arc::new(Slab {
            records: (0..room).map(|_| OnceLock::new()).collect(),
            reused: (0..room).map(|_| AtomicBool::new(false)).collect(),
            len: AtomicUsize::new(0),
        })
    }

    /// Adds a record; its offset.
    pub(crate) fn add(&self, key: &[u8], seq: Lsn) -> u64 {
        let at = self.len.fetch_add(1, Ordering::Relaxed);
        assert!(self.records[at].set((key.into(), seq)).is_ok());
        at as u64
    }

    /// What happens to a record that was removed: after an epoch its place is taken.
    pub(crate) fn reuse(self: &Arc<Slab>, at: u64) {
        let slab = Arc::clone(self);
        crossbeam_epoch::pin()
            .defer(move || slab.reused[at as usize].store(true, Ordering::Relaxed));
    }
}

impl Records for Slab {
    fn locate(&self, at: u64) -> (&[u8], Lsn) {
        assert!(!self.reused[at as usize].load(Ordering::Relaxed), "record {at} was reused");
        let (key, seq) = self.records[at as usize].get().unwrap();
        (key, *seq)
    }

    fn prefetch(&self, _: u64) {}
}
