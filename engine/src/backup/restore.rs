//! Making a database of a backup: extents first, each checked and copied; then a region without
//! records, whose LSNs go on after the backup's; at last the journal, which makes it a database.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::is_of_node;
use super::set::Set;
use crate::base::error::{Error, ErrorKind, Findings, Mismatch, Result};
use crate::base::memory::Gauge;
use crate::base::options::{Making, Options};
use crate::base::progress::Meter;
use crate::engine::Database;
use crate::engine::catalog::READER_TABLE;
use crate::engine::open::{Content, create_of_extents, end_making, remove_unfinished};
use crate::os::Files;
use crate::sstable::{Extent, ExtentMeta};
use crate::storage::{ExtentStore, Location, ObjectClient, ObjectSpan, Transfers};
use crate::table::WriteBatch;
use crate::version::{Edit, Manifest};

/// Makes a database of backup `number` in `to`.
pub(super) fn restore((path, number): (&Path, u64), to: &Path, options: &Options) -> Result<()> {
    options.check()?;
    let set = Set::open_to_read(path, options)?;
    let manifest = set.manifest(number)?;
    restore_with(&manifest, to, options, |files| {
        let meter = restore_meter(&manifest, options, 1)?;
        let into = &ExtentStore::open(Arc::clone(files), to, &[], false)?;
        let edit = copy(&manifest, &set.store()?, into, &meter)?;
        into.sync()?;
        meter.end().map(|()| edit)
    })
}

/// What tells of a restore in which each byte is read so many `times`.
pub(super) fn restore_meter(manifest: &Manifest, options: &Options, times: u64) -> Result<Meter> {
    let meter = Meter::new(options, "restore");
    meter.plan(times * manifest.places().iter().map(|place| u64::from(place.len)).sum::<u64>());
    meter.did(0).map(|()| meter)
}

/// Makes a database of a backup in `to`. `fill` writes its extents there, durably, and says where
/// they are.
pub(super) fn restore_with(
    manifest: &Manifest,
    to: &Path,
    options: &Options,
    fill: impl FnOnce(&Arc<dyn Files>) -> Result<Edit<Arc<ExtentMeta>>>,
) -> Result<()> {
    let making = Options { making: Some(Making::Restore), ..options.clone() };
    let made = create_of_extents(to, &making, |files| {
        Ok(Content { lsn: manifest.lsn, edit: fill(files)? })
    })?;
    let ended = end_restore(Database::open_made(to, &making, made), manifest);
    // On the disk that was too small for it, nothing of it stays.
    let database_id = ended.inspect_err(|_| remove_unfinished(to, &making).unwrap_or(()))?;
    end_making(to, options, database_id)
}

/// Sees that what was made can be opened, and has the last blob; its id.
fn end_restore(made: Result<Database>, manifest: &Manifest) -> Result<[u8; 16]> {
    let db = made?;
    if is_of_node(&db)? {
        db.drop_table(READER_TABLE)?;
    }
    if let Some(blob) = &manifest.blob {
        let mut batch = WriteBatch::new();
        batch.set_blob(blob);
        db.write(batch)?;
    }
    let database_id = db.inner.set.database_id();
    db.close()?;
    Ok(database_id)
}

/// Brings all objects that a manifest names to a directory, durably, and gives the operations with
/// the places that they have now. `name` is an object's. All that was written is read again, and
/// its checksums are compared. `check` is called after each object, and before each extent, with
/// its bytes.
///
/// # Errors
///
/// `Corrupt` with the first object that is damaged; `Unavailable` if the store does not answer; an
/// I/O error; those of `check`.
pub(crate) fn fetch(
    (manifest, client): (&Manifest, &ObjectClient),
    name: &dyn Fn(&Location) -> String,
    (files, directory): (&Arc<dyn Files>, &Path),
    check: &dyn Fn(u64) -> Result<()>,
) -> Result<Edit<Arc<ExtentMeta>>> {
    let to = &ExtentStore::open(Arc::clone(files), directory, &[], false)?;
    let (wanted, mut places) = (manifest.places(), Vec::new());
    let named = wanted.iter().map(|from| (name(from), from.len));
    fetch_objects(client, named, to.memory().job_sends(), |bytes| {
        places.push(to.write_new(&bytes)?);
        check(bytes.len() as u64)
    })?;
    debug_assert_eq!(places.len(), wanted.len(), "each object has its place");
    to.sync()?;
    let moved: BTreeMap<Location, Location> = wanted.into_iter().zip(places).collect();
    let edit = manifest.relocated(|from| moved.get(&from).copied().unwrap_or(from));
    let to = &ExtentStore::open(Arc::clone(files), directory, &[], true)?;
    let damaged = |place: Location, found: Findings| match found.check() {
        // The file goes with the directory: it is the object that is damaged.
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            let from = moved.iter().find(|(_, to)| **to == place).map(|(from, _)| name(from));
            let expected = || "bytes whose checksums are right".to_string();
            let object = |from: String| object_damage(&client.address(), &from, expected());
            Err(from.map_or(error, object))
        }
        checked => checked,
    };
    for meta in edit.added() {
        check(u64::from(meta.location.len))?;
        let extent = Extent::open(ExtentMeta::clone(meta), Arc::clone(to));
        let mut found = Findings::default();
        extent.verify(&mut found);
        damaged(meta.location, found)?;
        for values in extent.values() {
            let mut found = Findings::default();
            values.verify(&mut found);
            damaged(values.meta().location, found)?;
        }
    }
    Ok(edit)
}

