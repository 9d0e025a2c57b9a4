//! Several cursors as one.
//!
//! Inputs are few: a memtable or two, level 0, one cursor for each level. So the merge finds the
//! smallest by comparing all of them, usually by their prefixes alone.
//!
//! Invariants, while the cursor is valid and stands on the record *r* of input `current`:
//!
//! 1. Forward, every input stands on its first record at or after *r*; backward, on its last record
//!    at or before *r*. An input without such a record is invalid.
//! 2. Of inputs that have the same record (key and sequence number), the first one is current.
//! 3. The prefix of an input is that of the record that it stands on; `None` if it is invalid.
//!
//! Keys as numbers, and what they have in common.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::{Cursor, EntryRef, Lsn, SeparatedValue};
use crate::base::error::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The records of all inputs in one order, each record once. Where inputs have the same record,
/// the earlier input's counts.
pub(crate) struct MergingCursor<'a> {
    inputs: Vec<Box<dyn Cursor + 'a>>,
    prefixes: KeyPrefixes,
    direction: Direction,
    current: Option<usize>,
}

/// The order of records: by key, then the newest first.
fn compare(a: &EntryRef<'_>, b: &EntryRef<'_>) -> Ordering {
    a.key.cmp(b.key).then(b.seq.cmp(&a.seq))
}

