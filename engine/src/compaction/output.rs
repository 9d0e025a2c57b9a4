//! What a merge writes: extents of one level, cut between keys. Range tombstones are cut with them,
//! and none reaches beyond what it could hide.
//!
//! Everything is written before the edit that names it goes to the caller, which syncs it before
//! the edit; a merge that fails half-way drops its outputs, and with them their space.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::ranges::{Fragments, Ranges, Walk};
use super::retain::{Operands, Retain, Retention};
use crate::base::counters::Counter;
use crate::base::error::Result;
use crate::base::memory::Gauge;
use crate::base::operator::TableOperator;
use crate::base::record::{EntryRef, Kind, Lsn};
use crate::cache::Warmth;
use crate::compaction::Shape;
use crate::compaction::misplaced::WARM;
use crate::mvcc::{Horizon, Readers};
use crate::sstable::{
    Ahead, BlockCache, BuiltExtent, CachedBlocks, Described, Extent, ExtentBuffer, ExtentBuilder,
    ExtentMeta, Filling, Format, Layout, ValueExtents, ValueWriter, WholeBlock,
};
use crate::storage::{ExtentSink, ExtentStore, Location, SpaceReservation};
use crate::version::VersionSet;

/// Where the extents of a merge go that become objects.
pub(crate) struct ObjectOutput<'a> {
    /// The job's own.
    pub(crate) sink: RefCell<&'a mut dyn ExtentSink>,
    /// The bytes that come in at most.
    pub(crate) come_in: u64,
}

impl<'a> ObjectOutput<'a> {
    pub(crate) fn new(sink: &'a mut dyn ExtentSink, come_in: u64) -> ObjectOutput<'a> {
        ObjectOutput { sink: RefCell::new(sink), come_in }
    }
}

/// What a merge goes by.
pub(crate) struct MergeContext<'a> {
    /// Gives ids.
    pub(crate) set: &'a VersionSet,
    /// Gives space.
    pub(crate) store: &'a Arc<ExtentStore>,
    pub(crate) cache: &'a BlockCache,
    /// The extents that the output takes the place of: where a block of theirs is cached, the
    /// block that takes its place is put into the cache too.
    pub(crate) replaces: &'a [Arc<Extent>],
    /// Whether all that is written is put into the cache, for as long as that has room: for what
    /// was in memory until now, and would have to be read again.
    pub(crate) fills: bool,
    /// The value extents that records which come in refer to.
    pub(crate) values: ValueExtents,
    /// Which of them the job rewrites the values of.
    pub(crate) collects: &'a dyn Fn(u64) -> bool,
    /// What readers still need. Taken after the inputs were fixed.
    pub(crate) horizon: &'a Horizon,
    /// All up to it has expired for every reader.
    pub(crate) expired: Lsn,
    /// A planted bug: deletes go, whatever lies below.
    pub(crate) drops_tombstones: bool,
    /// What merges operands.
    pub(crate) operator: TableOperator,
    /// A planted bug: operands are taken for all that their key has.
    pub(crate) forgets_below: bool,
    /// The range tombstones that come in. With any, nothing is carried over.
    pub(crate) ranges: &'a Ranges<'a>,
    /// Where extents are cut, at the next key.
    pub(crate) extent_bytes: usize,
    /// Keys that extents are cut before too, ascending: see [`Shape::cuts`].
    ///
    /// [`Shape::cuts`]: crate::compaction::Shape::cuts
    pub(crate) cuts: Vec<Vec<u8>>,
    /// Where extents go, if they become objects.
    pub(crate) objects: Option<ObjectOutput<'a>>,
    /// Bytes that need not become objects, if they are read often.
    pub(crate) may_stay_local: u64,
    /// How they are laid out.
    pub(crate) format: Format,
    /// Whether extents and blocks are carried over.
    pub(crate) reuse: bool,
    /// The space for what it writes.
    pub(crate) reservation: &'a SpaceReservation,
    /// Told of the bytes of each extent before it is written, and of none now and then while the
    /// merge reads: an error ends it.
    pub(crate) before_write: &'a dyn Fn(u64) -> Result<()>,
    /// Counts what was written.
    pub(crate) written: Option<&'a Counter>,
}

