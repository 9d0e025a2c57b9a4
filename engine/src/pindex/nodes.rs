//! The nodes of trees: their memory, their locks, and what has become of them.
//!
//! The root: where it is and how high, in one word.

use std::sync::Arc;

use super::keys::{Keys, Place};
use super::node::{LEN_OF_CHUNK, Live, NODE, Node, NodeWriter, SLOTS, Slot, id_at, stamped};
use crate::base::error::{Error, Result};
use crate::base::memory::Holding;
use crate::base::options::Failpoint;
use crate::base::record::{Lsn, put_u64};
use crate::memtable::{Held, Records as _, Restart, Version, VersionLock};
use crate::mvcc::defer;
use crate::os::sync::optimistic::step;
use crate::os::sync::shared::OnceLock;
use crate::pm::alloc::{ObjectPool, Segments};
use crate::pm::{LINE, Region, Span};

#[cfg(test)]
use crate::os::sync::atomic::{AtomicU64, Ordering};

/// Why an attempt ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another thread changed what was read: begin again.
    Restart,
    /// It cannot be done.
    Failed(Error),
}

impl From<Restart> for Stop {
    fn from(_: Restart) -> Stop {
        Stop::Restart
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// What an attempt gives.
pub(crate) type Attempt<T> = std::result::Result<T, Stop>;

/// What trees have done since they were opened.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) splits: AtomicU64,
    pub(crate) unlinks: AtomicU64,
    /// Nodes in which something of a cut was cleared on first touch.
    pub(crate) repairs: AtomicU64,
}

/// The nodes of all trees of a region.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) region: Arc<Region>,
    pub(crate) pool: ObjectPool,
    pub(crate) keys: Keys,
    /// The number of this opening: bitmaps of others are stale.
    pub(crate) epoch: u32,
    #[cfg(test)]
    pub(crate) counts: Counts,
    /// By place in the region, made when first touched.
    locks: Box<[OnceLock<Chunk>]>,
}

/// The locks of nodes next to each other. They stay for as long as the tree.
#[derive(Debug)]
struct Chunk {
    locks: Box<[VersionLock]>,
    _held: Holding,
}

/// What a node begins with; a leaf has no leftmost child.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeHead {
    pub(crate) sibling: u64,
    pub(crate) low: u64,
    pub(crate) leftmost: u64,
}

impl Nodes {
    /// Those of a region that may grow to `greatest_len` bytes.
    pub(crate) fn new(
        region: &Arc<Region>,
        pool: ObjectPool,
        keys: Keys,
        epoch: u32,
        greatest_len: u64,
    ) -> Nodes {
        let chunks = greatest_len / NODE / LEN_OF_CHUNK + 1;
        Nodes {
            region: Arc::clone(region),
            pool,
            keys,
            epoch,
            #[cfg(test)]
            counts: Counts::default(),
            locks: (0..chunks).map(|_| OnceLock::new()).collect(),
        }
    }

