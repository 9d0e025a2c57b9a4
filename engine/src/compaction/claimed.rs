//! What a job claims: keys, in some levels of a table.
//!
//! Two jobs of a table go on beside each other where they have no key in common, or no level. A
//! compaction with objects takes as long as the store does. It claims the lower sublevels and what
//! lies under them, and leaves the upper ones to drains and to compactions in files.

use crate::levels::{LEVEL_2, MAX_LEVELS};
use crate::mvcc::KeyInterval;

/// Sublevels, from the uppermost on, that compactions with objects leave to others: intra-L1
/// compactions make room among them, and drains have two while one is under way.
pub(crate) const SPARED_SUBLEVELS: u8 = 6;

/// Keys in levels from `top` down to `bottom`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedKeys {
    pub(crate) keys: KeyInterval,
    pub(crate) top: u8,
    pub(crate) bottom: u8,
}

impl ClaimedKeys {
    /// Keys in levels from `top` down to `bottom`.
    pub(crate) fn new(keys: KeyInterval, (top, bottom): (u8, u8)) -> ClaimedKeys {
        debug_assert!((1..=bottom).contains(&top), "levels count from 1, the uppermost first");
        debug_assert!(bottom <= MAX_LEVELS, "there is no deeper level");
        ClaimedKeys { keys, top, bottom }
    }

    /// Whether it has some of `keys` in a level.
    pub(crate) fn has(&self, level: u8, keys: &KeyInterval) -> bool {
        (self.top..=self.bottom).contains(&level) && self.keys.overlaps(keys)
    }

    /// Whether both have some key of some level.
    pub(crate) fn meets(&self, other: &ClaimedKeys) -> bool {
        let levels_meet = self.top <= other.bottom && other.top <= self.bottom;
        levels_meet && self.keys.overlaps(&other.keys)
    }

    /// The same with the levels below it that nothing of `busy` has keys of.
    pub(crate) fn deepened(self, busy: &[ClaimedKeys]) -> ClaimedKeys {
        let is_free = |n: &u8| !is_claimed(busy, *n, &self.keys);
        let bottom = (self.bottom + 1..=MAX_LEVELS).take_while(is_free).last();
        ClaimedKeys { bottom: bottom.unwrap_or(self.bottom), ..self }
    }

    /// Whether it leaves the upper sublevels to others as far as it goes below level 1.
    pub(crate) fn spares(&self, sublevels: u8) -> bool {
        self.bottom < LEVEL_2 || self.top > sublevels
    }
}

#[cfg(test)]
impl ClaimedKeys {
    /// Keys in all levels.
    pub(crate) fn in_all_levels(keys: KeyInterval) -> ClaimedKeys {
        ClaimedKeys::new(keys, (1, MAX_LEVELS))
    }
}

/// Whether some claim has some of `keys` in a level.
pub(crate) fn is_claimed(busy: &[ClaimedKeys], level: u8, keys: &KeyInterval) -> bool {
    busy.iter().any(|claim| claim.has(level, keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(start: &str, end: &str, levels: (u8, u8)) -> ClaimedKeys {
        let keys = KeyInterval { start: start.into(), end: Some(end.into()) };
        ClaimedKeys::new(keys, levels)
    }

    #[test]
    fn jobs_meet_where_they_have_a_key_of_a_level_in_common() {
        let one = claimed("b", "d", (3, 6));
        for (other, meets) in [
            (claimed("c", "e", (6, 9)), true),
            (claimed("c", "e", (1, 3)), true),
            (claimed("c", "e", (4, 5)), true),
            (claimed("c", "e", (7, 13)), false),
            (claimed("c", "e", (1, 2)), false),
            (claimed("d", "e", (3, 6)), false),
        ] {
            assert_eq!(one.meets(&other), meets, "{other:?}");
            assert_eq!(other.meets(&one), meets, "{other:?}");
        }
        let keys = claimed("c", "e", (1, 1)).keys;
        assert_eq!((1..9).filter(|n| one.has(*n, &keys)).collect::<Vec<_>>(), [3, 4, 5, 6]);
    }

    #[test]
    fn a_claim_is_deepened_down_to_what_others_have() {
        let one = || claimed("b", "d", (3, 6));
        assert_eq!(one().deepened(&[]).bottom, MAX_LEVELS);
        assert_eq!(one().deepened(&[claimed("c", "x", (9, 13))]).bottom, 8);
        assert_eq!(one().deepened(&[claimed("c", "x", (7, 13))]).bottom, 6);
        assert_eq!(one().deepened(&[claimed("d", "x", (7, 13))]).bottom, MAX_LEVELS);
    }
}
