//! Several cursors as one.
//!
//! Inputs are few (a memtable or two, level 0, a cursor a level), so the smallest is found by
//! looking at each; at its *head* as a rule, the first bytes of its key as a number.
//!
//! Invariants, while the cursor is valid and stands on the record *r* of input `current`:
//!
//! 1. Forward, every input stands on its first record at or after *r*; backward, on its last
//!    record at or before *r*. An input without such a record is invalid.
//! 2. Of inputs that have the same record (key and sequence number), the first one is current.
//! 3. The head of an input is that of the record that it stands on; `None` if it is invalid.

use std::cmp::Ordering;

use crate::error::Result;
use crate::record::{Apart, Cursor, EntryRef, Lsn, slice};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The records of all inputs in one order, each record once. Where inputs have the same record,
/// the earlier input's counts.
pub(crate) struct MergingCursor<'a> {
    inputs: Vec<Box<dyn Cursor + 'a>>,
    heads: Vec<Option<u64>>,
    direction: Direction,
    current: Option<usize>,
}

/// The order of records: by key, then the newest first.
fn compare(a: &EntryRef<'_>, b: &EntryRef<'_>) -> Ordering {
    a.key.cmp(b.key).then(b.seq.cmp(&a.seq))
}

impl<'a> MergingCursor<'a> {
    /// A cursor over `inputs`, of which the first have the priority.
    pub(crate) fn new(inputs: Vec<Box<dyn Cursor + 'a>>) -> MergingCursor<'a> {
        let heads = vec![None; inputs.len()];
        MergingCursor { inputs, heads, direction: Direction::Forward, current: None }
    }

    fn each_input(&mut self, f: impl Fn(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        self.current = None;
        (0..self.inputs.len()).try_for_each(|n| self.place(n, &f))
    }

    /// Moves input `n`.
    fn place(&mut self, n: usize, f: impl Fn(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        let input = &mut *self.inputs[n];
        f(input)?;
        self.heads[n] = input.entry().map(|entry| slice(entry.key, 0));
        Ok(())
    }

    /// The order of the records that two valid inputs stand on.
    fn compare(&self, a: usize, b: usize) -> Ordering {
        debug_assert!(self.is_head(a) && self.is_head(b), "invariant 3");
        let whole = || match (self.inputs[a].entry(), self.inputs[b].entry()) {
            (Some(a), Some(b)) => compare(&a, &b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        };
        self.heads[a].cmp(&self.heads[b]).then_with(whole)
    }

    /// Whether input `n` has the right head.
    fn is_head(&self, n: usize) -> bool {
        self.heads[n] == self.inputs[n].entry().map(|entry| slice(entry.key, 0))
    }

    /// Makes the input that comes first in the direction of travel the current one.
    fn choose(&mut self, direction: Direction) {
        let better = match direction {
            Direction::Forward => Ordering::Less,
            Direction::Backward => Ordering::Greater,
        };
        let mut best: Option<usize> = None;
        for n in (0..self.inputs.len()).filter(|n| self.heads[*n].is_some()) {
            if best.is_none_or(|best| self.compare(n, best) == better) {
                best = Some(n);
            }
        }
        self.current = best;
        self.direction = direction;
    }

    /// Steps every input that stands on the current record, in the direction of travel.
    fn step(&mut self, current: usize) -> Result<()> {
        let direction = self.direction;
        let go = |input: &mut dyn Cursor| match direction {
            Direction::Forward => input.next(),
            Direction::Backward => input.prev(),
        };
        self.current = None;
        // Those before `current` stand elsewhere (invariant 2).
        for n in current + 1..self.inputs.len() {
            if self.heads[n].is_some() && self.compare(n, current) == Ordering::Equal {
                self.place(n, go)?;
            }
        }
        self.place(current, go)
    }

    /// Turns round on the record of input `current`: afterwards every input stands on its nearest
    /// record beyond it, seen in the new direction.
    fn turn(&mut self, current: usize, to: Direction) -> Result<()> {
        let Some(entry) = self.inputs[current].entry() else { return Ok(()) };
        let (key, seq) = (entry.key.to_vec(), entry.seq);
        self.each_input(|input| {
            input.seek(&key, seq)?;
            let here = input.entry().map(|entry| entry.key == key && entry.seq == seq);
            match (to, here) {
                (Direction::Forward, Some(true)) => input.next(),
                (Direction::Forward, _) => Ok(()),
                (Direction::Backward, Some(_)) => input.prev(),
                (Direction::Backward, None) => input.seek_before(None),
            }
        })
    }

    fn go(&mut self, direction: Direction) -> Result<()> {
        let Some(current) = self.current else {
            debug_assert!(false, "only a valid cursor steps");
            return Ok(());
        };
        if self.direction == direction {
            self.step(current)?;
        } else {
            self.turn(current, direction)?;
        }
        self.choose(direction);
        Ok(())
    }
}

impl Cursor for MergingCursor<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.each_input(|input| input.seek(key, seq))?;
        self.choose(Direction::Forward);
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.each_input(|input| input.seek_before(key))?;
        self.choose(Direction::Backward);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.go(Direction::Forward)
    }

    fn prev(&mut self) -> Result<()> {
        self.go(Direction::Backward)
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.inputs.get(self.current?)?.entry()
    }

    fn apart(&self) -> Result<Option<Apart>> {
        self.current.map_or(Ok(None), |current| self.inputs[current].apart())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::extent::tests::{Entry, check_cursor, entries};
    use crate::record::Kind;

    /// A sorted list as a cursor.
    pub(in crate::merge) struct ListCursor {
        pub(in crate::merge) list: Vec<Entry>,
        pub(in crate::merge) at: Option<usize>,
    }

    impl ListCursor {
        pub(in crate::merge) fn new(list: Vec<Entry>) -> ListCursor {
            ListCursor { list, at: None }
        }
    }

    impl Cursor for ListCursor {
        fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
            let before = |e: &Entry| e.key.as_slice() < key || e.key == key && e.seq > seq;
            self.at = Some(self.list.partition_point(before));
            Ok(())
        }

        fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
            let before = |e: &Entry| key.is_none_or(|key| e.key.as_slice() < key);
            self.at = self.list.partition_point(before).checked_sub(1);
            Ok(())
        }

        fn next(&mut self) -> Result<()> {
            assert!(self.entry().is_some(), "only a valid cursor steps");
            self.at = self.at.map(|at| at + 1);
            Ok(())
        }

        fn prev(&mut self) -> Result<()> {
            assert!(self.entry().is_some(), "only a valid cursor steps");
            self.at = self.at.and_then(|at| at.checked_sub(1));
            Ok(())
        }

        fn entry(&self) -> Option<EntryRef<'_>> {
            self.list.get(self.at?).map(Entry::as_ref)
        }

        fn apart(&self) -> Result<Option<Apart>> {
            Ok(None)
        }
    }

