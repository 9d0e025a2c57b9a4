//! What all parts of an executor share.

use std::sync::Arc;

use super::stats::ShardCounts;
use crate::error::{Error, ErrorKind, Result};
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::RwLock;
use crate::table::{Shared, TableSlot};

/// What the handles of an executor and its threads share. It does not keep the database open.
pub(super) struct ExecutorState {
    pub(super) shared: Arc<Shared>,
    /// The tables that were named to the executor. The list only grows.
    pub(super) slots: RwLock<Vec<Arc<TableSlot>>>,
    pub(super) counts: Box<[ShardCounts]>,
    pub(super) is_closed: AtomicBool,
}

impl ExecutorState {
    /// Whether work may begin.
    ///
    /// # Errors
    ///
    /// `Closed`, or `Unavailable` in a forked child.
    pub(super) fn check_open(&self) -> Result<()> {
        self.shared.check_open()?;
        if self.is_closed.load(Ordering::Acquire) { Err(ended()) } else { Ok(()) }
    }
}

/// The error of work that did not begin.
pub(super) fn ended() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the per-core executor or its database was closed before this work began; make a new one",
    )
}
