//! Which versions of a key count, of those that a transaction has written.
//!
//! Writes are numbered by epochs, and a savepoint ends an epoch. Rolling back to the savepoint
//! makes every later epoch dead, wherever its writes are by then, and begins a new one.
//!
//! Invariants:
//!
//! 1. `saved` ascends; each is an epoch below `now`.
//! 2. `dead` has disjoint intervals, ascending, all below `now`.

use crate::record::Lsn;

/// The number of the writes between two savepoints, from 1 on. It takes the place of a committed
/// record's sequence number.
pub(crate) type Epoch = Lsn;

/// The epochs of one transaction.
#[derive(Clone, Debug)]
pub(crate) struct Epochs {
    now: Epoch,
    /// For each savepoint the last epoch before it.
    saved: Vec<Epoch>,
    /// What was rolled back: (the last epoch before, the last epoch of it).
    dead: Vec<(Epoch, Epoch)>,
}

impl Default for Epochs {
    fn default() -> Epochs {
        Epochs { now: 1, saved: Vec::new(), dead: Vec::new() }
    }
}

impl Epochs {
    /// The number of what is written now.
    pub(crate) fn now(&self) -> Epoch {
        self.now
    }

    /// Sets a savepoint.
    pub(crate) fn save(&mut self) {
        debug_assert!(
            self.saved.last().is_none_or(|last| *last < self.now),
            "savepoints ascend (invariant 1)"
        );
        self.saved.push(self.now);
        self.now += 1;
    }

    /// How many savepoints there are.
    pub(crate) fn savepoints(&self) -> usize {
        self.saved.len()
    }

    /// Makes everything since savepoint number `at` dead. That savepoint stays, and later ones go.
    /// Returns the last epoch before it.
    pub(crate) fn roll_back_to(&mut self, at: usize) -> Epoch {
        self.saved.truncate(at + 1);
        let before = self.saved[at];
        self.dead.retain(|dead| dead.0 < before);
        debug_assert!(
            self.dead.last().is_none_or(|(_, last)| *last <= before),
            "what was rolled back is disjoint, and ascends (invariant 2)"
        );
        self.dead.push((before, self.now));
        self.now += 1;
        before
    }

    /// Forgets savepoint number `at` and later ones.
    pub(crate) fn release(&mut self, at: usize) {
        self.saved.truncate(at);
    }

    /// Forgets which epochs are dead, once no write of them is left.
    pub(crate) fn forget_dead(&mut self) {
        self.dead.clear();
    }

    /// Whether what was written in `epoch` was not rolled back.
    pub(crate) fn is_alive(&self, epoch: Epoch) -> bool {
        let after = self.dead.partition_point(|(before, _)| *before < epoch);
        after.checked_sub(1).is_none_or(|i| self.dead[i].1 < epoch)
    }

    /// Whether rolling back could bring the version `epoch` of a key back. `newer` is its next
    /// newer living version.
    pub(crate) fn needs(&self, epoch: Epoch, newer: Epoch) -> bool {
        let at = self.saved.partition_point(|saved| *saved < epoch);
        self.saved.get(at).is_some_and(|saved| *saved < newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_rolled_back_is_dead_and_what_a_savepoint_needs_is_kept() {
        let mut epochs = Epochs::default();
        epochs.save(); // after 1
        epochs.save(); // after 2
        assert_eq!(epochs.now(), 3);
        assert!(epochs.needs(1, 2) && epochs.needs(2, 3) && epochs.needs(1, 3));
        assert!(!epochs.needs(3, 4));
        epochs.release(1);
        assert!(!epochs.needs(2, 3), "the savepoint between them is gone");
        assert_eq!(epochs.roll_back_to(0), 1);
        let alive = |epochs: &Epochs| (1..=6).filter(|e| epochs.is_alive(*e)).collect::<Vec<_>>();
        assert_eq!(alive(&epochs), [1, 4, 5, 6]);
        epochs.save(); // after 4
        epochs.roll_back_to(1);
        assert_eq!(alive(&epochs), [1, 4, 6]);
        epochs.roll_back_to(0);
        assert_eq!(alive(&epochs), [1]);
        assert_eq!(epochs.dead, [(1, 6)], "one interval for what is rolled back twice");
    }
}
