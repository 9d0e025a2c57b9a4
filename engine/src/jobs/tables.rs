//! The tables of an open database: by name, by number, and what the background needs to know of
//! each.
//!
//! Thread safety: lock order is `by_name`, then `index`, then `by_id`; each is held for a few
//! instructions, `index` also for what [`TableIndex::refresh`] reads of tables that changed, and
//! `by_id` for a look at the views of all tables.
//!
//! Invariant: a table is in `by_id` before any writer finds it, and until it is dropped. So `by_id`
//! has each table with records that count, and the scheduler finds each table that was noted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table_index::TableIndex;
use crate::base::record::{Lsn, TableId};
use crate::commit::{Step, reached};
use crate::os::HashMap;
use crate::os::sync::locks::{Mutex, MutexGuard};
use crate::table::{ChangedTables, TableCore, TableSlot};

/// The tables.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    by_name: Mutex<BTreeMap<String, Arc<TableSlot>>>,
    by_id: Mutex<HashMap<TableId, Arc<TableCore>>>,
    changed: Arc<ChangedTables>,
    index: Mutex<TableIndex>,
    /// A planted bug.
    notes_early: bool,
}

impl Tables {
    /// No table yet.
    pub(crate) fn new(notes_early: bool) -> Tables {
        Tables { notes_early, ..Tables::default() }
    }

    /// Where tables note that they changed.
    pub(crate) fn changed(&self) -> &Arc<ChangedTables> {
        &self.changed
    }

    /// The tables of this moment, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<TableCore>> {
        self.by_name.lock().values().map(|slot| slot.core()).collect()
    }

    /// The slots of this moment, in the order of their names.
    pub(crate) fn slots_in_order(&self) -> Vec<Arc<TableSlot>> {
        self.by_name.lock().values().cloned().collect()
    }

    /// The slots of this moment, by number.
    pub(crate) fn slots(&self) -> HashMap<TableId, Arc<TableSlot>> {
        let by_name = self.by_name.lock();
        by_name.values().map(|slot| (slot.core().id(), Arc::clone(slot))).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_name.lock().len()
    }

    /// The slot with a name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<TableSlot>> {
        self.by_name.lock().get(name).cloned()
    }

    /// The table with a number.
    pub(crate) fn get(&self, id: TableId) -> Option<Arc<TableCore>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.by_name.lock().keys().cloned().collect()
    }

    /// Adds a slot with its table.
    pub(crate) fn insert(&self, name: &str, slot: TableSlot) -> Arc<TableSlot> {
        let slot = Arc::new(slot);
        debug_assert_eq!(slot.core().name(), name, "a slot has the name of its table");
        self.register(&slot.core());
        reached(Step::TableHalfKnown);
        let before = self.by_name.lock().insert(name.to_string(), Arc::clone(&slot));
        debug_assert!(before.is_none(), "a name has one slot");
        slot
    }

    /// Takes a slot out, with its table.
    pub(crate) fn remove(&self, name: &str) {
        let slot = self.by_name.lock().remove(name);
        debug_assert!(slot.is_some(), "a table that goes has its name");
        if let Some(slot) = slot {
            self.unregister(&slot.core());
        }
    }

    /// Puts a slot under another name.
    pub(crate) fn rename(&self, from: &str, to: &str) {
        let mut by_name = self.by_name.lock();
        debug_assert!(by_name.contains_key(from), "a table that is renamed has its name");
        if let Some(slot) = by_name.remove(from) {
            slot.core().rename(to);
            let before = by_name.insert(to.to_string(), slot);
            debug_assert!(before.is_none(), "a name has one slot");
        }
    }

    /// Puts a table into a slot that is there; the one before.
    pub(crate) fn replace(&self, slot: &TableSlot, core: TableCore) -> Arc<TableCore> {
        debug_assert!(slot.core().id() < core.id(), "numbers go up");
        let core = Arc::new(core);
        self.register(&core);
        reached(Step::TableHalfKnown);
        let before = slot.replace(core);
        debug_assert!(before.check().is_err(), "a table that is replaced is dropped");
        self.unregister(&before);
        before
    }

    fn register(&self, core: &Arc<TableCore>) {
        if self.notes_early {
            core.mark_changed();
        }
        let before = self.by_id.lock().insert(core.id(), Arc::clone(core));
        debug_assert!(before.is_none(), "a number is given once");
        core.mark_changed();
    }

    fn unregister(&self, core: &TableCore) {
        let gone = self.by_id.lock().remove(&core.id());
        debug_assert!(gone.is_some_and(|gone| gone.created() == core.created()), "it had a number");
        core.mark_changed();
    }

    /// The greatest LSN up to `floor`, which was read before, up to which no table has a record in
    /// a memtable. It looks at the views of all tables.
    ///
    /// Up to the floor each commit has counted its records in its memtables. A view lets go of a
    /// memtable only once all of it is in level 0. A writer finds a table only once it is here.
    pub(crate) fn merged_upto(&self, floor: Lsn) -> Lsn {
        let by_id = self.by_id.lock();
        let of = |table: &Arc<TableCore>| {
            let view = table.view();
            // A view without the memtable has a level 0 with its records.
            let in_memtables = view.oldest_in_memtables();
            let in_memory = view.level0.in_zones.oldest_in_memory();
            in_memtables.into_iter().chain(in_memory).min()
        };
        let oldest = by_id.values().filter_map(of).min();
        oldest.map_or(floor, |oldest| floor.min(oldest - 1))
    }

    /// What the background knows of tables, as of this moment.
    pub(crate) fn index(&self) -> MutexGuard<'_, TableIndex> {
        let mut index = self.index.lock();
        let mut list = std::mem::take(&mut index.list);
        self.changed.take_into(&mut list);
        index.refresh(&list, |id| self.get(id));
        index.list = list;
        index
    }
}
