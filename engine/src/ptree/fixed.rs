//! The tree with keys and values of eight bytes.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use super::ends::{Ends, Rest};
use super::keys::Fixed;
use super::node::Slot;
use super::stats::Stats;
use super::tree::Tree;
use crate::error::{Error, Result};
use crate::os::FileLock;

/// A durable ordered map from `u64` to `u64` in a region of its own: the one-direction-shift
/// B+-tree.
///
/// Made and opened by [`Options`](super::Options). Any number of threads may use it at once;
/// what a call returns is durable, and what other threads have not finished is not seen.
///
/// Cost, in cache lines flushed: a deletion or an update one, an insertion between one and four,
/// a split at most eight more with its parent's slot and its pool entry. A key takes about 28
/// bytes at the usual 70 % of slots in use.
///
/// Keys go up to [`OdsTree::MAX_KEY`]; values are any.
#[derive(Debug)]
pub struct OdsTree {
    pub(super) tree: Tree<Fixed>,
    #[expect(dead_code, reason = "given back when it is dropped")]
    lock: Option<FileLock>,
}

impl OdsTree {
    /// The greatest key: one less than the greatest number. Zero as a word means *no key* on the
    /// media, so there is one key less than there are words.
    pub const MAX_KEY: u64 = u64::MAX - 1;

    pub(super) fn new(tree: Tree<Fixed>, lock: Option<FileLock>) -> OdsTree {
        OdsTree { tree, lock }
    }

    fn word(key: u64) -> Result<u64> {
        let refused = || Error::invalid(format!("key {key} is reserved: they end at {}", key - 1));
        key.checked_add(1).ok_or_else(refused)
    }

    /// Stores `value` under `key`; the value before, if there was one.
    ///
    /// # Errors
    ///
    /// `Invalid` for a key beyond [`OdsTree::MAX_KEY`], `Full`, or an I/O error: after that one
    /// the tree must be opened again.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let word = OdsTree::word(key)?;
        let before = self.tree.insert(word, Slot { id: word, other: value })?;
        Ok(before.map(|slot| slot.other))
    }

    /// Replaces the value under `key`; the value before, or `None` and nothing is done.
    ///
    /// # Errors
    ///
    /// As [`OdsTree::insert`].
    pub fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let word = OdsTree::word(key)?;
        let before = self.tree.update(word, Slot { id: word, other: value })?;
        Ok(before.map(|slot| slot.other))
    }

    /// The value under `key`.
    ///
    /// # Errors
    ///
    /// `Invalid` for a key beyond [`OdsTree::MAX_KEY`].
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.tree.get(OdsTree::word(key)?)?.map(|slot| slot.other))
    }

    /// Removes `key`; its value, if it was there.
    ///
    /// # Errors
    ///
    /// As [`OdsTree::insert`].
    pub fn delete(&self, key: u64) -> Result<Option<u64>> {
        let before = self.tree.delete(OdsTree::word(key)?)?;
        Ok(before.map(|slot| slot.other))
    }

    /// The entries in `bounds`, ascending; from the back, descending. It is read a leaf at a
    /// time, each as it is then: what changes meanwhile may or may not be seen.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let tree = terrace::ptree::Options::new().size(1 << 20).create(dir.path().join("tree"))?;
    /// for key in [3, 1, 2] {
    ///     tree.insert(key, key * 10)?;
    /// }
    /// let descending: Vec<_> = tree.range(..3).rev().collect::<terrace::Result<_>>()?;
    /// assert_eq!(descending, [(2, 20), (1, 10)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(&self, bounds: impl RangeBounds<u64>) -> OdsRange<'_> {
        let front = match bounds.start_bound() {
            Bound::Unbounded => Some(0),
            Bound::Included(key) => Some(*key),
            Bound::Excluded(key) => key.checked_add(1),
        };
        let back = match bounds.end_bound() {
            Bound::Unbounded => Some(OdsTree::MAX_KEY),
            Bound::Included(key) => Some((*key).min(OdsTree::MAX_KEY)),
            Bound::Excluded(key) => key.checked_sub(1),
        };
        let left = front.zip(back).filter(|(front, back)| front <= back);
        OdsRange(Ends::new(Unread { tree: &self.tree, left }))
    }

    /// Fills the tree, which must be empty, from entries in ascending order; how many there were.
    /// Each node is written once, at about 70 %. All or nothing: a cut before the return leaves
    /// it empty.
    ///
    /// # Errors
    ///
    /// `Invalid` when the tree is not empty or a key does not ascend; otherwise as
    /// [`OdsTree::insert`].
    pub fn bulk_load(&mut self, entries: impl IntoIterator<Item = (u64, u64)>) -> Result<u64> {
        let mut last = None;
        let slots = entries.into_iter().map(|(key, value)| {
            if let Some(last) = last.filter(|last| *last >= key) {
                return Err(Error::invalid(format!(
                    "a bulk load takes ascending keys: {key} comes after {last}"
                )));
            }
            last = Some(key);
            Ok(Slot { id: OdsTree::word(key)?, other: value })
        });
        self.tree.load(slots)
    }

    /// Frees nodes that a power cut left taken and that nothing leads to: at most one for each
    /// split that was under way, and those of a bulk load. How many there were. Reads the whole
    /// tree; it works as well without.
    ///
    /// # Errors
    ///
    /// `Corrupt` when a pool entry is damaged; otherwise an I/O error.
    pub fn reclaim(&mut self) -> Result<u64> {
        Ok(self.tree.scan()?.1)
    }

    /// What the tree has done and what it takes.
    pub fn stats(&self) -> Stats {
        self.tree.stats()
    }

    /// How many nodes the tree has. Reads one word of each.
    pub fn nodes(&mut self) -> u64 {
        self.tree.count_nodes()
    }
}

