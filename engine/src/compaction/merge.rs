//! The merge that drains and compactions share: two sides, each sorted, become extents of a level.
//!
//! A merge decodes and rewrites only extents and blocks that keys of both sides fall into. An
//! extent that is in the output's level already and has no key of the other side between its own
//! stays where it is, unread. A block without such a key is copied as it is. Both are looked at
//! from where the merge stands, so it takes no plan ahead. What has expired as a whole is left out,
//! unread.

use std::sync::Arc;

use super::output::{MergeContext, Outputs, Writer};
use super::ranges::{Fragments, Ranges};
use crate::base::error::Result;
use crate::base::record::{Cursor, EntryRef, LSN_MAX, MergingCursor};
use crate::sstable::{BlockCache, BlockWalk, Extent, ReadAhead};
use crate::version::LevelCursor;

/// One side of a merge.
pub(crate) enum Side<'a> {
    /// Records, one after the other.
    Records(Box<dyn Cursor + 'a>),
    /// Extents.
    Blocks(Box<BlockWalk>),
}

impl<'a> Side<'a> {
    /// The records of a cursor, all of them.
    pub(crate) fn records(mut cursor: Box<dyn Cursor + 'a>) -> Result<Side<'a>> {
        cursor.seek(b"", LSN_MAX)?;
        Ok(Side::Records(cursor))
    }

    /// Sorted extents that have no key in common. Without `reuse` they are records.
    pub(crate) fn extents(
        extents: &[Arc<Extent>],
        cache: &Arc<BlockCache>,
        reuse: bool,
    ) -> Side<'static> {
        Side::Blocks(Box::new(BlockWalk::new(extents, cache, reuse)))
    }

    /// The extents of a merge that range tombstones come into, if there are any: the first key of
    /// such an extent need not be that of a record, so it is read record by record.
    pub(crate) fn under(
        ranges: &Ranges<'_>,
        extents: &[Arc<Extent>],
        cache: &Arc<BlockCache>,
        reuse: bool,
    ) -> Result<Side<'static>> {
        if ranges.tombstones.is_empty() {
            return Ok(Side::extents(extents, cache, reuse));
        }
        let level = LevelCursor::new(extents.into(), Arc::clone(cache), ReadAhead::for_job(1));
        Side::records(Box::new(level))
    }

    /// The extents of several levels, the upper ones first.
    pub(crate) fn stacked(
        levels: &[(u8, Vec<Arc<Extent>>)],
        cache: &Arc<BlockCache>,
    ) -> Result<Side<'static>> {
        let ahead = ReadAhead::for_job(levels.len());
        // The merge begins with a piece of each.
        let firsts = levels.iter().filter_map(|(_, extents)| extents.first());
        firsts.for_each(|extent| extent.begin_walk(cache, &ahead));
        let cursor = |(_, extents): &(u8, Vec<Arc<Extent>>)| -> Box<dyn Cursor> {
            let extents = extents.as_slice().into();
            Box::new(LevelCursor::new(extents, Arc::clone(cache), Arc::clone(&ahead)))
        };
        Side::records(Box::new(MergingCursor::new(levels.iter().map(cursor).collect())))
    }

    /// The key that comes next.
    fn key(&self) -> Option<&[u8]> {
        match self {
            Side::Records(cursor) => cursor.entry().map(|entry| entry.key),
            Side::Blocks(walk) => walk.key(),
        }
    }

    /// The record that comes next; `None` also before a block that is not loaded.
    fn entry(&self) -> Option<EntryRef<'_>> {
        match self {
            Side::Records(cursor) => cursor.entry(),
            Side::Blocks(walk) => walk.entry(),
        }
    }

    fn next(&mut self) -> Result<()> {
        match self {
            Side::Records(cursor) => cursor.next(),
            Side::Blocks(walk) => walk.next(),
        }
    }

    /// Loads what it stands before.
    fn open(&mut self) -> Result<()> {
        match self {
            Side::Blocks(walk) => walk.open(),
            Side::Records(_) => Ok(()),
        }
    }
}

