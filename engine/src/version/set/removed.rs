//! Extents that edits removed and whose space is not given back yet.
//!
//! An opening takes damage to an edit that the floor does not name for a torn append, and then the
//! edit before it counts. So space comes back once the floor on the media names the edit that
//! removed the extent. A database that stops before that leaves it to the next opening.
//!
//! A reader beside this process shows what the journal said up to some edit. Of that, what later
//! edits removed is kept for it, until it ends (`docs/internals/readers.md`).
//!
//! Thread safety: every method may be called from any thread; each mutex is held for an instant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::VersionSet;
use crate::base::error::Result;
use crate::base::options::Failpoint;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::time;
use crate::sstable::Extent;
use crate::version::journal::JournalFloor;

/// The extents, with the numbers of the edits.
#[derive(Debug, Default)]
pub(super) struct RemovedExtents {
    extents: Mutex<Vec<(u64, Arc<Extent>)>>,
    /// The floor on the media names edits up to this one.
    named: AtomicU64,
    /// When a look found readers, if the last one did.
    found_readers: Mutex<Option<Instant>>,
}

/// While there are readers, edits look for them no more often.
const LOOKS_APART: Duration = Duration::from_millis(100);

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
        // Without a look nothing is given back: a later edit does so, or the background at rest.
        let found = *self.removed.found_readers.lock();
        if found.is_none_or(|at| time::since(at) >= LOOKS_APART) {
            self.give_back_kept();
        }
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
        *self.removed.found_readers.lock() = (!readers.is_empty()).then(time::now);
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

#[cfg(test)]
mod tests {
    use super::super::tests::{add, create_table};
    use super::*;
    use crate::os::{ReaderRegistration, RealFiles};
    use crate::version::edit::{Edit, Op};

    /// Bug: beside an open reader each edit that freed space listed the directory. Fix: one in a
    /// while does, and the background at rest. What they do not look for stays.
    #[test]
    fn while_there_are_readers_few_edits_look_for_them() {
        let (directory, files) = (tempfile::tempdir().unwrap(), Arc::new(RealFiles::default()));
        let made = VersionSet::create_empty(Arc::clone(&files) as _, directory.path(), [9; 16]);
        let set = made.unwrap();
        let table = create_table(&set, "t");
        let replace = || {
            let version = set.apply(add(&set, table, "a"), 7).unwrap().remove(0).1;
            let id = version.level(1).unwrap().extents()[0].meta().id;
            let ops = vec![Op::RemoveExtent { table, level: 1, id }];
            set.apply(Edit { ops }, 7).unwrap();
            set.give_back(set.floor());
            set.kept_bytes() > 0
        };
        assert!(!replace());
        let reader = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert!(replace(), "without readers each edit looks, and found one");
        assert!(set.removed.found_readers.lock().is_some());
        drop(reader);
        // However slow this machine is.
        *set.removed.found_readers.lock() = Some(time::now() + 600 * LOOKS_APART);
        assert!(replace(), "no look");
        set.give_back_kept();
        assert_eq!(set.kept_bytes(), 0);
        assert!(!replace(), "each edit looks again");
    }
}
