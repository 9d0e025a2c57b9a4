use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;

use super::*;
use crate::extent::tests::Entry;
use crate::merge::tests::ListCursor;

/// A list that counts how often it is moved.
struct Counted {
    list: ListCursor,
    moves: Rc<Cell<usize>>,
}

impl Counted {
    fn moved(&mut self) -> &mut ListCursor {
        self.moves.set(self.moves.get() + 1);
        &mut self.list
    }
}

impl Cursor for Counted {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.moved().seek(key, seq)
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.moved().seek_before(key)
    }

    fn next(&mut self) -> Result<()> {
        self.moved().next()
    }

    fn prev(&mut self) -> Result<()> {
        self.moved().prev()
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

/// What a walk up and one down read of `list` at a moment, and in how many moves.
fn walks(list: &[Entry], range: &KeyRange, at: Lsn) -> [(Vec<Row>, usize); 2] {
    [true, false].map(|is_up| {
        let moves = Rc::new(Cell::new(0));
        let list = ListCursor::new(list.to_vec());
        let counted = Counted { list, moves: Rc::clone(&moves) };
        let mut cursor = MergingCursor::new(vec![Box::new(counted)]);
        let never = |_: &[u8], _| Ok(false);
        let merged = |_: &[u8]| -> Merged { unreachable!("there are no operands") };
        let rows = match is_up {
            true => walk_up(&mut cursor, range, at, (never, merged), CHUNK),
            false => walk_down(&mut cursor, range, at, (never, merged), CHUNK),
        };
        let rows = rows.unwrap();
        assert!(rows.exhausted);
        let mut frozen = rows.freeze(&Default::default());
        let owned = |(key, value): (Bytes, Bytes)| (key.to_vec(), value.to_vec());
        let taken = std::iter::from_fn(|| frozen.take_first().map(|row| frozen.row(row)));
        (taken.map(owned).collect(), moves.get())
    })
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
