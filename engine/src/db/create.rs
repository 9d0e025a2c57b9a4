//! A new database: first the region, then the journal, whose renaming into place makes it one.

use std::path::Path;
use std::sync::Arc;

use super::media;
use crate::alloc::{StreamKind, StreamObject, StreamPool, ZonePool};
use crate::commit::Floor;
use crate::error::{Error, Result};
use crate::extent::ExtentMeta;
use crate::levels::{Edit, VersionSet};
use crate::options::{Options, Planted, Storage};
use crate::os::{Directory, Files, OpenHow, parent_of};
use crate::pm::{Geometry, Incarnations, Media, Region, Superblock};
use crate::record::Lsn;

/// Makes an empty database in `directory`, which exists and is locked. What an earlier, unfinished
/// creation left is replaced.
pub(super) fn create(files: &Arc<dyn Files>, directory: &Path, options: &Options) -> Result<()> {
    create_with(files, directory, options, || Ok(Content::default()))
}

/// What a database begins with.
#[derive(Default)]
pub(super) struct Content {
    /// Every LSN up to here is taken.
    pub(super) lsn: Lsn,
    /// What makes the tables; their extents are in the directory.
    pub(super) edit: Edit<Arc<ExtentMeta>>,
}

/// As [`create`], with what `fill` puts into the directory.
pub(super) fn create_with(
    files: &Arc<dyn Files>,
    directory: &Path,
    options: &Options,
    fill: impl FnOnce() -> Result<Content>,
) -> Result<()> {
    if let Some(path) = &options.pm_path {
        Media::check_path(path)?;
        if files.open(path, OpenHow::Read).is_ok() {
            // It may be the region of another database: never ours to replace.
            return Err(Error::invalid(format!(
                "there is a file at {} already; name another pm_path, or remove it if it is what \
                 an unfinished creation left",
                path.display()
            )));
        }
    }
    let created = fill().and_then(|content| make(files, directory, options, &content));
    if created.is_err() {
        undo(&**files, directory, options);
    }
    created
}

/// Nothing half done: without a journal this is no database. The region goes only once the journal
/// is gone for good, since a journal without a region could neither be opened nor replaced.
fn undo(files: &dyn Files, directory: &Path, options: &Options) {
    for name in files.list(directory).unwrap_or_default() {
        if name.starts_with("journal-") || name.starts_with("extents-") {
            drop(files.remove(&directory.join(name)));
        }
    }
    if Directory::at(directory).sync(files).is_ok() {
        media::remove(files, &media::path(directory, options), options);
    }
}

/// A number that no other database has; on a simulated machine the same every time, so that what
/// happens there can happen again.
fn draw_id(directory: &Path, options: &Options) -> Result<[u8; 16]> {
    let mut id = *b"simulated machin";
    if matches!(options.storage, Storage::Real) {
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Error::io("draw a database id for", directory, e.into()))?;
    }
    Ok(id)
}

fn make(
    files: &Arc<dyn Files>,
    directory: &Path,
    options: &Options,
    Content { lsn, edit }: &Content,
) -> Result<()> {
    let database_id = draw_id(directory, options)?;
    let geometry = Geometry::for_size(options.pm_size);
    let path = media::path(directory, options);
    let media = media::create(files, &path, geometry, options)?;
    format(&Region::new(media, &path, geometry.region_len())?, geometry, database_id, *lsn)?;
    let sync = |directory: &Path| {
        Directory::at(directory).sync(&**files).map_err(|e| Error::io("sync", directory, e))
    };
    sync(directory)?;
    if options.pm_path.is_some() && !options.has(Planted::SkipRegionName) {
        sync(parent_of(&path))?;
    }
    VersionSet::create(&**files, directory, database_id, (*lsn, edit))?;
    sync(parent_of(directory))
}

/// Writes the fixed parts; the superblock last.
fn format(region: &Region, geometry: Geometry, database_id: [u8; 16], lsn: Lsn) -> Result<()> {
    let mut dirty = StreamPool::format(region);
    dirty.extend(ZonePool::format(region, geometry));
    let shared = StreamObject { stream: 0, generation: 0, kind: StreamKind::Shared };
    let cleaner = StreamObject { stream: 1, kind: StreamKind::Cleaner, ..shared };
    for stream in [shared, cleaner] {
        dirty.extend(StreamPool::take(region, &stream));
    }
    let floor = Floor { lsn, ..Floor::default() };
    dirty.push(floor.store(region));
    dirty.push(Floor { number: 1, ..floor }.store(region));
    region.persist(dirty)?;
    let mut superblock = Superblock {
        database_id,
        generation: 0,
        geometry,
        lsn_base: lsn,
        incarnations: Incarnations { current: 1, earlier: Vec::new() },
    };
    superblock.write(region)?;
    Ok(())
}
