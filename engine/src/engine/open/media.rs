//! Which file, or memory, is the region: by where the database is kept.

use std::io::{self, ErrorKind::NotFound};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::emulated;
use crate::error::{Error, Mismatch, Result};
use crate::options::{Mode, Options, Storage};
use crate::os::{Files, OpenHow, read_past};
use crate::pm::{Geometry, Media, Region, Span, Superblock};

/// The region's file name in a database's directory.
pub(super) const REGION: &str = "region";

/// Where the region of the database in `directory` is.
pub(crate) fn path(directory: &Path, options: &Options) -> PathBuf {
    options.pm_path.clone().unwrap_or_else(|| directory.join(REGION))
}

/// A new region's media, all zeros and with its space on the device. A file that is there already
/// is left alone, and after a failure so is all else: what this call made is gone again.
///
/// # Errors
///
/// `Invalid` when there is a file; `Full`; or another I/O error.
pub(super) fn create(
    files: &Arc<dyn Files>,
    path: &Path,
    geometry: Geometry,
    database_id: [u8; 16],
    options: &Options,
) -> Result<Media> {
    let len = geometry.region_len();
    match &options.storage {
        Storage::Real => {}
        #[cfg(any(test, feature = "testing"))]
        Storage::Simulated(machine) => {
            if let Some(pm) = machine.make_memory(len) {
                return Ok(Media::Simulated(pm));
            }
        }
    }
    let name = emulated::name_of_region(database_id);
    create_file(files, path, len, &name, options)
}

/// A new file of `len` zeros at the path; in an emulated database's directory a link to a file
/// `name` where files lie in memory.
///
/// # Errors
///
/// As [`create`].
pub(super) fn create_file(
    files: &Arc<dyn Files>,
    path: &Path,
    len: u64,
    name: &str,
    options: &Options,
) -> Result<Media> {
    match options.mode {
        Mode::Emulated { .. } if options.pm_path.is_none() => {
            let place = emulated::place(&**files, (path, len), options.tmpfs_directory(), name)?;
            let made = Media::create(files, &place, len, options.mode);
            made.inspect_err(|_| files.remove(path).unwrap_or(()))
        }
        _ => Media::create(files, path, len, options.mode),
    }
}

/// Fails if there is a file at the path that a new region is to have.
///
/// # Errors
///
/// `Invalid` when there is one; an I/O error when that cannot be told: only "not found" says that
/// there is none.
pub(super) fn check_vacant(files: &dyn Files, path: &Path, directory: &Path) -> Result<()> {
    let region = match files.open(path, OpenHow::Read) {
        Err(e) if e.kind() == NotFound => return Ok(()),
        Err(e) => return Err(Error::io("look for a region at", path, e)),
        Ok(_) => is_region(files, path)?,
    };
    let (path, directory) = (path.display(), directory.display());
    Err(Error::invalid(match region {
        true => format!(
            "there is a region at {path} already, and {directory} has no journal that belongs to \
             it: if it is the region of another database, name another pm_path; if its journal is \
             lost, salvage it; if an unfinished creation left it, remove it"
        ),
        false => format!(
            "there is a file at {path} already; name another pm_path, or remove it if it is what \
             an unfinished creation left"
        ),
    }))
}

/// Removes a region or an index of the locked directory that it lies in, and the file in memory
/// that it may be a link to. Only a file that this engine named goes with the link.
///
/// # Errors
///
/// An I/O error.
pub(super) fn remove(files: &dyn Files, path: &Path) -> io::Result<()> {
    emulated::remove_target(files, path)?;
    files.remove(path)
}

