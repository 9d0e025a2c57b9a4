use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::base::error::Error;
use crate::base::operator::built_in::APPEND;
use crate::base::operator::{OperatorName, Operators, operand_list};
use crate::base::record::tests::ListCursor;
use crate::base::record::{ChainBase, EntryRef, SeparatedValue, encode_chain};
use crate::sstable::tests::Entry;

/// A list that counts how often it is moved, and fails beyond a number of moves.
struct Counted {
    list: ListCursor,
    moves: Rc<Cell<usize>>,
    most: usize,
}

impl Counted {
    fn moved(&mut self) -> Result<&mut ListCursor> {
        self.moves.set(self.moves.get() + 1);
        let is_there = self.moves.get() <= self.most;
        is_there.then_some(&mut self.list).ok_or_else(|| Error::invalid("not here yet"))
    }
}

impl Cursor for Counted {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.moved()?.seek(key, seq)
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.moved()?.seek_before(key)
    }

    fn next(&mut self) -> Result<()> {
        self.moved()?.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.moved()?.prev()
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.list.entry()
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        self.list.separated()
    }
}

const CHUNK: Chunk = Chunk { rows: 100, bytes: 1 << 20, keys_only: false };

type Row = (Vec<u8>, Vec<u8>);

/// A chunk of a walk over `list` at a moment, and in how many moves it was read.
fn walk(list: &[Entry], (range, is_up): (&KeyRange, bool), at: Lsn) -> (Rows, usize) {
    let moves = Rc::new(Cell::new(0));
    let list = ListCursor::new(list.to_vec());
    let counted = Counted { list, moves: Rc::clone(&moves), most: usize::MAX };
    let mut cursor = MergingCursor::new(vec![Box::new(counted)]);
    let never = |_: &[u8], _| Ok(false);
    let append = Operators::default().of(Some(OperatorName::new(APPEND)));
    let (mut rows, ahead) = (Rows::default(), ReadAhead::for_user());
    let how = (never, (&append, &*ahead));
    match is_up {
        true => walk_up(&mut rows, &mut cursor, (range, at), how, CHUNK),
        false => walk_down(&mut rows, &mut cursor, (range, at), how, CHUNK),
    }
    .unwrap();
    (rows, moves.get())
}

fn taken(rows: Rows) -> Vec<Row> {
    let mut frozen = rows.freeze(&Default::default());
    let owned = |(key, value): (Bytes, Bytes)| (key.to_vec(), value.to_vec());
    std::iter::from_fn(|| frozen.take_first().map(|row| owned(frozen.row(row)))).collect()
}

/// What a walk up and one down read of `list` at a moment, and in how many moves.
fn walks(list: &[Entry], range: &KeyRange, at: Lsn) -> [(Vec<Row>, usize); 2] {
    [true, false].map(|is_up| {
        let (rows, moves) = walk(list, (range, is_up), at);
        assert!(rows.exhausted);
        (taken(rows), moves)
    })
}

/// Bug: one call for a row in front of which millions were deleted kept an epoch pinned while it
/// passed them, and no database of the process could use its space again. Cause: a chunk ended at
/// rows alone. Fix: it ends where it has walked far.
#[test]
fn a_chunk_ends_where_it_has_walked_far() {
    let key = |n: u16| n.to_be_bytes().to_vec();
    let deleted = |n| Entry { key: key(n), seq: 3, kind: Kind::Delete, value: Vec::new() };
    let newer = |n| Entry::put(&key(n), 9, b"newer");
    let both = |n| if n % 2 == 0 { newer(n) } else { deleted(n) };
    let kinds: [&dyn Fn(u16) -> Entry; 3] = [&deleted, &newer, &both];
    for gone in kinds {
        let visible = |n: u16| n % 10_000 == 5000;
        let entry = |n| if visible(n) { Entry::put(&key(n), 2, b"seen") } else { gone(n) };
        let list: Vec<Entry> = (0..30_000).map(entry).collect();
        for is_up in [true, false] {
            let (mut rest, mut rows, mut chunks) = (KeyRange::prefix(b""), Vec::new(), 0);
            loop {
                let (read, moves) = walk(&list, (&rest, is_up), 5);
                assert!(moves < MOST_WALKED + 100, "{moves} moves in a chunk");
                let (end, is_last) = (read.end(!is_up).map(<[u8]>::to_vec), read.exhausted);
                rows.extend(taken(read));
                chunks += 1;
                if is_last {
                    break;
                }
                let end = Bound::Excluded(end.expect("a chunk has an end"));
                if is_up { rest.lower = end } else { rest.upper = end }
            }
            let mut expected: Vec<u16> = (0..30_000).filter(|n| visible(*n)).collect();
            if !is_up {
                expected.reverse();
            }
            let found: Vec<_> = rows.into_iter().map(|(key, _)| key).collect();
            assert_eq!(found, expected.into_iter().map(key).collect::<Vec<_>>());
            assert!((7..12).contains(&chunks), "{chunks} chunks");
        }
    }
}

