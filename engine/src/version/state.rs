//! The metadata of all tables, and what an edit does to it. Pure: no files, no locks.
//!
//! [`State::apply`] gives a new state or names the invariant that the edit breaks; the old state
//! is as it was. The invariants are the functions of [`invariants`].

mod invariants;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::edit::{Edit, Op};
use super::levels::{Level, Version};
use super::run::Run;
use super::shared_map::SharedMap;
use crate::base::options::TableOptions;
use crate::base::record::{Lsn, RowTable, TableId};
use crate::mvcc::{TimeMark, Timeline};
use crate::sstable::{Described, Extent, ValueMeta};

pub(super) use invariants::Broken;

/// One table's metadata.
#[derive(Clone, Debug)]
pub(super) struct Table<E> {
    pub(super) name: Arc<str>,
    pub(super) created_lsn: Lsn,
    pub(super) version: Arc<Version<E>>,
}

/// Extents of a run whose commit the journal does not know of.
#[derive(Clone, Debug)]
pub(super) struct JournaledRun<E> {
    pub(super) table: TableId,
    pub(super) extents: Level<E>,
    pub(super) loaded: bool,
}

/// Numbers that only rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) next_table: TableId,
    pub(super) next_extent: u64,
    pub(super) table_event_lsn: Lsn,
}

/// The metadata of all tables.
#[derive(Clone, Debug)]
pub(super) struct State<E = Arc<Extent>> {
    pub(super) tables: SharedMap<TableId, Table<E>>,
    /// The names of the tables.
    names: SharedMap<Arc<str>, ()>,
    /// By the number of the run.
    pub(super) pending: BTreeMap<u64, JournaledRun<E>>,
    pub(super) counters: Counters,
    /// When records were written.
    pub(super) timeline: Arc<Timeline>,
}

impl<E> Default for State<E> {
    fn default() -> State<E> {
        let counters = Counters { next_table: 1, next_extent: 1, table_event_lsn: 0 };
        let (tables, names, pending) =
            (SharedMap::default(), SharedMap::default(), BTreeMap::new());
        State { tables, names, pending, counters, timeline: Arc::default() }
    }
}

/// What an edit came to.
#[derive(Debug)]
pub(super) struct Applied<E> {
    pub(super) state: State<E>,
    /// Tables whose version is another one now; dropped tables are not among them.
    pub(super) touched: BTreeSet<TableId>,
    /// Extents that no level has any more.
    pub(super) removed: Vec<E>,
}

impl<E: Described> State<E> {
    /// This state with `edit` applied to it. Copies the parts of the tables that it touches.
    pub(super) fn apply(&self, edit: &Edit<E>) -> Result<Applied<E>, Broken> {
        self.clone().into_next(edit)
    }

    /// As [`State::apply`], for a salvage: extents of a level may overlap.
    pub(super) fn apply_overlapping(&self, edit: &Edit<E>) -> Result<Applied<E>, Broken> {
        self.clone().next(edit, true)
    }

    /// The state that `edit` makes of this one, which is gone if the edit is refused.
    pub(super) fn into_next(self, edit: &Edit<E>) -> Result<Applied<E>, Broken> {
        self.next(edit, false)
    }

    fn next(self, edit: &Edit<E>, may_overlap: bool) -> Result<Applied<E>, Broken> {
        let mut draft = Draft { may_overlap, ..Draft::new(self) };
        draft.apply_all(edit)?;
        draft.finish()
    }

