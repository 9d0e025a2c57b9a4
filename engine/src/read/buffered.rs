//! A cursor over records in memory for a job that does I/O between its steps. It copies some
//! records at a time while an epoch is pinned, and pins none in between: an epoch holds back space
//! in each database of the process.
//!
//! A cursor over the keys of an interval alone, in versions up to a sequence number: the column
//! that a drain takes from level 0.

use crate::base::error::Result;
use crate::base::record::{Cursor, EntryRef, Filtered, Kind, Lsn, SeparatedValue};
use crate::mvcc::{KeyInterval, pin};

/// So many records are copied at a time,
const MOST_RECORDS: usize = 256;

/// and no more after so many bytes.
const MOST_BYTES: usize = 64 * 1024;

/// A position among the records of a cursor, which `open` makes. A record that another thread
/// removes meanwhile may be missing behind the position, and a new one may be there, as with the
/// cursor itself.
pub(crate) struct BufferedCursor<'a> {
    open: Box<dyn Fn() -> Box<dyn Cursor + 'a> + 'a>,
    /// Keys and values.
    bytes: Vec<u8>,
    records: Vec<BufferedRecord>,
    /// Which of them is here.
    at: usize,
    /// Whether none comes behind them.
    is_last: bool,
}

/// A record in the bytes of the buffer.
#[derive(Clone, Copy, Debug)]
struct BufferedRecord {
    key_at: usize,
    value_at: usize,
    end: usize,
    seq: Lsn,
    kind: Kind,
}

impl<'a> BufferedCursor<'a> {
    /// One that is nowhere. The cursors that `open` gives have no values that lie apart.
    pub(crate) fn new(open: impl Fn() -> Box<dyn Cursor + 'a> + 'a) -> BufferedCursor<'a> {
        let (bytes, records) = (Vec::new(), Vec::new());
        BufferedCursor { open: Box::new(open), bytes, records, at: 0, is_last: true }
    }

    /// Copies `most` records from where `place` puts a cursor.
    fn fill(
        &mut self,
        most: usize,
        place: impl FnOnce(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        let _guard = pin();
        let mut cursor = (self.open)();
        place(&mut *cursor)?;
        self.bytes.clear();
        self.records.clear();
        self.at = 0;
        while let Some(entry) = cursor.entry() {
            debug_assert_ne!(entry.kind, Kind::Reference, "memory has values beside their keys");
            let key_at = self.bytes.len();
            self.bytes.extend_from_slice(entry.key);
            let value_at = self.bytes.len();
            self.bytes.extend_from_slice(entry.value);
            let (end, EntryRef { seq, kind, .. }) = (self.bytes.len(), entry);
            self.records.push(BufferedRecord { key_at, value_at, end, seq, kind });
            if self.records.len() >= most || self.bytes.len() >= MOST_BYTES {
                break;
            }
            cursor.next()?;
        }
        self.is_last = cursor.entry().is_none();
        Ok(())
    }

    /// The key and the number of the record here.
    fn here(&self) -> Option<(Vec<u8>, Lsn)> {
        self.entry().map(|entry| (entry.key.to_vec(), entry.seq))
    }
}

impl Cursor for BufferedCursor<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.fill(MOST_RECORDS, |cursor| cursor.seek(key, seq))
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.fill(1, |cursor| cursor.seek_before(key))
    }

    fn next(&mut self) -> Result<()> {
        if self.at + 1 < self.records.len() || self.is_last {
            self.at += 1;
            return Ok(());
        }
        let Some((key, seq)) = self.here() else { return Ok(()) };
        self.fill(MOST_RECORDS, |cursor| {
            cursor.seek(&key, seq)?;
            match cursor.entry() {
                Some(entry) if entry.key == key && entry.seq == seq => cursor.next(),
                _ => Ok(()),
            }
        })
    }

    fn prev(&mut self) -> Result<()> {
        if self.at > 0 && self.at < self.records.len() {
            self.at -= 1;
            return Ok(());
        }
        let Some((key, seq)) = self.here() else { return Ok(()) };
        self.fill(1, |cursor| {
            cursor.seek(&key, seq)?;
            match cursor.entry() {
                Some(_) => cursor.prev(),
                None => cursor.seek_before(None),
            }
        })
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        let BufferedRecord { key_at, value_at, end, seq, kind } = *self.records.get(self.at)?;
        let (key, value) = (&self.bytes[key_at..value_at], &self.bytes[value_at..end]);
        Some(EntryRef { key, seq, kind, value })
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        Ok(None)
    }
}

