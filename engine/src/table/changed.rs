//! The tables that changed since the scheduler refreshed what it knows of them: they gained
//! records, their view was replaced, or their level 0 lost records. So a step costs nothing for
//! tables in which nothing happens.
//!
//! It is a hint for the scheduler. A thread may have changed a table and not have noted it yet, so
//! nothing that a power cut may ask for is decided by it: the views say what tables have.
//!
//! Thread safety: any thread notes a table; the scheduler takes the list. Each table has a flag of
//! its own.
//!
//! Invariants:
//!
//! 1. A flag that is set stands for an entry: in the list, or in one that the scheduler has taken
//!    and whose table it has not looked at yet. So a table stands in the list once at most.
//! 2. Of a note after a change and the clearing of the flag before a look one writes the flag
//!    first: either the look sees the change, or the note adds an entry.

use crate::commit::{Step, reached};
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::record::TableId;

/// The list.
#[derive(Debug, Default)]
pub(crate) struct ChangedTables(Mutex<Vec<TableId>>);

impl ChangedTables {
    /// Adds a table that has changed, unless its flag says that it is there.
    pub(super) fn note(&self, table: TableId, is_listed: &AtomicBool) {
        // It writes what it finds, so that a clearing after it sees the change (invariant 2).
        let is_there = || {
            let written =
                is_listed.compare_exchange(true, true, Ordering::AcqRel, Ordering::Acquire);
            written.is_ok()
        };
        if is_there() {
            return;
        }
        reached(Step::TableChanged);
        let mut list = self.0.lock();
        if is_there() {
            return;
        }
        debug_assert!(
            !cfg!(test) || !list.contains(&table),
            "a table stands in the list once at most"
        );
        list.push(table);
        // Last: who finds it set relies on the entry (invariant 1).
        is_listed.store(true, Ordering::Release);
    }

    /// Takes all of them, in exchange for an empty list: so neither allocates each time.
    pub(crate) fn take_into(&self, list: &mut Vec<TableId>) {
        list.clear();
        std::mem::swap(&mut *self.0.lock(), list);
    }
}
