//! A new database: a marker first, then the region, then the journal; the marker is removed last,
//! or by the call that goes on with the database (`Options::making`).
//!
//! Creation replaces only what is provably its own: files in the database's locked directory under
//! a marker, and a region elsewhere that carries the marker's database id and that no opening used.
//! A creation that fails removes what it made, and nothing else. `docs/format.md` ("Creation") has
//! the argument for a cut at every step.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index_file::{INDEX, remove_beside};
use super::media::{self, REGION};
use super::presence::{Marker, Presence, files_of, lock, look, may_replace, remove_marker};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::{Failpoint, Making, Options, Storage};
use crate::base::record::Lsn;
use crate::commit::Floor;
use crate::engine::OpenHow;
use crate::os::{Directory, Files, draw_random, sync_name};
use crate::pm::alloc::{StreamKind, StreamObject, StreamPool, ZonePool};
use crate::pm::{Geometry, Incarnations, Media, Region, Superblock};
use crate::sstable::ExtentMeta;
use crate::storage::{OBJECT_FILES, is_extent_file_name};
use crate::version::{Edit, FoundEdits, JournalFloor, VersionSet, is_journal_name};

/// What a database begins with.
#[derive(Default)]
pub(crate) struct Content {
    /// Every LSN up to here is taken.
    pub(crate) lsn: Lsn,
    /// What makes the tables; their extents are in the directory.
    pub(crate) edit: Edit<Arc<ExtentMeta>>,
}

/// Makes a database in `directory`, which exists, is locked, and holds what `found` says, with what
/// `fill` puts there. After an error the directory holds no database, or a whole one; in the first
/// case the next creation may begin anew.
pub(crate) fn create_with(
    files: &Arc<dyn Files>,
    directory: &Path,
    (options, making): (&Options, Making),
    found: &Presence,
    fill: impl FnOnce(&Arc<dyn Files>) -> Result<Content>,
) -> Result<()> {
    debug_assert!(
        matches!(found, Presence::Missing | Presence::Empty | Presence::Unfinished(_)),
        "a creation never replaces {found:?}"
    );
    let mut creation = Creation { files, directory, options, making, made_region: None };
    if let Presence::Unfinished(marker) = found {
        creation.clear(marker)?;
    }
    if let Some(path) = &options.pm_path {
        Media::check_path(path)?;
        media::check_vacant(&**files, path, directory)?;
    }
    creation.run(fill).inspect_err(|_| creation.undo())?;
    // From here on the database is whole. It is not undone where this fails: without the marker,
    // a half of it would be in the way of every later creation.
    match options.making {
        None => remove_marker(&**files, directory),
        Some(_) => Ok(()),
    }
}

/// Ends what `options.making` began: from now on the directory holds the database `database_id`.
///
/// # Errors
///
/// `Busy` if another process began a new creation there; or an I/O error.
pub(crate) fn end_making(directory: &Path, options: &Options, database_id: [u8; 16]) -> Result<()> {
    let files = files_of(options);
    let _lock = lock(&*files, directory, options, OpenHow::Create)?;
    let found = Marker::read(&*files, directory)?.database_id;
    if found != Some(database_id) {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("another process has begun anew to make {}", directory.display()),
        ));
    }
    remove_marker(&*files, directory)
}

/// Removes a file of a database's directory, with what it leads to.
pub(crate) fn remove_part(files: &dyn Files, directory: &Path, name: &str) -> std::io::Result<()> {
    let path = directory.join(name);
    match [REGION, INDEX].contains(&name) {
        true => media::remove(files, &path),
        false => files.remove(&path),
    }
}

