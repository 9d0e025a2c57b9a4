//! A database of a checkpoint, in a new directory. Its region is empty. Either all data is fetched,
//! checked, and written to extents there, or its extents are named where they lie: in the store.

use std::path::Path;
use std::sync::Arc;

use super::checkpoint::{object_of, piece_of};
use super::log::{EntryBody, SharedLog, SharedPrepare};
use crate::backup::{check_written, fetch};
use crate::base::error::Result;
use crate::base::options::Options;
use crate::engine::open::{Content, LockedDatabase, create_of_extents};
use crate::sstable::ExtentMeta;
use crate::storage::{ExtentStore, Location, ObjectId};
use crate::version::{Edit, Manifest};

/// A checkpoint of the log.
pub(super) struct FoundCheckpoint {
    /// That of its writer.
    pub(super) claim: u64,
    pub(super) manifest: Manifest,
    pub(super) prepares: Vec<SharedPrepare>,
}

/// The checkpoint that entry `number` is. `None` if the log has left it behind.
pub(super) fn checkpoint(log: &SharedLog, number: u64) -> Result<Option<FoundCheckpoint>> {
    let Some(entry) = log.entry(number)? else { return Ok(None) };
    let place = format!("{}/{}", log.address(), crate::replication::log::entry_name(number)).into();
    match entry.body {
        EntryBody::Checkpoint(found) => {
            let manifest = Manifest::read_bytes(&found.manifest, number, ("object", place))?;
            let (claim, prepares) = (entry.claim, found.prepares);
            Ok(Some(FoundCheckpoint { claim, manifest, prepares }))
        }
        _ => Err(log.damage("shared/log", format!("a checkpoint as entry {number}"))),
    }
}

/// Where the data of a restored database lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataPlace {
    /// In its directory: nothing that becomes of the store's objects concerns it.
    Here,
    /// In the store, to be read from there.
    Store,
}

/// Makes a database of a checkpoint in `to`, which is empty.
///
/// # Errors
///
/// `Invalid` if there is something in `to`; `Corrupt` if data is damaged or gone; `Full`;
/// `Unavailable` if the store does not answer; `Closed` once the log is stopped. There is no
/// database then.
pub(super) fn restore(
    log: &SharedLog,
    manifest: &Manifest,
    (to, place): (&Path, DataPlace),
    options: &Options,
) -> Result<LockedDatabase> {
    create_of_extents(to, options, |files| {
        if place == DataPlace::Store {
            return Ok(Content { lsn: manifest.lsn, edit: in_store(manifest) });
        }
        let store = ExtentStore::open(Arc::clone(files), to, &[], false)?;
        let edit = fetch((manifest, &*log.client), &object_of, &store, &|| log.check_open())?;
        store.sync()?;
        check_written(&edit, files, to, &|| log.check_open())?;
        Ok(Content { lsn: manifest.lsn, edit })
    })
}

/// The edit of a checkpoint, with the pieces of the store as places.
fn in_store(manifest: &Manifest) -> Edit<Arc<ExtentMeta>> {
    manifest.relocated(|of| {
        let (claim, piece) = piece_of(&of);
        Location::of_object(ObjectId::of_shared(claim, piece), of.len)
    })
}
