//! Trees of versions in one region, one for each table: level 0's index in persistent memory.
//!
//! All of them take nodes and bounds from the same pools. What tells them apart is a *head* for
//! each, an object with the table's number and the word of the tree's root. The merged boundary is
//! one for all tables. The region is its owner's. It has the database's id, and the number of the
//! opening that used it last. So an opening recognises a forest that missed one.
//!
//! What the owner sees to, beyond what it does for each tree (`versions.rs`):
//!
//! 1. A tree is removed when no thread can find it any more, and nothing else uses it meanwhile.
//! 2. The boundary is raised after every record of every table up to there was inserted, or has
//!    lost its right to be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::keys::{Heap, Keys, Unread};
use super::node::{EPOCH, MAGIC, NODE, NODES, Shape, fixed_part};
use super::nodes::{NodeHead, Nodes, Root};
use super::seal::{self, ForestSeal};
use super::tree::Tree;
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::memory::Gauge;
use crate::base::progress::Meter;
use crate::base::record::{Lsn, TableId, checksum};
use crate::os::sync::locks::Mutex;
use crate::pm::alloc::{ObjectPool, Segments, Slices};
use crate::pm::{LINE, PAGE, PmCounts, Region, Span};

/// Bytes in a segment: twice what the longest bound takes, and more.
const SEGMENT: u64 = 256 << 10;

/// Segments that a new region has space for.
const FIRST_SEGMENTS: u64 = 4;

/// Offset of the word with the merged boundary.
const MERGED: u64 = 3 * LINE;

/// Offset of the word with how many segments were taken when the boundary was raised.
const TAKEN: u64 = MERGED + 8;

/// Offset of the owner's line: its id, and the number of the opening.
const OWNER: u64 = 4 * LINE;

/// Offset of the word that says that a tree is being removed.
const FELLING: u64 = 5 * LINE;

/// The pool of heads, behind those of entries.
const HEADS: u32 = 64;

/// Offset of the root's word in a head, behind the one that says whose it is.
const ROOT: u64 = 8;

/// Bytes of nodes and bounds for a record, as a rule.
const PER_RECORD: u64 = 64;

/// The trees of a database.
#[derive(Debug)]
pub(crate) struct Forest {
    nodes: Arc<Nodes>,
    heads: ObjectPool,
    segments: Arc<dyn Segments>,
    /// Trees that were found, until their tables ask for them.
    found: Mutex<BTreeMap<TableId, Tree>>,
    /// Heads of those that are to be removed.
    doomed: Mutex<Vec<u64>>,
    /// Held while some are.
    felling: Mutex<()>,
    /// Bytes that were held against its seal.
    checked: u64,
    /// Whether the opening that uses it has yet to take its seal away.
    is_sealed: bool,
}

/// The shape of a forest over `records` bytes of records: with the shortest ones, an entry and the
/// room around it take less than twice as much as the record.
fn shape(records: u64) -> Shape {
    Shape::for_size(PAGE + 2 * records.next_multiple_of(SEGMENT), SEGMENT)
}

/// The seal of the forest in a region, if it has one.
fn find_seal(region: &Region) -> Result<Option<ForestSeal>> {
    region.load(Span { at: 0, len: PAGE })?;
    ForestSeal::decode(region.bytes(0, PAGE), region.path())
}

/// The first word of a head.
fn word_of(table: TableId, head: u64) -> u64 {
    u64::from(table) << 32 | u64::from(checksum(&[head, u64::from(table)], b"head"))
}

impl Forest {
    /// Bytes of a new region, and of the longest that it grows to, for so many bytes of records.
    pub(crate) fn region_lens(records: u64) -> (u64, u64) {
        (PAGE + FIRST_SEGMENTS * SEGMENT, shape(records).region_len())
    }

