//! A cursor over the keys of an interval alone, in versions up to a sequence number: the column
//! that a drain takes from level 0.

use crate::error::Result;
use crate::mvcc::KeyInterval;
use crate::record::{Cursor, EntryRef, Filtered, Lsn, SeparatedValue};

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
    use crate::record::tests::{ListCursor, check_cursor, entries};

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
