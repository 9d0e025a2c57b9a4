//! The tree of byte strings.

use std::ops::RangeBounds;

use super::bytes_range::BytesRange;
use super::heap::{Heap, Stored};
use super::node::Slot;
use super::refs::{Place, Refs};
use super::stats::Stats;
use super::tree::Tree;
use crate::error::{Error, ErrorKind, Result};
use crate::mvcc::pin;
use crate::os::FileLock;

/// A durable ordered map from byte strings to byte strings in a region of its own.
///
/// It is an [`OdsTree`](super::OdsTree) whose leaves hold the first eight bytes of a key and the
/// offset of its entry, key and value. Keys that differ in their first eight bytes are told apart
/// in the node; else the entries are read. Made and opened by
/// [`Options::create_bytes`](super::Options::create_bytes) and
/// [`open_bytes`](super::Options::open_bytes). Any number of threads may use it at once; what a
/// call returns is durable.
///
/// Cost, in cache lines flushed: a deletion flushes two, one of them the entry's in its pool. An
/// insertion or an update flushes those of the entry and its pool's word, and those of the node as
/// an `OdsTree` does. It takes one fence more. A split clears what it has moved, which takes up to
/// two lines, and may write a bound. An entry takes 16 bytes beyond key and value, rounded up to
/// one of the sizes of 64, 128, 192, 256, 384, 512… bytes; each size that is in use takes 64 KiB at
/// a time.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("names");
/// let tree = terrace::ptree::Options::new().size(1 << 20).create_bytes(&path)?;
/// tree.insert("ada", "1815")?;
/// assert_eq!(tree.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BytesTree {
    pub(super) tree: Tree<Refs<Heap>>,
    #[expect(dead_code, reason = "given back when it is dropped")]
    lock: Option<FileLock>,
}

impl BytesTree {
    /// The most bytes that key and value may have together (24,560).
    pub const MAX_ENTRY: usize = 24_560;

    pub(super) fn new(tree: Tree<Refs<Heap>>, lock: Option<FileLock>) -> BytesTree {
        BytesTree { tree, lock }
    }

    /// Stores `value` under `key`; the value before, if there was one.
    ///
    /// # Errors
    ///
    /// `Invalid` for an entry longer than [`BytesTree::MAX_ENTRY`], `Full`, or an I/O error: after
    /// that one the tree must be opened again.
    pub fn insert(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        let (key, _guard) = (key.as_ref(), pin());
        let slot = self.write(key, value.as_ref())?;
        match self.tree.insert(Place::at(key, 0), slot) {
            Ok(before) => before.map(|before| self.free(before)).transpose(),
            Err(error) => self.undo(slot, error),
        }
    }

