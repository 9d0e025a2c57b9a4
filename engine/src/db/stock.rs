//! Taking stock of a persistent index: what an opening found in it is counted into its zones, and
//! what was drained before a power cut and not taken out yet is taken out. Reads and writes go on
//! meanwhile; level 0 and the zones stay as they are until all is counted, because nobody knows
//! before which zones are dead.

use std::sync::Arc;

use parking_lot::Mutex;

use super::inner::Engine;
use crate::error::Result;
use crate::record::{LSN_MAX, Lsn};
use crate::table::TableCore;

/// What is left to be counted.
#[derive(Debug, Default)]
pub(super) struct Stocktaking {
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    /// The last one is under way.
    tables: Vec<Arc<TableCore>>,
    /// The first key of it that is left.
    from: Vec<u8>,
    /// The smallest sequence number that was found in it.
    oldest: Option<Lsn>,
}

impl Engine {
    /// Goes on with the persistent index that an opening found, where there is one: trees of tables
    /// that are no more are felled, those of the others are to be counted. `last` is the last LSN.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(super) fn adopt_index(&self, last: Lsn) -> Result<()> {
        let Some(forest) = &self.forest else { return Ok(()) };
        for tree in forest.take_rest() {
            forest.fell(&tree)?;
        }
        let tables = self.tables();
        for table in tables.iter().filter(|table| table.view().frozen.is_empty()) {
            table.set_merged(table.merged().max(last));
        }
        self.counted(tables.is_empty());
        self.stocktaking.left.lock().tables = tables;
        Ok(())
    }

    /// Counts a part; whether there was something left.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(super) fn take_stock(&self) -> Result<bool> {
        let mut left = self.stocktaking.left.lock();
        let Some(table) = left.tables.last().cloned() else { return Ok(false) };
        let zones = &self.shared.zones;
        let mut change = table.change();
        let view = table.view();
        let mut counts = |at| zones.add_live(zones.zone_of(at), 1);
        let stock = view.level0.count_live(&left.from, &view.version.drained, &mut counts)?;
        left.oldest = left.oldest.into_iter().chain([stock.oldest]).min();
        match stock.next {
            Some(next) => left.from = next,
            None => {
                // Whatever is older has moved.
                let tombstones = view.level0.tombstones();
                let ranges = tombstones.iter().flat_map(|set| set.iter().map(|t| t.seq));
                let oldest = left.oldest.take().into_iter().chain(ranges).min();
                let oldest = oldest.filter(|oldest| *oldest < LSN_MAX);
                change.turn.low = oldest.map_or(0, |oldest| oldest.saturating_sub(1));
                left.tables.pop();
                left.from.clear();
                self.counted(left.tables.is_empty());
            }
        }
        Ok(true)
    }

    /// Whether something is left to be counted.
    pub(super) fn takes_stock(&self) -> bool {
        !self.stocktaking.left.lock().tables.is_empty()
    }

    /// Notes whether all is counted. All that the index leads to was looked at then.
    fn counted(&self, is_all: bool) {
        if let Some(forest) = self.forest.as_ref().filter(|_| is_all) {
            forest.records().trust();
        }
        self.shared.zones.set_counted(is_all);
    }

    /// Counts what is left: whoever lets go of a whole level 0 does that first.
    ///
    /// # Errors
    ///
    /// As [`Engine::take_stock`].
    pub(super) fn finish_stocktaking(&self) -> Result<()> {
        while self.take_stock()? {}
        Ok(())
    }
}