/// A chunk that has walked far ends between two keys: the version that a reader sees may be behind
/// newer ones of its key.
#[test]
fn a_chunk_that_has_walked_far_ends_between_two_keys() {
    let key = |n: u32| n.to_be_bytes().to_vec();
    for before in MOST_WALKED - 4..MOST_WALKED + 4 {
        let deleted = |n| Entry { key: key(n), seq: 3, kind: Kind::Delete, value: Vec::new() };
        let mut list: Vec<Entry> = (0..before as u32).map(deleted).collect();
        let seen = key(before as u32);
        list.extend([10, 9, 2].map(|seq| Entry::put(&seen, seq, b"seen")));
        for is_up in [true, false] {
            // Down, the deleted keys come behind it.
            let mut list = list.clone();
            if !is_up {
                list.iter_mut().for_each(|entry| {
                    let n = u32::from_be_bytes(entry.key[..].try_into().unwrap());
                    entry.key = key(before as u32 - n);
                });
                list.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
            }
            let (mut rest, mut rows) = (KeyRange::prefix(b""), Vec::new());
            loop {
                let (read, _) = walk(&list, (&rest, is_up), 5);
                let (end, is_last) = (read.end(!is_up).map(<[u8]>::to_vec), read.exhausted);
                rows.extend(taken(read));
                if is_last {
                    break;
                }
                let end = Bound::Excluded(end.expect("a chunk has an end"));
                if is_up { rest.lower = end } else { rest.upper = end }
            }
            assert_eq!(rows.len(), 1, "behind {before} keys, up: {is_up}");
        }
    }
}

/// Keys a, b and c, of which b was written a thousand times, from LSN 10 on.
fn hot() -> Vec<Entry> {
    let value = |seq: Lsn| seq.to_string().into_bytes();
    let hot = (10..1010).rev().map(|seq| Entry::put(b"b", seq, &value(seq)));
    let first = [Entry::put(b"a", 1, b"a")];
    first.into_iter().chain(hot).chain([Entry::put(b"c", 2, b"c")]).collect()
}

/// Bug: a range took as long as a key in it had versions, which are thousands where it is written
/// often and the memtable is young. Cause: it walked past each of them. Fix: past eight, then it
/// searches.
#[test]
fn a_key_of_many_versions_is_passed_by_a_search() {
    let row = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    for at in [5, 10, 500, 1009, LSN_MAX] {
        let mut rows = vec![row("a", "a"), row("c", "c")];
        if at >= 10 {
            rows.insert(1, row("b", &at.min(1009).to_string()));
        }
        let [up, down] = walks(&hot(), &KeyRange::prefix(b""), at);
        assert_eq!(up.0, rows, "at {at}");
        rows.reverse();
        assert_eq!(down.0, rows, "at {at}");
        assert!(up.1 < 40 && down.1 < 40, "{} and {} moves at {at}", up.1, down.1);
    }
}

#[test]
fn a_range_beyond_a_key_of_many_versions_begins_behind_them() {
    let beyond = |lower| KeyRange { lower, upper: Bound::Unbounded };
    for lower in [Bound::Excluded(b"b".to_vec()), Bound::Included(b"c".to_vec())] {
        let [up, down] = walks(&hot(), &beyond(lower), LSN_MAX);
        assert_eq!((up.0.len(), down.0.len()), (1, 1));
        assert!(up.1 < 4 && down.1 < 4, "{} and {} moves", up.1, down.1);
    }
}

fn merge(key: &[u8], seq: Lsn, base: ChainBase<'_>) -> Entry {
    let operand = format!("{seq},");
    let value = encode_chain(base, 1, [operand.as_bytes()].into_iter());
    Entry { key: key.to_vec(), seq, kind: Kind::Merge, value }
}

/// A range of counters reads the operands of each as it passes them: it searches for none of them,
/// but where a key has many.
#[test]
fn operands_are_merged_as_a_range_passes_them() {
    for (operands, most_a_key) in [(1, 2), (5, 6), (200, 212)] {
        let of_key = |key: u8| {
            let merges = (10..10 + operands).rev();
            merges.map(move |seq| merge(&[key], seq, ChainBase::Below))
        };
        let list: Vec<Entry> = (0..50).flat_map(of_key).collect();
        let value: Vec<u8> =
            (10..10 + operands).flat_map(|seq| format!("{seq},").into_bytes()).collect();
        for (rows, moves) in walks(&list, &KeyRange::prefix(b""), LSN_MAX) {
            assert_eq!(rows.len(), 50);
            assert!(rows.iter().all(|(_, found)| *found == value));
            assert!(moves <= 50 * most_a_key + 2, "{moves} moves for {operands} operands a key");
        }
    }
}

