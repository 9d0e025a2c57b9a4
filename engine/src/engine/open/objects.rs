//! The object store of an opening. It is asked for nothing here, so a database opens while its
//! store is away.

use std::collections::BTreeSet;

use super::Opening;
use crate::error::{Error, Result};
use crate::levels::VersionSet;
use crate::options::{Failpoint, Options, Storage};
#[cfg(any(test, feature = "testing", feature = "bench"))]
use crate::tier::Distance;
use crate::tier::{ExtentStore, ObjectId, ObjectSettings, Planted};

impl Opening<'_> {
    /// Tells the extent store of a database where its objects are, if there is an object store.
    ///
    /// # Errors
    ///
    /// `Invalid` if the journal names objects and there is none, or its URL is not understood; or
    /// an I/O error.
    pub(crate) fn attach_objects(&self, set: &VersionSet, incarnation: u64) -> Result<()> {
        self.attach_objects_of(set.store(), set.database_id(), set.objects(), incarnation)
    }

    /// As [`attach_objects`](Self::attach_objects), of an extent store by itself.
    ///
    /// # Errors
    ///
    /// As [`attach_objects`](Self::attach_objects).
    pub(crate) fn attach_objects_of(
        &self,
        store: &ExtentStore,
        database_id: [u8; 16],
        named: BTreeSet<ObjectId>,
        incarnation: u64,
    ) -> Result<()> {
        let Some(url) = &self.options.object_store else {
            return match named.len() {
                0 => Ok(()),
                objects => Err(Error::invalid(format!(
                    "{objects} extents of the database in {} are objects, and no object store was \
                     named; open it with Options::object_store, or give the command --object-store",
                    self.path.display()
                ))),
            };
        };
        let settings = ObjectSettings {
            url,
            files: &self.files,
            gate: store.gate(),
            simulated: is_simulated(self.options),
            directory: self.path,
            database_id,
            incarnation,
            read_only: self.read_only,
            named,
            planted: planted(self.options),
            follows: self.options.stays_far,
            #[cfg(any(test, feature = "testing", feature = "bench"))]
            distance: self
                .options
                .distance
                .map(|(latency, bytes_per_second)| Distance { latency, bytes_per_second }),
        };
        store.attach_objects(settings.open()?);
        Ok(())
    }
}

fn is_simulated(options: &Options) -> bool {
    !matches!(options.storage, Storage::Real)
}

fn planted(options: &Options) -> Planted {
    Planted {
        same_epoch: options.has(Failpoint::ReuseOfName),
        unchecked_fence: options.has(Failpoint::SkipFenceCheck),
        unacknowledged: options.has(Failpoint::EditBeforeAcknowledgement),
        keeps_unneeded: options.has(Failpoint::KeepUnneededObjects),
    }
}