/// Removes the region of the database in a locked directory, closed or half made, where it lies
/// elsewhere, and the index beside it. The ids have to be equal.
pub(crate) fn remove_region_elsewhere(directory: &Path, options: &Options) -> Result<()> {
    let (files, Some(region)) = (&files_of(options), &options.pm_path) else { return Ok(()) };
    let Some(found) = media::peek(files, region, options)? else { return Ok(()) };
    let id = match look(files, directory, options)? {
        Presence::Unfinished(marker) => marker.database_id,
        Presence::Database => {
            let floor = JournalFloor::default();
            let set = VersionSet::open(Arc::clone(files), directory, floor, FoundEdits::Leave)?;
            Some(set.database_id())
        }
        _ => None,
    };
    if id == Some(found.database_id) {
        remove_beside(&**files, region, found.database_id)?;
        files.remove(region).map_err(|e| Error::io("remove", region, e))?;
    }
    Ok(())
}

/// Removes what the call that `options.making` names has begun in a directory, and has closed. What
/// that call has ended stays.
///
/// # Errors
///
/// `Busy` if another process works there; or an I/O error. The next such call removes what
/// is left.
pub(crate) fn remove_unfinished(directory: &Path, options: &Options) -> Result<()> {
    let files = &files_of(options);
    let _lock = lock(&**files, directory, options, OpenHow::Existing)?;
    let left = match look(files, directory, options)? {
        Presence::Unfinished(left) if may_replace(&left, options.making) => left,
        _ => return Ok(()),
    };
    let making = left.making;
    Creation { files, directory, options, making, made_region: None }.clear(&left)
}

/// One creation.
struct Creation<'a> {
    files: &'a Arc<dyn Files>,
    directory: &'a Path,
    options: &'a Options,
    making: Making,
    /// The region, once this creation has made it.
    made_region: Option<PathBuf>,
}

