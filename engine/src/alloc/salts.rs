//! Salts: random numbers that no caller can predict. A salt seeds the checksums of a zone's
//! sub-entries, so that bytes stored there before cannot pass for a sub-entry.
//!
//! Thread safety: any thread draws.

use std::hash::{BuildHasher, Hasher};

use crate::os::RandomKeys;
#[cfg(any(test, feature = "testing"))]
use crate::os::sync::atomic::AtomicBool;
use crate::os::sync::atomic::{AtomicU64, Ordering};

/// Where salts come from: a hash, keyed by the system at random, of what is drawn for and of how
/// many were drawn.
#[derive(Debug, Default)]
pub(crate) struct Salts {
    keys: RandomKeys,
    drawn: AtomicU64,
    /// On a simulated machine, where every run must be the same: the hash has no key.
    #[cfg(any(test, feature = "testing"))]
    repeats: AtomicBool,
    /// Zones have none, as those of versions 1 and 2 of the format.
    #[cfg(any(test, feature = "testing"))]
    none: AtomicBool,
}

impl Salts {
    /// Draws a salt for opening `incarnation`; never 0, which means that there is none.
    pub(crate) fn draw(&self, incarnation: u64) -> u64 {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        #[cfg(any(test, feature = "testing"))]
        if self.none.load(Ordering::Relaxed) {
            return 0;
        }
        #[cfg(any(test, feature = "testing"))]
        if self.repeats.load(Ordering::Relaxed) {
            return hash(std::hash::DefaultHasher::new(), incarnation, number);
        }
        hash(self.keys.build_hasher(), incarnation, number)
    }

    /// Draws the same salts in every run from now on.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn repeat(&self) {
        self.repeats.store(true, Ordering::Relaxed);
    }

    /// Draws none from now on.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn draw_none(&self) {
        self.none.store(true, Ordering::Relaxed);
    }
}

fn hash(mut hasher: impl Hasher, incarnation: u64, number: u64) -> u64 {
    hasher.write_u64(incarnation);
    hasher.write_u64(number);
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_differ_and_those_of_a_simulated_machine_are_the_same_in_each_run() {
        let draw = |salts: Salts| [1, 1, 2].map(|incarnation| salts.draw(incarnation));
        let (one, other) = (draw(Salts::default()), draw(Salts::default()));
        assert!(one.iter().all(|salt| *salt != 0 && !other.contains(salt)));
        assert!(one[0] != one[1] && one[1] != one[2]);
        let repeated = || {
            let salts = Salts::default();
            salts.repeat();
            draw(salts)
        };
        assert_eq!(repeated(), repeated());
    }
}
