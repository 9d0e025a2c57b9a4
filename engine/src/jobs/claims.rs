//! What compactions are at work on, keys in some levels, so that jobs of one table keep out of
//! each other's way.
//!
//! Thread safety: every method may be called from any thread; the one mutex is held for a few
//! instructions. Compactions claim keys, and drains ask for claims, under the right to change the
//! table.
//!
//! Invariants:
//!
//! 1. No two claims have a key of one level in common.
//! 2. While a claim stands, no other job removes extents that have keys of it in its levels, or
//!    adds any there but above all that it has of their keys.

use crate::base::record::TableId;
use crate::compaction::ClaimedKeys;
use crate::os::sync::locks::Mutex;

/// What is claimed.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<Vec<(TableId, ClaimedKeys)>>,
}

/// What a job works on in a table; dropping it sets it free.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    what: (TableId, ClaimedKeys),
}

impl Claim<'_> {
    /// Its deepest level.
    pub(crate) fn bottom(&self) -> u8 {
        self.what.1.bottom
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut held = self.claims.held.lock();
        let before = held.len();
        held.retain(|held| *held != self.what);
        debug_assert_eq!(held.len() + 1, before, "no two claims overlap (invariant 1)");
    }
}

impl Claims {
    /// Claims something; `None` when some of it is claimed.
    pub(crate) fn claim(&self, table: TableId, claimed: ClaimedKeys) -> Option<Claim<'_>> {
        let mut held = self.held.lock();
        if held.iter().any(|(id, busy)| *id == table && busy.meets(&claimed)) {
            return None;
        }
        debug_assert!(!claimed.keys.is_empty(), "a claim has keys");
        let what = (table, claimed);
        held.push(what.clone());
        debug_assert!(last_is_disjoint(&held), "no two claims overlap (invariant 1)");
        Some(Claim { claims: self, what })
    }

    /// The claims on a table.
    pub(crate) fn of(&self, table: TableId) -> Vec<ClaimedKeys> {
        let held = self.held.lock();
        held.iter().filter(|(id, _)| *id == table).map(|(_, busy)| busy.clone()).collect()
    }

    /// The other claims on the table of one.
    pub(crate) fn but(&self, claim: &Claim<'_>) -> Vec<ClaimedKeys> {
        let held = self.held.lock();
        let others = held.iter().filter(|held| held.0 == claim.what.0 && **held != claim.what);
        others.map(|(_, busy)| busy.clone()).collect()
    }

    /// Whether a claim stands.
    pub(crate) fn holds(&self, claim: &Claim<'_>) -> bool {
        self.held.lock().contains(&claim.what)
    }

    /// How many there are: as many as compactions under way.
    pub(crate) fn len(&self) -> usize {
        self.held.lock().len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.lock().is_empty()
    }
}

/// Whether the last claim has nothing in common with the others of its table (invariant 1).
fn last_is_disjoint(held: &[(TableId, ClaimedKeys)]) -> bool {
    let Some(((table, claimed), others)) = held.split_last() else { return true };
    !others.iter().any(|(id, busy)| id == table && busy.meets(claimed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mvcc::KeyInterval;

    fn keys(start: &str, end: &str) -> ClaimedKeys {
        let keys = KeyInterval { start: start.into(), end: Some(end.into()) };
        ClaimedKeys::new(keys, (7, 13))
    }

    #[test]
    fn claims_of_a_table_do_not_overlap() {
        let claims = Claims::default();
        let first = claims.claim(1, keys("b", "d")).unwrap();
        assert!(claims.claim(1, keys("c", "e")).is_none());
        assert!(claims.claim(1, ClaimedKeys::in_all_levels(KeyInterval::all())).is_none());
        let beside = claims.claim(1, keys("d", "e")).unwrap();
        let other_table = claims.claim(2, keys("b", "d")).unwrap();
        assert_eq!(claims.of(1), [keys("b", "d"), keys("d", "e")]);
        drop(first);
        assert!(claims.claim(1, keys("b", "d")).is_some());
        let above = claims.claim(1, ClaimedKeys { top: 1, bottom: 6, ..keys("b", "e") }).unwrap();
        drop((beside, other_table, above));
        assert!(claims.is_empty());
    }
}