    /// The state that edits make of an empty one. It makes levels once, and their invariants hold
    /// at the end; those of single operations hold behind each.
    ///
    /// # Errors
    ///
    /// What is broken, with the number of the edit among these: the last one, if a level is.
    pub(super) fn replayed<'a>(
        edits: impl Iterator<Item = &'a Edit<E>>,
    ) -> Result<State<E>, (usize, Broken)>
    where
        E: 'a,
    {
        let (mut draft, mut last) = (Draft::new(State::default()), 0);
        draft.places = Some(HashMap::new());
        for (n, edit) in edits.enumerate() {
            draft.apply_all(edit).map_err(|broken| (n, broken))?;
            draft.removed.clear();
            last = n;
        }
        draft.finish().map(|applied| applied.state).map_err(|broken| (last, broken))
    }

    /// The edit that makes this state out of an empty one.
    pub(super) fn checkpoint(&self) -> Edit<E> {
        let Counters { next_table, next_extent, table_event_lsn } = self.counters;
        let mut ops = vec![Op::Counters { next_table, next_extent, table_event_lsn }];
        ops.extend(self.timeline.marks().iter().copied().map(Op::TimeMark));
        for (&table, described) in self.tables.iter() {
            let name = described.name.to_string();
            ops.push(Op::CreateTable { table, created_lsn: described.created_lsn, name });
            let options = described.version.options;
            if options != TableOptions::new() {
                ops.push(Op::TableOptions { table, options });
            }
            let expired = described.version.expired;
            if expired > 0 {
                let ttl = options.ttl_micros().unwrap_or(0);
                ops.push(Op::TimeToLive { table, ttl, expired });
            }
            let map = described.version.drained.clone();
            ops.push(Op::DrainedMap { table, map });
            ops.extend(described.version.rows.iter().map(|row| Op::AddRow { table, row: *row }));
            for (level, extents) in (1..).zip(&described.version.levels) {
                let add = |extent: &E| Op::AddExtent { table, level, extent: extent.clone() };
                ops.extend(extents.extents().iter().map(add));
            }
            for run in described.version.runs.iter().rev() {
                let (extents, lsn) = (run.extents.extents().to_vec(), run.lsn);
                ops.push(Op::AddRun { table, run: run.id, extents, loaded: run.loaded });
                ops.push(Op::CommitRun { table, run: run.id, lsn });
            }
        }
        ops.extend(self.pending.iter().map(|(&run, pending)| {
            let extents = pending.extents.extents().to_vec();
            Op::AddRun { table: pending.table, run, extents, loaded: pending.loaded }
        }));
        Edit { ops }
    }

    /// All extents.
    pub(super) fn extents(&self) -> impl Iterator<Item = &E> {
        let versions = self.tables.values().map(|table| &table.version);
        let in_tables = versions.flat_map(|version| {
            version.levels.iter().chain(version.runs.iter().map(|run| &run.extents))
        });
        let pending = self.pending.values().map(|pending| &pending.extents);
        in_tables.chain(pending).flat_map(|level| level.extents().iter())
    }

    /// The value extents that extents refer to.
    ///
    /// # Errors
    ///
    /// Two extents describe one differently.
    pub(super) fn value_extents(&self) -> Result<BTreeMap<u64, ValueMeta>, Broken> {
        let mut known = BTreeMap::new();
        for one in self.extents().flat_map(|extent| extent.meta().values.iter()) {
            let first = known.entry(one.of.id).or_insert(one.of);
            invariants::values_are_described_alike(first, &one.of)?;
        }
        Ok(known)
    }

    /// The same state, each extent put in another form.
    pub(super) fn map<F: Described>(&self, mut form: impl FnMut(&E) -> F) -> State<F> {
        let mut map_level =
            |level: &Level<E>| Level::new(level.extents().iter().map(&mut form).collect());
        let mut map_version = |version: &Version<E>| {
            let levels = version.levels.iter().map(&mut map_level).collect();
            let runs = version.runs.iter().map(|run| {
                let extents = map_level(&run.extents);
                Arc::new(Run { id: run.id, lsn: run.lsn, extents, loaded: run.loaded })
            });
            Version {
                table: version.table,
                levels,
                runs: runs.collect(),
                rows: version.rows.clone(),
                drained: version.drained.clone(),
                answers: Arc::clone(&version.answers),
                options: version.options,
                expired: version.expired,
            }
        };
        let tables = self.tables.iter().map(|(&id, table)| {
            let version = Arc::new(map_version(&table.version));
            let name = Arc::clone(&table.name);
            (id, Table { name, created_lsn: table.created_lsn, version })
        });
        let tables = tables.collect();
        let pending = self.pending.iter().map(|(&run, pending)| {
            let extents = map_level(&pending.extents);
            (run, JournaledRun { table: pending.table, extents, loaded: pending.loaded })
        });
        let timeline = Arc::clone(&self.timeline);
        let names = self.names.clone();
        State { tables, names, pending: pending.collect(), counters: self.counters, timeline }
    }
}

/// A state on its way to the next one. Within an edit extents may overlap for a while, so levels
/// that change are lists here and become levels at the end.
struct Draft<E> {
    state: State<E>,
    /// Whether they may overlap at the end, too.
    may_overlap: bool,
    levels: BTreeMap<(TableId, u8), Vec<E>>,
    /// What is left of runs that extents were taken out of, by id. They too are made at the end.
    runs: BTreeMap<(TableId, u64), HashMap<u64, E>>,
    /// The extents that came to levels, by table.
    added: BTreeMap<TableId, Vec<u64>>,
    touched: BTreeSet<TableId>,
    removed: Vec<E>,
    /// Where the extents of `levels` are in their lists, by id, if many edits are applied.
    places: Option<HashMap<(TableId, u8, u64), usize>>,
}

