//! The ordered index over records: (key ascending, sequence descending) → offset in the region.
//!
//! It is a B+-tree that holds no keys. A leaf entry is a digest and the record's offset. The digest
//! is eight bytes of the key, behind the prefix that the keys of the leaf share. The record is read
//! only where digests are equal. Inner nodes hold the shortest separators; most of them are a
//! digest and nothing more. Versions of a key are neighbours.
//!
//! Sources: optimistic lock coupling (Leis et al., "The ART of practical synchronization", 2016;
//! LeanStore), digests and prefix truncation (Graefe, "Modern B-tree techniques", 2011), free at
//! empty (Johnson and Shasha, 1989), with thin neighbours merged. One thing differs: leaves are not
//! chained. A cursor keeps the path to its leaf, with versions, and moves on to the neighbour from
//! there. That is as fast, and both directions, splits and removals stay simple.
//!
//! Thread safety: any number of threads insert, remove and read at once. Readers write nothing that
//! is shared. Writers lock the nodes that they change, and never wait for a second lock while they
//! hold one. If they do not get it at once, they release all locks and begin again.
//!
//! Invariants (those of one node: `leaf.rs`, `inner.rs`, `prefix.rs`):
//!
//! 1. A node's range of places (see `inner.rs`, 1) shrinks only by a split, under its own lock. It
//!    grows without its lock when an empty neighbour goes, which is harmless. Entries move only
//!    from a node to the one before it, under the locks of both and of their parent. Then the
//!    emptied node goes.
//! 2. Nothing that is out of the tree is freed, and the caller reuses no removed record, within the
//!    epoch of a reader that may have seen it. Callers pin across every use of what they found.
//! 3. No node keeps any part of a record but its offset, and that only until it is removed. All
//!    other bytes are copies.
//! 4. The bytes that are counted are those in the tree, exactly: each node and each copy of bytes
//!    from when it is made until it is retired.
//!
//! Where the index finds the keys that it does not keep.

mod cursor;
mod heap;
mod inner;
mod leaf;
mod lock;
mod prefix;
mod shape;

use std::cmp;
use std::sync::Arc;

use crossbeam_epoch::Guard;

use heap::{Heap, Taken};
use inner::{Child, Contents, Inner, Node, Owned};
use leaf::{Found, Leaf};
use lock::Optimistic;

use crate::base::error::Result;
use crate::base::memory::Gauge;
use crate::base::record::Lsn;
use crate::os::sync::optimistic::{AtomicUsize, Ordering, Patience};

pub(crate) use cursor::IndexCursor;
pub(crate) use lock::{Held, Restart, Version, VersionLock};
pub(crate) use prefix::Separator;

/// Entries in a leaf: the hints for its digests are in flight together, and its entries move fast
/// enough.
pub(crate) const LEAF_LEN: usize = 64;

/// Separators in an inner node.
pub(crate) const INNER_LEN: usize = 64;

/// A concurrent ordered index of records.
pub(crate) struct Index<R, const L: usize = LEAF_LEN, const I: usize = INNER_LEN> {
    records: Arc<R>,
    /// Stays in its place for good.
    root: Box<Inner<L, I>>,
    counts: Counts,
}

/// How full a node of so much room may be to be thin: it is merged with its neighbour if both
/// fit in one and leave room.
const fn thin(room: usize) -> usize {
    if room < 8 { 1 } else { room / 4 }
}

/// Whether a node with room for `room` entries has a quarter left beside `entries` of them.
const fn roomy(entries: usize, room: usize) -> bool {
    entries <= room - room / 4
}

/// What every insert writes; on cache lines of its own, for every operation reads what is next to
/// it.
#[repr(align(128))]
struct Counts {
    len: AtomicUsize,
    memory: Taken,
}

impl<R: Records, const L: usize, const I: usize> Index<R, L, I> {
    /// An empty index of these records.
    pub(crate) fn new(records: Arc<R>) -> Index<R, L, I> {
        let memory = Taken::among(records.gauge());
        let (counts, guard) = (Counts { len: AtomicUsize::new(0), memory }, crossbeam_epoch::pin());
        let heap = Heap::new(&guard, &counts.memory);
        let root: Box<Inner<L, I>> = heap.node();
        let children = vec![Child::leaf(heap.node::<Leaf<L>>())];
        root.fill(&Contents { separators: Vec::new(), children }, heap);
        Index { records, root, counts }
    }

