//! Letting go of what level 0 keeps for readers that are gone. A merge looks at the keys that it
//! brings, and leaves what somebody reads; what is left like that goes when nobody does, by a walk
//! over all of level 0, a part at a time. Levels have compactions for it.

use std::sync::Arc;

use super::inner::Engine;
use crate::error::Result;
use crate::mvcc::{Horizon, Readers, is_worth, pin};
use crate::record::Lsn;
use crate::table::TableCore;

/// A walk under way: the table, and the first key that is left.
pub(super) type Pruning = (Arc<TableCore>, Vec<u8>);

/// For whom level 0 keeps a version whose next newer one is `newer`.
pub(super) fn kept_for(horizon: &Horizon, floor: Lsn, (seq, newer): (Lsn, Lsn)) -> Option<Readers> {
    // What supersedes a version has to be durable itself, or a power cut could take both.
    if newer > floor { Some((seq, newer)) } else { horizon.readers_of(seq, newer) }
}

impl Engine {
    /// Goes through a part of a level 0 that keeps what nobody needs; whether there was one.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(super) fn prune_needless(&self) -> Result<bool> {
        let mut under_way = self.background.pruning.lock();
        let next = under_way.take().or_else(|| Some((self.table_to_prune()?, Vec::new())));
        let Some((table, from)) = next else { return Ok(false) };
        let mut change = table.change();
        if table.check().is_err() {
            return Ok(true);
        }
        let floor = self.settle()?;
        let horizon = self.shared.snapshots.horizon();
        let level0 = Arc::clone(&table.view().level0);
        let (superseded, rest) = {
            let _guard = pin();
            level0.superseded(&from, &|seq, newer| kept_for(&horizon, floor, (seq, newer)))?
        };
        if !superseded.is_empty() {
            change.apply(|view| view.pruned = view.pruned.max(horizon.newest()));
        }
        drop(change);
        self.prune_later(level0, superseded);
        *under_way = rest.map(|rest| (table, rest));
        Ok(true)
    }

    /// A table whose level 0 keeps enough that nobody needs.
    fn table_to_prune(&self) -> Option<Arc<TableCore>> {
        let (horizon, rests) = (self.shared.snapshots.horizon(), self.rests());
        self.tables().into_iter().find(|table| {
            let level0 = Arc::clone(&table.view().level0);
            is_worth(level0.obsolete(horizon.readers()), level0.size().records, rests)
        })
    }
}