/// Which side's record comes next. Of a record that both have, the upper one counts, and the other
/// is stepped over with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Upper,
    Lower,
    Both,
    None,
}

/// By the records where both are known, else by keys alone, of which none are equal then.
fn next(upper: &Side<'_>, lower: &Side<'_>) -> Next {
    let order = match (upper.key(), lower.key()) {
        (None, None) => return Next::None,
        (Some(_), None) => return Next::Upper,
        (None, Some(_)) => return Next::Lower,
        (Some(a), Some(b)) => a.cmp(b),
    };
    let seqs = upper.entry().zip(lower.entry()).map(|(a, b)| b.seq.cmp(&a.seq));
    match order.then(seqs.unwrap_or(std::cmp::Ordering::Equal)) {
        std::cmp::Ordering::Less => Next::Upper,
        std::cmp::Ordering::Greater => Next::Lower,
        std::cmp::Ordering::Equal => Next::Both,
    }
}

/// A merge asks whether it goes on after so many steps: it may write nothing for long.
const STEPS: u32 = 16 << 10;

/// Writes what is worth keeping of both sides into extents, which the caller syncs. `lower` is in
/// the output's level; both sides of it together have no other key between their extents. Extents
/// are cut only between keys, so the versions of a key stay together.
///
/// # Errors
///
/// `Full` when there is no room, `Corrupt` when an input does not check out: nothing has changed
/// and the space is given back.
pub(crate) fn merge_to_level(
    mut upper: Side<'_>,
    mut lower: Side<'_>,
    ctx: &MergeContext<'_>,
) -> Result<Outputs> {
    let fragments = Fragments::new(&ctx.ranges.tombstones, ctx.horizon);
    let mut writer = Writer::new(ctx, &fragments);
    for taken in 1u32.. {
        if taken.is_multiple_of(STEPS) {
            (ctx.before_write)(0)?;
        }
        if upper.key().is_some() && upper.key() == lower.key() {
            upper.open()?;
            lower.open()?;
        }
        writer.among_others(ctx.reuse && lower.key().is_some());
        match next(&upper, &lower) {
            Next::None => break,
            Next::Upper => step(&mut upper, &lower, false, &mut writer)?,
            Next::Lower => step(&mut lower, &upper, true, &mut writer)?,
            Next::Both => {
                lower.next()?;
                step(&mut upper, &lower, false, &mut writer)?;
            }
        }
    }
    writer.finish()
}

/// Takes what `side` has next: as much as can be taken as it is before `other` has a key, else one
/// record.
fn step(
    side: &mut Side<'_>,
    other: &Side<'_>,
    in_place: bool,
    writer: &mut Writer<'_, '_>,
) -> Result<()> {
    if let Side::Blocks(walk) = &mut *side
        && walk.entry().is_none()
    {
        if walk.extent_ahead().is_some_and(|e| e.meta().greatest_seq <= writer.expired()) {
            walk.skip_extent();
            return Ok(());
        }
        if let Some(extent) = walk.extent_ahead()
            && in_place
        {
            if writer.may_keep(extent, other.key()) {
                writer.keep(extent)?;
                walk.skip_extent();
                return Ok(());
            }
            writer.begin_extent(extent);
        }
        walk.enter()?;
        if walk.skip_block(writer.expired())? {
            return Ok(());
        }
        let format = writer.format();
        let copies =
            walk.block_ahead(format)?.is_some_and(|ahead| writer.may_copy(ahead, other.key()));
        if copies && let Some(block) = walk.take_block(format)? {
            return writer.copy(block);
        }
        walk.open()?;
    }
    if let Some(entry) = side.entry() {
        writer.add(&entry)?;
    }
    side.next()
}

#[cfg(test)]
mod tests;
