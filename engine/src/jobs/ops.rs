//! What several jobs do with a table.

use std::sync::Arc;

use super::context::{Batch, JobContext, Outcome};
use crate::base::error::Result;
use crate::base::events::CompactionInfo;
use crate::base::record::{Lsn, RowTable, TableId};
use crate::compaction::ClaimedKeys;
use crate::level0::{Level0, Superseded};
use crate::memtable::Memtable;
use crate::mvcc::{Horizon, KeyInterval, Readers};
use crate::os::time;
use crate::read::view::Frozen;
use crate::sstable::Extent;
use crate::table::{Change, TableCore};
use crate::version::{Edit, Op, Version, known_as};

/// Freezes a table's active memtable at a boundary in the order of commits; whether there was
/// something to freeze.
pub(crate) fn freeze(ctx: &JobContext, table: &TableCore) -> bool {
    let mut change = table.change();
    let view = table.view();
    // An empty one is frozen for its boundary, which lets runs below it be drained.
    let boundary = view.frozen.first().map_or(table.merged(), |frozen| frozen.boundary);
    let for_runs = view.version.runs.iter().any(|run| run.lsn > boundary);
    if table.check().is_err() || (view.active.records() == 0 && !for_runs) {
        return false;
    }
    let fresh = Arc::new(Memtable::new(Arc::clone(&ctx.shared.region)));
    // Made ready here, since nothing is allocated where the boundary is known.
    let mut frozen = change.changed(|view| {
        let memtable = std::mem::replace(&mut view.active, fresh);
        view.frozen.insert(0, Frozen { memtable, boundary: 0 });
    });
    let (before, at) = ctx.shared.committer.at_boundary(|at| {
        match Arc::get_mut(&mut frozen) {
            Some(view) => view.frozen[0].boundary = at,
            None => unreachable!("a view that was not installed has no other owner"),
        }
        (change.install(frozen), at)
    });
    debug_assert!(at >= boundary, "boundaries of a table's memtables ascend");
    drop(before);
    ctx.metrics.freezes.add(1);
    true
}

/// Shows what an edit made of a table's version. Versions at or below `pruned` may be missing in it
/// for readers that are not registered.
pub(crate) fn install(
    table: &TableCore,
    change: &mut Change<'_>,
    versions: Vec<(TableId, Arc<Version>)>,
    pruned: Lsn,
) {
    for (id, version) in versions {
        debug_assert_eq!(id, version.table, "a version is of the table that it is named with");
        debug_assert_eq!(id, table.id(), "an edit of a job changes the tables that it holds");
        change.apply(|view| {
            view.show(version);
            view.pruned = view.pruned.max(pruned);
        });
    }
}

