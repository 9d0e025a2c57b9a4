//! An extent in its place: opening it, finding records in it, and owning its space.
//!
//! Thread safety: every method may be called from any thread. The parts are loaded when they are
//! needed and not there (`reader/slot.rs`), perhaps by several threads at once, of which one wins.
//!
//! Invariants:
//!
//! 1. The space belongs to this object while it is *written* or *obsolete*, and to the durable
//!    journal while it is *installed*. It is given back when the object is dropped in one of the
//!    first two states: no edit names it then, or none does any more.
//! 2. A reader holds an `Arc`, so no space is given back under it.

mod asked;
#[cfg(feature = "bench")]
mod hashed;
mod in_turn;
mod parts;
mod reuse;
mod share;
mod slot;

use std::ops::{Deref, Range};
use std::sync::Arc;

use bytes::Bytes;

use super::block::{Block, Blocks, BorrowedBlock, Hit};
use super::index::{Index, IndexEntry};
use super::read_frequency::ReadFrequency;
use super::values::{ValueExtent, ValueExtents, ValueMeta, ValueUse};
use super::{BlockCache, BlockSummary, BlockSwips, Described, Filling};
use super::{ExtentCursor, ExtentMeta, ReadAhead};
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::limits::MAX_VALUE_LEN;
use crate::base::memory::Holding;
use crate::base::record::{Kind, LSN_MAX, Lsn, Reference, SeparatedValue};
use crate::cache::{Below, Borrowed, BufferFrame, Warmth, Weigh};
use crate::mvcc::{KeptFor, Tombstones};
use crate::os::Gate;
use crate::os::sync::Mutex;
use crate::os::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::os::sync::shared::OnceLock;
use crate::storage::ExtentStore;

use slot::Slot;

pub(crate) use asked::{ComingPart, Fetched, LookUpStep, MissingPart};
#[cfg(feature = "bench")]
pub(crate) use hashed::set_hashed;
pub(super) use parts::{Parts, Tail};
pub(super) use reuse::CachedCopies;
pub(crate) use reuse::WholeBlock;
pub(crate) use share::Estimate;

const WRITTEN: u8 = 0;
const INSTALLED: u8 = 1;
const OBSOLETE: u8 = 2;

/// The version of a key that a look-up found, for as long as the epoch of the look-up is pinned.
#[derive(Debug)]
pub(crate) struct Found<'g> {
    pub(crate) seq: Lsn,
    /// A put, wherever the value lies.
    pub(crate) kind: Kind,
    value: FoundValue<'g>,
}

#[derive(Debug)]
enum FoundValue<'g> {
    /// In the block.
    Here(BorrowedBlock<'g>, Range<usize>),
    Separated(SeparatedValue),
}

/// Where a value is.
#[derive(Debug)]
pub(crate) enum FoundPlace {
    Here(Bytes),
    Apart(SeparatedValue),
}

impl Found<'_> {
    /// Whether the value lies apart in an object.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(&self.value, FoundValue::Separated(apart) if apart.from.is_remote())
    }

    /// The value, unless it lies apart. It is copied, unless it is a large part of its block.
    pub(crate) fn into_place(self) -> FoundPlace {
        match self.value {
            FoundValue::Here(block, value) => FoundPlace::Here(block.owned_value(value)),
            FoundValue::Separated(apart) => FoundPlace::Apart(apart),
        }
    }

    /// The value. It is copied, unless it is a large part of its block.
    ///
    /// # Errors
    ///
    /// Where it lies apart: `Corrupt` if it does not check out; or on an I/O error.
    pub(crate) fn into_value(self) -> Result<Bytes> {
        match self.value {
            FoundValue::Here(block, value) => Ok(block.owned_value(value)),
            FoundValue::Separated(apart) => apart.read(),
        }
    }

    /// What `f` makes of the value, which it is lent. Copies nothing, unless the value lies apart.
    ///
    /// # Errors
    ///
    /// As [`Found::into_value`].
    pub(crate) fn lend<T>(self, f: impl FnOnce(&[u8]) -> T) -> Result<T> {
        match self.value {
            FoundValue::Here(block, value) => Ok(f(block.value(value))),
            FoundValue::Separated(apart) => Ok(f(&apart.read()?)),
        }
    }
}

