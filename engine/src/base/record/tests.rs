//! Records to test with, and what every cursor over them is held against.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::{Cursor, EntryRef, Kind, Lsn, SeparatedValue};
use crate::base::error::Result;

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Lsn,
    pub(crate) kind: Kind,
    pub(crate) value: Vec<u8>,
}

impl Entry {
    pub(crate) fn put(key: &[u8], seq: Lsn, value: &[u8]) -> Entry {
        Entry { key: key.to_vec(), seq, kind: Kind::Put, value: value.to_vec() }
    }

    pub(crate) fn delete(key: &[u8], seq: Lsn) -> Entry {
        Entry { key: key.to_vec(), seq, kind: Kind::Delete, value: Vec::new() }
    }

    pub(crate) fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, seq: self.seq, kind: self.kind, value: &self.value }
    }
}

impl From<EntryRef<'_>> for Entry {
    fn from(e: EntryRef<'_>) -> Entry {
        Entry { key: e.key.to_vec(), seq: e.seq, kind: e.kind, value: e.value.to_vec() }
    }
}

/// Sorted records over few short keys, so that keys share prefixes and have many versions. The
/// kind and the value follow from key and sequence number.
pub(crate) fn entries(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Entry>> {
    let record = (prop::collection::vec(0u8..4, 0..4), 0u64..12);
    prop::collection::vec(record, count).prop_map(|records| {
        let sorted: BTreeSet<_> =
            records.into_iter().map(|(key, seq)| (key, std::cmp::Reverse(seq))).collect();
        sorted.into_iter().map(|(key, seq)| entry_for(&key, seq.0)).collect()
    })
}

fn entry_for(key: &[u8], seq: Lsn) -> Entry {
    if (key.len() as u64 + seq).is_multiple_of(3) {
        Entry::delete(key, seq)
    } else {
        Entry::put(key, seq, format!("{key:?}@{seq}").repeat(seq as usize * 60).as_bytes())
    }
}

/// All entries from the cursor's position on.
pub(crate) fn forward(cursor: &mut dyn Cursor) -> Vec<Entry> {
    let mut found = Vec::new();
    while let Some(entry) = cursor.entry() {
        found.push(Entry::from(entry));
        cursor.next().unwrap();
    }
    found
}

/// All entries up to the cursor's position, in order.
pub(crate) fn backward(cursor: &mut dyn Cursor) -> Vec<Entry> {
    let mut found = Vec::new();
    while let Some(entry) = cursor.entry() {
        found.push(Entry::from(entry));
        cursor.prev().unwrap();
    }
    found.reverse();
    found
}

/// Holds a cursor over `list` against the list, for one place.
pub(crate) fn check_cursor(cursor: &mut dyn Cursor, list: &[Entry], key: &[u8], seq: Lsn) {
    let at = list.partition_point(|e| e.key.as_slice() < key || e.key == key && e.seq > seq);
    cursor.seek(key, seq).unwrap();
    assert_eq!(forward(cursor), &list[at..]);
    let bounds = [None, list.get(at.midpoint(list.len())).map(|e| e.key.as_slice()), Some(key)];
    for (bound, most) in bounds.into_iter().flat_map(|bound| [(bound, 3), (bound, usize::MAX)]) {
        cursor.seek(key, seq).unwrap();
        check_pass(cursor, &list[at..], bound, most);
    }
    let at = list.partition_point(|e| e.key.as_slice() < key);
    cursor.seek_before(Some(key)).unwrap();
    assert_eq!(backward(cursor), &list[..at]);
    // Behind the last entry before it the cursor turns round.
    let from = at.checked_sub(1).unwrap_or(list.len());
    cursor.seek_before(Some(key)).unwrap();
    check_pass(cursor, &list[from..], None, 2);
    cursor.seek_before(None).unwrap();
    assert_eq!(backward(cursor), list);
}

/// Holds a pass of a cursor against the entries from its position on: up to a bound, and where the
/// entry number `most` breaks it off.
fn check_pass(cursor: &mut dyn Cursor, rest: &[Entry], bound: Option<&[u8]>, most: usize) {
    let end = rest.partition_point(|e| bound.is_none_or(|bound| e.key.as_slice() < bound));
    let mut lent = Vec::new();
    let passed = cursor.pass(bound, &mut |entry| {
        lent.push(Entry::from(*entry));
        if lent.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(lent, &rest[..end.min(most)]);
    let is_broken_off = passed.unwrap().is_break();
    assert_eq!(is_broken_off, end >= most);
    assert_eq!(forward(cursor), &rest[if is_broken_off { most - 1 } else { end }..]);
}

/// A sorted list as a cursor.
pub(crate) struct ListCursor {
    pub(crate) list: Vec<Entry>,
    pub(crate) at: Option<usize>,
}

impl ListCursor {
    pub(crate) fn new(list: Vec<Entry>) -> ListCursor {
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

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        Ok(None)
    }
}