    fn merging(lists: &[Vec<Entry>]) -> MergingCursor<'static> {
        let boxed = |list: &Vec<Entry>| Box::new(ListCursor::new(list.clone())) as Box<dyn Cursor>;
        MergingCursor::new(lists.iter().map(boxed).collect())
    }

    fn union(lists: &[Vec<Entry>]) -> Vec<Entry> {
        let mut all = lists.concat();
        all.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
        all.dedup_by(|b, a| a.key == b.key && a.seq == b.seq);
        all
    }

    proptest! {
        #[test]
        fn is_the_sorted_union(
            lists in prop::collection::vec(entries(0..30), 0..5),
            key in prop::collection::vec(0u8..4, 0..4),
            seq in 0u64..12,
        ) {
            check_cursor(&mut merging(&lists), &union(&lists), &key, seq);
        }

        #[test]
        fn may_turn_round_at_any_step(
            lists in prop::collection::vec(entries(0..20), 1..5),
            start in any::<prop::sample::Index>(),
            steps in prop::collection::vec(any::<bool>(), 0..60),
        ) {
            let all = union(&lists);
            prop_assume!(!all.is_empty());
            let mut at = start.index(all.len());
            let mut cursor = merging(&lists);
            cursor.seek(&all[at].key, all[at].seq).unwrap();
            for forward in steps {
                let here = cursor.entry().map(Entry::from);
                prop_assert_eq!(here.as_ref(), Some(&all[at]));
                let next = if forward { at + 1 } else { at.wrapping_sub(1) };
                if next < all.len() {
                    if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }
                    at = next;
                }
            }
        }
    }

    #[test]
    fn the_first_input_wins_and_walking_off_ends_it() {
        let record = |value: &[u8]| vec![Entry::put(b"k", 5, value)];
        let mut cursor = merging(&[record(b"first"), record(b"second")]);
        cursor.seek(b"", 9).unwrap();
        let entry = cursor.entry().unwrap();
        assert_eq!((entry.value, entry.kind), (b"first".as_slice(), Kind::Put));
        cursor.next().unwrap();
        assert_eq!(cursor.entry(), None);
        cursor.seek_before(None).unwrap();
        assert_eq!(cursor.entry().unwrap().value, b"first");
        cursor.prev().unwrap();
        assert_eq!(cursor.entry(), None);
    }
}