impl Creation<'_> {
    fn run(&mut self, fill: impl FnOnce(&Arc<dyn Files>) -> Result<Content>) -> Result<()> {
        let database_id = draw_id(self.directory, self.options)?;
        let pm_path = self.options.pm_path.as_ref().map(std::path::absolute).transpose();
        let pm_path = pm_path.map_err(|e| Error::io("find the place of", self.directory, e))?;
        let marker = Marker { database_id: Some(database_id), pm_path, making: self.making };
        marker.write(&**self.files, self.directory)?;
        self.make(database_id, &fill(self.files)?)
    }

    fn make(&mut self, database_id: [u8; 16], Content { lsn, edit }: &Content) -> Result<()> {
        let (files, directory) = (self.files, self.directory);
        let whole = Geometry::for_size(self.options.pm_size);
        let geometry = whole.beginning_with(self.options.pm_initial_size);
        let path = media::path(directory, self.options);
        let media = media::create(files, &path, geometry, database_id, self.options);
        let media = media.map_err(|e| self.explain(e, geometry.region_len()))?;
        self.made_region = Some(path.clone());
        format(&Region::new(media, &path, geometry.region_len())?, geometry, database_id, *lsn)?;
        self.sync(directory)?;
        if self.options.pm_path.is_some() && !self.options.has(Failpoint::SkipRegionName) {
            self.sync_name(&path)?;
        }
        VersionSet::create(&**files, directory, database_id, (*lsn, edit))?;
        self.sync_name(directory)
    }

    /// Makes the name of a path durable.
    fn sync_name(&self, path: &Path) -> Result<()> {
        let synced = sync_name(&**self.files, path);
        synced.map_err(|e| Error::io("sync the name of", path, e))
    }

    /// Says how much space the region was to have, where that is not there.
    fn explain(&self, error: Error, len: u64) -> Error {
        if error.kind() != ErrorKind::Full {
            return error;
        }
        error.advise(&format!(
            "the region takes {len} bytes (pm_size is {}); free so much, choose a smaller \
             pm_size, or another place",
            self.options.pm_size
        ))
    }

    /// Removes what an unfinished creation left under its marker, the marker last. A region
    /// elsewhere is removed only if it is provably what that creation made.
    fn clear(&self, marker: &Marker) -> Result<()> {
        let files = &**self.files;
        if let (Some(id), Some(path)) = (marker.database_id, &marker.pm_path) {
            let found = media::peek(self.files, path, self.options)?;
            let found = found.filter(|superblock| superblock.database_id == id);
            let used = found.as_ref().map(|superblock| superblock.incarnations.current);
            if used.is_none_or(|used| used <= marker.making.last_incarnation()) {
                // The call that made it may have opened it, too. It goes first: without the
                // region nothing leads to it.
                remove_beside(files, path, id)?;
                if used.is_some() {
                    files.remove(path).map_err(|e| Error::io("remove", path, e))?;
                }
            }
        }
        for name in self.own_names(marker.making)? {
            self.remove_own(&name)?;
        }
        self.sync(self.directory)?;
        remove_marker(files, self.directory)
    }

    /// Removes a part of a database in the directory.
    fn remove_own(&self, name: &str) -> Result<()> {
        let removed = remove_part(&**self.files, self.directory, name);
        removed.map_err(|e| Error::io("remove", &self.directory.join(name), e))
    }

    /// Makes the names in a directory durable.
    fn sync(&self, directory: &Path) -> Result<()> {
        let synced = Directory::at(directory).sync(&**self.files);
        synced.map_err(|e| Error::io("sync", directory, e))
    }

    /// The names of parts of a database in the directory. Where the call that made it has opened
    /// it, there are more.
    fn own_names(&self, making: Making) -> Result<Vec<String>> {
        let names = self.files.list(self.directory);
        let names = names.map_err(|e| Error::io("list", self.directory, e))?;
        let is_ours = |name: &String| {
            [REGION, INDEX].contains(&name.as_str())
                || is_extent_file_name(name)
                || making != Making::Creation && is_made_by_opening(name)
                || is_journal_name(name.strip_suffix(".new").unwrap_or(name))
        };
        Ok(names.into_iter().filter(is_ours).collect())
    }

    /// Removes what this creation made, as far as that is possible now. The marker goes last: what
    /// stays is then found as an unfinished creation.
    fn undo(&self) {
        let files = &**self.files;
        // What is not known stays, with the marker.
        let Ok(names) = self.own_names(self.making) else { return };
        let mut is_clear = true;
        for name in names {
            is_clear &= self.remove_own(&name).is_ok();
        }
        // Elsewhere a region is this creation's own only if it was told so.
        if let (Some(region), Some(_)) = (&self.made_region, &self.options.pm_path) {
            is_clear &= files.remove(region).is_ok();
        }
        if is_clear && self.sync(self.directory).is_ok() {
            // A marker that stays says that there is no database, which is true.
            remove_marker(files, self.directory).unwrap_or(());
        }
    }
}

/// By which a directory of a shared database knows its own claims.
pub(crate) const CLAIMS_FILE: &str = "shared";

/// Whether an opening makes a file of this name beside the parts of a database.
fn is_made_by_opening(name: &str) -> bool {
    OBJECT_FILES.contains(&name) || name.strip_suffix(".new").unwrap_or(name) == CLAIMS_FILE
}

/// A number that no other database has. On a simulated machine it follows from the path, so that
/// what happens there can happen again: the nodes of a shared store lie at paths of their own, but
/// for a first writer and one that takes it over.
fn draw_id(directory: &Path, options: &Options) -> Result<[u8; 16]> {
    let mut id = *b"simulated machin";
    if matches!(options.storage, Storage::Real) {
        draw_random(&mut id).map_err(|e| Error::io("draw a database id for", directory, e))?;
        return Ok(id);
    }
    id[15] ^= u8::from(options.making == Some(Making::Takeover));
    let path = directory.as_os_str().as_encoded_bytes();
    for (n, byte) in path.iter().enumerate() {
        id[n % 16] = id[n % 16].rotate_left(3) ^ byte;
    }
    Ok(id)
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
        shared_cut: None,
        kept: None,
        incarnations: Incarnations { current: 1, earlier: Vec::new() },
    };
    superblock.write(region)?;
    Ok(())
}