/// Reads objects, of which the names and lengths are `wanted`, several at a time, and hands each to
/// `take` in their order. As many are under way as the job may have. The message of an error names
/// the object.
pub(crate) fn fetch_objects(
    client: &ObjectClient,
    wanted: impl Iterator<Item = (String, u32)>,
    within: (&Arc<Gauge>, u64),
    mut take: impl FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    let (mut wanted, mut under_way) = (wanted.peekable(), Transfers::new(within));
    loop {
        while let Some((name, len)) =
            wanted.next_if(|(_, len)| under_way.has_room_for(u64::from(*len)))
        {
            // By its length it has the time that a slow link takes, and what is short comes again.
            let span = ObjectSpan::Bytes { offset: 0, len: u64::from(len) };
            let read = client.begin_get(&name, span);
            under_way.add(u64::from(len), (name, len, read));
        }
        let Some((_held, (name, len, read))) = under_way.oldest() else { return Ok(()) };
        let bytes = client.told("read", &name, read.finish(client))?.bytes;
        if bytes.len() != len as usize {
            return Err(object_damage(&client.address(), &name, format!("{len} bytes")));
        }
        take(bytes)?;
    }
}

/// The error of an object of a backup set or a shared store that is damaged.
pub(crate) fn object_damage(address: &str, name: &str, expected: String) -> Error {
    let (found, file) = (Mismatch::new(expected, "other bytes"), format!("{address}/{name}"));
    Error::corrupt(found.at("object of the store", "object", file, 0)).of_store()
}

/// Copies all extents, each checked; the operations, with the places that they have now.
fn copy(
    manifest: &Manifest,
    from: &Arc<ExtentStore>,
    to: &Arc<ExtentStore>,
    meter: &Meter,
) -> Result<Edit<Arc<ExtentMeta>>> {
    let mut moved: BTreeMap<Location, Location> = BTreeMap::new();
    let mut copy = |at: &Location, read: &dyn Fn() -> Result<Vec<u8>>| -> Result<()> {
        if !moved.contains_key(at) {
            let _held = to.memory().jobs.hold(u64::from(at.len));
            moved.insert(*at, to.write_new(&read()?)?);
            meter.did(u64::from(at.len))?;
        }
        Ok(())
    };
    for meta in manifest.extents() {
        let extent = Extent::open(ExtentMeta::clone(meta), Arc::clone(from));
        for values in extent.values() {
            copy(&values.meta().location, &|| values.read_whole())?;
        }
        copy(&meta.location, &|| extent.read_whole())?;
    }
    Ok(manifest.relocated(|at| moved.get(&at).copied().unwrap_or(at)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::error::ErrorKind;
    use crate::base::options::{Index, Mode};
    use crate::engine::OpenHow;
    use crate::engine::open::Marker;
    use crate::os::RealFiles;
    use crate::version::{FoundEdits, JournalFloor, VersionSet};

    /// A set with a backup of one row.
    fn backed_up(at: &Path) {
        let db = Options::new().pm_size(4 << 20).open(at.join("db")).unwrap();
        db.table("t").unwrap().put("k", "v").unwrap();
        db.backup(at.join("set")).unwrap();
        db.close().unwrap();
    }

    /// Bug: a restore that was cut off could never be done again, with a persistent index and a
    /// region elsewhere.
    /// Cause: it had opened what it made, and the index beside the region stayed where it was. It
    /// has the id of a database that is no more, so the next one left it alone and refused.
    /// Fix: what clears away a region clears away the index of the same database.
    #[test]
    fn a_restore_is_done_again_over_the_index_that_the_one_before_made() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        backed_up(dir.path());
        let emulated = Mode::Emulated { delay: Duration::ZERO };
        let pm_path = at("elsewhere");
        let options = Options::new()
            .pm_size(4 << 20)
            .mode(emulated)
            .index(Index::Persistent)
            .pm_path(&pm_path);
        let restore = || super::restore((&at("set"), 1), &at("new"), &options);
        restore().unwrap();
        let files: Arc<dyn Files> = Arc::new(RealFiles::default());
        let set = VersionSet::open(files, &at("new"), JournalFloor::default(), FoundEdits::Leave);
        // As if it had been cut off just before its end.
        let marker = Marker {
            database_id: Some(set.unwrap().database_id()),
            pm_path: Some(pm_path),
            making: Making::Restore,
        };
        std::fs::write(at("new").join("CREATING"), marker.encode()).unwrap();
        let index = at("elsewhere.index");
        assert!(index.exists());
        let kept = std::fs::read(&index).unwrap();
        restore().unwrap();
        assert!(std::fs::read(&index).unwrap() != kept, "it is that of the new database");
        let db = options.open(at("new")).unwrap();
        assert_eq!(db.table("t").unwrap().get("k").unwrap().unwrap(), "v");
    }

    /// Bug: of two restores into one directory each could open what the other had made.
    /// Cause: between making the database and opening it no thread held the lock of the directory.
    /// Fix: it is held until the end.
    #[test]
    fn a_directory_stays_locked_from_the_making_of_a_database_to_its_opening() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("new");
        let options = Options { making: Some(Making::Restore), ..Options::new().pm_size(4 << 20) };
        let make = || create_of_extents(&to, &options, |_| Ok(Content::default()));
        let made = make().unwrap();
        assert_eq!(make().err().unwrap().kind(), ErrorKind::Busy);
        let opened = Database::open_unshared(&to, &options, OpenHow::Existing);
        assert_eq!(opened.err().unwrap().kind(), ErrorKind::Busy);
        let db = Database::open_made(&to, &options, made).unwrap();
        assert_eq!(make().err().unwrap().kind(), ErrorKind::Busy);
        db.close().unwrap();
    }
}