    /// Whether a file that begins so is the index of this database, sound, damaged or half made.
    ///
    /// A damaged id is told from another one by how much of it is right: two ids that were drawn
    /// have no twelve bytes in common. A file that ends within the fixed part holds no index of any
    /// database; it is taken for this one's where it begins as an index does.
    pub(crate) fn is_of(page: &[u8], database_id: [u8; 16]) -> bool {
        const ENOUGH: usize = 12;
        let at = OWNER as usize;
        match page.get(at..at + 16) {
            Some(id) => {
                id.iter().zip(database_id).filter(|(found, wanted)| **found == *wanted).count()
                    >= ENOUGH
            }
            None => !page.is_empty() && page.starts_with(&MAGIC[..page.len().min(MAGIC.len())]),
        }
    }

    /// Makes one without trees in a region of zeros, for `records` that may take so many bytes.
    pub(crate) fn format(
        region: &Arc<Region>,
        (records, bytes): (&Arc<Region>, u64),
        owner: [u8; 16],
    ) -> Result<Forest> {
        Forest::format_as(region, records, shape(bytes), owner)
    }

    /// The same in segments of another length or number.
    pub(super) fn format_as(
        region: &Arc<Region>,
        records: &Arc<Region>,
        shape: Shape,
        owner: [u8; 16],
    ) -> Result<Forest> {
        let forest = Forest::of(region, shape, records, 1)?;
        region.persist([region.store_word(EPOCH, 1), region.write(OWNER, &owner)])?;
        // Last: it is a forest from here on.
        region.persist([region.write(0, &shape.encode())])?;
        Ok(forest)
    }

    /// Opens the one in a region, if it is `owner`'s and was used by its opening number `opening`;
    /// `None` if it is another one. One that was closed is read once, on so many threads, and keeps
    /// its seal until [`begin`](Self::begin); else it takes as long as there are segments and
    /// tables.
    pub(crate) fn open(
        region: &Arc<Region>,
        records: &Arc<Region>,
        (owner, opening): ([u8; 16], u64),
        reads: (usize, &Meter),
    ) -> Result<Option<Forest>> {
        let seal = find_seal(region)?;
        let shape = match Shape::decode(region.bytes(0, LINE), region.path()) {
            // The cut came while it was made.
            Err(_) if seal.is_none() => return Ok(None),
            shape => shape?,
        };
        let epoch = region.word(EPOCH);
        let is_ours = region.bytes(OWNER, 16) == owner && region.word(OWNER + 16) == opening;
        let next = u32::try_from(epoch + 1).ok();
        let (Some(next), true) = (next, is_ours) else { return Ok(None) };
        let (mut checked, is_sealed) = (0, seal.is_some());
        if let Some(seal) = seal {
            let damages = seal.damages(region, shape.segment, reads)?;
            if let Some(damage) = damages.into_iter().next() {
                return Err(Error::corrupt(damage));
            }
            checked = seal.bytes(shape.segment);
        }
        let forest = Forest { checked, is_sealed, ..Forest::of(region, shape, records, next)? };
        if !is_sealed {
            forest.unseal()?;
        }
        forest.find()?;
        if !is_sealed {
            forest.settle()?;
        }
        Ok(Some(forest))
    }

    /// Has it be this opening's, durably, before anything else is stored.
    fn unseal(&self) -> Result<()> {
        let region = self.region();
        seal::unseal(region)?;
        // Before any bitmap is stamped with it.
        let epoch = region.store_word(EPOCH, u64::from(self.nodes.epoch));
        region.persist([epoch, fixed_part(region)])?;
        Ok(())
    }

    /// What is damaged of the forest in a region, as far as it can be told: of one that was not
    /// closed, nothing. How many structures were looked at comes first.
    /// `meter` counts their bytes.
    pub(crate) fn verify(region: &Region, reads: (usize, &Meter)) -> Result<(u64, Vec<Damage>)> {
        let shape = match find_seal(region) {
            Ok(None) => return Ok((0, Vec::new())),
            Ok(Some(seal)) => {
                let shape = Shape::decode(region.bytes(0, LINE), region.path());
                shape.map(|shape| (seal, shape.segment))
            }
            Err(error) => Err(error),
        };
        let (seal, segment) = match shape {
            Ok(found) => found,
            Err(error) => match error.damage() {
                Some(damage) => return Ok((1, vec![damage.clone()])),
                None => return Err(error),
            },
        };
        let damages = seal.damages(region, segment, reads)?;
        Ok((1 + seal.pieces(), damages))
    }

