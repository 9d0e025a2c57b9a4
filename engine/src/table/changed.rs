//! The tables that changed since the scheduler refreshed what it knows of them: they gained
//! records, their view was replaced, or their level 0 lost records. So a step costs nothing for
//! tables in which nothing happens.
//!
//! Thread safety: any thread notes a table; the scheduler takes the list. Each table has a flag of
//! its own ([`TableCore::mark_changed`](super::TableCore::mark_changed)), so it stands in the list
//! once at most. The flag is set by a swap after the change, and cleared by a swap before the
//! scheduler looks: of two swaps one comes first, so no change goes unseen.

use parking_lot::Mutex;

use crate::record::TableId;

/// The list.
#[derive(Debug, Default)]
pub(crate) struct ChangedTables(Mutex<Vec<TableId>>);

impl ChangedTables {
    /// Adds a table.
    pub(super) fn note(&self, table: TableId) {
        let mut list = self.0.lock();
        debug_assert!(
            !cfg!(test) || !list.contains(&table),
            "a table stands in the list once at most"
        );
        list.push(table);
    }

    /// Takes all of them, in exchange for an empty list: so neither allocates each time.
    pub(crate) fn take_into(&self, list: &mut Vec<TableId>) {
        list.clear();
        std::mem::swap(&mut *self.0.lock(), list);
    }
}
