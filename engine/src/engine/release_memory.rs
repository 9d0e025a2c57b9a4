//! What a closed database gives back although handles of it are left: its memory and its threads.
//!
//! A handle keeps the engine alive, and every call on it fails with `Closed`. So what only calls
//! and jobs use goes: cached blocks, parts of extents, the indexes over records, and the image of
//! the region. A call that began before the closing may still read them. It holds a view, which
//! keeps the indexes, and an epoch, which keeps the image.

use std::sync::Arc;

use super::Engine;
use crate::level0::{Level0, RowTables};
use crate::options::Level0Container;
use crate::os::give_back_freed;
use crate::table::TableCore;

/// How often the work of others that has to be done first is driven on. After that the image goes
/// when a reader of some database of the process moves on.
const ROUNDS: usize = 64;

/// With fewer bytes of cached blocks than this, what the heap keeps is not worth its walk.
const WORTH_IT: u64 = 4 << 20;

impl Engine {
    /// Gives back what calls and jobs used. All calls fail with `Closed` by now.
    pub(crate) fn release_memory(&self) {
        debug_assert!(self.shared.check_open().is_err(), "no call begins any more");
        self.set.store().stop_behind();
        let cached = self.shared.cache.used();
        self.shared.cache.set_capacity(0);
        self.set.store().memory().clock.set_most(0);
        if self.forest.is_none() {
            self.tables().iter().for_each(|table| self.release_indexes(table));
        }
        let region = Arc::clone(&self.shared.region);
        // Work on records of dropped tables was deferred before, and reads the image. It runs
        // before the outer closure, or on a thread that has a hold which the inner one waits
        // for.
        let (queue, behind) = (&self.shared.queue, Arc::clone(&self.shared.queue));
        queue.defer(move || behind.defer(move || region.discard()));
        (0..ROUNDS).for_each(|_| queue.drive());
        // What comes later is run by who defers it, or by another database.
        drop(self.runner.lock().take());
        self.shared.cache.trim();
        if cached >= WORTH_IT {
            give_back_freed();
        }
    }

    /// Replaces the view of a table by one without records.
    fn release_indexes(&self, table: &TableCore) {
        let mut empty = self.catalog.empty_view(Arc::clone(&table.view().version));
        let pages = Arc::clone(&self.shared.pages);
        empty.level0 = Level0::new(RowTables::new(pages, Level0Container::GlobalIndex));
        table.release(empty);
    }
}
