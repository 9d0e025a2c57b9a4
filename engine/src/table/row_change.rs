//! Changes of one row that depend on what is there.
//!
//! Why they are atomic: an owner that locks a row sees every commit of earlier owners of the lock
//! (transaction invariant 1). It holds the lock until its own commit is visible. A batch names the
//! table of the moment. So a truncation in between makes the commit fail, and the change begins
//! anew.

use std::sync::Arc;

use super::{Pinned, Shared, TableBatch, TableReader, TableSlot, TableTarget};
use crate::error::Result;
use crate::limits;
use crate::locks::{Locker, Mode, Patience, RunsHere};
use crate::options::Durability;
use crate::read;
use crate::record::Kind;

/// What a change leaves of a row: nothing is written, or a value, or that there is none.
pub(super) type Outcome = Option<Option<Vec<u8>>>;

/// Changes rows of one table, each under its lock.
pub(super) struct ChangeRows<'a> {
    pub(super) shared: &'a Shared,
    pub(super) slot: &'a TableSlot,
}

impl ChangeRows<'_> {
    /// Changes a row as `decide` says, which gets its value.
    ///
    /// # Errors
    ///
    /// `Timeout` if others had it locked for as long as the call may wait; otherwise as `get` and
    /// `put` of a table.
    pub(super) fn change<T>(
        &self,
        key: &[u8],
        patience: Patience,
        mut decide: impl FnMut(Option<&[u8]>) -> (Outcome, T),
    ) -> Result<T> {
        self.shared.check_writable()?;
        limits::check_key(key)?;
        let _brought =
            TableReader { shared: self.shared, slot: self.slot, snapshot: None }.bring(&[key])?;
        self.shared.again_after_truncations(self.slot, |pinned| {
            let mut locker = self.locker()?;
            let name = || pinned.label();
            locker.lock_key(pinned.lock_space(), key, Mode::Exclusive, patience, &name)?;
            let current =
                self.shared.read(&pinned.core, None, |view, at| read::get(view, key, at))?;
            // What the caller's code writes to the row would wait for this call.
            let here = RunsHere::enter(&self.shared.locks, locker.id());
            let (outcome, result) = decide(current.as_deref());
            drop(here);
            if let Some(value) = outcome {
                debug_assert!(
                    locker.has_key(pinned.lock_space(), key, Mode::Exclusive),
                    "a row is locked from the read to the commit of its change"
                );
                self.commit(pinned, key, value.as_deref())?;
            }
            Ok(result)
        })
    }

    pub(super) fn locker(&self) -> Result<Locker> {
        self.shared.committer.lock_rows()?;
        Ok(Locker::new(&self.shared.locks))
    }

    pub(super) fn commit(
        &self,
        pinned: &Arc<Pinned>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let target = TableTarget::Pinned(Arc::clone(pinned));
        let mut batch = TableBatch::default();
        match value {
            Some(value) => batch.push(&target, Kind::Put, key, value),
            None => batch.push(&target, Kind::Delete, key, &[]),
        }
        self.shared.commit(&batch, Durability::Durable)
    }
}
