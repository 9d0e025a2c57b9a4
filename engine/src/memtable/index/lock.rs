//! The version lock of a node, and the words that it guards.
//!
//! Readers write nothing: they remember the version, read, and check that the version is still
//! the same. Writers take the lock out of the version they read, so what they have read still
//! holds once they have it.
//!
//! Thread safety and the memory model: every guarded word is loaded with *acquire* and stored with
//! *release*. A reader that sees a word which a writer stored therefore also sees that the writer
//! had taken the lock before, and its check fails. No fences are needed, which keeps the checkers
//! (ThreadSanitizer) exact; on x86-64 all of these are plain moves.

use crate::os::sync::optimistic::{AtomicU64, Ordering, Patience};

const LOCKED: u64 = 1;
const OBSOLETE: u64 = 2;
const STEP: u64 = 4;

/// What was read does not hold together any more: begin again from the root.
#[derive(Debug)]
pub(crate) struct Restart;

/// What an optimistic read gives.
pub(crate) type Optimistic<T> = Result<T, Restart>;

/// A moment in the life of a node, between two changes or within one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version(u64);

/// A lock that readers pass by, and that counts the changes made under it.
#[derive(Debug, Default)]
pub(crate) struct VersionLock {
    word: AtomicU64,
}

impl VersionLock {
    /// The version to read at; waits for a writer. Fails once the node is out of the tree.
    pub(crate) fn read(&self) -> Optimistic<Version> {
        let mut patience = Patience::default();
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & OBSOLETE != 0 {
                return Err(Restart);
            }
            if word & LOCKED == 0 {
                return Ok(Version(word));
            }
            patience.wait();
        }
    }

    /// Whether all that was read since `version` was read is one consistent state.
    pub(crate) fn check(&self, version: Version) -> Optimistic<()> {
        // Relaxed is enough: no load moves before the acquiring loads of the words.
        if self.word.load(Ordering::Relaxed) == version.0 { Ok(()) } else { Err(Restart) }
    }

    /// Takes the lock, if nothing has changed since `version`.
    pub(crate) fn upgrade(&self, version: Version) -> Optimistic<Held<'_>> {
        let locked = version.0 | LOCKED;
        self.word
            .compare_exchange(version.0, locked, Ordering::Acquire, Ordering::Relaxed)
            .map(|_| Held { lock: self, after: version.0 + STEP })
            .map_err(|_| Restart)
    }
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    lock: &'a VersionLock,
    after: u64,
}

impl Held<'_> {
    /// The version that the holder reads at: its checks pass.
    pub(crate) fn version(&self) -> Version {
        Version((self.after - STEP) | LOCKED)
    }

    /// Releases a node that is out of the tree. No thread reads or locks it again.
    pub(super) fn retire(mut self) {
        self.after |= OBSOLETE;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.word.store(self.after, Ordering::Release);
    }
}

/// A word guarded by a [`VersionLock`].
#[derive(Debug, Default)]
pub(super) struct Word(AtomicU64);

impl Word {
    /// Reads it. What it says counts only after a check.
    #[inline(always)]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Writes it, under the lock or before another thread sees it.
    #[inline(always)]
    pub(super) fn set(&self, to: u64) {
        self.0.store(to, Ordering::Release);
    }
}

/// `N` words, zero at first.
pub(super) fn words<const N: usize>() -> [Word; N] {
    std::array::from_fn(|_| Word::default())
}

/// Opens a gap at `at` in the first `len` words; the last of them moves up by one.
pub(super) fn open_gap(words: &[Word], at: usize, len: usize) {
    for i in (at..len).rev() {
        words[i + 1].set(words[i].get());
    }
}

/// Closes the gap that word `at` of the first `len` leaves.
pub(super) fn close_gap(words: &[Word], at: usize, len: usize) {
    for i in at + 1..len {
        words[i - 1].set(words[i].get());
    }
}

/// How many of the words, which ascend, are smaller than `bound`.
#[inline(always)]
pub(super) fn count_below(words: &[Word], bound: u64) -> usize {
    let (mut first, mut len) = (0, words.len());
    // Without a branch to mispredict: the comparison moves `first`, the lengths do not depend on
    // it.
    while len > 0 {
        let half = len.div_ceil(2);
        let below = words[first + half - 1].get() < bound;
        first = std::hint::select_unpredictable(below, first + half, first);
        len -= half;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_fails_checks_and_upgrades() {
        let lock = VersionLock::default();
        let version = lock.read().unwrap();
        lock.check(version).unwrap();
        let held = lock.upgrade(version).unwrap();
        lock.check(held.version()).unwrap();
        assert!(lock.check(version).is_err());
        drop(held);
        assert!(lock.check(version).is_err());
        assert!(lock.upgrade(version).is_err());
        lock.upgrade(lock.read().unwrap()).unwrap().retire();
        assert!(lock.read().is_err());
    }

    #[test]
    fn the_search_finds_every_place() {
        let list = words::<9>();
        list.iter().enumerate().for_each(|(i, word)| word.set(10 * i as u64));
        for len in 0..=9 {
            for bound in 0..100 {
                let expected = (0..len).filter(|i| 10 * (*i as u64) < bound).count();
                assert_eq!(count_below(&list[..len], bound), expected);
            }
        }
    }
}