    /// Adds a version. The same key and sequence number a second time replaces the offset.
    pub(crate) fn insert(&self, key: &[u8], seq: Lsn, at: u64) {
        let guard = crossbeam_epoch::pin();
        self.persist(|| self.try_insert(Sought { key, seq }, at, &guard));
    }

    /// Removes a version; its offset, if it was there.
    pub(crate) fn remove(&self, key: &[u8], seq: Lsn) -> Option<u64> {
        let guard = crossbeam_epoch::pin();
        let sought = Sought { key, seq };
        let (removed, thin) = self.persist(|| self.try_remove(sought, &guard));
        if thin {
            self.tidy(sought, &guard);
        }
        removed
    }

    /// Has a version that is there point to `to` instead of `from`, where its record has been
    /// copied to; whether it was there.
    pub(crate) fn relocate(&self, key: &[u8], seq: Lsn, from: u64, to: u64) -> bool {
        let guard = crossbeam_epoch::pin();
        self.persist(|| self.try_relocate(Sought { key, seq }, (from, to), &guard))
    }

    /// The newest version of `key` that is not newer than `at_most`: (sequence, offset).
    pub(crate) fn get(&self, key: &[u8], at_most: Lsn) -> Option<(Lsn, u64)> {
        let guard = crossbeam_epoch::pin();
        let sought = Sought { key, seq: at_most };
        let found = self.persist(|| {
            let (leaf, version) = self.descend(sought, &guard, |_, _, _| {})?;
            leaf.find(sought, version, &*self.records)
        });
        match found {
            Found::Version(seq, at) => Some((seq, at)),
            Found::Nothing => None,
            Found::Beyond => {
                let mut cursor = self.cursor();
                cursor.seek(key, at_most);
                cursor.version().filter(|(_, at)| self.records.locate(*at).0 == key)
            }
        }
    }

    /// How many versions it holds, roughly while others change it.
    pub(crate) fn len(&self) -> usize {
        self.counts.len.load(Ordering::Relaxed)
    }

    /// How many bytes it takes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.counts.memory.bytes()
    }

    /// How many bytes of them an index takes without any version.
    pub(crate) const fn least_memory() -> usize {
        size_of::<Inner<L, I>>() + size_of::<Leaf<L>>()
    }

    /// A cursor, not placed yet.
    pub(crate) fn cursor(&self) -> IndexCursor<'_, R, L, I> {
        IndexCursor::new(self)
    }

    /// Tries until it holds together.
    fn persist<T>(&self, attempt: impl Fn() -> Optimistic<T>) -> T {
        let mut patience = Patience::default();
        loop {
            if let Ok(value) = attempt() {
                return value;
            }
            patience.wait();
        }
    }

    /// Goes down to the leaf that `sought` belongs in, past the children that `visit` is told.
    #[inline(always)]
    fn descend<'g>(
        &'g self,
        sought: Sought<'_>,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g Inner<L, I>, Version, usize),
    ) -> Optimistic<(&'g Leaf<L>, Version)> {
        let mut inner = &*self.root;
        let mut version = inner.lock.read()?;
        loop {
            let at = inner.route(sought, version)?;
            visit(inner, version, at);
            // The version of the child is read before that of the parent is checked: so it is one
            // at which the child had the range that led here.
            match inner.child(at, version, guard)? {
                Node::Inner(below) => {
                    let below_version = below.lock.read()?;
                    inner.lock.check(version)?;
                    (inner, version) = (below, below_version);
                }
                Node::Leaf(leaf) => {
                    let leaf_version = leaf.lock.read()?;
                    inner.lock.check(version)?;
                    return Ok((leaf, leaf_version));
                }
            }
        }
    }

    fn try_insert(&self, sought: Sought<'_>, offset: u64, guard: &Guard) -> Optimistic<()> {
        let (leaf, version) = self.descend(sought, guard, |_, _, _| {})?;
        // Records are read before the lock is taken; taking it shows that nothing has changed.
        let at = leaf.search(sought, version, &*self.records)?;
        if leaf.is_at(at, sought, version, &*self.records)? {
            leaf.replace(&leaf.lock.upgrade(version)?, at, offset);
            return Ok(());
        }
        if leaf.is_full() {
            leaf.lock.check(version)?;
            self.make_room(sought, guard)?;
            return self.try_insert(sought, offset, guard);
        }
        let held = leaf.lock.upgrade(version)?;
        leaf.insert(&held, at, sought.key, offset, Heap::new(guard, &self.counts.memory));
        drop(held);
        self.counts.len.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn try_relocate(
        &self,
        sought: Sought<'_>,
        (from, to): (u64, u64),
        guard: &Guard,
    ) -> Optimistic<bool> {
        let (leaf, version) = self.descend(sought, guard, |_, _, _| {})?;
        let at = leaf.search(sought, version, &*self.records)?;
        let there = leaf.is_at(at, sought, version, &*self.records)?
            && leaf.offset(at, version)? == Some(from);
        if there {
            leaf.replace(&leaf.lock.upgrade(version)?, at, to);
        } else {
            leaf.lock.check(version)?;
        }
        Ok(there)
    }

    /// The offset, if the version was there, and whether the leaf is now worth a look: it is
    /// empty, or thin, and then not each time.
    fn try_remove(&self, sought: Sought<'_>, guard: &Guard) -> Optimistic<(Option<u64>, bool)> {
        let (leaf, version) = self.descend(sought, guard, |_, _, _| {})?;
        let at = leaf.search(sought, version, &*self.records)?;
        if !leaf.is_at(at, sought, version, &*self.records)? {
            leaf.lock.check(version)?;
            return Ok((None, false));
        }
        let held = leaf.lock.upgrade(version)?;
        let offset = leaf.remove(&held, at);
        self.counts.len.fetch_sub(1, Ordering::Relaxed);
        let len = leaf.len();
        Ok((Some(offset), len == 0 || len <= thin(L) && len.is_power_of_two()))
    }
}

