//! The keys that compactions are at work on, so that jobs of one table keep out of each other's
//! way.
//!
//! Thread safety: every method may be called from any thread; the one mutex is held for a few
//! instructions. Claims are made, and asked for by drains, under the right to change the table.
//!
//! Invariants:
//!
//! 1. Of a table no two claims overlap.
//! 2. While a claim stands, nobody else removes extents that have keys in it, or adds any but above
//!    all that it has there.

use parking_lot::Mutex;

use crate::compaction::Column;
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
        self.claims.held.lock().retain(|held| *held != self.what);
    }
}

impl Claims {
    /// Claims keys; `None` when some of them are claimed.
    pub(super) fn claim(&self, table: TableId, interval: KeyInterval) -> Option<Claim<'_>> {
        let mut held = self.held.lock();
        if held.iter().any(|(id, busy)| *id == table && busy.overlaps(&interval)) {
            return None;
        }
        let what = (table, interval);
        held.push(what.clone());
        Some(Claim { claims: self, what })
    }

    /// The claims on a table.
    pub(super) fn of(&self, table: TableId) -> Vec<KeyInterval> {
        let held = self.held.lock();
        held.iter().filter(|(id, _)| *id == table).map(|(_, busy)| busy.clone()).collect()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.held.lock().is_empty()
    }

    /// The part of a column that may be drained now: as it is, or cut off where a claim begins.
    /// `reach` are the keys that a drain of it works on.
    pub(super) fn leave_to(
        &self,
        table: TableId,
        mut column: Column,
        reach: impl Fn(&Column) -> KeyInterval,
    ) -> Option<Column> {
        let busy = self.of(table);
        while let Some(claim) = busy.iter().find(|busy| busy.overlaps(&reach(&column))) {
            if claim.start <= column.interval.start {
                return None;
            }
            // What an extent has on both sides of the cut keeps the column as it was.
            let cut = Some(claim.start.clone());
            if column.interval.end == cut {
                return None;
            }
            column.interval.end = cut;
        }
        Some(column)
    }
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

    #[test]
    fn a_column_ends_where_a_claim_begins() {
        let claims = Claims::default();
        let own = |column: &Column| column.interval.clone();
        let column = |start: &str, end: &str| Column { interval: keys(start, end), upto: 9 };
        let leave = |start, end| claims.leave_to(1, column(start, end), own);
        let _held = claims.claim(1, keys("d", "g")).unwrap();
        assert_eq!(leave("a", "c"), Some(column("a", "c")));
        assert_eq!(leave("a", "z"), Some(column("a", "d")));
        assert_eq!(leave("d", "z"), None);
        assert_eq!(leave("f", "z"), None);
        assert_eq!(leave("g", "z"), Some(column("g", "z")));
        assert_eq!(claims.leave_to(2, column("d", "e"), own), Some(column("d", "e")));
    }
}