impl<'a> MergingCursor<'a> {
    /// A cursor over `inputs`. Of equal records that of the first input counts.
    pub(crate) fn new(inputs: Vec<Box<dyn Cursor + 'a>>) -> MergingCursor<'a> {
        let prefixes = KeyPrefixes::new(inputs.len());
        MergingCursor { inputs, prefixes, direction: Direction::Forward, current: None }
    }

    fn each_input(&mut self, f: impl Fn(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        self.current = None;
        self.inputs.iter_mut().try_for_each(|input| f(&mut **input))?;
        self.look_at_all();
        Ok(())
    }

    fn look_at_all(&mut self) {
        let MergingCursor { inputs, prefixes, .. } = self;
        prefixes.set_all(|n| inputs[n].entry());
    }

    /// Moves input `n`.
    fn place(&mut self, n: usize, f: impl Fn(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        let input = &mut *self.inputs[n];
        f(input)?;
        if !self.prefixes.set(n, input.entry().as_ref()) {
            self.look_at_all();
        }
        Ok(())
    }

    /// The order of the records that two valid inputs stand on, by their prefixes if these decide
    /// it.
    #[inline]
    fn compare(
        &self,
        (a, head_of_a): (usize, &KeyPrefix),
        (b, head_of_b): (usize, &KeyPrefix),
    ) -> Ordering {
        debug_assert!(self.is_right(a) && self.is_right(b), "invariant 3");
        head_of_a.order(head_of_b).unwrap_or_else(|| self.compare_whole(a, b))
    }

    fn compare_whole(&self, a: usize, b: usize) -> Ordering {
        match (self.inputs[a].entry(), self.inputs[b].entry()) {
            (Some(a), Some(b)) => compare(&a, &b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        }
    }

    /// Whether input `n` has the right prefix.
    fn is_right(&self, n: usize) -> bool {
        self.prefixes.is_right(n, self.inputs[n].entry().as_ref())
    }

    /// Makes the input that comes first in the direction of travel the current one.
    fn choose(&mut self, direction: Direction) {
        self.current = self.first_but(None, direction);
        self.direction = direction;
    }

    /// The input that comes first in a direction, without one of them.
    fn first_but(&self, without: Option<usize>, direction: Direction) -> Option<usize> {
        let better = match direction {
            Direction::Forward => Ordering::Less,
            Direction::Backward => Ordering::Greater,
        };
        let mut best: Option<(usize, &KeyPrefix)> = None;
        for (n, prefix) in self.prefixes.iter().enumerate() {
            if let Some(prefix) = prefix
                && without != Some(n)
                && best.is_none_or(|best| self.compare((n, prefix), best) == better)
            {
                best = Some((n, prefix));
            }
        }
        best.map(|(n, _)| n)
    }

    /// Has input `current` lend its entries up to the key of the input that comes next.
    fn lead(
        &mut self,
        current: usize,
        bound: Option<&[u8]>,
        take: &mut dyn FnMut(&EntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.current = None;
        let next = self.first_but(Some(current), Direction::Forward);
        let pair = next.and_then(|next| self.inputs.get_disjoint_mut([current, next]).ok());
        let passed = match pair {
            Some([leader, next]) => {
                let nearest = next.entry().map(|entry| entry.key).into_iter().chain(bound).min();
                leader.pass(nearest, take)?
            }
            None => self.inputs[current].pass(bound, take)?,
        };
        self.place(current, |_| Ok(()))?;
        self.choose(Direction::Forward);
        Ok(passed)
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
            if self.is_same(n, current) {
                self.place(n, go)?;
            }
        }
        self.place(current, go)
    }

    /// Whether two inputs stand on the same record.
    fn is_same(&self, a: usize, b: usize) -> bool {
        match (self.prefixes.get(a), self.prefixes.get(b)) {
            // Few records have the same sequence number, so hardly any key is compared.
            (Some(x), Some(y)) => x == y && self.compare((a, x), (b, y)) == Ordering::Equal,
            _ => false,
        }
    }

    /// Turns round on the record of input `current`. Afterwards every input stands on its nearest
    /// record beyond it, in the new direction.
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

    /// Moves on to the first record at or after (`key`, `seq`), which is not before the current
    /// one. Only inputs that stand before it seek.
    pub(crate) fn skip_to(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        debug_assert_eq!(self.direction, Direction::Forward, "it goes on");
        self.current = None;
        let is_before = |e: EntryRef<'_>| e.key < key || e.key == key && e.seq > seq;
        for n in 0..self.inputs.len() {
            if self.inputs[n].entry().is_some_and(is_before) {
                self.place(n, |input| input.seek(key, seq))?;
            }
        }
        self.choose(Direction::Forward);
        Ok(())
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

    fn pass(
        &mut self,
        bound: Option<&[u8]>,
        take: &mut dyn FnMut(&EntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        while let Some(current) = self.current {
            if self.direction == Direction::Forward && self.lead(current, bound, take)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // Two inputs may stand on one key: this takes one of its entries.
            let here = self.entry().filter(|entry| bound.is_none_or(|bound| entry.key < bound));
            match here.map(|entry| take(&entry)) {
                Some(ControlFlow::Continue(())) => self.next()?,
                Some(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
                None => break,
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.inputs.get(self.current?)?.entry()
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        self.current.map_or(Ok(None), |current| self.inputs[current].separated())
    }
}

// Key prefixes for a merge: what it compares first of the records that its inputs stand on.
//
// Keys of a table often begin with the same bytes. A *prefix* holds the eight bytes of a key that
// follow the prefix which the keys of all inputs share. It also holds how many bytes follow, and
// the sequence number. Prefixes order most records without decoding an input's record again. They
// also order versions of a key that has no more bytes.
//
// Invariants, once all prefixes were set:
//
// 1. Every input's key begins with `shared`, and its prefix holds what follows.
// 2. An input without a record has no prefix.

/// How many bytes of a key a prefix holds, as a number.
const FIRST: usize = size_of::<u64>();

/// The length of whatever is longer than that.
const LONG: u8 = FIRST as u8 + 1;

/// What is looked at first of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyPrefix {
    /// The first bytes of the key after the shared prefix.
    first: u64,
    /// How many there are, up to [`LONG`].
    len: u8,
    seq: Lsn,
}

impl KeyPrefix {
    fn of(entry: &EntryRef<'_>, shared: usize) -> KeyPrefix {
        let len = (entry.key.len() - shared).min(LONG.into()) as u8;
        KeyPrefix { first: slice(entry.key, shared), len, seq: entry.seq }
    }

    /// The order of two records; `None` if their prefixes do not decide it.
    #[inline]
    pub(super) fn order(&self, other: &KeyPrefix) -> Option<Ordering> {
        // If keys are equal up to the zeros that fill the shorter one, the shorter one is first.
        let by_key = self.first.cmp(&other.first).then(self.len.cmp(&other.len));
        let is_open = by_key == Ordering::Equal && self.len == LONG;
        (!is_open).then(|| by_key.then(other.seq.cmp(&self.seq)))
    }
}

/// The prefixes of a merge's inputs.
#[derive(Debug)]
struct KeyPrefixes {
    prefixes: Vec<Option<KeyPrefix>>,
    shared: Vec<u8>,
}

impl KeyPrefixes {
    /// The prefixes of `inputs` inputs, none of which has a record yet.
    pub(super) fn new(inputs: usize) -> KeyPrefixes {
        KeyPrefixes { prefixes: vec![None; inputs], shared: Vec::new() }
    }

    /// The prefix of each input.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Option<KeyPrefix>> {
        self.prefixes.iter()
    }

    /// The prefix of input `n`.
    pub(super) fn get(&self, n: usize) -> Option<&KeyPrefix> {
        self.prefixes[n].as_ref()
    }

    /// Sets the prefix of input `n`, which has moved. `false` if its key does not begin with the
    /// shared prefix: then all prefixes have to be set.
    fn set(&mut self, n: usize, entry: Option<&EntryRef<'_>>) -> bool {
        let fits = |entry: &EntryRef<'_>| {
            self.shared.is_empty() || entry.key.starts_with(self.shared.as_slice())
        };
        if !entry.is_none_or(fits) {
            return false;
        }
        self.prefixes[n] = entry.map(|entry| KeyPrefix::of(entry, self.shared.len()));
        true
    }

    /// Sets all prefixes.
    fn set_all<'a>(&mut self, entry: impl Fn(usize) -> Option<EntryRef<'a>>) {
        let keys = || (0..self.prefixes.len()).filter_map(|n| entry(n).map(|entry| entry.key));
        // No longer than it takes for all keys to fit: later keys share less.
        let enough = keys().map(|key| key.len().saturating_sub(FIRST)).max().unwrap_or(0);
        let first = keys().next().filter(|_| enough > 0).unwrap_or_default();
        let first = &first[..first.len().min(enough)];
        let shared = match first {
            [] => first,
            _ => keys().fold(first, |shared, key| &shared[..common(shared, key)]),
        };
        self.shared.clear();
        self.shared.extend_from_slice(shared);
        let len = self.shared.len();
        for (n, prefix) in self.prefixes.iter_mut().enumerate() {
            *prefix = entry(n).map(|entry| KeyPrefix::of(&entry, len));
        }
    }

    /// Whether the prefix of input `n` is that of its record (invariants 1 and 2).
    fn is_right(&self, n: usize, entry: Option<&EntryRef<'_>>) -> bool {
        let of = |entry: &EntryRef<'_>| {
            let begins = entry.key.starts_with(&self.shared);
            begins.then(|| KeyPrefix::of(entry, self.shared.len()))
        };
        self.prefixes[n] == entry.and_then(of)
    }
}

/// The eight bytes of `key` from `at` on as a big-endian number, zeros behind its end. Of keys that
/// are the same up to `at`, those whose numbers differ order as the numbers do.
#[inline(always)]
pub(crate) fn slice(key: &[u8], at: usize) -> u64 {
    if let Some(bytes) = key.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    if let Some(rest) = key.get(at..) {
        bytes[..rest.len()].copy_from_slice(rest);
    }
    u64::from_be_bytes(bytes)
}

/// How many bytes two keys have in common.
#[inline]
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    let (a8, b8) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let words = 8 * a8.iter().zip(b8).take_while(|(a, b)| a == b).count();
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;
    use crate::base::record::Kind;
    use crate::base::record::tests::{Entry, ListCursor, check_cursor, entries};

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

    /// The same records, with so many zeros before each key: a prefix ends anywhere in them.
    fn behind(zeros: usize, mut list: Vec<Entry>) -> Vec<Entry> {
        list.iter_mut().for_each(|entry| {
            entry.key.splice(..0, vec![0; zeros]);
        });
        list
    }

    proptest! {
        #[test]
        fn is_the_sorted_union(
            lists in prop::collection::vec(entries(0..30), 0..5),
            key in prop::collection::vec(0u8..4, 0..4),
            zeros in 0usize..10,
            seq in 0u64..12,
        ) {
            let (lists, key) = (
                lists.into_iter().map(|list| behind(zeros, list)).collect::<Vec<_>>(),
                [vec![0; zeros], key].concat(),
            );
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

    proptest! {
        #[test]
        fn a_skip_goes_where_steps_would(
            lists in prop::collection::vec(entries(0..30), 1..5),
            (start, end) in any::<(prop::sample::Index, prop::sample::Index)>(),
            older in 0u64..12,
        ) {
            let all = union(&lists);
            prop_assume!(!all.is_empty());
            let (start, end) = (start.index(all.len()), end.index(all.len()));
            let (start, end) = (start.min(end), &all[start.max(end)]);
            let (key, seq) = (&end.key, end.seq.saturating_sub(older));
            let mut cursor = merging(&lists);
            cursor.seek(&all[start].key, all[start].seq).unwrap();
            cursor.skip_to(key, seq).unwrap();
            for entry in all.iter().filter(|e| (&e.key, Reverse(e.seq)) >= (key, Reverse(seq))) {
                let here = cursor.entry().map(Entry::from);
                prop_assert_eq!(here.as_ref(), Some(entry));
                cursor.next().unwrap();
            }
            prop_assert_eq!(cursor.entry(), None);
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

    mod key_prefixes {
        use proptest::prelude::*;

        use super::super::*;
        use crate::base::record::Kind;

        fn entry((key, seq): &(Vec<u8>, Lsn)) -> EntryRef<'_> {
            EntryRef { key, seq: *seq, kind: Kind::Put, value: &[] }
        }

        fn record() -> impl Strategy<Value = (Vec<u8>, Lsn)> {
            let key = (0usize..4, prop::collection::vec(0u8..2, 0..12));
            (key, 0u64..3).prop_map(|((same, rest), seq)| ([vec![7; 4 * same], rest].concat(), seq))
        }

        proptest! {
            #[test]
            fn heads_order_as_records_do(
                mut records in prop::collection::vec(record(), 2..5),
                moved in record(),
            ) {
                let mut prefixes = KeyPrefixes::new(records.len());
                prefixes.set_all(|n| Some(entry(&records[n])));
                records[0] = moved;
                if !prefixes.set(0, Some(&entry(&records[0]))) {
                    prefixes.set_all(|n| Some(entry(&records[n])));
                }
                type Of = (Vec<u8>, Lsn);
                let order = |(a, b): &Of, (c, d): &Of| a.cmp(c).then(d.cmp(b));
                for (n, record) in records.iter().enumerate() {
                    prop_assert!(prefixes.is_right(n, Some(&entry(record))));
                    let told = prefixes.get(0).zip(prefixes.get(n)).and_then(|(a, b)| a.order(b));
                    prop_assert!(told.is_none_or(|told| told == order(&records[0], record)));
                }
            }
        }

        #[test]
        fn keys_of_one_length_are_told_apart_behind_what_they_share() {
            let records = [(b"user000012345".to_vec(), 1), (b"user000012346".to_vec(), 2)];
            let mut prefixes = KeyPrefixes::new(2);
            prefixes.set_all(|n| Some(entry(&records[n])));
            assert_eq!(prefixes.shared, b"user0");
            let told = prefixes.get(0).zip(prefixes.get(1)).and_then(|(a, b)| a.order(b));
            assert_eq!(told, Some(Ordering::Less));
            let beyond = (b"user100000000".to_vec(), 3);
            assert!(!prefixes.set(0, Some(&entry(&beyond))), "it does not begin as the others do");
        }
    }

    mod key {
        use proptest::prelude::*;

        use super::super::*;

        proptest! {
            #[test]
            fn numbers_that_differ_order_as_keys_do(
                a in prop::collection::vec(0u8..3, 0..12),
                b in prop::collection::vec(0u8..3, 0..12),
                shared in prop::collection::vec(0u8..3, 0..4),
            ) {
                let (a, b) = ([shared.clone(), a].concat(), [shared.clone(), b].concat());
                let (one, other) = (slice(&a, shared.len()), slice(&b, shared.len()));
                prop_assert!(one == other || one.cmp(&other) == a.cmp(&b));
            }
        }
    }
}
