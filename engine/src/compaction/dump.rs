//! What a table has above its levels, as of one LSN, as extents of one more level: how the records
//! of the region, and runs, get into a backup.
//!
//! It is a drain of everything at once, for one reader, into a level above all others. Its result
//! is never installed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Shape;
use super::merge::{Side, merge_to_level};
use super::output::{MergeContext, ObjectOutput};
use super::ranges::Ranges;
use crate::error::Result;
use crate::extent::{BlockCache, Extent, ReadAhead, values_of};
use crate::levels::{Level, Op, ReadRun, Version, VersionSet};
use crate::mvcc::Horizon;
use crate::options::Failpoint;
use crate::record::Lsn;
use crate::tier::{ExtentSink, ExtentStore};
use crate::view::View;

/// What comes of it.
#[derive(Debug, Default)]
pub(crate) struct Dumped {
    /// Sorted and disjoint; not synced.
    pub(crate) extents: Vec<Arc<Extent>>,
    /// Extents of levels of which range tombstones hide everything.
    pub(crate) hidden: BTreeSet<u64>,
}

/// At least so many bytes above the levels of `view` are to be read, up to an LSN.
pub(crate) fn bytes_to_dump(view: &View, upto: Lsn) -> u64 {
    let runs = view.runs().filter(|run| run.lsn <= upto);
    let in_runs = runs.map(|run| run.extents.bytes() + run.extents.referred());
    view.undrained_bytes() + in_runs.sum::<u64>()
}

/// Where what is dumped goes: into `store`, under ids of `set`; with `objects`, as objects there.
pub(crate) struct DumpInto<'a> {
    pub(crate) set: &'a VersionSet,
    pub(crate) store: &'a Arc<ExtentStore>,
    pub(crate) objects: Option<&'a mut dyn ExtentSink>,
    /// Asked before each extent is written: an error ends it.
    pub(crate) check: &'a dyn Fn() -> Result<()>,
}

/// Writes what `view` shows above its levels to the one reader of `horizon`. The caller has a
/// [`Hold`](crate::mvcc::Hold) from before it loaded the view and no epoch pinned, and the levels
/// have nothing that the reader does not see.
///
/// # Errors
///
/// As [`merge_to_level`]; those of `check`. What was written is gone then.
pub(crate) fn dump(
    view: &View,
    horizon: &Horizon,
    DumpInto { set, store, objects, check }: DumpInto<'_>,
    cache: &Arc<BlockCache>,
    shape: &Shape,
) -> Result<Dumped> {
    if view.undrained_bytes() == 0 && !view.has_runs() {
        return Ok(Dumped::default());
    }
    let mut version = Version::clone(&view.version);
    version.levels.insert(0, Level::default());
    let at = horizon.newest();
    let ranges = Ranges::new(&version, 1, view.undrained_tombstones(at), horizon, |_, _| false);
    // Of the view, not of the version: a commit may be visible before its edit is made.
    let runs: Vec<ReadRun<'_>> = view.runs().filter(|run| run.lsn <= at).collect();
    let of_view = || values_of(runs.iter().flat_map(|run| run.extents.extents().iter()));
    let of_version = || values_of(version.runs.iter().flat_map(|run| run.extents.extents().iter()));
    let is_stale = set.has(Failpoint::DumpVersionRuns);
    let above = bytes_to_dump(view, at);
    // It frees nothing. What is kept for jobs that do is in the database's own store alone.
    let reservation = &store.reserve_space(above, !Arc::ptr_eq(store, set.store()))?;
    let objects = objects.map(|sink| ObjectOutput::new(sink, above));
    let context = MergeContext {
        set,
        store,
        cache,
        replaces: &[],
        fills: false,
        values: if is_stale { of_version() } else { of_view() },
        // The values too have to be in the store.
        collects: &|_| true,
        horizon,
        expired: version.expired_at(&set.timeline(), horizon.oldest_time()),
        bottom: |key: &[u8]| version.is_bottom(1, key),
        operator: set.operator_of(version.options),
        forgets_below: false,
        ranges: &ranges,
        extent_bytes: shape.extent_bytes,
        cuts: Vec::new(),
        objects,
        may_stay_local: 0,
        format: shape.format(1, version.options),
        reuse: false,
        reservation,
        before_write: &|_| check(),
    };
    let cursor = view.cursor_above_levels(at, cache, &ReadAhead::for_job(runs.len()));
    let nothing = Side::extents(&[], cache, false);
    let outputs = merge_to_level(Side::records(Box::new(cursor))?, nothing, &context)?;
    let hidden = ranges.remove_hidden().filter_map(|op| match op {
        Op::RemoveExtent { id, .. } => Some(id),
        _ => None,
    });
    Ok(Dumped { extents: outputs.extents, hidden: hidden.collect() })
}