/// What is in the cache of some blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedBlocks {
    /// How warm the warmest is that is there.
    pub(crate) warmest: Option<Warmth>,
    /// Whether all of them are there.
    pub(crate) are_all: bool,
}

impl CachedBlocks {
    /// Of these and others together.
    pub(crate) fn and(self, others: CachedBlocks) -> CachedBlocks {
        let warmest = self.warmest.into_iter().chain(others.warmest).reduce(Warmth::max);
        CachedBlocks { warmest, are_all: self.are_all && others.are_all }
    }
}

/// The range tombstones of parts.
struct LoadedRanges(Arc<Parts>);

impl Deref for LoadedRanges {
    type Target = Tombstones;

    fn deref(&self) -> &Tombstones {
        &self.0.ranges
    }
}

/// Bytes of memory that an extent has beside its parts: its description with the list of value
/// extents, and for which readers records were kept.
fn beside_parts(meta: &ExtentMeta, values: &[Arc<ValueExtent>], kept_for: &KeptFor) -> usize {
    let own = size_of::<Extent>() + size_of::<Slot>();
    let keys = meta.smallest_key.len() + meta.greatest_key.len();
    let each = size_of::<ValueUse>() + size_of::<Arc<ValueExtent>>();
    own + keys + values.len() * each + kept_for.memory()
}

/// An extent.
#[derive(Debug)]
pub(crate) struct Extent {
    meta: ExtentMeta,
    /// The description once a level has it out of a run. A reader that still reads it as part of
    /// the run gives its records the same number.
    numbered: OnceLock<ExtentMeta>,
    store: Arc<ExtentStore>,
    parts: Arc<Slot>,
    state: AtomicU8,
    /// The edit that added it.
    added: AtomicU64,
    read_frequency: ReadFrequency,
    /// For which readers records in it were kept, if it was written since the opening. No reader is
    /// older than the opening.
    kept_for: KeptFor,
    /// The ways to its blocks, once its parts were read. They stay when the parts are let go of.
    swips: OnceLock<BlockSwips>,
    /// Blocks that look-ups hold, of an object ([`Fetched`]).
    fetched: Mutex<Vec<(usize, Arc<BufferFrame<Block>>)>>,
    /// What its records refer to, in the order of the description's list.
    values: Box<[Arc<ValueExtent>]>,
    /// Counts what it has beside its parts.
    _held: Holding,
}

impl Described for Arc<Extent> {
    fn meta(&self) -> &ExtentMeta {
        Extent::meta(self)
    }

    fn read_frequency(&self) -> u32 {
        self.read_frequency.now(self.store.read_clock())
    }

    fn obsolete(&self, readers: &[Lsn]) -> u64 {
        self.meta().obsolete_records(&self.kept_for, readers)
    }

    fn numbered(&self, seq: Lsn) -> Arc<Extent> {
        let numbered = self.numbered.get_or_init(|| self.meta.numbered(seq));
        debug_assert_eq!(numbered.greatest_seq, seq, "its run has one LSN");
        Arc::clone(self)
    }

    fn as_written(&self) -> &ExtentMeta {
        &self.meta
    }
}

impl Extent {
    /// An extent that a durable edit names, its space already taken. Reads nothing yet.
    pub(crate) fn open(meta: ExtentMeta, store: Arc<ExtentStore>) -> Arc<Extent> {
        Extent::open_among(meta, store, &mut ValueExtents::new())
    }