impl<'a> MergeContext<'a> {
    /// Of a merge into the level of `ranges`, which replaces nothing and has no values from
    /// elsewhere.
    pub(crate) fn of(
        (set, cache): (&'a VersionSet, &'a BlockCache),
        (ranges, horizon): (&'a Ranges<'a>, &'a Horizon),
        shape: &Shape,
        reservation: &'a SpaceReservation,
    ) -> MergeContext<'a> {
        let version = ranges.version;
        MergeContext {
            set,
            store: set.store(),
            cache,
            replaces: &[],
            fills: false,
            values: ValueExtents::new(),
            collects: &|_| false,
            horizon,
            expired: version.expired_at(&set.timeline(), horizon.oldest_time()),
            drops_tombstones: false,
            operator: set.operator_of(version.options),
            forgets_below: false,
            ranges,
            extent_bytes: shape.extent_bytes,
            cuts: Vec::new(),
            objects: None,
            may_stay_local: 0,
            format: shape.format(ranges.to, version.options),
            reuse: shape.reuse && ranges.tombstones.is_empty(),
            reservation,
            before_write: &|_| Ok(()),
            written: None,
        }
    }

    fn count_written(&self, bytes: u64) {
        if let Some(written) = self.written {
            written.add(bytes);
        }
    }

    /// Whether no level deeper than the output's can have a key.
    fn is_bottom(&self, key: &[u8]) -> bool {
        self.drops_tombstones || self.ranges.version.is_bottom(self.ranges.to, key)
    }
}

impl Layout for MergeContext<'_> {
    fn store(&self) -> &Arc<ExtentStore> {
        self.store
    }

    fn gauge(&self) -> &Arc<Gauge> {
        // Where it writes may be a backup.
        &self.set.store().memory().jobs
    }

    fn format(&self) -> Format {
        self.format
    }

    fn extent_bytes(&self) -> usize {
        self.extent_bytes
    }

    fn next_id(&self) -> u64 {
        self.set.next_extent_id()
    }

    fn collects(&self, id: u64) -> bool {
        (self.collects)(id)
    }

    fn write_values(&self, id: u64, bytes: &[u8]) -> Result<Location> {
        (self.before_write)(bytes.len() as u64)?;
        let place = match &self.objects {
            Some(objects) => objects.sink.borrow_mut().put(id, bytes),
            None => self.reservation.write_new(bytes),
        };
        place.inspect(|_| self.count_written(bytes.len() as u64))
    }
}

/// What was carried over instead of rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CarriedOver {
    /// Extents that stayed where they were, unread.
    pub(crate) extents: u64,
    pub(crate) extent_bytes: u64,
    /// Blocks that were copied, undecoded.
    pub(crate) blocks: u64,
    pub(crate) block_bytes: u64,
}

impl CarriedOver {
    /// Whole extents.
    pub(super) fn extents<'a, E: Described + 'a>(
        extents: impl ExactSizeIterator<Item = &'a E>,
    ) -> CarriedOver {
        let count = extents.len() as u64;
        let extent_bytes = extents.map(|extent| u64::from(extent.meta().location.len)).sum();
        CarriedOver { extents: count, extent_bytes, ..CarriedOver::default() }
    }
}

/// What a merge wrote.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    /// Sorted and disjoint; durable, not yet installed.
    pub(crate) extents: Vec<Arc<Extent>>,
    /// Ids of extents of the level that stay where they are.
    pub(crate) kept: BTreeSet<u64>,
    pub(crate) carried_over: CarriedOver,
}

impl Outputs {
    /// Those of `lower`, the inputs in the output's level, that do not stay.
    pub(crate) fn replaced(&self, lower: &[Arc<Extent>]) -> Vec<Arc<Extent>> {
        lower.iter().filter(|e| !self.kept.contains(&e.meta().id)).cloned().collect()
    }
}

/// Collects records, blocks and whole extents, in order.
pub(super) struct Writer<'a, 'c> {
    ctx: &'a MergeContext<'c>,
    retain: Retain<'a>,
    over: Walk<'a>,
    /// The operands under way, of the last key.
    operands: Option<Operands>,
    /// Range tombstones behind the last cut.
    unwritten: Fragments,
    outputs: Outputs,
    builder: Option<ExtentBuilder>,
    buffer: ExtentBuffer,
    values: ValueWriter,
    /// Bytes of cached blocks that no reader has asked for: so many of them it may replace by such
    /// in the cache. So these do not become more from merge to merge.
    unread: u64,
    /// The extents whose such blocks are counted.
    counted: BTreeSet<u64>,
    /// Whether the merge has extents of the level still ahead.
    is_among_others: bool,
    /// Where the extent under way is cut, if that is sooner than others are.
    split_at: Option<usize>,
    /// How many of the keys to cut before are behind.
    cuts_behind: usize,
    /// Bytes that did not become objects, since they are read often.
    stayed_local: u64,
}