/// The records of `inner` with keys in `interval` and sequence numbers of at most `upto`.
pub(crate) fn clip<'a, C: Cursor + 'a>(
    inner: C,
    interval: KeyInterval,
    upto: Lsn,
) -> impl Cursor + 'a {
    let clipped = Clipped { inner, interval, upto };
    Filtered { inner: clipped, hides: move |entry: &EntryRef<'_>| entry.seq > upto }
}

/// The keys of an interval.
struct Clipped<C> {
    inner: C,
    interval: KeyInterval,
    /// Versions that are newer are not looked for.
    upto: Lsn,
}

impl<C: Cursor> Cursor for Clipped<C> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        if key < self.interval.start.as_slice() {
            self.inner.seek(&self.interval.start, self.upto)
        } else {
            self.inner.seek(key, seq.min(self.upto))
        }
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let end = self.interval.end.as_deref();
        let before = match (key, end) {
            (Some(key), Some(end)) => Some(key.min(end)),
            (one, other) => one.or(other),
        };
        self.inner.seek_before(before)
    }

    fn next(&mut self) -> Result<()> {
        self.inner.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.inner.prev()
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.inner.entry().filter(|entry| self.interval.contains(entry.key))
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        self.inner.separated()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::record::LSN_MAX;
    use crate::base::record::tests::{Entry, ListCursor, check_cursor, entries};

    proptest! {
        #[test]
        fn shows_what_the_cursor_shows(
            list in entries(0..60),
            key in prop::collection::vec(0u8..4, 0..4),
            seq in 0u64..12,
        ) {
            let open = || Box::new(ListCursor::new(list.clone())) as Box<dyn Cursor>;
            check_cursor(&mut BufferedCursor::new(open), &list, &key, seq);
        }
    }

    /// What is longer than a buffer comes in several, and none leaves the epoch pinned.
    #[test]
    fn goes_on_from_one_buffer_to_the_next_without_an_epoch() {
        let entry = |n: u32| Entry::put(&n.to_be_bytes(), 7, &[0; 1000]);
        let list: Vec<Entry> = (0..1000).map(entry).collect();
        let opened = std::cell::Cell::new(0);
        let open = || {
            opened.set(opened.get() + 1);
            Box::new(ListCursor::new(list.clone())) as Box<dyn Cursor>
        };
        let mut cursor = BufferedCursor::new(open);
        cursor.seek(b"", LSN_MAX).unwrap();
        for expected in &list {
            assert!(!crate::mvcc::is_pinned());
            assert_eq!(cursor.entry(), Some(expected.as_ref()));
            cursor.next().unwrap();
        }
        assert!(cursor.entry().is_none());
        // Each has 66 records: 64 KiB.
        assert_eq!(opened.get(), 1000 / 66 + 1);
    }

    mod clip {
        use proptest::prelude::*;

        use super::super::*;
        use crate::base::record::tests::{ListCursor, check_cursor, entries};

        proptest! {
            #[test]
            fn is_a_filter(
                list in entries(0..60),
                start in prop::collection::vec(0u8..4, 0..3),
                end in prop::option::of(prop::collection::vec(0u8..4, 0..3)),
                up_to in 0u64..12,
                key in prop::collection::vec(0u8..4, 0..4),
                seq in 0u64..12,
            ) {
                let interval = KeyInterval { start, end };
                let shown: Vec<_> = list
                    .iter()
                    .filter(|e| interval.contains(&e.key) && e.seq <= up_to)
                    .cloned()
                    .collect();
                let mut cursor = clip(ListCursor::new(list), interval, up_to);
                check_cursor(&mut cursor, &shown, &key, seq);
            }
        }
    }
}