impl<E: Described> Draft<E> {
    fn new(state: State<E>) -> Draft<E> {
        Draft {
            state,
            may_overlap: false,
            levels: BTreeMap::new(),
            runs: BTreeMap::new(),
            added: BTreeMap::new(),
            touched: BTreeSet::new(),
            removed: Vec::new(),
            places: None,
        }
    }

    fn apply_all(&mut self, edit: &Edit<E>) -> Result<(), Broken> {
        edit.ops.iter().try_for_each(|op| self.apply(op))
    }

    fn apply(&mut self, op: &Op<E>) -> Result<(), Broken> {
        match op {
            Op::CreateTable { table, created_lsn, name } => {
                self.create_table(*table, *created_lsn, name)
            }
            Op::DropTable { table } => self.drop_table(*table),
            Op::RenameTable { table, name } => self.rename_table(*table, name),
            Op::AddExtent { table, level, extent } => self.add_extent(*table, *level, extent),
            Op::RemoveExtent { table, level, id } => {
                let extent = self.remove_extent(*table, *level, *id)?;
                self.removed.push(extent);
                Ok(())
            }
            Op::MoveExtent { table, from, to, id } => {
                let extent = self.remove_extent(*table, *from, *id)?;
                self.push(*table, *to, extent)
            }
            Op::Drained { table, seq, interval } => {
                let version = self.version(*table)?;
                invariants::drained_never_falls(&version.drained, interval, *seq)?;
                version.drained.set(interval, *seq);
                Ok(())
            }
            Op::DrainedMap { table, map } => {
                self.version(*table)?.drained = map.clone();
                Ok(())
            }
            Op::AddRun { table, run, extents, loaded } => {
                self.add_run((*table, *run), extents, *loaded)
            }
            Op::CommitRun { table, run, lsn } => self.commit_run(*table, *run, *lsn),
            Op::DropRun { table, run } => {
                let pending = self.state.pending.remove(run);
                let pending = pending.ok_or_else(|| invariants::no_run(*table, *run))?;
                self.removed.extend(pending.extents.extents().iter().cloned());
                Ok(())
            }
            Op::RemoveFromRun { table, run, id } => {
                let (_, going) = self.take_from_run(*table, *run, &[*id])?;
                self.removed.extend(going);
                Ok(())
            }
            Op::MoveFromRun { table, run, level, ids } => {
                let (lsn, extents) = self.take_from_run(*table, *run, ids)?;
                for extent in extents {
                    self.added.entry(*table).or_default().push(extent.meta().id);
                    self.push(*table, *level, extent.numbered(lsn))?;
                }
                Ok(())
            }
            Op::TableOptions { table, options } => {
                self.version(*table)?.options = *options;
                Ok(())
            }
            Op::AddRow { table, row } => self.add_row(*table, row),
            Op::RemoveRow { table, id } => self.remove_row(*table, *id),
            Op::TimeMark(mark) => self.mark_time(*mark),
            Op::TimeToLive { table, ttl, expired } => self.set_ttl(*table, *ttl, *expired),
            Op::Counters { next_table, next_extent, table_event_lsn } => {
                self.raise(*next_table, *next_extent, *table_event_lsn);
                Ok(())
            }
        }
    }

    fn add_row(&mut self, table: TableId, row: &RowTable) -> Result<(), Broken> {
        let rows = &mut self.version(table)?.rows;
        invariants::rows_ascend(rows, table, row)?;
        rows.push(*row);
        let counters = &mut self.state.counters;
        counters.next_extent = counters.next_extent.max(row.id.saturating_add(1));
        Ok(())
    }

    fn remove_row(&mut self, table: TableId, id: u64) -> Result<(), Broken> {
        let rows = &mut self.version(table)?.rows;
        let at = rows.iter().position(|row| row.id == id);
        rows.remove(at.ok_or_else(|| invariants::no_row(table, id))?);
        Ok(())
    }

    fn raise(&mut self, next_table: TableId, next_extent: u64, table_event_lsn: Lsn) {
        let counters = &mut self.state.counters;
        counters.next_table = counters.next_table.max(next_table);
        counters.next_extent = counters.next_extent.max(next_extent);
        counters.table_event_lsn = counters.table_event_lsn.max(table_event_lsn);
    }

