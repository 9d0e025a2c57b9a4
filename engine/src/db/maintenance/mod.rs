//! Maintenance that a user asks for: verification, salvage, backups and their restoring. All of it
//! reads structures of the media by the functions of an opening, and changes none of an open
//! database.

mod backup;
mod salvage;
mod verify;
mod verify_index;

pub(super) use backup::back_up;
pub use backup::{BackupInfo, BackupSet};
pub use salvage::SalvageReport;
pub(super) use salvage::salvage;
pub(super) use verify::open_database;
pub use verify::{VerifyReport, verify};