    /// As [`Extent::open`]. Value extents that it lists are taken from `known`. Those that are
    /// missing there are opened and added.
    pub(crate) fn open_among(
        meta: ExtentMeta,
        store: Arc<ExtentStore>,
        known: &mut ValueExtents,
    ) -> Arc<Extent> {
        let mut open = |of: &ValueMeta| {
            let new = || ValueExtent::new(*of, Arc::clone(&store));
            let values = Arc::clone(known.entry(of.id).or_insert_with(new));
            values.name();
            values
        };
        let values = meta.values.iter().map(|one| open(&one.of)).collect();
        Extent::new((meta, values), store, INSTALLED, KeptFor::default())
    }

    /// An extent that was just written and that no edit names yet.
    pub(super) fn written(
        described: (ExtentMeta, Box<[Arc<ValueExtent>]>),
        store: Arc<ExtentStore>,
        kept_for: KeptFor,
    ) -> Arc<Extent> {
        Extent::new(described, store, WRITTEN, kept_for)
    }

    /// Takes filter and index from the bytes that were just written, since compactions and readers
    /// are about to use them.
    pub(super) fn keep_parts(&self, bytes: &[u8]) {
        let parts = self.parts_of(&Tail { offset: 0, bytes: bytes.into() });
        debug_assert!(parts.is_ok(), "what is written can be read back");
        if let Ok(parts) = parts {
            self.parts.fill(Arc::new(parts), &self.store.memory().clock, false);
        }
    }

    fn new(
        (meta, values): (ExtentMeta, Box<[Arc<ValueExtent>]>),
        store: Arc<ExtentStore>,
        state: u8,
        kept_for: KeptFor,
    ) -> Arc<Extent> {
        let held = store.memory().descriptions.hold(beside_parts(&meta, &values, &kept_for) as u64);
        Arc::new(Extent {
            meta,
            numbered: OnceLock::new(),
            store,
            parts: Arc::default(),
            state: AtomicU8::new(state),
            added: AtomicU64::new(0),
            read_frequency: ReadFrequency::default(),
            kept_for,
            swips: OnceLock::new(),
            fetched: Mutex::default(),
            values,
            _held: held,
        })
    }

    /// Its description.
    pub(crate) fn meta(&self) -> &ExtentMeta {
        self.numbered.get().unwrap_or(&self.meta)
    }

    /// Whether no edit has added it.
    pub(crate) fn is_new(&self) -> bool {
        self.state.load(Ordering::Acquire) == WRITTEN
    }

    /// The edit of this number, which adds it, is durable, or may be. From now on the space is the
    /// journal's.
    pub(crate) fn installed(&self, edit: u64) {
        if self.is_new() {
            self.added.store(edit, Ordering::Relaxed);
        }
        let before = self.state.swap(INSTALLED, Ordering::AcqRel);
        debug_assert_ne!(before, OBSOLETE, "removed for good");
        if before == WRITTEN {
            self.values.iter().for_each(|values| values.name());
        }
    }

    /// The number of the edit that added it, or 0 of one that this opening found.
    pub(crate) fn added(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }

    /// The edit that removes it is durable. The space is given back with the last reader.
    pub(crate) fn mark_obsolete(&self) {
        let before = self.state.swap(OBSOLETE, Ordering::AcqRel);
        debug_assert_eq!(before, INSTALLED, "removed once");
        if before == INSTALLED {
            self.values.iter().for_each(|values| values.unname());
        }
    }

    /// The value extents that its records refer to.
    pub(crate) fn values(&self) -> &[Arc<ValueExtent>] {
        &self.values
    }

    /// A value that a record of it refers to.
    pub(super) fn separated(&self, at: Reference) -> Result<SeparatedValue> {
        if at.value_len as usize > MAX_VALUE_LEN {
            let mismatch = Mismatch::new(
                format!("values of at most {MAX_VALUE_LEN} bytes"),
                format!("one of {}", at.value_len),
            );
            return Err(self.corrupt(0, "records", mismatch));
        }
        Ok(SeparatedValue { from: Arc::clone(self.value_extent(&at)?) as _, at })
    }

