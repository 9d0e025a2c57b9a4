//! Drains: one column of a table's level 0, merged into level 1.
//!
//! A drain takes every record of its column with a sequence number ≤ s, where s is the smaller of
//! the table's merged boundary and F, merges them with the extents of level 1 that the column
//! touches, and installs the result with D(column) = s in the same edit. From then on readers
//! find those records in level 1 and nowhere else.

use std::sync::Arc;

use crate::compaction::Shape;
use crate::compaction::execute::{Done, bytes};
use crate::compaction::merge::{Side, merge_to_level};
use crate::compaction::output::MergeContext;
use crate::compaction::ranges::{Ranges, tombstones_of};
use crate::error::Result;
use crate::extent::{BlockCache, Extent};
use crate::level0::ColumnBudget;
use crate::levels::{Edit, Op, Version, VersionSet};
use crate::merge::ClippedCursor;
use crate::mvcc::{Horizon, KeyInterval, after};
use crate::record::Lsn;
use crate::view::View;

/// Extents of level 1 that one drain may rewrite.
const MOST_OVERLAP: usize = 8;

/// Extents of level 2 under one drain's range tombstones, so that the merge which takes those
/// further down is bounded too.
const MOST_UNDER: usize = 16;

/// A column to drain, up to `upto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) interval: KeyInterval,
    pub(crate) upto: Lsn,
}

/// Chooses the next column of a turn at or after `from`. A pure function of the view.
pub(crate) fn choose_column(
    view: &View,
    from: &[u8],
    upto: Lsn,
    budget: ColumnBudget,
) -> Option<Column> {
    let drained = &view.version.drained;
    let mut interval = view.level0.column(from, upto, drained, budget)?;
    end_after(&mut interval, &view.version, 1, MOST_OVERLAP);
    if !view.level0.tombstones_in(&interval, upto, drained).is_empty() {
        end_after(&mut interval, &view.version, 2, MOST_UNDER);
    }
    Some(Column { interval, upto })
}

/// Ends a sparse column over much of a level behind the `most`th extent that it touches there.
fn end_after(interval: &mut KeyInterval, version: &Version, level: u8, most: usize) {
    if let [.., last, _] = touched(version, level, interval).get(..=most).unwrap_or_default() {
        interval.end = Some(after(&last.meta().greatest_key));
    }
}

fn touched<'a>(version: &'a Version, level: u8, interval: &KeyInterval) -> &'a [Arc<Extent>] {
    version.level(level).map_or(&[], |level| level.overlapping(interval))
}

/// Merges a column into new extents of level 1; the edit that installs them, which the caller
/// applies once it has synced them. The caller holds an epoch guard.
///
/// # Errors
///
/// As [`merge_to_level`]. Nothing has changed then.
pub(crate) fn drain(
    view: &View,
    column: &Column,
    set: &VersionSet,
    cache: &Arc<BlockCache>,
    horizon: &Horizon,
    shape: &Shape,
) -> Result<Done> {
    let (version, table) = (&view.version, view.version.table);
    let above = view.level0.tombstones_in(&column.interval, column.upto, &version.drained);
    let mut ranges = Ranges::new(version, 1, above, horizon);
    let inputs = ranges.without_hidden(touched(version, 1, &column.interval));
    ranges.tombstones.extend(tombstones_of(&inputs)?);
    let level0 = view.level0.cursor(&version.drained);
    let level0 = ClippedCursor::new(level0, column.interval.clone(), column.upto);
    let reuse = shape.reuse && ranges.tombstones.is_empty();
    let moved = view.level0.bytes_in(&column.interval, column.upto, &version.drained);
    let promise = &set.store().promise(bytes(&inputs) + moved, false)?;
    let context = MergeContext {
        set,
        cache,
        replaces: &inputs,
        horizon,
        bottom: |key: &[u8]| shape.drops_tombstones || version.is_bottom(1, key),
        ranges: &ranges,
        extent_bytes: shape.extent_bytes,
        format: shape.format(1, version.options),
        reuse,
        promise,
        before_write: &|_| {},
    };
    let level1 = Side::under(&ranges, &inputs, cache, reuse)?;
    let outputs = merge_to_level(Side::records(Box::new(level0))?, level1, &context)?;
    let replaced = outputs.replaced(&inputs);
    let remove = |e: &Arc<Extent>| Op::RemoveExtent { table, level: 1, id: e.meta().id };
    let mut ops: Vec<Op> = replaced.iter().map(remove).collect();
    ops.extend(ranges.remove_hidden());
    ops.extend(outputs.extents.into_iter().map(|extent| Op::AddExtent { table, level: 1, extent }));
    ops.push(Op::Drained { table, seq: column.upto, interval: column.interval.clone() });
    Ok(Done { edit: Edit { ops }, replaced, reused: outputs.reused })
}