impl<R, const L: usize, const I: usize> Index<R, L, I> {
    /// Frees all nodes below the root, whose links are left to be overwritten.
    fn take_apart(&mut self, guard: &Guard) {
        let heap = Heap::new(guard, &self.counts.memory);
        let mut owned = self.root.children();
        self.root.retire(heap);
        while let Some(child) = owned.pop() {
            // SAFETY: `&mut self` shows that no other thread has the tree; every node has one
            // link.
            match unsafe { child.own::<L, I>() } {
                Owned::Inner(mut inner) => {
                    owned.extend(inner.children());
                    inner.retire(heap);
                    heap.forget::<Inner<L, I>>();
                }
                Owned::Leaf(leaf) => {
                    leaf.retire(heap);
                    heap.forget::<Leaf<L>>();
                }
            }
        }
    }
}

impl<R, const L: usize, const I: usize> Drop for Index<R, L, I> {
    fn drop(&mut self) {
        self.take_apart(&crossbeam_epoch::pin());
        let left = self.counts.memory.bytes();
        debug_assert!(
            left == size_of::<Inner<L, I>>() || std::thread::panicking(),
            "invariant 4: {left} bytes are left beside nothing but the root"
        );
    }
}

impl<R: Records, const L: usize, const I: usize> std::fmt::Debug for Index<R, L, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("len", &self.len())
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}

/// Records by offset. A record stays as it is from before its offset is inserted until the epoch
/// in which it was removed is over.
pub(crate) trait Records {
    /// The key and the sequence number of the record at `at`.
    fn locate(&self, at: u64) -> (&[u8], Lsn);

    /// Hints that the record at `at`, which may be any number at all, will be read.
    fn prefetch(&self, at: u64);

    /// What counts the memory of all indexes over these records.
    fn gauge(&self) -> Arc<Gauge> {
        Arc::default()
    }

    /// Whether the record at `at` is what it was when it was written, where that can be in doubt.
    fn check(&self, _at: u64) -> Result<()> {
        Ok(())
    }

    /// Whether every record was that was looked at so far.
    ///
    /// # Errors
    ///
    /// `Corrupt`: nothing that was made of keys since counts.
    fn sound(&self) -> Result<()> {
        Ok(())
    }
}

impl<R: Records> Records for Arc<R> {
    fn locate(&self, at: u64) -> (&[u8], Lsn) {
        (**self).locate(at)
    }

    fn prefetch(&self, at: u64) {
        (**self).prefetch(at);
    }

    fn gauge(&self) -> Arc<Gauge> {
        (**self).gauge()
    }

    fn check(&self, at: u64) -> Result<()> {
        (**self).check(at)
    }

    fn sound(&self) -> Result<()> {
        (**self).sound()
    }
}

/// A place in the order of versions: by key, the newest version of a key first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sought<'a> {
    key: &'a [u8],
    seq: Lsn,
}

impl Sought<'_> {
    /// How the version (`key`, `seq`) stands to this place.
    #[inline(always)]
    fn order_of(&self, (key, seq): (&[u8], Lsn)) -> cmp::Ordering {
        key.cmp(self.key).then_with(|| self.seq.cmp(&seq))
    }
}

#[cfg(test)]
mod tests;
