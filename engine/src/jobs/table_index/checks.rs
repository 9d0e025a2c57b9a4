//! Which tables a job has to look at. Those that gave it nothing to do are left out until they
//! change (invariant 2 of the index).

use std::collections::BTreeSet;

use super::Rest;
use crate::record::TableId;

/// Tables that a job has to look at, by how far the database is at rest.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) open: [BTreeSet<TableId>; 3],
    /// Tables of which readers decide too whether there is something to do.
    pub(super) by_readers: BTreeSet<TableId>,
    /// Snapshots that had been released at the last look.
    releases: u64,
}

impl Checks {
    pub(super) fn open(&mut self, id: TableId) {
        for open in &mut self.open {
            open.insert(id);
        }
    }

    pub(super) fn remove(&mut self, id: TableId) {
        for open in &mut self.open {
            open.remove(&id);
        }
        self.by_readers.remove(&id);
    }

    /// A job found nothing in a table: it would find nothing either with less rest.
    pub(super) fn close(&mut self, id: TableId, rest: Rest) {
        for open in &mut self.open[..=rest as usize] {
            open.remove(&id);
        }
    }

    /// The tables to look at, with `releases` snapshots released so far.
    pub(super) fn candidates(&mut self, rest: Rest, releases: u64) -> &BTreeSet<TableId> {
        if std::mem::replace(&mut self.releases, releases) != releases {
            let Checks { open, by_readers, .. } = self;
            open.iter_mut().for_each(|open| open.extend(by_readers.iter().copied()));
        }
        &self.open[rest as usize]
    }
}
