//! Extents that edits removed and whose space is not given back yet.
//!
//! An opening takes damage to an edit that the floor does not name for a torn append, and then the
//! edit before it counts. So space comes back once the floor on the media names the edit that
//! removed the extent. A database that stops before that leaves it to the next opening.
//!
//! A reader beside this process shows what the journal said up to some edit. Of that, what later
//! edits removed is kept for it, until it ends (`docs/internals/readers.md`).
//!
//! Thread safety: every method may be called from any thread; the mutex is held for an instant.

use std::sync::Arc;

use super::VersionSet;
use crate::base::error::Result;
use crate::base::options::Failpoint;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;
use crate::sstable::Extent;
use crate::version::journal::JournalFloor;

/// The extents, with the numbers of the edits.
#[derive(Debug, Default)]
pub(super) struct RemovedExtents {
    extents: Mutex<Vec<(u64, Arc<Extent>)>>,
    /// The floor on the media names edits up to this one.
    named: AtomicU64,
}

impl RemovedExtents {
    /// The edit of this number removed them.
    pub(super) fn by(&self, edit: u64, extents: Vec<Arc<Extent>>) {
        self.extents.lock().extend(extents.into_iter().map(|extent| (edit, extent)));
    }

    /// Bytes of those that only readers beside this process keep.
    fn kept_bytes(&self) -> u64 {
        let (named, extents) = (self.named.load(Ordering::Acquire), self.extents.lock());
        let kept = extents.iter().filter(|(by, _)| *by <= named);
        kept.map(|(_, extent)| u64::from(extent.meta().location.len)).sum()
    }

    /// Takes those that `may_go`, by the edit that removed each.
    fn take(&self, may_go: impl Fn(u64, &Extent) -> bool) -> Vec<(u64, Arc<Extent>)> {
        self.extents.lock().extract_if(.., |(by, extent)| may_go(*by, extent)).collect()
    }
}

impl VersionSet {
    /// Gives back the space of extents that edits up to `floor` removed, with their last readers.
    /// The floor on the media names these edits.
    pub(crate) fn give_back(&self, floor: JournalFloor) {
        self.removed.named.fetch_max(floor.number, Ordering::AcqRel);
        self.give_back_kept();
    }

    /// As [`give_back`](VersionSet::give_back), of what readers beside this process had kept, as
    /// far as these are gone.
    pub(crate) fn give_back_kept(&self) {
        if self.kept_bytes() == 0 {
            return;
        }
        // Before the look: a reader that comes after it shows later edits alone.
        let named = self.removed.named.load(Ordering::Acquire);
        // Where that cannot be said all stays, and the background tells.
        let Ok(readers) = self.store.readers_beside(named) else { return };
        let removed = self.removed.take(|by, extent| {
            by <= named && !readers.iter().any(|reader| reader.may_show(extent.added(), by))
        });
        if !self.has(Failpoint::KeepObsoleteExtents) {
            removed.iter().for_each(|(_, extent)| extent.mark_obsolete());
        }
    }

    /// Makes the edits durable that a reader beside another process found.
    ///
    /// # Errors
    ///
    /// An I/O error: the journal may have another epoch by now.
    pub(crate) fn sync_found(&self) -> Result<()> {
        self.writer.lock().journal.sync_found(&*self.files)
    }

    /// Bytes of extents that are kept for readers beside this process.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.removed.kept_bytes()
    }
}