/// Removes extents of a table, with the levels that they are in, by an edit that finds space on a
/// full disk too. `why` is as [`CompactionInfo::reason`]. Versions at or below `pruned` go with
/// them. The caller holds the right to change the table, which ends before the cache forgets the
/// blocks.
pub(super) fn remove_extents(
    ctx: &JobContext,
    table: &TableCore,
    mut change: Change<'_>,
    (gone, why): (&[(u8, Arc<Extent>)], &'static str),
    pruned: Lsn,
) -> Result<()> {
    let began = time::now();
    let remove = |(level, extent): &(u8, Arc<Extent>)| {
        let (table, id) = (table.id(), extent.meta().id);
        Op::RemoveExtent { table, level: *level, id }
    };
    debug_assert!(!gone.is_empty(), "an edit that removes extents has some to remove");
    debug_assert!(
        are_unclaimed(&ctx.claims.of(table.id()), gone),
        "no extent goes that a compaction works on"
    );
    let versions = ctx.apply_freeing(Edit { ops: gone.iter().map(remove).collect() })?;
    install(table, &mut change, versions, pruned);
    drop(change);
    gone.iter().for_each(|(_, extent)| extent.evict());
    let levels = gone.iter().map(|(level, _)| known_as(*level));
    let bytes = |(_, extent): &(u8, Arc<Extent>)| u64::from(extent.meta().location.len);
    ctx.options.events.send(|| CompactionInfo {
        table: table.name(),
        from_level: levels.clone().min().unwrap_or(0),
        to_level: levels.max().unwrap_or(0),
        reason: why,
        extents_in: gone.len() as u64,
        bytes_in: gone.iter().map(bytes).sum(),
        ms: time::since(began).as_secs_f64() * 1e3,
        ..CompactionInfo::default()
    });
    Ok(())
}

/// Extents that an edit adds.
pub(super) struct AddedExtents {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl AddedExtents {
    pub(super) fn of(edit: &Edit) -> AddedExtents {
        let mut added = AddedExtents { count: 0, bytes: 0 };
        for op in &edit.ops {
            if let Op::AddExtent { extent, .. } = op {
                added.count += 1;
                added.bytes += u64::from(extent.meta().location.len);
            }
        }
        added
    }
}

/// Drops superseded versions once every reader has a view that can do without; their bytes.
pub(super) fn prune_later(
    ctx: &JobContext,
    table: &Arc<TableCore>,
    level0: Arc<Level0>,
    superseded: Superseded,
) -> u64 {
    if superseded.is_empty() {
        return 0;
    }
    ctx.metrics.pruned_records.add(superseded.len() as u64);
    let bytes = superseded.bytes();
    debug_assert!(bytes > 0, "a superseded record has bytes in its zone");
    let table = Arc::clone(table);
    ctx.shared.defer(move |shared| {
        shared.count_out(|| level0.prune(superseded));
        table.mark_changed();
    });
    bytes
}

/// For which readers level 0 keeps a version whose next newer one is `newer`.
pub(super) fn kept_for(horizon: &Horizon, floor: Lsn, (seq, newer): (Lsn, Lsn)) -> Option<Readers> {
    debug_assert!(seq <= newer, "the newer version has the greater number");
    // What supersedes a version has to be durable itself, or a power cut could take both.
    if newer > floor { Some((seq, newer)) } else { horizon.readers_of(seq, newer) }
}

/// Nothing was done on a full disk, or for want of a descriptor, and nothing has to be.
pub(super) fn unless_full(done: Result<bool>) -> Result<bool> {
    match done {
        Err(e) if e.may_pass() => Ok(false),
        done => done,
    }
}

/// Does `job` for the first table where it finds something to do. On a full disk it finds nothing.
pub(super) fn for_first(
    tables: Vec<Arc<TableCore>>,
    job: impl Fn(&TableCore) -> Result<bool>,
) -> Result<Outcome> {
    for table in tables {
        if unless_full(job(&table))? {
            return Ok(Outcome::DONE);
        }
    }
    Ok(Outcome::NOTHING)
}

/// Whether zones are worth a job, which takes syncs. Many are a quarter of what is free, or a 32nd
/// of the region.
pub(super) fn are_worth_it(ctx: &JobContext, zones: &[u32], batch: Batch) -> bool {
    let pool = &ctx.shared.zones;
    let are_many = || {
        let units = pool.units_in(zones.iter().copied());
        4 * units >= pool.free() || 32 * units >= pool.room()
    };
    !zones.is_empty() && (batch == Batch::Any || are_many())
}

/// Closes a stream that no table has; the cleaner's too if `cleaner` says so, which is open from
/// one copy to the next else. Whether there was one.
pub(super) fn close_reopened(ctx: &JobContext, cleaner: bool) -> Result<bool> {
    let committer = &ctx.shared.committer;
    let reopened = committer.reopened_streams();
    let closes = |stream: &&u32| cleaner || committer.cleaner != Some(**stream);
    let Some(stream) = reopened.iter().find(closes) else { return Ok(false) };
    committer.close_stream(*stream)?;
    Ok(true)
}

/// A job that did nothing moved nothing.
pub(crate) fn outcome_is_sound(outcome: &Outcome) -> bool {
    let has_moved =
        outcome.pruned > 0 || outcome.drained.is_some() || outcome.left_level1.is_some();
    outcome.did || !has_moved
}

/// No compaction works on keys of these extents in their levels (invariant 2 of `claims.rs`).
pub(super) fn are_unclaimed(busy: &[ClaimedKeys], gone: &[(u8, Arc<Extent>)]) -> bool {
    let is_free = |n: u8, keys: &KeyInterval| !busy.iter().any(|claim| claim.has(n, keys));
    gone.iter().all(|(n, extent)| is_free(*n, &extent.meta().interval()))
}

/// Each operation is on extents or on D of one table.
pub(super) fn edit_is_of(edit: &Edit, id: TableId) -> bool {
    edit.ops.iter().all(|op| match op {
        Op::AddExtent { table, .. }
        | Op::RemoveExtent { table, .. }
        | Op::MoveExtent { table, .. }
        | Op::RemoveFromRun { table, .. }
        | Op::MoveFromRun { table, .. }
        | Op::Drained { table, .. }
        | Op::DrainedMap { table, .. } => *table == id,
        _ => false,
    })
}

/// A zone that is about to be released has no record that counts.
pub(super) fn zones_are_dead(ctx: &JobContext, zones: &[u32]) -> bool {
    zones.iter().all(|zone| ctx.shared.zones.live(*zone) == 0)
}

/// A row table holds what lies between two merges, and its oldest record is one of these.
pub(super) fn row_is_sound(row: &RowTable, boundary: Lsn) -> bool {
    row.after < row.oldest && row.oldest <= row.upto && row.upto == boundary
}

/// Row tables of which all is drained, on their way out.
pub(super) struct DrainedRows {
    table: TableId,
    level0: Arc<Level0>,
    ids: Vec<u64>,
}

impl DrainedRows {
    /// Those of a table.
    pub(super) fn of(table: &TableCore) -> DrainedRows {
        let level0 = Arc::clone(&table.view().level0);
        let ids = level0.rows.as_ref().map_or_else(Vec::new, |rows| rows.drained());
        DrainedRows { table: table.id(), level0, ids }
    }

    /// What removes them.
    pub(super) fn ops(&self) -> impl Iterator<Item = Op> {
        self.ids.iter().map(|id| Op::RemoveRow { table: self.table, id: *id })
    }

    /// The edit that removes them is durable.
    pub(super) fn remove(&self, ctx: &JobContext) {
        if let Some(rows) = self.level0.rows.as_ref().filter(|_| !self.ids.is_empty()) {
            ctx.metrics.row_tables_removed.add(self.ids.len() as u64);
            rows.remove(&self.ids);
        }
    }
}
