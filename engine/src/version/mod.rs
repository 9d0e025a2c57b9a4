//! Which extents are in which level of which table: versions, the journal that makes changes of
//! them durable, and the set that holds both.
//!
//! [`state`] is pure: it applies an edit to the metadata, or says which invariant the edit breaks.
//! [`journal`] knows bytes and files. [`set`] puts them together under one lock.

mod cursor;
mod edit;
mod journal;
mod levels;
mod manifest;
mod run;
mod set;
mod shared_map;
mod state;

pub(crate) use cursor::LevelCursor;
pub(crate) use edit::{Edit, Op};
#[cfg(any(test, feature = "testing"))]
pub(crate) use journal::probe;
pub(crate) use journal::{FoundEdits, JournalFloor, is_journal_name};
pub(crate) use levels::{LEVEL_2, Level, MAX_LEVELS, SUBLEVELS, Version, known_as};
pub(crate) use manifest::Manifest;
#[cfg(any(test, feature = "testing"))]
pub(crate) use manifest::probe as manifest_probe;
pub(crate) use run::{ReadRun, Run};
pub(crate) use set::{
    Decided, EditReservation, Ended, ReadableJournal, Room, SalvagedSet, TableInfo, VersionSet,
    free_name,
};