    pub(crate) fn node(&self, at: u64) -> Node<'_> {
        Node { region: &self.region, at }
    }

    pub(crate) fn writer(&self) -> NodeWriter<'_> {
        NodeWriter::new(&self.region)
    }

    /// The lock of the node at `at`. It outlives the node: a thread that finds the next node there
    /// finds a later version.
    pub(crate) fn lock(&self, at: u64) -> &VersionLock {
        let number = at / NODE;
        let make = || {
            let bytes = LEN_OF_CHUNK * size_of::<VersionLock>() as u64;
            let locks = (0..LEN_OF_CHUNK).map(|_| VersionLock::default()).collect();
            Chunk { locks, _held: self.region.indexes().hold(bytes) }
        };
        let chunk = self.locks[(number / LEN_OF_CHUNK) as usize].get_or_init(make);
        &chunk.locks[(number % LEN_OF_CHUNK) as usize]
    }

    /// Compares the key of a node's slot with a key.
    pub(crate) fn compare(
        &self,
        node: Node<'_>,
        slot: Slot,
        sought: Place<'_>,
    ) -> std::cmp::Ordering {
        match node.is_leaf() {
            true => self.keys.seek_leaf(slot, sought),
            false => self.keys.seek(slot.other, sought),
        }
    }

    /// Compares the keys of two slots of a node.
    pub(crate) fn order(&self, node: Node<'_>, a: Slot, b: Slot) -> std::cmp::Ordering {
        match node.is_leaf() {
            true => self.keys.slots(a, b),
            false => self.keys.bounds(a.other, b.other),
        }
    }

    /// Which slots of a node are live. The first caller of this opening works it out, and begins
    /// again.
    pub(crate) fn live(&self, node: Node<'_>, version: Version) -> Attempt<Live> {
        if let Some(live) = node.live(self.epoch) {
            return Ok(live);
        }
        let held = self.lock(node.at).upgrade(version)?;
        self.rebuild(node, &held)?;
        Err(Stop::Restart)
    }

    /// The same for the holder of the node's lock.
    pub(crate) fn live_held(&self, node: Node<'_>, held: &Held<'_>) -> Result<Live> {
        node.live(self.epoch).map_or_else(|| self.rebuild(node, held), Ok)
    }

    /// Makes durable what is found of a node. A process that was killed may have left its last
    /// stores in the caches, where they are read, and where a power cut still takes them.
    pub(crate) fn persist_found(&self, node: Node<'_>) {
        if self.region.has(Failpoint::TrustCaches) {
            return;
        }
        let mut writer = self.writer();
        writer.also(self.region.rewrite(Span { at: node.at, len: NODE }));
        writer.fence();
    }

    /// Works out which slots are live (node invariant 2), and clears what an operation that was
    /// cut short has left in the others (3): nothing, as a rule.
    ///
    /// # Errors
    ///
    /// `Corrupt` when keys could not be read: nothing was cleared.
    fn rebuild(&self, node: Node<'_>, _held: &Held<'_>) -> Result<Live> {
        self.persist_found(node);
        let high = match node.sibling() {
            0 => 0,
            sibling => self.node(sibling).low(),
        };
        let (mut live, mut holes) = (Live::default(), Live::default());
        let (mut last_id, mut last) = (node.leftmost(), None);
        for at in 0..SLOTS {
            let slot = node.slot(at);
            if slot.id == 0 {
                continue;
            }
            // A slot that repeats an identity may have the other word of another one.
            let ascends = |last: Slot| self.order(node, slot, last).is_gt();
            let ours = || high == 0 || self.compare(node, slot, self.keys.sought(high)).is_lt();
            if slot.id != last_id && last.is_none_or(ascends) && ours() {
                live = live.with(at);
                (last_id, last) = (slot.id, Some(slot));
            } else {
                holes = holes.with(at);
            }
        }
        self.keys.records.sound()?;
        if !holes.is_empty() {
            self.clear(node, holes);
            #[cfg(test)]
            self.counts.repairs.fetch_add(1, Ordering::Relaxed);
        }
        self.set_live(node, live);
        Ok(live)
    }

    /// Clears holes, in order before what is stored next.
    pub(crate) fn clear(&self, node: Node<'_>, holes: Live) {
        let mut writer = self.writer();
        for slot in holes.slots().filter(|slot| node.slot(*slot).id != 0) {
            writer.set(node.at + id_at(slot), 0);
        }
        writer.fence();
    }

    /// Notes which slots are live. The word means nothing after a restart: it is not flushed.
    pub(crate) fn set_live(&self, node: Node<'_>, live: Live) {
        step();
        drop(self.region.store_word(node.at + Node::BITMAP, stamped(live, self.epoch)));
    }

    /// Writes a node that no other thread can reach yet, with its pool entry, to be made durable by
    /// the writer. The slots are what is live.
    pub(crate) fn write(
        &self,
        writer: &mut NodeWriter<'_>,
        at: u64,
        NodeHead { sibling, low, leftmost }: NodeHead,
        slots: &[(usize, Slot)],
    ) -> Result<()> {
        let mut words = [Slot::default(); SLOTS];
        let mut live = Live::default();
        for (slot, content) in slots {
            words[*slot] = *content;
            live = live.with(*slot);
        }
        writer.set(at + Node::SIBLING, sibling);
        writer.set(at + Node::LOW, low);
        writer.set(at + Node::LEFTMOST, leftmost);
        writer.set(at + Node::BITMAP, stamped(live, self.epoch));
        for (slot, content) in words.iter().enumerate() {
            writer.set(at + id_at(slot), content.id);
            writer.set(at + id_at(slot) + 8, content.other);
        }
        writer.also(self.pool.commit(at)?);
        Ok(())
    }
}

/// The place of a tree's root, in a word of the region.
#[derive(Debug)]
pub(crate) struct Root {
    /// Offset of the word.
    pub(crate) at: u64,
    /// Held while a new root is put on top.
    pub(crate) lock: VersionLock,
}

/// Nodes lie at multiples of 64: the height has the low bits.
const HEIGHT: u64 = 63;

impl Root {
    pub(crate) fn new(at: u64) -> Root {
        Root { at, lock: VersionLock::default() }
    }

    /// Offset of the root, and its level.
    pub(crate) fn get(&self, region: &Region) -> (u64, u32) {
        let word = region.word(self.at);
        (word & !HEIGHT, (word & HEIGHT) as u32)
    }

