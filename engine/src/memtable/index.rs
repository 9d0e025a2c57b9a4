//! The ordered index over records: (key ascending, sequence descending) → offset in the region.
//!
//! Thread safety: any number of threads insert, remove and read at once.
//!
//! A placeholder until the engine's own radix tree: crossbeam's skip list, which keeps a copy of
//! each key. The interface is final.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry;

use crate::record::{LSN_MAX, Lsn};

/// A concurrent ordered index.
#[derive(Default)]
pub(crate) struct Index {
    map: SkipMap<Stored, u64>,
}

/// A key and sequence number, wherever they live.
trait Slot {
    fn key(&self) -> &[u8];
    fn seq(&self) -> Lsn;
}

struct Stored {
    key: Box<[u8]>,
    seq: Lsn,
}

struct Sought<'a> {
    key: &'a [u8],
    seq: Lsn,
}

impl Slot for Stored {
    fn key(&self) -> &[u8] {
        &self.key
    }
    fn seq(&self) -> Lsn {
        self.seq
    }
}

impl Slot for Sought<'_> {
    fn key(&self) -> &[u8] {
        self.key
    }
    fn seq(&self) -> Lsn {
        self.seq
    }
}

impl<'a> Borrow<dyn Slot + 'a> for Stored {
    fn borrow(&self) -> &(dyn Slot + 'a) {
        self
    }
}

impl Ord for dyn Slot + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key()).then(other.seq().cmp(&self.seq()))
    }
}

impl PartialOrd for dyn Slot + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Slot + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Slot + '_ {}

impl Ord for Stored {
    fn cmp(&self, other: &Self) -> Ordering {
        (self as &dyn Slot).cmp(other as &dyn Slot)
    }
}

impl PartialOrd for Stored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Stored {}

impl Index {
    /// An empty index.
    pub(crate) fn new() -> Index {
        Index::default()
    }

    /// Adds a version. The same key and sequence number a second time replaces the offset.
    pub(crate) fn insert(&self, key: &[u8], seq: Lsn, at: u64) {
        self.map.insert(Stored { key: key.into(), seq }, at);
    }

    /// Removes a version; its offset, if it was there. Of several threads one gets it.
    pub(crate) fn remove(&self, key: &[u8], seq: Lsn) -> Option<u64> {
        let sought = Sought { key, seq };
        // Not the map's `remove`, which gives the entry to the second comer too.
        let entry = self.map.get(&sought as &dyn Slot)?;
        entry.remove().then(|| *entry.value())
    }

    /// The newest version of `key` that is not newer than `at_most`: (sequence, offset).
    pub(crate) fn get(&self, key: &[u8], at_most: Lsn) -> Option<(Lsn, u64)> {
        let sought = Sought { key, seq: at_most };
        let entry = self.map.lower_bound(Bound::Included(&sought as &dyn Slot))?;
        (&*entry.key().key == key).then(|| (entry.key().seq, *entry.value()))
    }

    /// How many versions it holds, roughly while others change it.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// A cursor, not placed yet.
    pub(crate) fn cursor(&self) -> IndexCursor<'_> {
        IndexCursor { index: self, entry: None }
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A position in an [`Index`]. It stays usable while others change the index: a step goes to the
/// nearest version that is there then.
pub(crate) struct IndexCursor<'a> {
    index: &'a Index,
    entry: Option<Entry<'a, Stored, u64>>,
}

impl IndexCursor<'_> {
    /// To the first version at or after (`key`, `seq`).
    pub(crate) fn seek(&mut self, key: &[u8], seq: Lsn) {
        let sought = Sought { key, seq };
        self.entry = self.index.map.lower_bound(Bound::Included(&sought as &dyn Slot));
    }

    /// To the last version of a key smaller than `key`; of all keys without one.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) {
        self.entry = match key {
            None => self.index.map.back(),
            Some(key) => {
                let sought = Sought { key, seq: LSN_MAX };
                self.index.map.upper_bound(Bound::Excluded(&sought as &dyn Slot))
            }
        };
    }

    /// To the following version.
    pub(crate) fn next(&mut self) {
        self.entry = self.entry.take().and_then(|e| e.next());
    }

    /// To the preceding version.
    pub(crate) fn prev(&mut self) {
        self.entry = self.entry.take().and_then(|e| e.prev());
    }

    /// The version under the cursor: (sequence, offset).
    pub(crate) fn version(&self) -> Option<(Lsn, u64)> {
        self.entry.as_ref().map(|e| (e.key().seq, *e.value()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn newest_version_not_newer_than() {
        let index = Index::new();
        for (key, seq) in [("a", 3), ("a", 7), ("ab", 5), ("", 1)] {
            index.insert(key.as_bytes(), seq, seq * 100);
        }
        assert_eq!(index.get(b"a", LSN_MAX), Some((7, 700)));
        assert_eq!(index.get(b"a", 6), Some((3, 300)));
        assert_eq!(index.get(b"a", 2), None);
        assert_eq!(index.get(b"", 9), Some((1, 100)));
        assert_eq!(index.remove(b"a", 7), Some(700));
        assert_eq!(index.get(b"a", LSN_MAX), Some((3, 300)));
    }

    /// Bug: a drain's retirement and the drop of its table, on two threads, both counted a record
    /// out of its zone; the zone looked dead while other tables had records in it, and was
    /// released. Cause: crossbeam's `SkipMap::remove` gives the entry to whoever comes second too.
    /// Fix: the removal of the entry itself says who was first.
    #[test]
    fn a_version_is_removed_once_whoever_races_for_it() {
        let index = Index::new();
        for seq in 1..=20_000 {
            index.insert(b"key", seq, seq);
        }
        let (removed, start) = (AtomicU64::new(0), std::sync::Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let won = (1..=20_000).filter(|seq| index.remove(b"key", *seq).is_some());
                    removed.fetch_add(won.count() as u64, Relaxed);
                });
            }
        });
        assert_eq!(removed.into_inner(), 20_000);
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn cursors_walk_both_ways() {
        let index = Index::new();
        for (key, seq) in [("a", 3), ("a", 7), ("b", 5), ("c", 6)] {
            index.insert(key.as_bytes(), seq, seq);
        }
        let mut cursor = index.cursor();
        cursor.seek(b"a", LSN_MAX);
        let mut forward = Vec::new();
        while let Some((seq, _)) = cursor.version() {
            forward.push(seq);
            cursor.next();
        }
        assert_eq!(forward, [7, 3, 5, 6]);
        cursor.seek_before(Some(b"c"));
        assert_eq!(cursor.version(), Some((5, 5)));
        cursor.prev();
        assert_eq!(cursor.version(), Some((3, 3)), "backwards, the oldest version comes first");
    }
}
