//! The keys that compactions are at work on, so that jobs of one table keep out of each other's
//! way.
//!
//! Thread safety: every method may be called from any thread; the one mutex is held for a few
//! instructions. Compactions claim keys, and drains ask for claims, under the right to change the
//! table.
//!
//! Invariants:
//!
//! 1. Of a table no two claims overlap.
//! 2. While a claim stands, no other job removes extents that have keys in it, or adds any but
//!    above all that it has there.

use parking_lot::Mutex;

use crate::mvcc::KeyInterval;
use crate::record::TableId;

/// What is claimed.
#[derive(Debug, Default)]
pub(super) struct Claims {
    held: Mutex<Vec<(TableId, KeyInterval)>>,
}

/// Keys of a table that a job works on; dropping it sets them free.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    what: (TableId, KeyInterval),
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
    /// Claims keys; `None` when some of them are claimed.
    pub(super) fn claim(&self, table: TableId, interval: KeyInterval) -> Option<Claim<'_>> {
        let mut held = self.held.lock();
        if held.iter().any(|(id, busy)| *id == table && busy.overlaps(&interval)) {
            return None;
        }
        debug_assert!(
            interval.end.as_ref().is_none_or(|end| interval.start < *end),
            "a claim has keys"
        );
        let what = (table, interval);
        held.push(what.clone());
        debug_assert!(last_is_disjoint(&held), "no two claims overlap (invariant 1)");
        Some(Claim { claims: self, what })
    }

    /// The claims on a table.
    pub(super) fn of(&self, table: TableId) -> Vec<KeyInterval> {
        let held = self.held.lock();
        held.iter().filter(|(id, _)| *id == table).map(|(_, busy)| busy.clone()).collect()
    }

    /// Whether a claim stands.
    pub(super) fn holds(&self, claim: &Claim<'_>) -> bool {
        self.held.lock().contains(&claim.what)
    }

    /// How many there are: as many as compactions under way.
    pub(super) fn len(&self) -> usize {
        self.held.lock().len()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.held.lock().is_empty()
    }
}

/// Whether the last claim has no key in common with the others of its table (invariant 1).
fn last_is_disjoint(held: &[(TableId, KeyInterval)]) -> bool {
    let Some(((table, keys), others)) = held.split_last() else { return true };
    !others.iter().any(|(id, busy)| id == table && busy.overlaps(keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(start: &str, end: &str) -> KeyInterval {
        KeyInterval { start: start.into(), end: Some(end.into()) }
    }

    #[test]
    fn claims_of_a_table_do_not_overlap() {
        let claims = Claims::default();
        let first = claims.claim(1, keys("b", "d")).unwrap();
        assert!(claims.claim(1, keys("c", "e")).is_none());
        assert!(claims.claim(1, KeyInterval::all()).is_none());
        let beside = claims.claim(1, keys("d", "e")).unwrap();
        let other_table = claims.claim(2, keys("b", "d")).unwrap();
        assert_eq!(claims.of(1), [keys("b", "d"), keys("d", "e")]);
        drop(first);
        assert!(claims.claim(1, keys("b", "d")).is_some());
        drop((beside, other_table));
        assert!(claims.is_empty());
    }
}