    fn mark_time(&mut self, mark: TimeMark) -> Result<(), Broken> {
        invariants::time_goes_on(&self.state.timeline, mark)?;
        Arc::make_mut(&mut self.state.timeline).add(mark);
        Ok(())
    }

    fn set_ttl(&mut self, table: TableId, ttl: u64, expired: Lsn) -> Result<(), Broken> {
        let version = self.version(table)?;
        version.options.ttl = (ttl > 0).then(|| Duration::from_micros(ttl));
        invariants::ttl_is_sound(&version.options)?;
        version.expired = version.expired.max(expired);
        Ok(())
    }

    fn create_table(&mut self, id: TableId, created_lsn: Lsn, name: &str) -> Result<(), Broken> {
        invariants::table_is_new(&self.state, id)?;
        let name = self.take_name(name)?;
        let version = Arc::new(Version::empty(id));
        self.state.tables.insert(id, Table { name, created_lsn, version });
        self.state.counters.next_table = self.state.counters.next_table.max(id.saturating_add(1));
        self.touched.insert(id);
        Ok(())
    }

    fn rename_table(&mut self, id: TableId, name: &str) -> Result<(), Broken> {
        let name = self.take_name(name)?;
        let before = std::mem::replace(&mut self.table(id)?.name, name);
        self.state.names.remove(&before);
        Ok(())
    }

    fn take_name(&mut self, name: &str) -> Result<Arc<str>, Broken> {
        invariants::name_is_free(&self.state.names, name)?;
        let name: Arc<str> = name.into();
        self.state.names.insert(Arc::clone(&name), ());
        Ok(name)
    }

    fn drop_table(&mut self, id: TableId) -> Result<(), Broken> {
        let count = self.table(id)?.version.levels.len() as u8;
        for level in 1..=count {
            let extents = std::mem::take(self.level(id, level)?);
            self.levels.remove(&(id, level));
            if let Some(places) = &mut self.places {
                extents.iter().for_each(|one| _ = places.remove(&(id, level, one.meta().id)));
            }
            self.removed.extend(extents);
        }
        let runs = std::mem::take(&mut self.version(id)?.runs);
        let pending = self.state.pending.extract_if(.., |_, pending| pending.table == id);
        let pending: Vec<_> = pending.map(|(_, pending)| pending.extents).collect();
        for run in &runs {
            match self.runs.remove(&(id, run.id)) {
                Some(left) => self.removed.extend(left.into_values()),
                None => self.removed.extend(run.extents.extents().iter().cloned()),
            }
        }
        for extents in &pending {
            self.removed.extend(extents.extents().iter().cloned());
        }
        if let Some(table) = self.state.tables.remove(&id) {
            self.state.names.remove(&table.name);
        }
        self.added.remove(&id);
        self.touched.remove(&id);
        Ok(())
    }

    fn add_extent(&mut self, table: TableId, level: u8, extent: &E) -> Result<(), Broken> {
        invariants::extent_is_sound(extent.meta())?;
        self.added.entry(table).or_default().push(extent.meta().id);
        self.push(table, level, extent.clone())?;
        let counters = &mut self.state.counters;
        counters.next_extent = counters.next_extent.max(extent.meta().last_id().saturating_add(1));
        Ok(())
    }

    fn commit_run(&mut self, table: TableId, run: u64, lsn: Lsn) -> Result<(), Broken> {
        let pending = self.state.pending.remove(&run);
        let pending = pending.ok_or_else(|| invariants::no_run(table, run))?;
        let runs = &mut self.version(table)?.runs;
        let at = runs.partition_point(|other| other.lsn > lsn);
        let JournaledRun { extents, loaded, .. } = pending;
        runs.insert(at, Arc::new(Run { id: run, lsn, extents, loaded }));
        Ok(())
    }

    fn add_run(
        &mut self,
        (table, run): (TableId, u64),
        extents: &[E],
        loaded: bool,
    ) -> Result<(), Broken> {
        self.table(table)?;
        invariants::run_is_new(&self.state, table, run)?;
        for extent in extents {
            invariants::extent_is_sound(extent.meta())?;
        }
        let extents = Level::new(extents.to_vec());
        invariants::run_is_disjoint(&extents, table, run)?;
        let greatest = extents.extents().iter().map(|e| e.meta().last_id()).fold(run, u64::max);
        let counters = &mut self.state.counters;
        counters.next_extent = counters.next_extent.max(greatest.saturating_add(1));
        self.state.pending.insert(run, JournaledRun { table, extents, loaded });
        Ok(())
    }