/// What one key has: the newest version first.
fn naive(versions: &[Entry], at: Lsn, is_hidden: impl Fn(Lsn) -> bool) -> Option<Vec<u8>> {
    let mut versions = versions.iter().filter(|e| e.seq <= at).take_while(|e| !is_hidden(e.seq));
    let newest = versions.next()?;
    match newest.kind {
        Kind::Delete => None,
        Kind::Put => Some(newest.value.clone()),
        _ => {
            let chain = operand_list(&newest.key, &newest.value).unwrap();
            let below: Vec<Entry> = versions.cloned().collect();
            let base = match chain.base {
                ChainBase::Below => naive(&below, at, is_hidden).unwrap_or_default(),
                ChainBase::None => Vec::new(),
                ChainBase::Value(value) => value.to_vec(),
            };
            Some(chain.operands().fold(base, |value, operand| [&value[..], operand].concat()))
        }
    }
}

fn versions() -> impl Strategy<Value = Vec<Entry>> {
    let version = |(key, seq, kind): (u8, Lsn, u8)| match kind {
        0 => Entry::delete(&[key], seq),
        1 => Entry::put(&[key], seq, format!("v{seq},").as_bytes()),
        2 => merge(&[key], seq, ChainBase::None),
        3 => merge(&[key], seq, ChainBase::Value(b"base,")),
        _ => merge(&[key], seq, ChainBase::Below),
    };
    prop::collection::vec((0u8..4, 1u64..30, 0u8..12), 0..80).prop_map(move |all| {
        let mut all: Vec<Entry> = all.into_iter().map(version).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
        all.dedup_by(|b, a| a.key == b.key && a.seq == b.seq);
        all
    })
}

proptest! {
    /// Both directions, whatever is hidden, at any moment, and however few rows a chunk has.
    #[test]
    fn operands_make_the_same_value_in_both_directions(
        list in versions(),
        at in 0u64..32,
        (over, expired) in (0u64..32, 0u64..20),
        rows_of_chunk in 1usize..4,
        keys_only in any::<bool>(),
        moves in prop_oneof![1usize..20, Just(usize::MAX)],
    ) {
        let over = if over <= at { over } else { 0 };
        let hidden = |seq: Lsn| over > seq || seq <= expired;
        let want: Vec<Row> = list
            .chunk_by(|a, b| a.key == b.key)
            .filter_map(|of_key| Some((of_key[0].key.clone(), naive(of_key, at, hidden)?)))
            .map(|(key, value)| (key, if keys_only { Vec::new() } else { value }))
            .collect();
        let append = Operators::default().of(Some(OperatorName::new(APPEND)));
        let ahead = ReadAhead::for_user();
        for is_up in [true, false] {
            let chunk = Chunk { rows: rows_of_chunk, keys_only, ..CHUNK };
            let (mut range, mut found) = (KeyRange::prefix(b""), Vec::new());
            // A walk that lacks something ends there, and another one goes on. With nothing passed
            // more is there.
            let mut most = moves;
            loop {
                let list = ListCursor::new(list.clone());
                let counted = Counted { list, moves: Rc::default(), most };
                let (mut cursor, mut rows) =
                    (MergingCursor::new(vec![Box::new(counted)]), Rows::default());
                let asked = Cell::new(0);
                let is_hidden = |_: &[u8], seq: Lsn| {
                    asked.set(asked.get() + 1);
                    let is_there = asked.get() <= most;
                    is_there.then(|| hidden(seq)).ok_or_else(|| Error::invalid("not here yet"))
                };
                let (within, how) = ((&range, at), (is_hidden, (&append, &*ahead)));
                let walked = match is_up {
                    true => walk_up(&mut rows, &mut cursor, within, how, chunk),
                    false => walk_down(&mut rows, &mut cursor, within, how, chunk),
                };
                let (end, is_last) = (rows.end(!is_up).map(<[u8]>::to_vec), rows.exhausted);
                most = if end.is_some() { moves } else { most.saturating_mul(2) };
                let mut frozen = rows.freeze(&Default::default());
                while let Some(row) = frozen.take_first() {
                    let (key, value) = frozen.row(row);
                    found.push((key.to_vec(), value.to_vec()));
                }
                match (end, is_up) {
                    _ if is_last => break,
                    (Some(end), true) => range.lower = Bound::Excluded(end),
                    (Some(end), false) => range.upper = Bound::Excluded(end),
                    (None, _) => prop_assert!(walked.is_err(), "a chunk has a row, or lacks one"),
                }
            }
            if !is_up {
                found.reverse();
            }
            prop_assert_eq!(&found, &want, "upwards: {}", is_up);
        }
    }
}
