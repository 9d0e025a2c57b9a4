//! Ranges of a tree of byte strings.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use super::bytes::BytesTree;
use super::heap::Stored;
use super::refs::Place;
use crate::error::Result;
use crate::mvcc::pin;
use crate::record::LSN_MAX;

/// Keys and values, ascending.
type Entries = VecDeque<(Vec<u8>, Vec<u8>)>;

/// Entries of a range of a [`BytesTree`], both ways.
#[derive(Debug)]
pub struct BytesRange<'t> {
    tree: &'t BytesTree,
    /// What neither end has read yet.
    left: Option<(Bound<Vec<u8>>, Bound<Vec<u8>>)>,
    front: Entries,
    back: Entries,
}

impl<'t> BytesRange<'t> {
    pub(super) fn new<K: AsRef<[u8]>>(
        tree: &'t BytesTree,
        bounds: &impl RangeBounds<K>,
    ) -> BytesRange<'t> {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let left = (owned(bounds.start_bound()), owned(bounds.end_bound()));
        let left = Some(left).filter(may_have_keys);
        BytesRange { tree, left, front: Entries::new(), back: Entries::new() }
    }

    /// The entries of a leaf that are left, and its bounds; zero for none.
    fn read(
        &self,
        place: Place<'_>,
        left: &(Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> Result<(Entries, [Option<Vec<u8>>; 2])> {
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

    fn read_front(&mut self) -> Result<bool> {
        let Some(left) = self.left.take() else { return Ok(false) };
        let place = match &left.0 {
            Bound::Included(key) | Bound::Excluded(key) => Place::at(key, 0),
            Bound::Unbounded => Place::at(&[], 0),
        };
        let (entries, [_, high]) = self.read(place, &left)?;
        self.front = entries;
        self.left = high.map(|high| (Bound::Included(high), left.1)).filter(may_have_keys);
        Ok(true)
    }

    fn read_back(&mut self) -> Result<bool> {
        let Some(left) = self.left.take() else { return Ok(false) };
        let place = match &left.1 {
            Bound::Included(key) => Place::at(key, 0),
            Bound::Excluded(key) => Place::at(key, LSN_MAX).before(),
            Bound::Unbounded => Place::end(),
        };
        let (entries, [low, _]) = self.read(place, &left)?;
        self.back = entries;
        self.left = low.map(|low| (left.0, Bound::Excluded(low))).filter(may_have_keys);
        Ok(true)
    }
}

fn may_have_keys(left: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match left {
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from < to,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
    }
}

impl Iterator for BytesRange<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.front.pop_front() {
                return Some(Ok(entry));
            }
            match self.read_front() {
                Ok(true) => {}
                Ok(false) => return self.back.pop_front().map(Ok),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl DoubleEndedIterator for BytesRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.back.pop_back() {
                return Some(Ok(entry));
            }
            match self.read_back() {
                Ok(true) => {}
                Ok(false) => return self.front.pop_back().map(Ok),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