/// What says how warm a block is; where it does not, and the cache is filled, the block is cold.
fn filling(
    mut warmth: impl FnMut(&[u8], &[u8], u64) -> Option<Warmth>,
    fills: impl Fn() -> bool,
) -> impl FnMut(&[u8], &[u8], u64) -> Option<Warmth> {
    move |first, last, bytes| warmth(first, last, bytes).or_else(|| fills().then_some(Warmth::COLD))
}

impl<'a, 'c> Writer<'a, 'c> {
    /// `fragments` are the range tombstones of `ctx`.
    pub(super) fn new(ctx: &'a MergeContext<'c>, fragments: &'a Fragments) -> Writer<'a, 'c> {
        debug_assert!(!ctx.reuse || ctx.ranges.tombstones.is_empty(), "tombstones touch records");
        debug_assert!(ctx.cuts.is_sorted(), "cuts ascend");
        let retain = Retain::new(ctx.horizon, ctx.expired);
        let unwritten = fragments.to_write(ctx.horizon, |keys| ctx.ranges.is_bottom(keys));
        let (over, outputs) = (fragments.walk(), Outputs::default());
        Writer {
            ctx,
            retain,
            over,
            operands: None,
            unwritten,
            outputs,
            builder: None,
            buffer: ExtentBuffer::new(
                ctx.gauge(),
                ctx.extent_bytes,
                ctx.objects.as_ref().map_or_else(|| ctx.reservation.left(), |o| o.come_in),
            ),
            values: ValueWriter::new(ctx.values.clone()),
            unread: 0,
            counted: BTreeSet::new(),
            is_among_others: false,
            split_at: None,
            cuts_behind: 0,
            stayed_local: 0,
        }
    }

    /// Says whether there are extents of the level still ahead.
    pub(super) fn among_others(&mut self, others_ahead: bool) {
        self.is_among_others = others_ahead;
    }

    /// An extent of the level is about to be written again. If it has grown, it is split into
    /// halves.
    pub(super) fn begin_extent(&mut self, extent: &Extent) {
        let most = self.ctx.extent_bytes;
        let size = self.builder.as_ref().map_or(0, ExtentBuilder::size);
        let expected = size + extent.meta().location.len as usize;
        self.split_at = (expected > most + most / 16).then_some(expected / 2);
    }

    /// Where the extent under way is cut. Among others it may grow an eighth beyond its size.
    /// Otherwise the next extent would take what a key or two too many leave over. Its last keys
    /// would be left over in turn, and so on to the end of the level.
    fn cut_at(&self) -> usize {
        let most = self.ctx.extent_bytes;
        let usual = if self.is_among_others { most + most / 8 } else { most };
        self.split_at.map_or(usual, |split| split.min(usual))
    }

    /// Whether there is a cut before `key`, which comes next.
    fn comes_to_a_cut(&mut self, key: &[u8]) -> bool {
        let ahead = &self.ctx.cuts[self.cuts_behind..];
        let passed = ahead.partition_point(|cut| cut.as_slice() <= key);
        self.cuts_behind += passed;
        debug_assert!(self.cuts_behind <= self.ctx.cuts.len(), "each cut is passed once");
        passed > 0
    }

    /// The LSN up to which everything has expired.
    pub(super) fn expired(&self) -> Lsn {
        self.ctx.expired
    }

    /// How its extents are laid out.
    pub(super) fn format(&self) -> Format {
        self.ctx.format
    }

    /// Ends the extent under way, with the range tombstones up to its last key.
    fn cut(&mut self) -> Result<()> {
        let Some(mut builder) = self.builder.take() else { return Ok(()) };
        self.split_at = None;
        if let Some(last) = builder.last_key() {
            let tombstones = self.unwritten.take_up_to(last);
            builder.add_tombstones(tombstones);
        }
        self.write(builder)
    }

