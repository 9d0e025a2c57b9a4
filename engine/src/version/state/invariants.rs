//! What holds of the metadata before and after every edit, each under its name.

use std::sync::Arc;

use super::State;
use crate::base::options::TableOptions;
use crate::base::record::{Lsn, RowTable, SYSTEM_TABLE, TableId};
use crate::mvcc::{DrainedMap, KeyInterval, TimeMark, Timeline};
use crate::sstable::{Described, ExtentMeta, ValueMeta};
use crate::version::levels::{Level, MAX_LEVELS};
use crate::version::shared_map::SharedMap;

/// An edit breaks the invariant `name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::version) struct Broken {
    pub(in crate::version) name: &'static str,
    pub(in crate::version) detail: String,
}

type Check = Result<(), Broken>;

fn require(holds: bool, name: &'static str, detail: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(Broken { name, detail: detail() }) }
}

/// A table's id is not in use and is not the engine's own.
pub(super) fn table_is_new<E: Clone>(state: &State<E>, id: TableId) -> Check {
    let new = id != SYSTEM_TABLE && !state.tables.contains_key(&id);
    require(new, "table_is_new", || format!("there is a table {id}"))
}

/// No two tables have one name.
pub(super) fn name_is_free(names: &SharedMap<Arc<str>, ()>, name: &str) -> Check {
    let is_free = !names.contains_key(name);
    require(is_free, "name_is_free", || format!("there is a table named {name:?}"))
}

/// What an edit changes is there.
pub(super) fn no_table(id: TableId) -> Broken {
    Broken { name: "table_is_there", detail: format!("there is no table {id}") }
}

/// An extent that is removed or moved is in the level that the edit says.
pub(super) fn no_extent(table: TableId, level: u8, id: u64) -> Broken {
    let detail = format!("there is no extent {id} in level {level} of table {table}");
    Broken { name: "extent_is_there", detail }
}

/// Levels count from 1; there are at most [`MAX_LEVELS`].
pub(super) fn level_is_in_range(level: u8) -> Check {
    let detail = || format!("level {level} is not in 1 to {MAX_LEVELS}");
    require((1..=MAX_LEVELS).contains(&level), "level_is_in_range", detail)
}

/// An extent's description can be true.
pub(super) fn extent_is_sound(meta: &ExtentMeta) -> Check {
    require(meta.is_sound(), "extent_is_sound", || format!("extent {}: {meta:?}", meta.id))
}

/// All extents that refer to a value extent say the same of it.
pub(super) fn values_are_described_alike(one: &ValueMeta, other: &ValueMeta) -> Check {
    let detail = || format!("value extent {}: {one:?} and {other:?}", one.id);
    require(one == other, "values_are_described_alike", detail)
}

/// An extent is in one level of its table, once. Looks at each extent of the table once, however
/// many were `added`.
pub(super) fn extents_are_new<E: Described>(
    levels: &[Level<E>],
    table: TableId,
    mut added: Vec<u64>,
) -> Check {
    added.sort_unstable();
    let mut times = vec![0; added.len()];
    for (n, level) in (1..).zip(levels) {
        for id in level.extents().iter().map(|extent| extent.meta().id) {
            let Ok(at) = added.binary_search(&id) else { continue };
            times[at] += 1;
            let detail = || format!("extent {id} is in table {table} already, now in level {n}");
            require(times[at] == 1, "extent_is_new", detail)?;
        }
    }
    Ok(())
}

/// No key is in two extents of a level.
pub(super) fn level_is_disjoint<E: Described>(level: &Level<E>, table: TableId, n: u8) -> Check {
    let overlap = level.overlap();
    require(overlap.is_none(), "level_is_disjoint", || {
        let ids = overlap.map(|(a, b)| (a.meta().id, b.meta().id));
        format!("extents {ids:?} overlap in level {n} of table {table}")
    })
}

/// A run's number is not in use by its table, or by a run that is not committed: that one is found
/// by its number alone.
pub(super) fn run_is_new<E: Clone>(state: &State<E>, table: TableId, run: u64) -> Check {
    let of_table = state.tables.get(&table).map(|table| &table.version.runs);
    let new = !state.pending.contains_key(&run)
        && of_table.into_iter().flatten().all(|other| other.id != run);
    require(new, "run_is_new", || format!("there is a run {run}, now again in table {table}"))
}

/// A run that is committed, dropped or drained is there.
pub(super) fn no_run(table: TableId, run: u64) -> Broken {
    Broken { name: "run_is_there", detail: format!("there is no run {run} of table {table}") }
}

/// An extent that leaves a run is in it.
pub(super) fn no_extent_in_run(table: TableId, run: u64, id: u64) -> Broken {
    let detail = format!("there is no extent {id} in run {run} of table {table}");
    Broken { name: "extent_is_there", detail }
}

/// No key is in two extents of a run, and it has one at least.
pub(super) fn run_is_disjoint<E: Described>(extents: &Level<E>, table: TableId, run: u64) -> Check {
    let sound = !extents.is_empty() && extents.overlap().is_none();
    let detail = || format!("run {run} of table {table} is empty, or extents of it overlap");
    require(sound, "run_is_disjoint", detail)
}

/// D of a key only rises, or records come back from the dead.
pub(super) fn drained_never_falls(map: &DrainedMap, interval: &KeyInterval, seq: Lsn) -> Check {
    let inside = map.steps().iter().filter(|(start, _)| interval.contains(start));
    let highest = inside.map(|(_, seq)| *seq).fold(map.get(&interval.start), Lsn::max);
    let detail = || format!("drained to {highest} already, now to {seq}");
    require(highest <= seq, "drained_never_falls", detail)
}

/// Marks of LSNs ascend, and their times do not fall.
pub(super) fn time_goes_on(timeline: &Timeline, mark: TimeMark) -> Check {
    let detail = || format!("{mark:?} does not follow {:?}", timeline.last());
    require(timeline.is_followed_by(mark), "time_goes_on", detail)
}

/// A time to live is one that a table can have.
pub(super) fn ttl_is_sound(options: &TableOptions) -> Check {
    let sound = options.check();
    require(sound.is_ok(), "ttl_is_sound", || format!("{:?}", options.ttl))
}

/// Row tables are added in the order of their LSNs, which do not overlap, each once.
pub(super) fn rows_ascend(rows: &[RowTable], table: TableId, row: &RowTable) -> Check {
    let last = rows.last().map_or(0, |last| last.upto);
    let is_new = rows.iter().all(|other| other.id != row.id);
    let detail = || format!("row table {row:?} of table {table} follows one up to LSN {last}");
    require(is_new && last <= row.after, "rows_ascend", detail)
}

/// A row table that is removed is there.
pub(super) fn no_row(table: TableId, id: u64) -> Broken {
    Broken { name: "row_is_there", detail: format!("there is no row table {id} of table {table}") }
}
