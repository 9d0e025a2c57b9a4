//! The nodes of trees: their memory, their locks, and what has become of them.
//!
//! The root: where it is and how high, in one word.

use std::sync::Arc;

use super::keys::{Keys, Place};
use super::node::{LEN_OF_CHUNK, Live, NODE, Node, NodeWriter, SLOTS, Slot, id_at, stamped};
use crate::base::error::{Error, Result};
use crate::base::memory::Holding;
use crate::base::options::Failpoint;
use crate::memtable::{Held, Records as _, Restart, Version, VersionLock};
use crate::os::sync::optimistic::step;
use crate::os::sync::shared::OnceLock;
use crate::pm::alloc::ObjectPool;
use crate::pm::{Region, Span};

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
