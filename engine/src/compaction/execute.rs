//! Running a compaction that was chosen.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ranges::{Ranges, tombstones_of};
use super::shape::cuts;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::TableId;
use crate::compaction::choice::bytes;
use crate::compaction::merge::{Side, merge_to_level};
use crate::compaction::output::{CarriedOver, MergeContext, ObjectOutput, Outputs};
use crate::compaction::{Choice, Shape};
use crate::mvcc::Horizon;
use crate::sstable::{BlockCache, Extent, ValueUse, values_of};
use crate::storage::{SpaceReservation, Uploads};
use crate::version::{Edit, Op, Room, VersionSet};

/// What a job is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) choice: &'a Choice,
    /// The deepest level that is claimed: range tombstones hide nothing below it.
    pub(crate) bottom: u8,
    /// Whether what it writes becomes objects. The table's options may say something else by now,
    /// and no thread of files sends an object.
    pub(crate) puts_objects: bool,
    /// How often a job of the table wrote more than it was promised: it counts on half as much of
    /// what deletes hide each time.
    pub(crate) underestimates: u32,
}

/// What a job came to.
#[derive(Debug)]
pub(crate) struct Done {
    /// Still to be applied.
    pub(crate) edit: Edit,
    /// Extents that it removes.
    pub(crate) replaced: Vec<Arc<Extent>>,
    pub(crate) carried_over: CarriedOver,
}

/// Does what was chosen, short of applying the edit, which it gives. The table's version must
/// still have the chosen extents. `before_write` is told of the bytes of each extent: it may wait,
/// or end the compaction with an error.
pub(crate) fn run(
    planned: Planned<'_>,
    set: &VersionSet,
    cache: &Arc<BlockCache>,
    horizon: &Horizon,
    shape: &Shape,
    before_write: &dyn Fn(u64) -> Result<()>,
) -> Result<Done> {
    let Planned { choice, bottom, puts_objects, underestimates } = planned;
    let Choice { table, inputs: by_level, to, overlap, collects, .. } = choice;
    let (table, to) = (*table, *to);
    debug_assert!(by_level.is_sorted_by_key(|(n, _)| *n), "upper levels come first");
    debug_assert!(by_level.iter().all(|(n, _)| *n <= to), "what is merged goes down");
    if let Some(done) = unmerged(choice, set, before_write) {
        #[cfg(any(test, feature = "testing"))]
        by_level.iter().for_each(|(_, copied)| delete_early(shape, set, copied));
        return done;
    }
    let inputs: Vec<_> = by_level.iter().flat_map(|(_, extents)| extents).cloned().collect();
    let version = set
        .version(table)
        .ok_or_else(|| Error::new(ErrorKind::Closed, format!("table {table} was dropped")))?;
    let mut ranges = Ranges::new(&version, to, tombstones_of(&inputs)?, horizon, |n, _| n > bottom);
    let overlap = ranges.without_hidden(overlap);
    ranges.tombstones.extend(tombstones_of(&overlap)?);
    let come_in = bytes(&inputs) + bytes(&overlap);
    let mut uploads = puts_objects.then(|| set.store().uploads()).transpose()?;
    let may_stay_local = if puts_objects { may_stay_local(choice, shape) } else { come_in };
    let replaces = &[inputs.as_slice(), &overlap].concat();
    let rewrites = (!puts_objects).then_some(collects);
    let hidden = choice.hidden_bytes(horizon.oldest()).checked_shr(underestimates).unwrap_or(0);
    // Without room for the edit all would be in vain. It is not kept: drops, truncations and
    // verdicts may need it before this one is done.
    let edit = edit_like(table, to, replaces, hidden);
    drop(set.reserve_edits([edit].into_iter(), Room::Freeing)?);
    let reservation = &reserve(set, (replaces, hidden), may_stay_local, rewrites)?;
    let ctx = MergeContext {
        replaces,
        values: values_of(replaces),
        collects: &|id| collects.contains(&id),
        extent_bytes: shape.extent_bytes_of(puts_objects),
        objects: uploads.as_mut().map(|uploads| ObjectOutput::new(uploads, come_in)),
        may_stay_local,
        cuts: cuts(&version, to, &choice.interval(), shape),
        before_write,
        ..MergeContext::of((set, cache), (&ranges, horizon), shape, reservation)
    };
    let upper = upper_side(by_level, &ranges, cache, ctx.reuse)?;
    let outputs = merge_to_level(upper, Side::under(&ranges, &overlap, cache, ctx.reuse)?, &ctx)?;
    set.sync_extents()?;
    // Before the edit names them.
    uploads.map_or(Ok(()), Uploads::finish)?;
    #[cfg(any(test, feature = "testing"))]
    delete_early(shape, set, replaces);
    let below = outputs.replaced(&overlap);
    let removed = by_level.iter().map(|(n, extents)| (*n, &extents[..]));
    let mut ops = remove(table, removed.chain([(to, &below[..])]));
    ops.extend(ranges.remove_hidden());
    let replaced = [inputs.as_slice(), &below].concat();
    Ok(done(ops, outputs, (table, to), replaced))
}