    /// Seals it, durably: no thread uses it any more before the next opening.
    pub(crate) fn seal(&self, reads: (usize, &Meter)) -> Result<()> {
        seal::seal(self.region(), (self.segments.count(), self.segments.len()), reads)
    }

    /// Has a region hold no forest any more, whatever else is left in it.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn disown(region: &Region) -> Result<()> {
        seal::unseal(region)?;
        region.persist([region.store_word(0, 0)])?;
        Ok(())
    }

    /// Bytes that were read to see whether it was as it had been closed.
    pub(crate) fn checked(&self) -> u64 {
        self.checked
    }

    fn of(region: &Arc<Region>, shape: Shape, records: &Arc<Region>, epoch: u32) -> Result<Forest> {
        let slices = Slices::open(region, PAGE, shape.segment, shape.segments)?;
        let segments: Arc<dyn Segments> = Arc::new(slices);
        debug_assert!(region.is_persistent_memory(), "what is fenced is durable");
        let heap = Heap::open(region, &segments);
        let keys = Keys { records: Arc::new(Unread::new(records)), heap };
        let pool = ObjectPool::open(region, &segments, NODES, NODE as u32);
        let heads = ObjectPool::open(region, &segments, HEADS, LINE as u32);
        let nodes = Nodes::new(region, pool, keys, epoch, shape.region_len());
        Ok(Forest {
            nodes: Arc::new(nodes),
            heads,
            segments,
            found: Mutex::default(),
            doomed: Mutex::default(),
            felling: Mutex::default(),
            checked: 0,
            is_sealed: false,
        })
    }

    /// Finds the heads, and writes nothing.
    fn find(&self) -> Result<()> {
        let region = self.region();
        let mut found = self.found.lock();
        let (segments, taken) = (self.segments.count(), region.word(TAKEN));
        if segments < taken {
            let found = Mismatch::new(format!("{taken} segments"), segments.to_string());
            return Err(self.damaged(TAKEN, "segments of the index", found));
        }
        let all = std::cell::RefCell::new(Vec::new());
        self.heads.scan(|head| {
            // Stored at once, or not at all.
            if region.word(head) != 0 {
                all.borrow_mut().push(head);
            }
            true
        })?;
        for head in all.into_inner() {
            let table = (region.word(head) >> 32) as TableId;
            let (word, named) = (region.word(head), word_of(table, head));
            if word != named {
                let found = Mismatch::new(format!("{named:016x}"), format!("{word:016x}"));
                return Err(self.damaged(head, "head of an index", found));
            }
            let tree = self.tree(head);
            let (root, _) = tree.root.get(region);
            let is_inside = (PAGE..PAGE + segments * self.segments.len()).contains(&root);
            if !is_inside || !self.nodes.pool.check(root)? {
                let found = Mismatch::new("a taken node", root.to_string());
                let what = format!("root of the index of table {table}");
                return Err(self.damaged(head + ROOT, &what, found));
            }
            found.insert(table, tree);
        }
        Ok(())
    }

    /// Ends what an opening before has begun. A head without an owner was about to be taken.
    fn settle(&self) -> Result<()> {
        let (region, found) = (self.region(), self.found.lock());
        self.heads.scan(|head| region.word(head) != 0)?;
        for tree in found.values() {
            // The process that took its head may have been killed before that was durable.
            let head = tree.root.at - ROOT;
            let entry = self.heads.rewrite(head)?;
            region.persist([entry, region.rewrite(Span { at: head, len: LINE })])?;
        }
        if region.word(FELLING) != 0 {
            self.reclaim(found.values())?;
            region.persist([region.store_word(FELLING, 0)])?;
        }
        Ok(())
    }

    fn damaged(&self, offset: u64, what: &str, found: Mismatch) -> Error {
        Error::corrupt(self.region().damage(offset, what, found))
    }

    fn tree(&self, head: u64) -> Tree {
        Tree { nodes: Arc::clone(&self.nodes), root: Root::new(head + ROOT) }
    }

    /// The file's path, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.region().path()
    }

    /// What counts the memory that the locks of its nodes take.
    pub(crate) fn memory(&self) -> &Arc<Gauge> {
        self.region().indexes()
    }

    /// What persistence has cost in it.
    pub(crate) fn counts(&self) -> &PmCounts {
        self.region().counts()
    }

    fn region(&self) -> &Region {
        &self.nodes.region
    }

    /// Notes the opening that uses it from now on, durably: before anything is done to it that the
    /// opening before would not know. Until then an opening that ends leaves one that was closed as
    /// it was.
    pub(crate) fn begin(&self, opening: u64) -> Result<()> {
        if self.is_sealed {
            self.unseal()?;
            self.settle()?;
        }
        self.region().persist([self.region().store_word(OWNER + 16, opening)])?;
        Ok(())
    }

    /// The records that its trees lead to.
    pub(crate) fn records(&self) -> &Unread {
        &self.nodes.keys.records
    }

    /// The boundary up to which the records of all tables are here.
    pub(crate) fn merged(&self) -> Lsn {
        self.region().word(MERGED)
    }

    /// Raises the boundary, durably; it does not fall.
    pub(crate) fn raise_merged(&self, lsn: Lsn) -> Result<()> {
        if lsn > self.merged() {
            let region = self.region();
            let taken = region.store_word(TAKEN, self.segments.count());
            region.persist([taken.join(region.store_word(MERGED, lsn))])?;
        }
        Ok(())
    }

    /// Makes room for so many records: free nodes and bounds count, and segments are found for the
    /// rest. Bounds are of many sizes, so an insertion may find none all the same.
    ///
    /// # Errors
    ///
    /// `Full`, and nothing has changed.
    pub(crate) fn reserve(&self, records: u64) -> Result<()> {
        let needed = records * PER_RECORD;
        let lacking = needed - self.nodes.pool.free_bytes(needed)?;
        match lacking - self.nodes.keys.heap.free_bytes(lacking)? {
            0 => Ok(()),
            more => self.segments.reserve(more.div_ceil(self.segments.len()) + FIRST_SEGMENTS),
        }
    }

    /// The tree of a table that was found, once.
    pub(crate) fn take(&self, table: TableId) -> Option<Tree> {
        self.found.lock().remove(&table)
    }

    /// The trees of tables that are no more.
    pub(crate) fn take_rest(&self) -> Vec<Tree> {
        std::mem::take(&mut *self.found.lock()).into_values().collect()
    }

    /// A new tree for a table that has none.
    pub(crate) fn create(&self, table: TableId) -> Result<Tree> {
        let root = self.nodes.pool.get()?;
        let head = self.heads.get().inspect_err(|_| self.nodes.pool.put_back(root))?;
        let mut writer = self.nodes.writer();
        self.nodes.write(&mut writer, root, NodeHead::default(), &[])?;
        // A cut may have left another table's name there, without an entry.
        let unnamed = self.region().store_word(head, 0);
        writer.also(unnamed.join(self.region().store_word(head + ROOT, Root::encode(root, 0))));
        writer.fence();
        // One word says that it is there.
        let taken = self.heads.commit(head)?;
        let named = self.region().store_word(head, word_of(table, head));
        self.region().persist([taken, named])?;
        Ok(self.tree(head))
    }

    /// Durably forgets a tree, and then gives its memory back (rule 1), or leaves that to a thread
    /// that is about to fell another one. What a cut leaves of that the next opening finds.
    pub(crate) fn remove(&self, tree: &Tree) -> Result<()> {
        self.doomed.lock().push(tree.root.at - ROOT);
        let next = || self.doomed.lock().pop();
        loop {
            {
                // No thread waits: a felling may call this again, by way of what was deferred.
                let Some(_felling) = self.felling.try_lock() else { return Ok(()) };
                while let Some(head) = next() {
                    self.fell_tree(head)?;
                }
            }
            // A thread that came by in between found it locked.
            if self.doomed.lock().is_empty() {
                return Ok(());
            }
        }
    }

    fn fell_tree(&self, head: u64) -> Result<()> {
        let region = self.region();
        region.persist([region.store_word(FELLING, 1)])?;
        region.persist([region.store_word(head, 0)])?;
        let (mut nodes, mut lows) = (Vec::new(), BTreeSet::new());
        self.tree(head).visit(|node, _| {
            nodes.push(node.at);
            lows.insert(node.low());
        });
        for node in nodes {
            self.nodes.pool.release(node)?;
        }
        for low in lows {
            self.nodes.keys.release(low)?;
        }
        self.heads.release(head)?;
        region.persist([region.store_word(FELLING, 0)])?;
        Ok(())
    }

    /// Frees nodes and bounds that a power cut left taken; how many. Reads every node of `trees`,
    /// which are all there are.
    pub(super) fn reclaim<'p>(&self, trees: impl Iterator<Item = &'p Tree>) -> Result<u64> {
        let (mut nodes, mut bounds) = (BTreeSet::new(), BTreeSet::new());
        for tree in trees {
            tree.visit(|node, _| {
                self.nodes.persist_found(node);
                nodes.insert(node.at);
                bounds.insert(node.low());
            });
        }
        let leaked = self.nodes.pool.scan(|at| nodes.contains(&at))?.leaked;
        Ok(leaked + self.nodes.keys.heap.scan(|at| bounds.contains(&at))?)
    }

    /// Bytes of the region's segments that are taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.pool.bytes() + self.nodes.keys.heap.bytes() + self.heads.bytes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;
    use crate::memtable::VersionLock;
    use crate::pindex::node::LEN_OF_CHUNK;
    use terrace_testkit::Machine;

    fn region(len: u64) -> Arc<Region> {
        Region::of_machine(&Machine::with_memory(), len).unwrap()
    }

    /// Bug: each new table that found the index full took a node of it until the next opening.
    /// Cause: the node stayed taken where there was no room for the head. Fix: it is put back.
    #[test]
    fn a_tree_that_finds_no_room_takes_no_node() {
        let (_, most) = Forest::region_lens(1 << 20);
        let (index, records) = (region(most), region(PAGE));
        let forest = Forest::format(&index, (&records, 1 << 20), [7; 16]).unwrap();
        let nodes = &forest.nodes.pool;
        let taken: Vec<u64> = std::iter::from_fn(|| nodes.get().ok()).collect();
        assert!(taken.len() > 3, "{} nodes fill the index", taken.len());
        taken[..3].iter().for_each(|node| nodes.put_back(*node));
        for table in 1..10 {
            let full = forest.create(table).unwrap_err();
            assert_eq!(full.kind(), ErrorKind::Full, "{full}");
        }
        assert_eq!(std::iter::from_fn(|| nodes.get().ok()).count(), 3);
    }

    /// Bug: the locks of the nodes of a persistent index took memory beside the limit: a
    /// sixty-fourth of the index. Cause: nothing counted them. Fix: the index does.
    #[test]
    fn the_locks_of_nodes_are_counted() {
        let (_, most) = Forest::region_lens(1 << 20);
        let (index, records) = (region(most), region(PAGE));
        let forest = Forest::format(&index, (&records, 1 << 20), [7; 16]).unwrap();
        let gauge = Arc::clone(forest.memory());
        assert_eq!(gauge.bytes(), 0, "no node was touched");
        let chunk = LEN_OF_CHUNK * size_of::<VersionLock>() as u64;
        for (at, chunks) in [(0, 1), (LEN_OF_CHUNK * NODE - NODE, 1), (LEN_OF_CHUNK * NODE, 2)] {
            forest.nodes.lock(at);
            assert_eq!(gauge.bytes(), chunks * chunk);
        }
        drop(forest);
        assert_eq!(gauge.bytes(), 0);
    }
}
