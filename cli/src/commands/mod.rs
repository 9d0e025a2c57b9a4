//! The small commands, each in a file of its own.

pub(crate) mod backups;
pub(crate) mod compact;
pub(crate) mod dump;
pub(crate) mod history;
pub(crate) mod prepared;
pub(crate) mod records;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod shared;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod top;
mod unshipped;
pub(crate) mod verify;