/// Does what is done without a merge; `None` if there is one to be made.
fn unmerged(
    choice: &Choice,
    set: &VersionSet,
    before_write: &dyn Fn(u64) -> Result<()>,
) -> Option<Result<Done>> {
    let Choice { table, to, is_move, is_copy, .. } = *choice;
    let [(from, extents)] = &choice.inputs[..] else { return None };
    if is_move {
        let mv = |id| Op::MoveExtent { table, from: *from, to, id };
        let ops = extents.iter().map(|extent| mv(extent.meta().id)).collect();
        let carried_over = CarriedOver::extents(extents.iter());
        return Some(Ok(Done { edit: Edit { ops }, replaced: Vec::new(), carried_over }));
    }
    is_copy.then(|| copy_here((table, to), extents, set, before_write))
}

/// Copies extents of a level to this machine, with their ids. So a checkpoint finds that the store
/// has them.
fn copy_here(
    (table, level): (TableId, u8),
    extents: &[Arc<Extent>],
    set: &VersionSet,
    before_write: &dyn Fn(u64) -> Result<()>,
) -> Result<Done> {
    let edit = edit_like(table, level, extents, 0);
    drop(set.reserve_edits([edit].into_iter(), Room::Freeing)?);
    let reservation = set.store().reserve_space(bytes(extents), false)?;
    let mut ops = remove(table, [(level, extents)].into_iter());
    for extent in extents {
        before_write(extent.meta().location.len.into())?;
        let extent = extent.copied(&extent.read_whole()?, &reservation)?;
        ops.push(Op::AddExtent { table, level, extent });
    }
    set.sync_extents()?;
    let carried_over = CarriedOver::extents(extents.iter());
    Ok(Done { edit: Edit { ops }, replaced: extents.to_vec(), carried_over })
}

/// What a merge takes from the levels above the one that it writes to.
fn upper_side<'a>(
    by_level: &'a [(u8, Vec<Arc<Extent>>)],
    ranges: &Ranges,
    cache: &Arc<BlockCache>,
    reuse: bool,
) -> Result<Side<'a>> {
    match by_level {
        [(_, extents)] => Side::under(ranges, extents, cache, reuse),
        _ => Side::stacked(by_level, cache),
    }
}

/// Bytes of its output that need not become objects.
fn may_stay_local(choice: &Choice, shape: &Shape) -> u64 {
    // What goes down to make room does not come back at once.
    let room = shape.local_room.filter(|_| !choice.goes_down_for_room());
    room.map_or(0, |room| room.max(0) as u64)
}

/// What a merge came to, with the operations that add its outputs.
fn done(
    mut ops: Vec<Op>,
    outputs: Outputs,
    (table, level): (TableId, u8),
    replaced: Vec<Arc<Extent>>,
) -> Done {
    let add = |extent| Op::AddExtent { table, level, extent };
    ops.extend(outputs.extents.into_iter().map(add));
    Done { edit: Edit { ops }, replaced, carried_over: outputs.carried_over }
}

/// The operations that take extents out of their levels.
fn remove<'a>(table: TableId, from: impl Iterator<Item = (u8, &'a [Arc<Extent>])>) -> Vec<Op> {
    let mut ops = Vec::new();
    for (level, extents) in from {
        let ids = extents.iter().map(|extent| extent.meta().id);
        ops.extend(ids.map(|id| Op::RemoveExtent { table, level, id }));
    }
    ops
}

/// Deletes the objects of extents that no edit has removed yet, if that bug is planted.
#[cfg(any(test, feature = "testing"))]
fn delete_early(shape: &Shape, set: &VersionSet, extents: &[Arc<Extent>]) {
    let ids: Vec<_> = extents.iter().filter_map(|e| e.meta().location.object()).collect();
    let is_planted = shape.deletes_early && !ids.is_empty();
    if let Some(tier) = set.store().objects().filter(|_| is_planted) {
        tier.delete_now(&ids).unwrap_or(());
    }
}

/// About the edit that is to come. It adds as many extents as it removes, but for what deletes
/// hide.
fn edit_like(table: TableId, level: u8, replaces: &[Arc<Extent>], hidden: u64) -> Edit {
    let mut ops = remove(table, [(level, replaces)].into_iter());
    let mut left = bytes(replaces).saturating_sub(hidden);
    for extent in replaces {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(extent.meta().location.len.into());
        ops.push(Op::AddExtent { table, level, extent: Arc::clone(extent) });
    }
    Edit { ops }
}

/// The space for what a merge writes here: `local` bytes of extents at most, all but those that
/// deletes hide, and the values of some value extents. What brings objects to this machine makes no
/// space here.
fn reserve(
    set: &VersionSet,
    (replaces, hidden): (&[Arc<Extent>], u64),
    local: u64,
    rewrites: Option<&BTreeSet<u64>>,
) -> Result<SpaceReservation> {
    let lists = replaces.iter().flat_map(|extent| extent.meta().values.iter());
    let values = lists.filter(|one| rewrites.is_some_and(|ids| ids.contains(&one.of.id)));
    let local_values = values.clone().filter(|one| !one.of.location.is_object());
    let is_local = |extent: &&Arc<Extent>| !extent.meta().location.is_object();
    let sum = |bytes: u64, one: &ValueUse| bytes + one.bytes;
    let writes = values.fold(bytes(replaces).saturating_sub(hidden).min(local), sum);
    let frees = local_values.fold(bytes(replaces.iter().filter(is_local)), sum);
    set.store().reserve_space(writes, writes <= frees)
}

#[cfg(test)]
pub(super) mod tests;
