//! Ranges of a tree of byte strings.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use super::bytes::BytesTree;
use super::ends::{Ends, Rest};
use super::heap::Stored;
use super::refs::Place;
use crate::error::Result;
use crate::mvcc::pin;
use crate::record::LSN_MAX;

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// What of a range is left to read.
type Left = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Where a leaf starts and ends, if anywhere.
type LeafEnds = [Option<Vec<u8>>; 2];

/// Entries of a range of a [`BytesTree`], both ways. After an error it ends.
#[derive(Debug)]
pub struct BytesRange<'t>(Ends<Unread<'t>>);

#[derive(Debug)]
struct Unread<'t> {
    tree: &'t BytesTree,
    left: Option<Left>,
}

impl<'t> BytesRange<'t> {
    pub(super) fn new<K: AsRef<[u8]>>(
        tree: &'t BytesTree,
        bounds: &impl RangeBounds<K>,
    ) -> BytesRange<'t> {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let left = (owned(bounds.start_bound()), owned(bounds.end_bound()));
        BytesRange(Ends::new(Unread { tree, left: Some(left).filter(may_have_keys) }))
    }
}

impl Unread<'_> {
    /// The entries of a leaf that are left, and where it starts and ends, if anywhere.
    fn read(&self, place: Place<'_>, left: &Left) -> Result<(VecDeque<Entry>, LeafEnds)> {
        let _guard = pin();
        let chunk = self.tree.tree.chunk(place)?;
        let entries = chunk.slots.into_iter().map(|slot| self.tree.entry(slot));
        let wanted = entries.filter(|entry| {
            let bounds = (left.0.as_ref().map(Vec::as_slice), left.1.as_ref().map(Vec::as_slice));
            RangeBounds::<[u8]>::contains(&bounds, entry.key)
        });
        let owned = wanted.map(|Stored { key, value, .. }| (key.to_vec(), value.to_vec()));
        let keys = &self.tree.tree.nodes.keys;
        let bounds = [chunk.low, chunk.high];
        Ok((owned.collect(), bounds.map(|b| (b != 0).then(|| keys.bound_key(b)))))
    }
}

impl Rest for Unread<'_> {
    type Entry = Entry;

    fn read_front(&mut self) -> Result<Option<VecDeque<Entry>>> {
        let Some(left) = self.left.take() else { return Ok(None) };
        let place = match &left.0 {
            Bound::Included(key) | Bound::Excluded(key) => Place::at(key, 0),
            Bound::Unbounded => Place::at(&[], 0),
        };
        let (entries, [_, high]) = self.read(place, &left)?;
        self.left = high.map(|high| (Bound::Included(high), left.1)).filter(may_have_keys);
        Ok(Some(entries))
    }

    fn read_back(&mut self) -> Result<Option<VecDeque<Entry>>> {
        let Some(left) = self.left.take() else { return Ok(None) };
        let place = match &left.1 {
            Bound::Included(key) => Place::at(key, 0),
            Bound::Excluded(key) => Place::at(key, LSN_MAX).before(),
            Bound::Unbounded => Place::end(),
        };
        let (entries, [low, _]) = self.read(place, &left)?;
        self.left = low.map(|low| (left.0, Bound::Excluded(low))).filter(may_have_keys);
        Ok(Some(entries))
    }
}

fn may_have_keys(left: &Left) -> bool {
    match left {
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from < to,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
    }
}

impl Iterator for BytesRange<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl DoubleEndedIterator for BytesRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}