    /// The word.
    pub(crate) fn encode(node: u64, height: u32) -> u64 {
        debug_assert!(node & HEIGHT == 0 && u64::from(height) <= HEIGHT, "{node}, {height}");
        node | u64::from(height)
    }
}

// The bounds of nodes that do not fit a word, in persistent memory.
//
// A bound takes an object of the smallest of sixteen or so sizes that holds it, from a pool for
// each. Like nodes they are taken without a log. A bound is durable with its pool entry before a
// node has it, and a scan finds what a cut leaves in between.
//
// Thread safety: every method takes `&self`. A bound is never written after it was linked, and
// its memory is used again only when every epoch has ended that began before it was released.

/// Bytes before a bound's key: its length, its sequence number.
const HEADER: u64 = 16;

/// The first of the heap's pools among those of a region, one for each size.
const FIRST_POOL: u32 = 2;

/// Bounds in a region, by offset.
#[derive(Debug)]
pub(crate) struct Heap {
    region: Arc<Region>,
    /// By size, the smallest first.
    pools: Arc<[(u32, ObjectPool)]>,
}

/// The sizes of objects: 1, 2, 3, 4, 6, 8, 12… lines, as far as two fit in a segment.
fn sizes(segment: u64) -> impl Iterator<Item = u32> {
    let most = (segment - 4 * LINE) / 2;
    let sizes = (0..).flat_map(|n: u32| [LINE << n, (LINE << n) / 2 * 3]);
    // One line and a half is none.
    let sizes = sizes.filter(|size| size.is_multiple_of(LINE));
    sizes.take_while(move |size| *size <= most).map(|size| size as u32)
}

/// The pool of bounds with keys of so many bytes.
fn pool_for(pools: &[(u32, ObjectPool)], len: u64) -> Option<&ObjectPool> {
    let fits = |(size, _): &&(u32, ObjectPool)| HEADER + len <= u64::from(*size);
    pools.iter().find(fits).map(|(_, pool)| pool)
}

impl Heap {
    /// The heap in a region's segments.
    pub(crate) fn open(region: &Arc<Region>, segments: &Arc<dyn Segments>) -> Heap {
        let open = |(number, size)| (size, ObjectPool::open(region, segments, number, size));
        let pools = (FIRST_POOL..).zip(sizes(segments.len())).map(open).collect();
        Heap { region: Arc::clone(region), pools }
    }

    /// Writes a bound, to be made durable by the writer. The caller links it after that.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn write(&self, writer: &mut NodeWriter<'_>, key: &[u8], seq: Lsn) -> Result<u64> {
        let len = key.len() as u64;
        let pool = pool_for(&self.pools, len).ok_or_else(|| {
            Error::invalid(format!("a bound of {len} bytes is too long for the persistent index"))
        })?;
        let mut bytes = Vec::with_capacity((HEADER + len) as usize);
        put_u64(&mut bytes, len);
        put_u64(&mut bytes, seq);
        bytes.extend_from_slice(key);
        let at = pool.get()?;
        let taken = pool.commit(at)?;
        writer.also(taken);
        writer.also(self.region.write(at, &bytes));
        Ok(at)
    }

    /// The bound at an offset that a tree holds: key and sequence number. The caller has pinned an
    /// epoch, or owns the tree.
    pub(crate) fn read(&self, at: u64) -> (&[u8], Lsn) {
        let len = self.region.word(at);
        debug_assert!(pool_for(&self.pools, len).is_some(), "offset {at} holds a bound");
        (self.region.bytes(at + HEADER, len), self.region.word(at + 8))
    }

    /// Frees a bound that nothing on the media refers to any more. On the media it is free at
    /// once; other threads get it when no reader can see it any more.
    pub(crate) fn release(&self, at: u64) -> Result<()> {
        let len = self.region.word(at);
        let Some(pool) = pool_for(&self.pools, len) else { unreachable!("it was written here") };
        pool.free(at)?;
        let pools = Arc::clone(&self.pools);
        defer(move || {
            if let Some(pool) = pool_for(&pools, len) {
                pool.put_back(at);
            }
        });
        Ok(())
    }

    /// Releases every bound that `is_reached` does not know; how many. No other thread may use the
    /// heap meanwhile.
    pub(crate) fn scan(&self, is_reached: impl Fn(u64) -> bool) -> Result<u64> {
        let scans = self.pools.iter().map(|(_, pool)| Ok(pool.scan(&is_reached)?.leaked));
        scans.sum()
    }

    /// How many bytes the pools' segments take.
    pub(crate) fn bytes(&self) -> u64 {
        self.pools.iter().map(|(_, pool)| pool.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_a_half_at_most() {
        let sizes: Vec<u32> = sizes(64 * 1024).map(|size| size / LINE as u32).collect();
        assert_eq!(sizes, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384]);
    }
}
