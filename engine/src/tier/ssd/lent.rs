//! What is read ahead for users is held in memory until they come to it. All of it together is
//! bounded, whoever reads: beyond the bound nothing is read ahead.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ExtentStore;

/// Leave to hold so many bytes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lent {
    store: Arc<ExtentStore>,
    bytes: u64,
}

impl ExtentStore {
    /// Leave to hold `bytes` that are read ahead, if not more than `most` are held with them.
    pub(crate) fn lend(self: &Arc<Self>, bytes: u64, most: u64) -> Option<Lent> {
        let add = |held: u64| held.checked_add(bytes).filter(|held| *held <= most);
        let lent = self.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        lent.ok().map(|_| Lent { store: Arc::clone(self), bytes })
    }

    /// Bytes that are held.
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.store.lent.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