    /// Takes extents out of a run; with the run's LSN.
    fn take_from_run(
        &mut self,
        table: TableId,
        run: u64,
        ids: &[u64],
    ) -> Result<(Lsn, Vec<E>), Broken> {
        let runs = &self.version(table)?.runs;
        let at = runs.iter().position(|other| other.id == run);
        let at = at.ok_or_else(|| invariants::no_run(table, run))?;
        let found = Arc::clone(&runs[at]);
        let left = self.runs.entry((table, run)).or_insert_with(|| {
            found.extents.extents().iter().map(|e| (e.meta().id, e.clone())).collect()
        });
        let take =
            |id: &u64| left.remove(id).ok_or_else(|| invariants::no_extent_in_run(table, run, *id));
        let going = ids.iter().map(take).collect::<Result<Vec<E>, Broken>>()?;
        if left.is_empty() {
            self.runs.remove(&(table, run));
            self.version(table)?.runs.remove(at);
        }
        Ok((found.lsn, going))
    }

    fn table(&mut self, id: TableId) -> Result<&mut Table<E>, Broken> {
        self.state.tables.get_mut(&id).ok_or_else(|| invariants::no_table(id))
    }

    fn version(&mut self, id: TableId) -> Result<&mut Version<E>, Broken> {
        self.touched.insert(id);
        let table = self.state.tables.get_mut(&id).ok_or_else(|| invariants::no_table(id))?;
        Ok(Arc::make_mut(&mut table.version))
    }

    /// The list of a level that is about to change.
    fn level(&mut self, id: TableId, level: u8) -> Result<&mut Vec<E>, Broken> {
        invariants::level_is_in_range(level)?;
        let version = self.version(id)?;
        if version.levels.len() < usize::from(level) {
            version.levels.resize_with(usize::from(level), Level::default);
        }
        let extents = &version.levels[usize::from(level) - 1].extents().clone();
        Ok(self.levels.entry((id, level)).or_insert_with(|| extents.to_vec()))
    }

    fn push(&mut self, table: TableId, level: u8, extent: E) -> Result<(), Broken> {
        let (id, list) = (extent.meta().id, self.level(table, level)?);
        list.push(extent);
        let at = list.len() - 1;
        if let Some(places) = &mut self.places {
            places.insert((table, level, id), at);
        }
        Ok(())
    }

    fn remove_extent(&mut self, table: TableId, level: u8, id: u64) -> Result<E, Broken> {
        let mut places = self.places.take();
        let list = self.level(table, level)?;
        let at = match &mut places {
            Some(places) => places.remove(&(table, level, id)),
            None => list.iter().position(|extent| extent.meta().id == id),
        };
        let removed = at.map(|at| (list.swap_remove(at), list.get(at).map(|e| (e.meta().id, at))));
        if let (Some(places), Some((_, Some((moved, at))))) = (&mut places, &removed) {
            places.insert((table, level, *moved), *at);
        }
        self.places = places;
        removed.map(|(extent, _)| extent).ok_or_else(|| invariants::no_extent(table, level, id))
    }

    fn finish(mut self) -> Result<Applied<E>, Broken> {
        for ((id, n), extents) in std::mem::take(&mut self.levels) {
            let level = Level::new(extents);
            if !self.may_overlap {
                invariants::level_is_disjoint(&level, id, n)?;
            }
            self.version(id)?.levels[usize::from(n) - 1] = level;
        }
        for ((id, run), left) in std::mem::take(&mut self.runs) {
            let runs = &mut self.version(id)?.runs;
            if let Some(run) = runs.iter_mut().find(|one| one.id == run) {
                Arc::make_mut(run).extents = Level::new(left.into_values().collect());
            }
        }
        for (id, added) in std::mem::take(&mut self.added) {
            invariants::extents_are_new(&self.table(id)?.version.levels, id, added)?;
        }
        for id in &self.touched {
            if let Some(table) = self.state.tables.get_mut(id) {
                let levels = &mut Arc::make_mut(&mut table.version).levels;
                let used = levels.iter().rposition(|level| !level.is_empty()).map_or(0, |n| n + 1);
                levels.truncate(used);
            }
        }
        Ok(Applied { state: self.state, touched: self.touched, removed: self.removed })
    }
}
