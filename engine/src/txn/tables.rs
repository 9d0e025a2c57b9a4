//! The tables that a transaction has used.

use std::sync::Arc;

use super::range::TxnRange;
use super::state::{Inner, Running};
use crate::base::error::Result;
use crate::mvcc::IntervalSet;
use crate::table::{Pinned, Table, TableSlot};

/// A table that the transaction has used.
pub(super) struct Used {
    pub(super) slot: Arc<TableSlot>,
    pub(super) pinned: Arc<Pinned>,
    /// Where pops from each end go on. They hold the transaction, which drops them as it ends.
    pub(super) pops: [Option<Box<TxnRange>>; 2],
    /// Ranges that the transaction compared with its snapshot while it owed checks. Its locks keep
    /// others from changing them.
    pub(super) checked: IntervalSet,
}

impl Running {
    /// The number by which the transaction knows a table.
    pub(super) fn table(&mut self, inner: &Inner, table: &Table) -> Result<usize> {
        if let Some(at) = self.tables.iter().position(|u| Arc::ptr_eq(&u.slot, &table.slot)) {
            return Ok(at);
        }
        table.check_is_of(&inner.shared, "the transaction")?;
        // The table of this moment first: emptied after that, it fails by itself.
        let pinned = Arc::new(table.slot.pin());
        if let Some(snapshot) = &self.snapshot {
            table.slot.check_not_emptied_since(snapshot.lsn())?;
        }
        let (slot, checked) = (Arc::clone(&table.slot), IntervalSet::default());
        self.tables.push(Used { slot, pinned, pops: [None, None], checked });
        Ok(self.tables.len() - 1)
    }
}