    fn write(&mut self, builder: ExtentBuilder) -> Result<()> {
        let ctx = self.ctx;
        let mut built = builder.finish();
        self.count_unread(&built);
        let mut unread = self.unread.saturating_sub(built.unread_bytes());
        let warmth = |first: &[u8], last: &[u8], bytes: u64| {
            let replaced = ctx.replaces.iter().filter_map(|e| e.cached(first, last));
            let CachedBlocks { warmest, are_all } = replaced.reduce(CachedBlocks::and)?;
            let warmest = warmest?;
            if warmest.is_used() || ctx.fills {
                return Some(warmest);
            }
            // In place of all that it is made of it takes what that took, beside what one block
            // more takes.
            unread =
                if are_all { unread.saturating_sub(bytes) } else { unread.checked_sub(bytes)? };
            Some(warmest)
        };
        let mut warmth = filling(warmth, || ctx.fills && ctx.cache.has_room());
        self.buffer.filled(&built);
        self.values.describe(&mut built, ctx)?;
        let len = built.bytes.len() as u64;
        let objects = ctx.objects.as_ref().filter(|_| !self.stays_local(&built.meta, len));
        (ctx.before_write)(len)?;
        let filling: Filling<'_> = (ctx.cache, &mut warmth);
        let (extent, bytes) = match objects.map(|objects| objects.sink.borrow_mut()) {
            Some(mut sink) => built.write_into((ctx.store, &mut **sink), Some(filling))?,
            None => {
                let mut sink = ctx.reservation;
                built.write_into((ctx.store, &mut sink), Some(filling))?
            }
        };
        drop(warmth);
        ctx.count_written(len);
        self.unread = unread;
        self.buffer.put_back(bytes);
        let (first, last) = (&extent.meta().smallest_key, &extent.meta().greatest_key);
        let meets =
            |e: &&Arc<Extent>| e.meta().smallest_key <= *last && *first <= e.meta().greatest_key;
        extent.inherit_read_frequency(ctx.replaces.iter().filter(meets));
        self.outputs.extents.push(extent);
        Ok(())
    }

    /// Counts in what is cached of the extents that this one takes the place of, each once. Extents
    /// that stay where they are have no key in common with it.
    fn count_unread(&mut self, built: &BuiltExtent) {
        let (first, last) = (&built.meta.smallest_key, &built.meta.greatest_key);
        for extent in self.ctx.replaces {
            let meta = extent.meta();
            let meets = meta.smallest_key <= *last && *first <= meta.greatest_key;
            if meets && self.counted.insert(meta.id) {
                self.unread += extent.unread_bytes();
            }
        }
    }

    /// Whether an extent that would become an object stays on this machine: what it takes the place
    /// of is read often, and there is room.
    fn stays_local(&mut self, meta: &ExtentMeta, len: u64) -> bool {
        let (first, last) = (&meta.smallest_key, &meta.greatest_key);
        let meets =
            |e: &&Arc<Extent>| e.meta().smallest_key <= *last && *first <= e.meta().greatest_key;
        let replaced = self.ctx.replaces.iter().filter(meets);
        let is_warm = replaced.map(Described::read_frequency).max().is_some_and(|n| n >= WARM);
        let stays = is_warm && self.stayed_local + len <= self.ctx.may_stay_local;
        self.stayed_local += if stays { len } else { 0 };
        stays
    }

    fn builder(&mut self) -> &mut ExtentBuilder {
        let (ctx, buffer) = (self.ctx, &mut self.buffer);
        let new = || ExtentBuilder::in_buffer(ctx.next_id(), ctx.format, buffer.take());
        self.builder.get_or_insert_with(new)
    }

    /// Adds a record, if it is worth keeping.
    pub(super) fn add(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        debug_assert!(
            self.retain.last_key().is_none_or(|last| last <= entry.key),
            "a merge goes up"
        );
        if self.operands.as_ref().is_some_and(|operands| operands.key != entry.key) {
            self.end_operands(true)?;
        }
        let hidden_by = self.over.hidden_by(entry.key, entry.seq);
        let fate = self.retain.fate(entry, hidden_by, || self.ctx.is_bottom(entry.key));
        if fate == Retention::Drop || fate == Retention::Join && self.join(entry)? {
            return Ok(());
        }
        self.end_operands(false)?;
        let kept_for = self.retain.kept_for();
        if entry.kind == Kind::Merge {
            self.operands = Some(Operands::of(entry, kept_for)?);
            return Ok(());
        }
        self.write_record(entry, kept_for)
    }

    /// Joins a record to the operands under way; whether it is.
    fn join(&mut self, entry: &EntryRef<'_>) -> Result<bool> {
        let Some(operands) = &mut self.operands else {
            debug_assert!(false, "a record joins operands that were kept");
            return Ok(false);
        };
        let Some(at) = entry.reference() else { return operands.join(entry) };
        let value = self.values.read(&at)?;
        operands.join(&EntryRef { kind: Kind::Put, value: &value, ..*entry })
    }

    /// Writes what becomes of the operands under way. `is_last` says that no older record of the
    /// key comes.
    fn end_operands(&mut self, is_last: bool) -> Result<()> {
        let Some(operands) = self.operands.take() else { return Ok(()) };
        let is_bottom = is_last && (self.ctx.forgets_below || self.ctx.is_bottom(&operands.key));
        let (kind, value) = operands.end(&self.ctx.operator, is_bottom);
        let (key, seq) = (&operands.key[..], operands.seq);
        self.write_record(&EntryRef { key, seq, kind, value: &value }, operands.kept_for)
    }