/// Entries of a range of an [`OdsTree`], both ways. After an error it ends.
#[derive(Debug)]
pub struct OdsRange<'t>(Ends<Unread<'t>>);

#[derive(Debug)]
struct Unread<'t> {
    tree: &'t Tree<Fixed>,
    /// The keys that neither end has read yet, both included.
    left: Option<(u64, u64)>,
}

/// Keys and values, ascending.
type Entries = VecDeque<(u64, u64)>;

impl Unread<'_> {
    /// The leaf of a key, as far as it is left: its entries, and the keys it is about.
    fn read(&self, key: u64, left: (u64, u64)) -> Result<(Entries, (u64, u64))> {
        let chunk = self.tree.chunk(key + 1)?;
        let from = chunk.low.saturating_sub(1).max(left.0);
        // A leaf's keys end before the next one's; zero stands for no next one.
        let to = chunk.high.checked_sub(2).unwrap_or(OdsTree::MAX_KEY).min(left.1);
        let entries = chunk.slots.into_iter().map(|slot| (slot.id - 1, slot.other));
        Ok((entries.filter(|(key, _)| (from..=to).contains(key)).collect(), (from, to)))
    }
}

impl Rest for Unread<'_> {
    type Entry = (u64, u64);

    fn read_front(&mut self) -> Result<Option<Entries>> {
        let Some(left) = self.left.take() else { return Ok(None) };
        let (entries, (_, to)) = self.read(left.0, left)?;
        self.left = (to < left.1).then(|| (to + 1, left.1));
        Ok(Some(entries))
    }

    fn read_back(&mut self) -> Result<Option<Entries>> {
        let Some(left) = self.left.take() else { return Ok(None) };
        let (entries, (from, _)) = self.read(left.1, left)?;
        self.left = (from > left.0).then(|| (left.0, from - 1));
        Ok(Some(entries))
    }
}

impl Iterator for OdsRange<'_> {
    type Item = Result<(u64, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl DoubleEndedIterator for OdsRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}
