//! Removal of records from a level 0 that may be cleared meanwhile, because its table was dropped.
//!
//! Removals are deferred, each on its own. They run at any time, beside and within one another, so
//! none can wait for another. The removal that leaves last after the clearing began removes the
//! rest: no other removal runs then, and none follows.
//!
//! Thread safety: a removal counts itself in first, and then looks whether the clearing began. The
//! clearing begins inside a removal. All of it is in one order (sequentially consistent), so a
//! removal that still removes some keeps the count above zero.

use super::size::Released;
use crate::error::Result;
use crate::os::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Orders removals and the clearing of one level 0.
#[derive(Debug, Default)]
pub(super) struct Clearing {
    /// Removals under way.
    inside: AtomicUsize,
    has_begun: AtomicBool,
    is_done: AtomicBool,
}

impl Clearing {
    /// Removes `some`, unless the clearing began, and the `rest` if this removal leaves last after
    /// that. Returns what was released.
    ///
    /// # Errors
    ///
    /// What either gives.
    pub(super) fn remove(
        &self,
        some: impl FnOnce() -> Result<Released>,
        rest: impl FnOnce() -> Result<Released>,
    ) -> Result<Released> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let has_begun = || self.has_begun.load(Ordering::SeqCst);
        let released = if has_begun() { Ok(Released::default()) } else { some() };
        debug_assert!(
            released.as_ref().is_ok_and(|released| released.records.is_empty())
                || !self.is_done.load(Ordering::SeqCst),
            "the rest is removed after each removal that still removes some"
        );
        let is_last = self.inside.fetch_sub(1, Ordering::SeqCst) == 1 && has_begun();
        let mut released = released?;
        if is_last && !self.is_done.swap(true, Ordering::SeqCst) {
            released.absorb(rest()?);
        }
        Ok(released)
    }

    /// Begins the clearing.
    ///
    /// # Errors
    ///
    /// As [`Clearing::remove`].
    pub(super) fn clear(&self, rest: impl FnOnce() -> Result<Released>) -> Result<Released> {
        let begin = || {
            self.has_begun.store(true, Ordering::SeqCst);
            Ok(Released::default())
        };
        self.remove(begin, rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;

    use super::*;

    fn released(records: &[u64]) -> Result<Released> {
        Ok(Released { records: records.to_vec() })
    }

    #[test]
    fn the_removal_that_leaves_last_removes_the_rest() {
        let clearing = Clearing::default();
        let rest = || released(&[7, 8]);
        let of = |result: Result<Released>| result.unwrap().records;
        assert_eq!(of(clearing.remove(|| released(&[1]), rest)), [1]);
        let within = || {
            assert_eq!(of(clearing.clear(rest)), [0_u64; 0], "a removal is under way");
            let after = clearing.remove(|| released(&[3]), rest);
            assert_eq!(of(after), [0_u64; 0], "the clearing began");
            released(&[2])
        };
        assert_eq!(of(clearing.remove(within, rest)), [2, 7, 8]);
        assert_eq!(of(clearing.remove(|| released(&[4]), rest)), [0_u64; 0]);
        assert_eq!(of(clearing.clear(rest)), [0_u64; 0]);
    }

    #[test]
    fn each_is_released_once_from_any_thread() {
        for _ in 0..50 {
            let clearing = Clearing::default();
            let left = Mutex::new((0..64).collect::<BTreeSet<_>>());
            let gone = Mutex::new(Vec::new());
            let rest = || {
                Ok(Released { records: std::mem::take(&mut *left.lock()).into_iter().collect() })
            };
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (clearing, left, gone, rest) = (&clearing, &left, &gone, &rest);
                    scope.spawn(move || {
                        for _ in 0..20 {
                            let one = || left.lock().pop_first().into_iter().collect();
                            let some = || Ok(Released { records: one() });
                            gone.lock().extend(clearing.remove(some, rest).unwrap().records);
                        }
                        if thread == 0 {
                            gone.lock().extend(clearing.clear(rest).unwrap().records);
                        }
                    });
                }
            });
            let mut gone = gone.into_inner();
            gone.sort_unstable();
            assert_eq!(gone, (0..64).collect::<Vec<u64>>());
        }
    }
}
