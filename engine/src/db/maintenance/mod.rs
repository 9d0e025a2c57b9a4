//! Maintenance that a user asks for: verification, salvage, backups and their restoring. All of it
//! reads structures of the media by the functions of an opening, and changes none of an open
//! database.

mod backup;
mod salvage;
mod verify;
mod verify_index;

use std::path::Path;

use crate::error::Result;
use crate::options::Options;

#[cfg(any(test, feature = "testing"))]
pub(crate) use backup::head_probe;
pub use backup::{BackupInfo, BackupSet};
pub(super) use backup::{
    Destination, KnownExtents, back_up, check_written, create_of_extents, find_room, gather,
};
pub use salvage::SalvageReport;
#[cfg(any(test, feature = "testing", feature = "bench"))]
pub(super) use verify::broken_cache;
pub(super) use verify::open_database;
pub use verify::{VerifyReport, verify};

impl Options {
    /// Checks a database as [`verify`] does, with these options: the objects of a database are read
    /// from its [`object_store`](Options::object_store).
    ///
    /// # Errors
    ///
    /// As [`verify`]; `Unavailable` when the object store does not answer.
    pub fn verify(&self, path: impl AsRef<Path>) -> Result<VerifyReport> {
        verify::verify_with(path.as_ref(), self)
    }

    /// Salvages a database as [`Database::salvage`](crate::Database::salvage) does, with these
    /// options: objects are read from its [`object_store`](Options::object_store).
    ///
    /// # Errors
    ///
    /// As [`Database::salvage`](crate::Database::salvage).
    pub fn salvage(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<SalvageReport> {
        salvage::salvage(from.as_ref(), to.as_ref(), self)
    }
}
