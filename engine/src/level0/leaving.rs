//! Records on their way out of a level 0 that may be given up meanwhile, with its table.
//!
//! Those who take some out were deferred, each on its own, and run at any time, beside and within
//! one another. So nobody can wait here. Whoever leaves last once it was given up takes out the
//! rest: then nobody else is at it, and nobody will be.
//!
//! Thread safety: whoever enters counts itself first and looks whether it was given up then;
//! giving up is done by somebody inside; all in one order. So whoever still takes some out keeps
//! the count above zero.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::Result;

#[derive(Debug, Default)]
pub(super) struct Leaving {
    inside: AtomicUsize,
    is_given_up: AtomicBool,
    is_done: AtomicBool,
}

impl Leaving {
    /// Takes out `some`, unless it was given up, and the `rest` if this is whoever leaves last
    /// after that; the offsets of what went.
    ///
    /// # Errors
    ///
    /// What either gives.
    pub(super) fn take_out(
        &self,
        some: impl FnOnce() -> Result<Vec<u64>>,
        rest: impl FnOnce() -> Result<Vec<u64>>,
    ) -> Result<Vec<u64>> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let is_given_up = || self.is_given_up.load(Ordering::SeqCst);
        let gone = if is_given_up() { Ok(Vec::new()) } else { some() };
        let is_last = self.inside.fetch_sub(1, Ordering::SeqCst) == 1 && is_given_up();
        let mut gone = gone?;
        if is_last && !self.is_done.swap(true, Ordering::SeqCst) {
            gone.extend(rest()?);
        }
        Ok(gone)
    }

    /// Gives up all that is left.
    ///
    /// # Errors
    ///
    /// As [`Leaving::take_out`].
    pub(super) fn give_up(&self, rest: impl FnOnce() -> Result<Vec<u64>>) -> Result<Vec<u64>> {
        let give_up = || {
            self.is_given_up.store(true, Ordering::SeqCst);
            Ok(Vec::new())
        };
        self.take_out(give_up, rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn whoever_leaves_last_takes_out_the_rest() {
        let leaving = Leaving::default();
        let rest = || Ok(vec![7, 8]);
        assert_eq!(leaving.take_out(|| Ok(vec![1]), rest).unwrap(), [1]);
        let within = || {
            assert_eq!(leaving.give_up(rest).unwrap(), [], "somebody is inside");
            assert_eq!(leaving.take_out(|| Ok(vec![3]), rest).unwrap(), [], "it was given up");
            Ok(vec![2])
        };
        assert_eq!(leaving.take_out(within, rest).unwrap(), [2, 7, 8]);
        assert_eq!(leaving.take_out(|| Ok(vec![4]), rest).unwrap(), []);
        assert_eq!(leaving.give_up(rest).unwrap(), []);
    }

    #[test]
    fn each_goes_once_from_whichever_thread() {
        for _ in 0..50 {
            let (leaving, left) =
                (Leaving::default(), Mutex::new((0..64).collect::<BTreeSet<_>>()));
            let gone = Mutex::new(Vec::new());
            let rest = || Ok(std::mem::take(&mut *left.lock()).into_iter().collect());
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (leaving, left, gone, rest) = (&leaving, &left, &gone, &rest);
                    scope.spawn(move || {
                        for _ in 0..20 {
                            let some = || Ok(left.lock().pop_first().into_iter().collect());
                            gone.lock().extend(leaving.take_out(some, rest).unwrap());
                        }
                        if thread == 0 {
                            gone.lock().extend(leaving.give_up(rest).unwrap());
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
