//! The metadata of all tables, and what an edit does to it. Pure: no files, no locks.
//!
//! [`State::apply`] gives a new state or names the invariant that the edit breaks; the old state
//! is as it was. The invariants are the functions of [`invariants`].

mod invariants;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::edit::{Edit, Op};
use super::version::{Level, Version};
use crate::extent::{Described, Extent};
use crate::options::TableOptions;
use crate::record::{Lsn, TableId};

pub(super) use invariants::Broken;

/// One table's metadata.
#[derive(Clone, Debug)]
pub(super) struct Table<E> {
    pub(super) name: Arc<str>,
    pub(super) created_lsn: Lsn,
    pub(super) version: Arc<Version<E>>,
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
    pub(super) tables: BTreeMap<TableId, Table<E>>,
    pub(super) counters: Counters,
}

impl<E> Default for State<E> {
    fn default() -> State<E> {
        let counters = Counters { next_table: 1, next_extent: 1, table_event_lsn: 0 };
        State { tables: BTreeMap::new(), counters }
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
    /// This state with `edit` applied to it.
    pub(super) fn apply(&self, edit: &Edit<E>) -> Result<Applied<E>, Broken> {
        let mut draft = Draft {
            state: self.clone(),
            levels: BTreeMap::new(),
            touched: BTreeSet::new(),
            removed: Vec::new(),
        };
        for op in &edit.ops {
            draft.apply(op)?;
        }
        draft.finish()
    }

    /// The edit that makes this state out of an empty one.
    pub(super) fn checkpoint(&self) -> Edit<E> {
        let Counters { next_table, next_extent, table_event_lsn } = self.counters;
        let mut ops = vec![Op::Counters { next_table, next_extent, table_event_lsn }];
        for (&table, described) in &self.tables {
            let name = described.name.to_string();
            ops.push(Op::CreateTable { table, created_lsn: described.created_lsn, name });
            let options = described.version.options;
            if options != TableOptions::new() {
                ops.push(Op::TableOptions { table, options });
            }
            let map = described.version.drained.clone();
            ops.push(Op::DrainedMap { table, map });
            for (level, extents) in (1..).zip(&described.version.levels) {
                let add = |extent: &E| Op::AddExtent { table, level, extent: extent.clone() };
                ops.extend(extents.extents().iter().map(add));
            }
        }
        Edit { ops }
    }

    /// All extents.
    pub(super) fn extents(&self) -> impl Iterator<Item = &E> {
        let levels = self.tables.values().flat_map(|table| &table.version.levels);
        levels.flat_map(|level| level.extents().iter())
    }

    /// The same state, each extent put in another form.
    pub(super) fn map<F: Described>(&self, mut form: impl FnMut(&E) -> F) -> State<F> {
        let mut map_version = |version: &Version<E>| Version {
            table: version.table,
            levels: version
                .levels
                .iter()
                .map(|level| Level::new(level.extents().iter().map(&mut form).collect()))
                .collect(),
            drained: version.drained.clone(),
            answers: Arc::clone(&version.answers),
            options: version.options,
        };
        let tables = self.tables.iter().map(|(&id, table)| {
            let version = Arc::new(map_version(&table.version));
            let name = Arc::clone(&table.name);
            (id, Table { name, created_lsn: table.created_lsn, version })
        });
        State { tables: tables.collect(), counters: self.counters }
    }
}

/// A state on its way to the next one. Within an edit extents may overlap for a while, so levels
/// that change are lists here and become levels at the end.
struct Draft<E> {
    state: State<E>,
    levels: BTreeMap<(TableId, u8), Vec<E>>,
    touched: BTreeSet<TableId>,
    removed: Vec<E>,
}

impl<E: Described> Draft<E> {
    fn apply(&mut self, op: &Op<E>) -> Result<(), Broken> {
        match op {
            Op::CreateTable { table, created_lsn, name } => {
                self.create_table(*table, *created_lsn, name)
            }
            Op::DropTable { table } => self.drop_table(*table),
            Op::RenameTable { table, name } => {
                invariants::name_is_free(&self.state, name)?;
                self.table(*table)?.name = name.as_str().into();
                Ok(())
            }
            Op::AddExtent { table, level, extent } => {
                invariants::extent_is_sound(extent.meta())?;
                self.check_extent_is_new(*table, extent.meta().id)?;
                self.level(*table, *level)?.push(extent.clone());
                let counters = &mut self.state.counters;
                counters.next_extent = counters.next_extent.max(extent.meta().id.saturating_add(1));
                Ok(())
            }
            Op::RemoveExtent { table, level, id } => {
                let extent = self.remove_extent(*table, *level, *id)?;
                self.removed.push(extent);
                Ok(())
            }
            Op::MoveExtent { table, from, to, id } => {
                let extent = self.remove_extent(*table, *from, *id)?;
                self.level(*table, *to)?.push(extent);
                Ok(())
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
            Op::TableOptions { table, options } => {
                self.version(*table)?.options = *options;
                Ok(())
            }
            Op::Counters { next_table, next_extent, table_event_lsn } => {
                let counters = &mut self.state.counters;
                counters.next_table = counters.next_table.max(*next_table);
                counters.next_extent = counters.next_extent.max(*next_extent);
                counters.table_event_lsn = counters.table_event_lsn.max(*table_event_lsn);
                Ok(())
            }
        }
    }

    fn create_table(&mut self, id: TableId, created_lsn: Lsn, name: &str) -> Result<(), Broken> {
        invariants::table_is_new(&self.state, id)?;
        invariants::name_is_free(&self.state, name)?;
        let version = Arc::new(Version::empty(id));
        self.state.tables.insert(id, Table { name: name.into(), created_lsn, version });
        self.state.counters.next_table = self.state.counters.next_table.max(id.saturating_add(1));
        self.touched.insert(id);
        Ok(())
    }

    fn drop_table(&mut self, id: TableId) -> Result<(), Broken> {
        let count = self.table(id)?.version.levels.len() as u8;
        for level in 1..=count {
            let extents = std::mem::take(self.level(id, level)?);
            self.removed.extend(extents);
        }
        self.levels.retain(|(table, _), _| *table != id);
        self.state.tables.remove(&id);
        self.touched.remove(&id);
        Ok(())
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

    fn check_extent_is_new(&mut self, table: TableId, id: u64) -> Result<(), Broken> {
        let count = self.table(table)?.version.levels.len() as u8;
        for level in 1..=count {
            let list = match self.levels.get(&(table, level)) {
                Some(list) => list.as_slice(),
                None => self.state.tables[&table].version.levels[usize::from(level) - 1].extents(),
            };
            invariants::extent_is_new(list, table, level, id)?;
        }
        Ok(())
    }

    fn remove_extent(&mut self, table: TableId, level: u8, id: u64) -> Result<E, Broken> {
        let list = self.level(table, level)?;
        let at = list.iter().position(|extent| extent.meta().id == id);
        at.map(|at| list.swap_remove(at)).ok_or_else(|| invariants::no_extent(table, level, id))
    }

    fn finish(mut self) -> Result<Applied<E>, Broken> {
        for ((id, n), extents) in std::mem::take(&mut self.levels) {
            let level = Level::new(extents);
            invariants::level_is_disjoint(&level, id, n)?;
            self.version(id)?.levels[usize::from(n) - 1] = level;
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