    fn write_record(&mut self, entry: &EntryRef<'_>, kept_for: Option<Readers>) -> Result<()> {
        let at_a_cut = self.comes_to_a_cut(entry.key);
        let full = |b: &ExtentBuilder| b.size() >= self.cut_at() && b.last_key() != Some(entry.key);
        if at_a_cut || self.builder.as_ref().is_some_and(full) {
            self.cut()?;
        }
        match self.values.place(entry, self.ctx)? {
            None => self.builder().add(*entry),
            Some(reference) => {
                let (kind, value) = (Kind::Reference, &reference[..]);
                self.builder().add(EntryRef { kind, value, ..*entry });
            }
        }
        if let Some(readers) = kept_for {
            self.builder().kept_for(readers);
        }
        Ok(())
    }

    /// Whether all keys so far are smaller than `key`.
    fn is_past_all(&self, key: &[u8]) -> bool {
        self.retain.last_key().is_none_or(|last| last < key)
    }

    /// Whether an extent may stay where it is: `next` is the other side's next key. A small one is
    /// rather written again together with its neighbours, and so is one that would leave a small
    /// one before it, or small ones would come to stand between large ones in ever greater numbers.
    /// One with records that were kept for readers is looked into.
    pub(super) fn may_keep(&self, extent: &Extent, next: Option<&[u8]>) -> bool {
        let (meta, most) = (extent.meta(), self.ctx.extent_bytes);
        let large = |b: &ExtentBuilder| b.size() >= most / 8;
        self.ctx.reuse
            && meta.location.len as usize >= most / 2
            && self.may_lie_there(meta)
            && meta.kept == 0
            && self.is_past_all(&meta.smallest_key)
            && next.is_none_or(|next| meta.greatest_key.as_slice() < next)
            && self.builder.as_ref().is_none_or(large)
    }

    /// Whether an extent may stay on its tier.
    fn may_lie_there(&self, meta: &ExtentMeta) -> bool {
        let (is_object, is_wanted) = (meta.location.is_object(), self.ctx.objects.is_some());
        is_object == is_wanted || !is_object && self.ctx.may_stay_local > 0
    }

    /// Leaves an extent where it is.
    pub(super) fn keep(&mut self, extent: &Extent) -> Result<()> {
        debug_assert!(self.is_past_all(&extent.meta().smallest_key), "a merge goes up");
        self.end_operands(true)?;
        self.cut()?;
        let is_new = self.outputs.kept.insert(extent.meta().id);
        debug_assert!(is_new, "an extent is kept once");
        self.outputs.carried_over.extents += 1;
        self.outputs.carried_over.extent_bytes += u64::from(extent.meta().location.len);
        Ok(())
    }

    /// Whether a block may be taken over as it is: every version in it is the only one of its key,
    /// and no tombstone asks whether it still hides something.
    pub(super) fn may_copy(&self, ahead: Ahead<'_>, next: Option<&[u8]>) -> bool {
        let Ahead { summary, last_key, next_key } = ahead;
        self.ctx.reuse
            && summary.keys == summary.records
            && summary.deletes == 0
            && self.is_past_all(&summary.first_key)
            && next.is_none_or(|next| last_key < next)
            && next_key.is_none_or(|next| last_key < next)
            && self.builder.as_ref().is_none_or(ExtentBuilder::takes_blocks)
    }

    /// Takes a block over.
    pub(super) fn copy(&mut self, block: WholeBlock) -> Result<()> {
        debug_assert!(self.is_past_all(block.first_key()), "a merge goes up");
        self.end_operands(true)?;
        let is_full = self.builder.as_ref().is_some_and(|b| b.size() >= self.cut_at());
        if self.comes_to_a_cut(block.first_key()) || is_full {
            self.cut()?;
        }
        self.outputs.carried_over.blocks += 1;
        self.outputs.carried_over.block_bytes += block.len();
        self.builder().add_block(block);
        Ok(())
    }

    /// Ends the last extent.
    pub(super) fn finish(mut self) -> Result<Outputs> {
        self.end_operands(true)?;
        // Beyond the last record there is nothing to hide but what lies deeper.
        let last = self.builder.as_ref().and_then(ExtentBuilder::last_key);
        let last = last.max(self.ctx.ranges.last_below()).map(<[u8]>::to_vec);
        let tombstones = last.map(|last| self.unwritten.take_up_to(&last)).unwrap_or_default();
        if self.builder.is_some() || !tombstones.is_empty() {
            self.builder().add_tombstones(tombstones);
            if let Some(builder) = self.builder.take() {
                self.write(builder)?;
            }
        }
        Ok(self.outputs)
    }
}
