//! A new database: first the region, then the journal, whose renaming into place makes it one.

use std::path::Path;
use std::sync::Arc;

use crate::alloc::{StreamKind, StreamObject, StreamPool, ZonePool};
use crate::commit::Floor;
use crate::error::{Error, Result};
use crate::levels::VersionSet;
use crate::options::Options;
#[cfg(any(test, feature = "testing"))]
use crate::options::Storage;
use crate::os::{Files, OpenHow as FileHow};
use crate::pm::{Geometry, Incarnations, Media, Region, Superblock};

/// The region's file name.
pub(super) const REGION: &str = "region";

/// Zeros written at a time.
const STEP: u64 = 1024 * 1024;

/// Makes an empty database in `directory`, which exists and is locked. What an earlier, unfinished
/// creation left is replaced.
pub(super) fn create(files: &Arc<dyn Files>, directory: &Path, options: &Options) -> Result<()> {
    let created = make(files, directory, options);
    if created.is_err() {
        undo(&**files, directory);
    }
    created
}

/// Nothing half done: without a journal this is no database. The region goes only once the journal
/// is gone for good, since a journal without a region could neither be opened nor replaced.
fn undo(files: &dyn Files, directory: &Path) {
    for name in files.list(directory).unwrap_or_default() {
        if name.starts_with("journal-") {
            drop(files.remove(&directory.join(name)));
        }
    }
    if files.sync_directory(directory).is_ok() {
        drop(files.remove(&directory.join(REGION)));
    }
}

fn make(files: &Arc<dyn Files>, directory: &Path, options: &Options) -> Result<()> {
    let mut database_id = [0; 16];
    rustix::rand::getrandom(&mut database_id, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Error::io("draw a database id for", directory, e.into()))?;
    let geometry = Geometry::for_size(options.pm_size);
    let path = directory.join(REGION);
    let media = new_media(files, &path, geometry, options)?;
    format(&Region::new(media, &path, geometry.region_len())?, geometry, database_id)?;
    files.sync_directory(directory).map_err(|e| Error::io("sync", directory, e))?;
    VersionSet::create(Arc::clone(files), directory, database_id)?;
    let parent = directory.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    files.sync_directory(parent).map_err(|e| Error::io("sync", parent, e))
}

/// A region's media, all zeros and with its space on the device.
fn new_media(
    files: &Arc<dyn Files>,
    path: &Path,
    geometry: Geometry,
    options: &Options,
) -> Result<Media> {
    #[cfg(any(test, feature = "testing"))]
    if let Storage::Simulated(machine) = &options.storage
        && let Some(pm) = machine.make_memory(geometry.region_len())
    {
        return Ok(Media::Simulated(pm));
    }
    zeroed_file(files, path, geometry)
}

/// Zeros are written, not only reserved: the first write into reserved space would cost a
/// metadata commit in somebody's sync.
fn zeroed_file(files: &Arc<dyn Files>, path: &Path, geometry: Geometry) -> Result<Media> {
    drop(files.remove(path));
    let making = |e| Error::io("make the region", path, e);
    let file = files.open(path, FileHow::CreateNew).map_err(making)?;
    let len = geometry.region_len();
    file.preallocate(len).map_err(making)?;
    let zeros = vec![0; STEP as usize];
    let mut at = 0;
    while at < len {
        let n = STEP.min(len - at);
        file.write_all_at(&zeros[..n as usize], at).map_err(making)?;
        at += n;
    }
    file.sync().map_err(making)?;
    Ok(Media::File(file))
}

/// Writes the fixed parts; the superblock last.
fn format(region: &Region, geometry: Geometry, database_id: [u8; 16]) -> Result<()> {
    let mut dirty = StreamPool::format(region);
    dirty.extend(ZonePool::format(region, geometry));
    let shared = StreamObject { stream: 0, generation: 0, kind: StreamKind::Shared, table: 0 };
    dirty.extend(StreamPool::take(region, &shared));
    dirty.push(Floor::default().store(region));
    dirty.push(Floor { number: 1, ..Floor::default() }.store(region));
    region.persist(dirty)?;
    let mut superblock = Superblock {
        database_id,
        generation: 0,
        geometry,
        lsn_base: 0,
        incarnations: Incarnations { current: 1, earlier: Vec::new() },
    };
    superblock.write(region)?;
    Ok(())
}
