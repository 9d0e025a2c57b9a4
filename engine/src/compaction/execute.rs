//! Running a compaction, and the merge that drains share with it.
//!
//! Everything is written and synced before the edit that names it is handed to the caller; a
//! merge that fails half-way drops its outputs, and with them their space.

use std::sync::Arc;

use crate::compaction::ranges::{Ranges, tombstones_of};
use crate::compaction::{Choice, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{BlockCache, Extent, ExtentBuilder};
use crate::levels::{Edit, LevelCursor, Op, VersionSet};
use crate::merge::{Fragments, MergingCursor, Retain};
use crate::mvcc::Horizon;
use crate::options::Compression;
use crate::record::{Cursor, LSN_MAX};

/// What a merge goes by.
pub(crate) struct MergeContext<'a, B: Fn(&[u8]) -> bool> {
    /// Gives ids and space.
    pub(crate) set: &'a VersionSet,
    pub(crate) cache: &'a BlockCache,
    /// The extents that the output takes the place of: where a block of theirs is cached, the
    /// block that takes its place is put into the cache too.
    pub(crate) replaces: &'a [Arc<Extent>],
    /// What readers still need. Taken after the inputs were fixed.
    pub(crate) horizon: &'a Horizon,
    /// Whether no level deeper than the output's can have a key.
    pub(crate) bottom: B,
    /// The range tombstones that come in.
    pub(crate) ranges: &'a Ranges<'a>,
    /// Where extents are cut, at the next key.
    pub(crate) extent_bytes: usize,
    /// How their blocks are compressed.
    pub(crate) compression: Compression,
}

/// What a merge wrote.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    /// Sorted and disjoint; durable, not yet installed.
    pub(crate) extents: Vec<Arc<Extent>>,
    pub(crate) entries_in: u64,
    pub(crate) entries_out: u64,
    pub(crate) bytes_out: u64,
}

impl Outputs {
    fn write<B>(&mut self, builder: ExtentBuilder, ctx: &MergeContext<'_, B>) -> Result<()>
    where
        B: Fn(&[u8]) -> bool,
    {
        let is_hot = |key: &[u8]| ctx.replaces.iter().any(|e| e.is_cached(key, ctx.cache));
        let extent = builder.finish().write_filling(ctx.set.store(), |extent, bytes| {
            extent.fill(bytes, ctx.cache, is_hot);
        })?;
        self.entries_out += extent.meta().records;
        self.bytes_out += u64::from(extent.meta().location.len);
        self.extents.push(extent);
        Ok(())
    }
}

/// Writes what is worth keeping of all that `input` shows into extents, and syncs them. Extents
/// are cut only between keys, so the versions of a key stay together; range tombstones are cut with
/// them, and none reaches beyond what it could hide.
///
/// # Errors
///
/// `Full` when there is no room, `Corrupt` when an input does not check out: nothing has changed
/// and the space is given back. A failed sync poisons `ctx.set`.
pub(crate) fn merge_to_level<B: Fn(&[u8]) -> bool>(
    input: &mut dyn Cursor,
    ctx: &MergeContext<'_, B>,
) -> Result<Outputs> {
    let mut outputs = Outputs::default();
    let mut retain = Retain::new(ctx.horizon);
    let fragments = Fragments::new(&ctx.ranges.tombstones, ctx.horizon);
    let mut over = fragments.walk();
    let mut unwritten = fragments.to_write(ctx.horizon, |interval| ctx.ranges.is_bottom(interval));
    let new = || ExtentBuilder::new(ctx.set.next_extent_id(), ctx.compression);
    let mut builder: Option<ExtentBuilder> = None;
    input.seek(b"", LSN_MAX)?;
    while let Some(entry) = input.entry() {
        outputs.entries_in += 1;
        let hidden_by = over.hidden_by(entry.key, entry.seq);
        if retain.keep(&entry, hidden_by, || (ctx.bottom)(entry.key)) {
            let full = |b: &mut ExtentBuilder| {
                b.size() >= ctx.extent_bytes && b.last_key() != Some(entry.key)
            };
            if let Some(mut done) = builder.take_if(full) {
                done.add_tombstones(unwritten.take_up_to(done.last_key().unwrap_or_default()));
                outputs.write(done, ctx)?;
            }
            builder.get_or_insert_with(new).add(entry);
        }
        input.next()?;
    }
    // Beyond the last record there is nothing to hide but what lies deeper.
    let last = builder.as_ref().and_then(ExtentBuilder::last_key).max(ctx.ranges.last_below());
    let tombstones = last.map(|last| unwritten.take_up_to(last)).unwrap_or_default();
    if builder.is_some() || !tombstones.is_empty() {
        let mut done = builder.unwrap_or_else(new);
        done.add_tombstones(tombstones);
        outputs.write(done, ctx)?;
    }
    ctx.set.store().sync().inspect_err(|_| ctx.set.poison())?;
    Ok(outputs)
}

/// Does what was chosen, short of applying the edit, which it gives. The table's version must
/// still have the chosen extents; the caller runs one job a table at a time, drains included.
///
/// # Errors
///
/// As [`merge_to_level`]; `Closed` if the table was dropped meanwhile.
pub(crate) fn run(
    choice: &Choice,
    set: &VersionSet,
    cache: &Arc<BlockCache>,
    horizon: &Horizon,
    shape: &Shape,
) -> Result<Edit> {
    match choice {
        Choice::Move { table, from, extent } => {
            let id = extent.meta().id;
            let op = Op::MoveExtent { table: *table, from: *from, to: from + 1, id };
            Ok(Edit { ops: vec![op] })
        }
        Choice::Merge { table, from, inputs, overlap, .. } => {
            let (table, from, to) = (*table, *from, from + 1);
            let version = set.version(table).ok_or_else(|| {
                Error::new(ErrorKind::Closed, format!("table {table} was dropped"))
            })?;
            let bottom = |key: &[u8]| version.is_bottom(to, key);
            let (extent_bytes, compression) = (shape.extent_bytes, shape.compression(to));
            let mut ranges = Ranges::new(&version, to, tombstones_of(inputs)?, horizon);
            let merged = ranges.without_hidden(overlap);
            ranges.tombstones.extend(tombstones_of(&merged)?);
            let ranges = &ranges;
            let replaces = &[inputs.as_slice(), &merged].concat();
            let ctx = MergeContext {
                set,
                cache,
                replaces,
                horizon,
                bottom,
                ranges,
                extent_bytes,
                compression,
            };
            let cursor = |extents: &Vec<Arc<Extent>>| -> Box<dyn Cursor> {
                let extents = extents.as_slice().into();
                Box::new(LevelCursor::new(extents, Arc::clone(cache), false))
            };
            let mut input = MergingCursor::new(vec![cursor(inputs), cursor(&merged)]);
            let outputs = merge_to_level(&mut input, &ctx)?;
            let remove = |level, extent: &Arc<Extent>| Op::RemoveExtent {
                table,
                level,
                id: extent.meta().id,
            };
            let mut ops: Vec<Op> = inputs.iter().map(|extent| remove(from, extent)).collect();
            ops.extend(merged.iter().map(|extent| remove(to, extent)));
            ops.extend(ranges.remove_hidden());
            let add = |extent| Op::AddExtent { table, level: to, extent };
            ops.extend(outputs.extents.into_iter().map(add));
            Ok(Edit { ops })
        }
    }
}

#[cfg(test)]
mod tests;