    /// The value extent that a record of it refers to.
    pub(super) fn value_extent(&self, at: &Reference) -> Result<&Arc<ValueExtent>> {
        let found = self.values.binary_search_by_key(&at.extent, |values| values.meta().id);
        found.map(|n| &self.values[n]).map_err(|_| {
            let expected = "references to value extents that the journal lists with it";
            let mismatch = Mismatch::new(expected, format!("one to {}", at.extent));
            self.corrupt(0, "records", mismatch)
        })
    }

    /// It replaces `replaced`. Its read count starts from the highest of theirs.
    pub(crate) fn inherit_read_frequency<'a>(
        &self,
        replaced: impl Iterator<Item = &'a Arc<Extent>>,
    ) {
        let read_frequency = replaced.map(Described::read_frequency).max().unwrap_or(0);
        self.read_frequency.begin(read_frequency, self.store.read_clock());
    }

    /// The newest version of `key` with a sequence number of at most `at`.
    ///
    /// # Errors
    ///
    /// `Corrupt` if what has to be read does not check out; or on an I/O error.
    pub(crate) fn get<'g>(
        &self,
        key: &[u8],
        at: Lsn,
        blocks: Blocks<'g>,
    ) -> Result<Option<Found<'g>>> {
        let Some(at) = self.sought_in_blocks(key, at) else { return Ok(None) };
        let parts = self.borrowed_parts(blocks.pinned)?;
        let Some(n) = parts.block_with(key, at) else { return Ok(None) };
        let block = self.block(&parts, n, blocks)?;
        let found = block.find(key, at).map_err(|_| self.bad_entry(&parts, n))?;
        let Some(Hit { seq, kind, value }) = found else { return Ok(None) };
        let seq = self.meta().one_seq().unwrap_or(seq);
        if kind == Kind::Reference {
            let at = Reference::decode(block.value(value));
            let at = at.ok_or_else(|| self.bad_entry(&parts, n))?;
            let value = FoundValue::Separated(self.separated(at)?);
            return Ok(Some(Found { seq, kind: Kind::Put, value }));
        }
        Ok(Some(Found { seq, kind, value: FoundValue::Here(block, value) }))
    }

    /// The sequence number to look for in the blocks for the newest version of `key` at or below
    /// `at`; `None` if it has no such version.
    #[inline]
    fn sought_in_blocks(&self, key: &[u8], at: Lsn) -> Option<Lsn> {
        if !self.meta.covers(key) {
            return None;
        }
        match self.meta().one_seq() {
            // The numbers in the blocks are below any that is asked for.
            Some(seq) => (seq <= at).then_some(LSN_MAX),
            None => Some(at),
        }
    }

    /// Its range tombstones, which end where it ends.
    ///
    /// # Errors
    ///
    /// As [`Extent::get`].
    pub(crate) fn tombstones(&self) -> Result<impl Deref<Target = Tombstones> + use<>> {
        Ok(LoadedRanges(self.parts()?))
    }

    /// A cursor over all records, for the reader that `ahead` is of.
    pub(crate) fn cursor(
        self: &Arc<Self>,
        cache: &Arc<BlockCache>,
        ahead: &Arc<ReadAhead>,
    ) -> ExtentCursor {
        ExtentCursor::new(Arc::clone(self), Arc::clone(cache), Arc::clone(ahead))
    }

    /// What is in the cache of its blocks with keys from `first` to `last`; `None` without such
    /// blocks. It reads nothing: without an index in memory it knows of none that is in the cache.
    pub(crate) fn cached(&self, first: &[u8], last: &[u8]) -> Option<CachedBlocks> {
        let meets =
            self.meta.smallest_key.as_slice() <= last && first <= self.meta.greatest_key.as_slice();
        let unknown = CachedBlocks { warmest: None, are_all: false };
        let known = self.parts.peek().zip(self.swips.get());
        let Some((parts, swips)) = known.filter(|_| meets) else { return meets.then_some(unknown) };
        let (from, to) = parts.index.find_key(first).zip(parts.index.find_key(last))?;
        let cached = (from..=to).map(|n| {
            let warmest = swips.warmth(n);
            CachedBlocks { warmest, are_all: warmest.is_some() }
        });
        cached.reduce(CachedBlocks::and)
    }

    /// Bytes of its blocks that are in the cache and that no reader has asked for.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let unread = |swips: &BlockSwips| (0..swips.len()).map(|n| swips.unread_bytes(n)).sum();
        self.swips.get().map_or(0, unread)
    }

    /// What is wrong with the ways to its blocks, if something is.
    pub(crate) fn check_swips(&self, cache: &BlockCache) -> Option<String> {
        self.swips.get().and_then(|swips| cache.check_swips(swips))
    }

    /// The ways to its blocks, of which `index` says how many there are.
    pub(super) fn swips(&self, index: &Index) -> &BlockSwips {
        let gauge = &self.store.memory().descriptions;
        self.swips.get_or_init(|| BlockSwips::new(index.entries().len(), gauge))
    }

    /// Whether the block at an offset is in the cache.
    pub(super) fn has_block_at(&self, index: &Index, offset: u32) -> bool {
        let n = index.entries().partition_point(|block| block.offset < offset);
        self.swips.get().is_some_and(|swips| swips.has(n))
    }

    /// Puts blocks of an extent that was just written as `bytes` into the cache. It takes those
    /// that are not cached yet and of which `warmth` says how warm they are, by their first and
    /// last key and about the bytes that they take there.
    pub(super) fn fill(
        &self,
        (bytes, summaries): (&[u8], &[BlockSummary]),
        (cache, warmth): Filling<'_>,
    ) {
        let Some(parts) = self.parts.peek() else { return };
        let (index, swips) = (&parts.index, self.swips(&parts.index));
        for (n, (entry, summary)) in index.entries().iter().zip(summaries).enumerate() {
            let (start, end) = (entry.offset as usize, (entry.offset + entry.len) as usize);
            // Exact where nothing is compressed.
            let weight = Block::weight_of(entry.len.max(summary.raw_bytes as u32) as usize);
            if !swips.has(n)
                && let Some(warmth) = warmth(&summary.first_key, index.last_key(n), weight)
                && let Some(bytes) = bytes.get(start..end)
                && let Ok(block) =
                    Block::decode(self.meta.id, entry.offset, Bytes::copy_from_slice(bytes))
            {
                cache.fill((swips, n), block, warmth);
            }
        }
    }

    /// Has blocks lead to frames of others that they are copies of.
    pub(super) fn take_over(&self, copies: &CachedCopies, cache: &BlockCache) {
        if let Some(parts) = self.parts.peek() {
            copies.share(self.swips(&parts.index), cache);
        }
    }

    /// Takes its blocks out of the cache at once, and has it take none of them any more: another
    /// extent has their place.
    pub(crate) fn evict(&self) {
        if let Some(swips) = self.swips.get() {
            swips.leave();
        }
    }

    /// Block `n`, from the cache or from the store, for a user. It enters the cache and counts as a
    /// read of the extent.
    fn block<'g>(&self, parts: &Parts, n: usize, blocks: Blocks<'g>) -> Result<BorrowedBlock<'g>> {
        self.read_frequency.read(self.store.read_clock());
        let Blocks { cache, pinned } = blocks;
        #[cfg(feature = "bench")]
        if hashed::is_on() {
            let load = || match self.swips(&parts.index).peek(n) {
                Some(block) => Ok(block),
                None => self.load_block(&parts.index, n, cache),
            };
            return self.hashed_block(n, load).map(Borrowed::Own);
        }
        let Some(frame) = cache.get(self.swips(&parts.index), n, pinned) else {
            return self.load_block(&parts.index, n, cache).map(Borrowed::Own);
        };
        if frame.is_tree() {
            return Ok(Borrowed::Here(frame));
        }
        // It is asked for again, so a faster search is worth the work.
        let tree = || {
            let room = cache.reserve(frame.weight())?;
            cache.replace(room, frame, frame.as_tree()?)
        };
        Ok(tree().map_or(Borrowed::Here(frame), Borrowed::Own))
    }

    /// Block `n`, read into the cache for a user, unless a look-up holds it. What cannot be read
    /// takes no room there.
    fn load_block(
        &self,
        index: &Index,
        n: usize,
        cache: &BlockCache,
    ) -> Result<Arc<BufferFrame<Block>>> {
        if let Some(block) = self.fetched(n) {
            return Ok(block);
        }
        let room = cache.reserve(Block::weight_of(index.entries()[n].len as usize));
        let block = self.load_for_user(index, n, cache)?;
        Ok(cache.admit(room, (self.swips(index), n), block))
    }

    /// Block `n` for a user, from the second cache or from the store.
    fn load_for_user(&self, index: &Index, n: usize, cache: &BlockCache) -> Result<Block> {
        let entry = &index.entries()[n];
        match cache.below() {
            Some(below) => self.load_through(below, entry),
            None => self.block_of(entry, Bytes::from(self.load_bytes(entry.offset, entry.len)?)),
        }
    }

    /// A block from the second cache. If it is not there, it is read from the store and put there.
    fn load_through(&self, below: &dyn Below, entry: &IndexEntry) -> Result<Block> {
        let (id, at) = (self.meta.id, entry.offset);
        let kept = below.get(id, at).map(|bytes| Block::decode(id, at, Bytes::from(bytes)));
        if let Some(Ok(block)) = kept {
            return Ok(block);
        }
        let bytes = self.load_bytes(entry.offset, entry.len)?;
        below.keep(id, at, &bytes);
        self.block_of(entry, Bytes::from(bytes))
    }

    /// A block, from these bytes and no others.
    pub(in crate::sstable) fn sound_block(
        &self,
        entry: &IndexEntry,
        bytes: Bytes,
    ) -> Result<Block> {
        Block::decode(self.meta.id, entry.offset, bytes)
            .map_err(|mismatch| self.corrupt(entry.offset, "block", mismatch))
    }

    /// A block, from its bytes.
    pub(super) fn block_of(&self, entry: &IndexEntry, bytes: Bytes) -> Result<Block> {
        self.checked(entry, bytes, |bytes| Block::decode(self.meta.id, entry.offset, bytes))
    }

    /// The error for an entry of block `n` that does not decode.
    pub(super) fn bad_entry(&self, parts: &Parts, n: usize) -> Error {
        let mismatch = Mismatch::new("entries that decode", "one that does not");
        self.corrupt(parts.index.entries()[n].offset, "block", mismatch)
    }

    /// The gate of the database that it is of.
    pub(super) fn gate(&self) -> &Arc<Gate> {
        self.store.gate()
    }

    /// Bytes of this extent, as they are.
    pub(super) fn load_bytes(&self, offset: u32, len: u32) -> Result<Vec<u8>> {
        self.store.read(&self.meta.location, offset, len)
    }

    /// The error for damage at `offset` of this extent.
    pub(super) fn corrupt(&self, offset: u32, what: &str, mismatch: Mismatch) -> Error {
        self.store.damaged(&self.meta.location, self.damage(offset, what, mismatch))
    }

    /// Damage at `offset` of this extent.
    pub(super) fn damage(&self, offset: u32, what: &str, mismatch: Mismatch) -> Damage {
        let what = format!("{what} of extent {}", self.meta.id);
        self.store.damage(&self.meta.location, offset, what, mismatch)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.parts.leave(&self.store.memory().clock);
        self.evict();
        if *self.state.get_mut() != INSTALLED {
            self.store.release(&self.meta.location);
        }
    }
}
