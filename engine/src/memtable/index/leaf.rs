//! Leaves: digests and offsets in the order of their records' keys.
//!
//! Thread safety: reads are optimistic. A thread that changes a leaf holds its lock.
//!
//! Invariants:
//!
//! 1. The first `len` entries ascend by (key, sequence number descending), without duplicates.
//! 2. `digests[i]` is the digest of the key at `offsets[i]` (`prefix.rs`, invariant 2).
//! 3. A record is read only after a version check behind the load of its offset. Then the offset
//!    was in the leaf within the caller's epoch, and the record is still there. The entries from
//!    `len` on may hold offsets of records that are long gone.

use super::heap::Heap;
use super::lock::{
    Held, Optimistic, Version, VersionLock, Word, close_gap, count_below, open_gap, words,
};
use super::prefix::Separator;
use super::prefix::{INLINE, Place, Prefix};
use super::{Records, Sought};
use crate::base::record::{Lsn, common, slice};
use crate::os::{LINE, prefetch_lines};

/// A split leaves halves whose digests agree in this many bits; from then on they tell too few
/// keys apart, and the prefix grows.
const DULL: u32 = 32;

/// Room for `N` versions.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Leaf<const N: usize> {
    pub(super) lock: VersionLock,
    len: Word,
    prefix: Prefix,
    digests: [Word; N],
    offsets: [Word; N],
}

/// What a lookup finds in a leaf.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This version.
    Version(Lsn, u64),
    /// The key has no such version.
    Nothing,
    /// Nothing here, but the place is behind the leaf's last entry: the next leaf may know.
    Beyond,
}

impl<const N: usize> Default for Leaf<N> {
    fn default() -> Leaf<N> {
        Leaf {
            lock: VersionLock::default(),
            len: Word::default(),
            prefix: Prefix::default(),
            digests: words(),
            offsets: words(),
        }
    }
}

impl<const N: usize> Leaf<N> {
    /// How many entries it holds.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// Whether it has no room.
    pub(super) fn is_full(&self) -> bool {
        self.len() == N
    }

    /// Hints that a leaf at this address will be searched.
    #[inline(always)]
    pub(super) fn prefetch(leaf: *const Leaf<N>) {
        prefetch_lines(leaf.cast(), LINE + size_of::<[Word; N]>());
    }

    /// The offset of entry `at`, if there is one; it is safe to follow (invariant 3).
    #[inline(always)]
    pub(super) fn offset(&self, at: usize, version: Version) -> Optimistic<Option<u64>> {
        let offset = (at < self.len()).then(|| self.offsets[at].get());
        self.lock.check(version)?;
        Ok(offset)
    }

    /// Hints that the record of entry `at` will be read, if there is one.
    #[inline(always)]
    pub(super) fn prefetch_record(&self, at: usize, records: &impl Records) {
        if let Some(offset) = self.offsets.get(at) {
            records.prefetch(offset.get());
        }
    }

