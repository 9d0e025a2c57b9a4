//! Counts of what happens too often to be counted in one place: each thread adds to a line of its
//! own, as long as there are no more threads than lines.
//!
//! Thread safety: any thread calls any method. Threads that share a line may lose a count when they
//! meet: adding is a load and a store, no atomic read-modify-write.

use std::cell::Cell;

use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::thread;

const LINES: usize = 32;

/// The line of this thread.
#[inline]
fn line() -> usize {
    thread::number() % LINES
}

/// What is counted on a line that threads share is counted by lots, once it is much: a thread adds
/// a whole one each time that it has seen as many.
pub(crate) const LOT: u32 = 16;

thread_local! {
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

/// Counts one for this thread; whether that completes a lot.
#[inline]
pub(crate) fn completes_a_lot() -> bool {
    let seen = SEEN.get().wrapping_add(1);
    SEEN.set(seen);
    seen.is_multiple_of(LOT)
}

/// Counts of `N` kinds, on a line of a thread.
#[repr(align(128))]
struct CountLine<const N: usize>([AtomicU64; N]);

/// Counts of `N` kinds.
pub(super) struct Counts<const N: usize>(Box<[CountLine<N>; LINES]>);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Counts<N> {
        let line = || CountLine(std::array::from_fn(|_| AtomicU64::new(0)));
        Counts(Box::new(std::array::from_fn(|_| line())))
    }
}

impl<const N: usize> Counts<N> {
    /// Counts one of a kind.
    #[inline]
    pub(super) fn add(&self, kind: usize) {
        let count = &self.0[line()].0[kind];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// How many of a kind there were.
    pub(super) fn sum(&self, kind: usize) -> u64 {
        self.0.iter().map(|line| line.0[kind].load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_thread_are_exact_and_kinds_are_apart() {
        let counts = Counts::<2>::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|_| counts.add(0)));
        });
        (0..7).for_each(|_| counts.add(1));
        assert_eq!((counts.sum(0), counts.sum(1)), (100, 7));
    }
}
