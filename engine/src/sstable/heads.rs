//! Heads: the first eight bytes of keys behind what they all begin with, as numbers that ascend as
//! the keys do. A search over them compares eight at once.
//!
//! Heads stand in *nodes* of eight. The last node is filled up with [`PADDING`], which no search
//! counts. With more than one node, a *root* holds the first head of each, filled up to a whole
//! node in the same way. A root of more than 16 heads is halved until 16 are left. So a look-up in
//! a block of usual size compares 16 heads, and then 8.
//!
//! The search is chosen when the first one runs, by what the processor has. All of them answer
//! alike, for any bytes (`heads/tests.rs`).

mod lanes;
#[cfg(test)]
mod tests;

use crate::base::record::common;
use lanes::chosen;

#[cfg(any(test, feature = "bench"))]
pub(crate) use lanes::Lanes;

/// Heads in a node.
pub(super) const FAN_OUT: usize = 8;

/// Bytes of the heads of a node.
pub(super) const NODE: usize = 8 * FAN_OUT;

/// Fills up a node. It is the greatest head, so none that is sought is greater.
pub(super) const PADDING: u64 = u64::MAX;

/// A root of at most this many heads is searched without halving it.
const ROOT: usize = 2 * FAN_OUT;

/// The head of a key, from what follows the common bytes. A shorter rest is filled up with zeros:
/// of two keys in order, the heads are in order, and may be equal.
#[inline]
pub(super) fn head(rest: &[u8]) -> u64 {
    if let Some(first) = rest.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    rest.iter().enumerate().fold(0, |head, (n, byte)| head | u64::from(*byte) << (56 - 8 * n))
}

/// How many nodes hold this many heads.
pub(super) fn nodes_for(heads: usize) -> usize {
    heads.div_ceil(FAN_OUT)
}

/// How many heads the root over this many nodes has, filled up.
pub(super) fn roots_for(nodes: usize) -> usize {
    if nodes > 1 { nodes.next_multiple_of(FAN_OUT) } else { 0 }
}

/// Nodes and their root, as bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads<'a> {
    /// The root; empty with one node.
    pub(super) root: &'a [[u8; 8]],
    /// The nodes. Each begins with its heads, and may hold more.
    pub(super) nodes: &'a [u8],
    /// Bytes from one node to the next.
    pub(super) stride: usize,
}

impl Heads<'_> {
    /// How many heads are smaller than `sought`. `None` if the bytes are not those of a tree.
    #[inline]
    pub(super) fn lower_bound(self, sought: u64) -> Option<usize> {
        chosen().lower_bound(self, sought)
    }

    /// How many heads are smaller than `sought` or equal to it, of `len` heads.
    pub(super) fn upper_bound(self, sought: u64, len: usize) -> Option<usize> {
        match sought.checked_add(1) {
            Some(next) => self.lower_bound(next),
            None => Some(len),
        }
    }

    /// The search, by a comparison of one node.
    #[inline(always)]
    fn search(self, sought: u64, count: impl Fn(&[u8; NODE]) -> usize) -> Option<usize> {
        let mut root = self.root;
        let mut passed = 0;
        while root.len() > ROOT {
            let half = (root.len() / 2).next_multiple_of(FAN_OUT);
            if u64::from_le_bytes(root[half]) < sought {
                passed += half;
                root = &root[half..];
            } else {
                root = &root[..half];
            }
        }
        for node in root.as_flattened().as_chunks().0 {
            passed += count(node);
        }
        let node = passed.saturating_sub(1);
        let heads = self.nodes.get(node * self.stride..)?.first_chunk()?;
        Some(node * FAN_OUT + count(heads))
    }
}

/// Heads of ascending keys that lie elsewhere.
#[derive(Debug, Default)]
pub(crate) struct OwnedHeads {
    /// What all keys begin with.
    prefix: Vec<u8>,
    root: Vec<[u8; 8]>,
    nodes: Vec<u8>,
    len: usize,
}

impl OwnedHeads {
    /// The heads of keys, which ascend. Of others no search finds anything in particular.
    pub(crate) fn of<'a>(keys: impl DoubleEndedIterator<Item = &'a [u8]> + Clone) -> OwnedHeads {
        let (first, last) = (keys.clone().next(), keys.clone().next_back());
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let common = common(first, last);
        let mut owned = OwnedHeads { prefix: first[..common].to_vec(), ..OwnedHeads::default() };
        for key in keys {
            let head = head(key.get(common..).unwrap_or_default()).to_le_bytes();
            if owned.len.is_multiple_of(FAN_OUT) {
                owned.root.push(head);
            }
            owned.nodes.extend_from_slice(&head);
            owned.len += 1;
        }
        let nodes = nodes_for(owned.len);
        owned.nodes.resize(nodes * NODE, PADDING as u8);
        let padding = PADDING.to_le_bytes();
        owned.root.resize(roots_for(nodes), padding);
        owned
    }

    /// How many keys come before what is sought, which has the key `key`. `before` says it of the
    /// key of a number; only keys with the head of `key` are asked for.
    #[inline]
    pub(crate) fn partition_point(&self, key: &[u8], before: impl Fn(usize) -> bool) -> usize {
        let Some(rest) = self.rest_of(key) else {
            return if key < self.prefix.as_slice() { 0 } else { self.len };
        };
        let sought = head(rest);
        let heads = Heads { root: &self.root, nodes: &self.nodes, stride: NODE };
        // Without a key there is no node to search.
        let mut from = heads.lower_bound(sought).unwrap_or(0).min(self.len);
        if !self.has_head(from, sought) {
            return from;
        }
        let mut to = from + 1;
        if self.has_head(to, sought) {
            to = heads.upper_bound(sought, self.len).unwrap_or(self.len).min(self.len);
        }
        while from < to {
            let middle = from.midpoint(to);
            if before(middle) { from = middle + 1 } else { to = middle }
        }
        from
    }

    /// What follows the prefix in a key.
    ///
    /// Bug: a look-up among keys that begin differently took a microsecond longer. Cause: to
    /// compare an empty `Vec`, the C library loads from an address at which nothing is mapped, and
    /// leaves out all of the load; some processors go a long way round then. Fix: an empty prefix
    /// is not compared.
    #[inline]
    fn rest_of<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        if self.prefix.is_empty() { Some(key) } else { key.strip_prefix(self.prefix.as_slice()) }
    }

    fn has_head(&self, n: usize, sought: u64) -> bool {
        let head = self.nodes.as_chunks::<8>().0.get(n);
        n < self.len && head.is_some_and(|head| u64::from_le_bytes(*head) == sought)
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.prefix.len() + 8 * self.root.len() + self.nodes.len()
    }
}