    /// The first entry at or behind `sought`. Holds if the version does.
    #[inline(always)]
    pub(super) fn search(
        &self,
        sought: Sought<'_>,
        version: Version,
        records: &impl Records,
    ) -> Optimistic<usize> {
        let len = self.len();
        let digest = match self.prefix.place(sought.key, &self.lock, version)? {
            Place::Before => return Ok(0),
            Place::After => return Ok(len),
            Place::Within(digest) => digest,
        };
        let digests = &self.digests[..len];
        let mut first = count_below(digests, digest);
        let mut end = first;
        while end < len && digests[end].get() == digest {
            end += 1;
        }
        while first < end {
            let middle = first.midpoint(end);
            let at = self.offsets[middle].get();
            self.lock.check(version)?;
            if sought.order_of(records.locate(at)).is_lt() {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(first)
    }

    /// The newest version of the key that is not newer than `sought`.
    #[inline(always)]
    pub(super) fn find(
        &self,
        sought: Sought<'_>,
        version: Version,
        records: &impl Records,
    ) -> Optimistic<Found> {
        let at = self.search(sought, version, records)?;
        let Some(offset) = self.offset(at, version)? else { return Ok(Found::Beyond) };
        let (key, seq) = records.locate(offset);
        Ok(if key == sought.key { Found::Version(seq, offset) } else { Found::Nothing })
    }

    /// Whether entry `at` is the version `sought`. Holds if the version does.
    #[inline(always)]
    pub(super) fn is_at(
        &self,
        at: usize,
        sought: Sought<'_>,
        version: Version,
        records: &impl Records,
    ) -> Optimistic<bool> {
        if at >= self.len() {
            return Ok(false);
        }
        match self.prefix.place(sought.key, &self.lock, version)? {
            Place::Within(digest) if self.digests[at].get() == digest => {}
            _ => return Ok(false),
        }
        let Some(offset) = self.offset(at, version)? else { return Ok(false) };
        Ok(sought.order_of(records.locate(offset)).is_eq())
    }

    /// Puts a version at entry `at`, where a search for it has led. There is room.
    pub(super) fn insert(
        &self,
        held: &Held<'_>,
        at: usize,
        key: &[u8],
        offset: u64,
        heap: Heap<'_>,
    ) {
        let len = self.len();
        debug_assert!(at <= len && len < N, "invariant 1: room for entry {at} of {len}");
        let digest = self.admit(held, key, heap);
        open_gap(&self.digests, at, len);
        open_gap(&self.offsets, at, len);
        self.digests[at].set(digest);
        self.offsets[at].set(offset);
        self.len.set(len as u64 + 1);
    }

    /// Makes the prefix one of `key` too; the digest of `key`.
    fn admit(&self, held: &Held<'_>, key: &[u8], heap: Heap<'_>) -> u64 {
        let len = self.len();
        if len == 0 {
            self.prefix.set(&key[..key.len().min(INLINE)], heap);
        }
        if let Ok(Place::Within(digest)) = self.prefix.place(key, &self.lock, held.version()) {
            return digest;
        }
        let shared = common(&self.prefix.bytes(), key);
        self.prefix.shrink(shared, &self.digests[..len], heap);
        slice(key, shared)
    }

    /// Puts another offset in place of that of entry `at`.
    pub(super) fn replace(&self, _: &Held<'_>, at: usize, offset: u64) {
        self.offsets[at].set(offset);
    }

    /// Takes entry `at` out; its offset.
    pub(super) fn remove(&self, _: &Held<'_>, at: usize) -> u64 {
        let len = self.len();
        let offset = self.offsets[at].get();
        close_gap(&self.digests, at, len);
        close_gap(&self.offsets, at, len);
        self.len.set(len as u64 - 1);
        offset
    }

    /// Moves the upper half to a new leaf, or nothing if `sought` belongs behind the last entry:
    /// keys that come in order then leave full leaves behind. The leaf is full.
    pub(super) fn split(
        &self,
        held: &Held<'_>,
        sought: Sought<'_>,
        records: &impl Records,
        heap: Heap<'_>,
    ) -> Optimistic<(Separator, Box<Leaf<N>>)> {
        let len = self.len();
        let behind = self.search(sought, held.version(), records)? == len;
        let middle = if behind { len } else { len / 2 };
        let right: Box<Leaf<N>> = heap.node();
        right.prefix.set(&self.prefix.bytes(), heap);
        for i in middle..len {
            right.digests[i - middle].set(self.digests[i].get());
            right.offsets[i - middle].set(self.offsets[i].get());
        }
        let last = records.locate(self.offsets[middle - 1].get());
        let next = match self.offsets.get(middle) {
            Some(offset) => records.locate(offset.get()),
            None => (sought.key, sought.seq),
        };
        let separator = Separator::between(last, next);
        right.len.set((len - middle) as u64);
        self.len.set(middle as u64);
        for half in [self, &right] {
            half.sharpen(records, heap);
        }
        Ok((separator, right))
    }

    /// Fills an empty leaf, which no other thread sees, with the records at these offsets. They are
    /// sorted and fit.
    pub(super) fn fill(&self, offsets: &[u64], records: &impl Records, heap: Heap<'_>) {
        debug_assert!(offsets.len() <= N, "room for {} of {N} entries", offsets.len());
        offsets.iter().for_each(|at| records.prefetch(*at));
        let key = |at: u64| records.locate(at).0;
        let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return };
        let shared = common(key(*first), key(*last));
        self.prefix.set(&key(*first)[..shared], heap);
        for (i, at) in offsets.iter().enumerate() {
            self.digests[i].set(slice(key(*at), shared));
            self.offsets[i].set(*at);
        }
        self.len.set(offsets.len() as u64);
    }

    /// Lets the prefix grow as far as the keys agree, if digests have become dull.
    fn sharpen(&self, records: &impl Records, heap: Heap<'_>) {
        let len = self.len();
        let Some(last) = len.checked_sub(1) else { return };
        if (self.digests[0].get() ^ self.digests[last].get()).leading_zeros() < DULL {
            return;
        }
        let key = |i: usize| records.locate(self.offsets[i].get()).0;
        // Keys are sorted: what the first and the last share, all share.
        let shared = common(key(0), key(last));
        if shared == self.prefix.len() {
            return;
        }
        (0..len).for_each(|i| records.prefetch(self.offsets[i].get()));
        self.prefix.set(&key(0)[..shared], heap);
        for (i, digest) in self.digests[..len].iter().enumerate() {
            digest.set(slice(key(i), shared));
        }
    }

    /// Moves all entries of the next leaf here. Its lock is held too. They fit.
    pub(super) fn absorb(
        &self,
        _: &Held<'_>,
        right: &Leaf<N>,
        records: &impl Records,
        heap: Heap<'_>,
    ) {
        let (len, more) = (self.len(), right.len());
        debug_assert!(len + more <= N, "invariant 1: room for {more} behind {len}");
        let prefix = self.prefix.bytes();
        // An empty leaf may have any prefix.
        let shared = if len == 0 { 0 } else { common(&prefix, &right.prefix.bytes()) };
        if shared < prefix.len() {
            self.prefix.shrink(shared, &self.digests[..len], heap);
        }
        for i in 0..more {
            let at = right.offsets[i].get();
            self.digests[len + i].set(slice(records.locate(at).0, shared));
            self.offsets[len + i].set(at);
        }
        self.len.set((len + more) as u64);
    }

    /// Gives the memory back that lies outside the node: it is out of the tree.
    pub(super) fn retire(&self, heap: Heap<'_>) {
        self.prefix.retire(heap);
    }
}
