//! A table that a transaction uses is truncated: a conflict, since a run again finds the emptied
//! table. A dropped table is an error that no run again helps.

use std::sync::Arc;

use super::state::{Inner, Running, Used};
use crate::error::{Error, ErrorKind};

impl Running {
    /// The error of a call: one that a truncation has caused becomes a conflict.
    pub(super) fn explain(&self, inner: &Inner, error: Error) -> Error {
        if error.is_truncated() {
            return Error::new(
                ErrorKind::Conflict,
                format!("{error} of transaction {}; run it again", inner.id),
            );
        }
        if !error.is_table_gone() {
            return error;
        }
        // A truncation that is under way has put the new table in its place after this.
        drop(inner.shared.ddl.lock());
        let is_replaced = |used: &&Used| !Arc::ptr_eq(&used.slot.core(), &used.pinned.core);
        match self.tables.iter().find(is_replaced) {
            Some(used) => Error::new(
                ErrorKind::Conflict,
                format!(
                    "table {:?} was truncated after transaction {} had used it; run it again",
                    used.slot.core().name(),
                    inner.id
                ),
            ),
            None => error,
        }
    }
}
