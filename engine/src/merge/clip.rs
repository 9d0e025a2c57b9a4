//! A cursor over the keys of an interval alone, in versions up to a sequence number: the column
//! that a drain takes from level 0.

use crate::error::Result;
use crate::mvcc::KeyInterval;
use crate::record::{Cursor, EntryRef, Lsn, SeparatedValue};

/// A part of what `inner` shows. A step over a hidden version costs as much as one over a shown
/// one.
pub(crate) struct ClippedCursor<C> {
    inner: C,
    interval: KeyInterval,
    /// Newer versions are hidden.
    seq: Lsn,
}

impl<C: Cursor> ClippedCursor<C> {
    /// The records of `inner` with keys in `interval` and sequence numbers of at most `seq`.
    pub(crate) fn new(inner: C, interval: KeyInterval, seq: Lsn) -> ClippedCursor<C> {
        ClippedCursor { inner, interval, seq }
    }

    /// Whether the inner cursor stands in the interval on a version that is hidden.
    fn is_on_hidden(&self) -> bool {
        self.inner
            .entry()
            .is_some_and(|entry| entry.seq > self.seq && self.interval.contains(entry.key))
    }

    fn skip_forward(&mut self) -> Result<()> {
        while self.is_on_hidden() {
            self.inner.next()?;
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while self.is_on_hidden() {
            self.inner.prev()?;
        }
        Ok(())
    }
}

impl<C: Cursor> Cursor for ClippedCursor<C> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        if key < self.interval.start.as_slice() {
            self.inner.seek(&self.interval.start, self.seq)?;
        } else {
            self.inner.seek(key, seq.min(self.seq))?;
        }
        self.skip_forward()
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let end = self.interval.end.as_deref();
        let before = match (key, end) {
            (Some(key), Some(end)) => Some(key.min(end)),
            (one, other) => one.or(other),
        };
        self.inner.seek_before(before)?;
        self.skip_backward()
    }

    fn next(&mut self) -> Result<()> {
        self.inner.next()?;
        self.skip_forward()
    }

    fn prev(&mut self) -> Result<()> {
        self.inner.prev()?;
        self.skip_backward()
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
    use crate::extent::tests::{check_cursor, entries};
    use crate::merge::merging::tests::ListCursor;

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
            let mut cursor = ClippedCursor::new(ListCursor::new(list), interval, up_to);
            check_cursor(&mut cursor, &shown, &key, seq);
        }
    }
}
