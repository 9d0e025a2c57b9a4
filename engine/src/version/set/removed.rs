//! Extents that edits removed and whose space is not given back yet.
//!
//! An opening takes damage to an edit that the floor does not name for a torn append, and then the
//! edit before it counts. So space comes back once the floor on the media names the edit that
//! removed the extent. A database that stops before that leaves it to the next opening.
//!
//! Thread safety: every method may be called from any thread; the mutex is held for an instant.

use std::sync::Arc;

use super::VersionSet;
use crate::base::options::Failpoint;
use crate::os::sync::locks::Mutex;
use crate::sstable::Extent;
use crate::version::journal::JournalFloor;

/// The extents, with the numbers of the edits.
#[derive(Debug, Default)]
pub(super) struct RemovedExtents(Mutex<Vec<(u64, Arc<Extent>)>>);

impl RemovedExtents {
    /// The edit of this number removed them.
    pub(super) fn by(&self, edit: u64, extents: Vec<Arc<Extent>>) {
        self.0.lock().extend(extents.into_iter().map(|extent| (edit, extent)));
    }

    /// Takes those that edits up to this number removed.
    fn upto(&self, edit: u64) -> Vec<(u64, Arc<Extent>)> {
        self.0.lock().extract_if(.., |(by, _)| *by <= edit).collect()
    }
}

impl VersionSet {
    /// Gives back the space of extents that edits up to `floor` removed, with their last readers.
    /// The floor on the media names these edits.
    pub(crate) fn give_back(&self, floor: JournalFloor) {
        let removed = self.removed.upto(floor.number);
        if !self.has(Failpoint::KeepObsoleteExtents) {
            removed.iter().for_each(|(_, extent)| extent.mark_obsolete());
        }
    }
}