/// The superblock of a region that is not open; `None` where there is no sound one.
///
/// # Errors
///
/// An I/O error other than that the region is missing.
pub(super) fn peek(
    files: &Arc<dyn Files>,
    path: &Path,
    options: &Options,
) -> Result<Option<Superblock>> {
    let (media, len) = match &options.storage {
        Storage::Real => match open_to_peek(&**files, path)? {
            Some(_) => Media::open(files, path, true, options.mode)?,
            None => return Ok(None),
        },
        #[cfg(any(test, feature = "testing"))]
        Storage::Simulated(machine) => match machine.memory() {
            Some(memory) => match memory.get() {
                Some(pm) => (Media::Simulated(Arc::clone(pm)), pm.len()),
                None => return Ok(None),
            },
            None if open_to_peek(&**files, path)?.is_none() => return Ok(None),
            None => Media::open(files, path, true, options.mode)?,
        },
    };
    let span = Span { at: 0, len: len.min(Superblock::span().len) };
    if span.len == 0 {
        return Ok(None);
    }
    let pages = Region::new(media, path, span.len)?.peek(span)?;
    Ok(Superblock::read(&pages, path).ok().map(|(superblock, _)| superblock))
}

/// Whether the file at the path begins as a region does, or cannot be read there: a region that is
/// damaged is one. A file that is not there does not.
///
/// # Errors
///
/// An I/O error other than of a read.
pub(super) fn is_region(files: &dyn Files, path: &Path) -> Result<bool> {
    let Some(file) = open_to_peek(files, path)? else { return Ok(false) };
    let len = file.len().map_err(|e| Error::io("measure", path, e))?;
    let mut pages = vec![0; usize::try_from(len.min(Superblock::span().len)).unwrap_or(0)];
    let mut unread = Vec::new();
    read_past(0, &mut pages, &mut |at, part| file.read_exact_at(part, at), &mut unread);
    Ok(Superblock::is_region(&pages) || !unread.is_empty())
}

fn open_to_peek(files: &dyn Files, path: &Path) -> Result<Option<Arc<crate::os::File>>> {
    match files.open(path, OpenHow::Read) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == NotFound => Ok(None),
        Err(e) => Err(Error::io("open", path, e)),
    }
}

/// The media of an existing region, and its length.
///
/// # Errors
///
/// `Corrupt` where there is none, with what to do; otherwise an I/O error.
pub(super) fn open(
    files: &Arc<dyn Files>,
    path: &Path,
    read_only: bool,
    options: &Options,
) -> Result<(Media, u64)> {
    match &options.storage {
        Storage::Real => {}
        #[cfg(any(test, feature = "testing"))]
        Storage::Simulated(machine) => {
            if let Some(memory) = machine.memory() {
                let missing =
                    || crate::error::Error::invalid("the simulated machine has no region");
                let pm = memory.get().ok_or_else(missing)?;
                return Ok((Media::Simulated(Arc::clone(pm)), pm.len()));
            }
        }
    }
    if let Some(error) = emulated::vanished(&**files, path) {
        return Err(error);
    }
    if open_to_peek(&**files, path)?.is_none() {
        return Err(no_region(path));
    }
    Media::open(files, path, read_only, options.mode)
}

fn no_region(path: &Path) -> Error {
    let damage = Mismatch::new("the region of the database", "no file").at("region", "pm", path, 0);
    let message = format!(
        "the database lacks its region: there is no file {}, and nothing was changed; if the \
         region lies elsewhere, name it with pm_path; else put it back, or write what can be read \
         to a new database with `terrace salvage`",
        path.display()
    );
    Error::missing(damage, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop and tell")]

    use super::*;
    use crate::os::create_directory;
    use terrace_testkit::SimFiles;

    /// Bug: a salvage of a database without a journal failed where the first pages of its region
    /// could not be read. Cause: it asked what the region is, and an error of that was no answer.
    /// Fix: what cannot be read may be a region.
    #[test]
    fn a_region_that_cannot_be_read_is_one() {
        let files = SimFiles::new();
        create_directory(&*files, Path::new("/db")).unwrap();
        let path = Path::new("/db/region");
        let file = files.open(path, OpenHow::CreateNew).unwrap();
        file.try_write_all_at(&[7; 20_000], 0).unwrap();
        assert!(!is_region(&*files, path).unwrap());
        files.make_unreadable(path, 0..1);
        assert!(is_region(&*files, path).unwrap());
    }
}