    /// Replaces the value under `key`; the value before, or `None` and nothing is done.
    ///
    /// # Errors
    ///
    /// As [`BytesTree::insert`].
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        let (key, _guard) = (key.as_ref(), pin());
        if self.tree.get(Place::at(key, 0))?.is_none() {
            return Ok(None);
        }
        let slot = self.write(key, value.as_ref())?;
        match self.tree.update(Place::at(key, 0), slot) {
            Ok(Some(before)) => self.free(before).map(Some),
            // Deleted meanwhile.
            Ok(None) => self.free(slot).map(|_| None),
            Err(error) => self.undo(slot, error),
        }
    }

    /// The value under `key`.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let _guard = pin();
        let slot = self.tree.get(Place::at(key.as_ref(), 0))?;
        Ok(slot.map(|slot| self.entry(slot).value.to_vec()))
    }

    /// Removes `key`; its value, if it was there.
    ///
    /// # Errors
    ///
    /// As [`BytesTree::insert`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let _guard = pin();
        let before = self.tree.delete(Place::at(key.as_ref(), 0))?;
        before.map(|before| self.free(before)).transpose()
    }

    /// The entries in `bounds`, ascending; from the back, descending. It is read a leaf at a
    /// time, each as it is then: what changes meanwhile may or may not be seen.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("names");
    /// let tree = terrace::ptree::Options::new().size(1 << 20).create_bytes(&path)?;
    /// for key in ["b", "a", "c"] {
    ///     tree.insert(key, "")?;
    /// }
    /// let keys = tree.range("a".."c").rev().map(|entry| Ok(entry?.0));
    /// let keys = keys.collect::<terrace::Result<Vec<_>>>()?;
    /// assert_eq!(keys, [b"b", b"a"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> BytesRange<'_> {
        BytesRange::new(self, &bounds)
    }

    /// Fills the tree, which must be empty, from entries in ascending order; how many there were.
    /// All or nothing: a cut before the return leaves it empty, and entries for
    /// [`reclaim`](BytesTree::reclaim).
    ///
    /// # Errors
    ///
    /// `Invalid` when the tree is not empty or a key does not ascend; otherwise as
    /// [`BytesTree::insert`].
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        let mut written: Vec<Slot> = Vec::new();
        for (key, value) in entries {
            let key = key.as_ref();
            let slot = match written.last().map(|last| self.entry(*last).key) {
                Some(last) if last >= key => Err(Error::invalid(format!(
                    "a bulk load takes ascending keys: {:?} comes after {:?}",
                    String::from_utf8_lossy(key),
                    String::from_utf8_lossy(last)
                ))),
                _ => self.write(key, value.as_ref()),
            };
            match slot {
                Ok(slot) => written.push(slot),
                Err(error) => return self.undo_all(&written, error),
            }
        }
        match self.tree.load(written.iter().copied().map(Ok)) {
            Ok(count) => Ok(count),
            Err(error) => self.undo_all(&written, error),
        }
    }

    /// Frees nodes, entries and bounds that a power cut left taken and that nothing leads to: a
    /// few for each operation that was under way, and those of a bulk load. How many there were.
    /// Reads the whole tree; it works as well without.
    ///
    /// # Errors
    ///
    /// `Corrupt` when a pool entry is damaged; otherwise an I/O error.
    pub fn reclaim(&mut self) -> Result<u64> {
        Ok(self.tree.scan()?.1 + self.tree.scan_heap()?)
    }

    /// What the tree has done and what it takes.
    pub fn stats(&self) -> Stats {
        let mut stats = self.tree.stats();
        stats.bytes += self.tree.nodes.keys.heap.bytes();
        stats
    }

    /// How many nodes the tree has. Reads one word of each.
    pub fn nodes(&mut self) -> u64 {
        self.tree.count_nodes()
    }

    /// Writes an entry, durably.
    fn write(&self, key: &[u8], value: &[u8]) -> Result<Slot> {
        let mut writer = self.tree.nodes.writer();
        let at = self.tree.nodes.keys.heap.write(&mut writer, Stored { key, seq: 0, value })?;
        writer.persist()?;
        Ok(Refs::<Heap>::slot(key, at))
    }

    pub(super) fn entry(&self, slot: Slot) -> Stored<'_> {
        self.tree.nodes.keys.heap.read(slot.id)
    }

    /// Frees an entry that the tree does not lead to any more; its value.
    fn free(&self, slot: Slot) -> Result<Vec<u8>> {
        let value = self.entry(slot).value.to_vec();
        self.tree.nodes.keys.heap.release(slot.id)?;
        Ok(value)
    }

    fn undo<T>(&self, slot: Slot, error: Error) -> Result<T> {
        self.undo_all(&[slot], error)
    }

    /// Frees entries that were never linked, if it is that alone which failed.
    fn undo_all<T>(&self, slots: &[Slot], error: Error) -> Result<T> {
        if matches!(error.kind(), ErrorKind::Full | ErrorKind::Invalid) {
            slots.iter().try_for_each(|slot| self.free(*slot).map(drop))?;
        }
        Err(error)
    }
}
