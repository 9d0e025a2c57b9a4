//! Which file, or memory, is the region: by where the database is kept.
//!
//! Where no option says where the region of an emulated database lies, it is on tmpfs if there is
//! room, else among the temporary files, and then the statistics say so. The database's directory
//! holds a symbolic link to it, by which it is found again as long as the machine runs. A file that
//! a link leads to is removed only if its name is one that this module gives.

use std::io;
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Mismatch, Result};
use crate::base::options::{Mode, Options, Storage};
use crate::os::{Files, OpenHow, draw_random, free_space, is_on_tmpfs, read_past};
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
/// `Exists` when there is a file; `Full`; or another I/O error.
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
    let name = name_of_region(database_id);
    create_file(files, path, len, &name, options)
}

/// A new file of `len` zeros at the path; in an emulated database's directory a link to a file
/// `name` where files lie in memory.
pub(super) fn create_file(
    files: &Arc<dyn Files>,
    path: &Path,
    len: u64,
    name: &str,
    options: &Options,
) -> Result<Media> {
    match options.mode {
        Mode::Emulated { .. } if options.pm_path.is_none() => {
            let place = place_in_memory(&**files, (path, len), options.tmpfs_directory(), name)?;
            let made = Media::create(files, &place, len, options.mode);
            made.inspect_err(|_| files.remove(path).unwrap_or(()))
        }
        _ => Media::create(files, path, len, options.mode),
    }
}

/// Fails if there is a file at the path that a new region is to have.
pub(super) fn check_vacant(files: &dyn Files, path: &Path, directory: &Path) -> Result<()> {
    let region = match files.open(path, OpenHow::Read) {
        Err(e) if e.kind() == NotFound => return Ok(()),
        Err(e) => return Err(Error::io("look for a region at", path, e)),
        Ok(_) => is_region(files, path)?,
    };
    let (path, directory) = (path.display(), directory.display());
    Err(Error::new(
        ErrorKind::Exists,
        match region {
            true => format!(
                "there is a region at {path} already, and {directory} has no journal that belongs \
                 to it: if it is the region of another database, name another pm_path; if its \
                 journal is lost, salvage it; if an unfinished creation left it, remove it"
            ),
            false => format!(
                "there is a file at {path} already; name another pm_path, or remove it if it is \
                 what an unfinished creation left"
            ),
        },
    ))
}

/// Removes a region or an index of the locked directory that it lies in, and the file in memory
/// that it may be a link to. Only a file that this engine named goes with the link.
pub(super) fn remove(files: &dyn Files, path: &Path) -> io::Result<()> {
    remove_target(files, path)?;
    files.remove(path)
}

/// The superblock of a region that is not open; `None` where there is no sound one.
///
/// # Errors
///
/// `Invalid` for a region of another format: whether an opening has used it is not known. Or an I/O
/// error.
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
    match Superblock::read(&pages, path) {
        Ok((superblock, _)) => Ok(Some(superblock)),
        Err(e) if e.kind() == ErrorKind::Invalid && Superblock::is_region(&pages) => Err(e),
        Err(_) => Ok(None),
    }
}

/// Whether the file at the path begins as a region does, or cannot be read there: a region that is
/// damaged is one. A file that is not there does not.
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
                    || crate::base::error::Error::invalid("the simulated machine has no region");
                let pm = memory.get().ok_or_else(missing)?;
                return Ok((Media::Simulated(Arc::clone(pm)), pm.len()));
            }
        }
    }
    if let Some(error) = vanished(&**files, path, options) {
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

/// The name of the file in memory that is the region of a database.
pub(super) fn name_of_region(database_id: [u8; 16]) -> String {
    format!("terrace-{:032x}.region", u128::from_be_bytes(database_id))
}

/// A name for the file in memory that is the index of a database: another one each time.
pub(super) fn name_of_index(link: &Path) -> Result<String> {
    let mut id = [0; 16];
    draw_random(&mut id).map_err(|e| Error::io("draw a name for the file of", link, e))?;
    Ok(name_of_region(id))
}

/// Whether a file has a name that this module gives.
fn is_own_name(name: &str) -> bool {
    let digits = name.strip_prefix("terrace-").and_then(|name| name.strip_suffix(".region"));
    digits.is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Makes `link` point to a place for a new file `name` of `len` bytes, in `tmpfs` if there is room,
/// and returns that.
pub(super) fn place_in_memory(
    files: &dyn Files,
    (link, len): (&Path, u64),
    tmpfs: &Path,
    name: &str,
) -> Result<PathBuf> {
    let temporary = std::env::temp_dir();
    let homes = [tmpfs, temporary.as_path()];
    let Some(home) =
        homes.into_iter().find(|home| free_space(home).is_some_and(|room| room >= len))
    else {
        let has = |home: &Path| free_space(home).unwrap_or(0);
        let rooms = homes.map(|home| format!("{} has {}", home.display(), has(home)));
        return Err(Error::new(
            ErrorKind::Full,
            format!(
                "an emulated region of {len} bytes finds no room: {}; make one smaller (pm_size), \
                 set TMPDIR, or name a file with pm_path",
                rooms.join(", ")
            ),
        ));
    };
    let target = home.join(name);
    let made = match files.real() {
        Some(files) => files.make_link(&target, link),
        None => Err(io::ErrorKind::Unsupported.into()),
    };
    made.map_err(|e| Error::io("link", link, e))?;
    Ok(target)
}

/// Removes the file that `link` leads to, if this module gave it its name. Where there is no link,
/// or it leads to any other file, nothing happens.
pub(super) fn remove_target(files: &dyn Files, link: &Path) -> io::Result<()> {
    let Some(target) = target_of(files, link) else { return Ok(()) };
    if !target.file_name().and_then(|name| name.to_str()).is_some_and(is_own_name) {
        return Ok(());
    }
    match std::fs::remove_file(target) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Where a link leads; `None` for what is none.
fn target_of(files: &dyn Files, link: &Path) -> Option<PathBuf> {
    files.real()?.read_link(link).ok()
}

/// What users should know of where an emulated region lies.
pub(crate) fn note(path: &Path) -> Option<String> {
    let on_tmpfs = is_on_tmpfs(path)?;
    let lies = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    (!on_tmpfs).then(|| {
        format!(
            "the emulated region lies in {}, which is no tmpfs: its pages are written back to a \
             disk, which memory would not do",
            lies.display()
        )
    })
}

/// What an opening should say when the link leads nowhere, or the user's emulated region is gone.
fn vanished(files: &dyn Files, link: &Path, options: &Options) -> Option<Error> {
    let is_named = options.pm_path.is_some() && matches!(options.mode, Mode::Emulated { .. });
    let target = target_of(files, link).or_else(|| is_named.then(|| link.to_path_buf()));
    let target = target.filter(|target| matches!(target.try_exists(), Ok(false)))?;
    let damage = Mismatch::new("the region of the database", "no file").at("region", "pm", link, 0);
    let message = format!(
        "the emulated region {} is not there; if it lies elsewhere, name it with pm_path; else it \
         is gone, as happens when the machine restarts: emulated memory survives the process \
         only; write what was drained to a new database with `terrace salvage`, or make the \
         database again",
        target.display()
    );
    Some(Error::missing(damage, message).of_kind(ErrorKind::Unavailable))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::*;
    use crate::os::RealFiles;
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

    #[test]
    fn only_a_file_with_a_name_of_ours_goes_with_its_link() {
        let (dir, files) = (tempfile::tempdir().unwrap(), RealFiles::default());
        for (name, goes) in [
            (name_of_region([7; 16]), true),
            ("terrace-0123456789abcdef.region".to_string(), false),
            ("terrace-precious.region".to_string(), false),
            ("region".to_string(), false),
        ] {
            let (target, link) = (dir.path().join(&name), dir.path().join("link"));
            std::fs::write(&target, "bytes").unwrap();
            std::os::unix::fs::symlink(&target, &link).unwrap();
            remove_target(&files, &link).unwrap();
            assert_eq!(target.exists(), !goes, "{name}");
            remove_target(&files, &link).unwrap();
            std::fs::remove_file(&link).unwrap();
            remove_target(&files, &link).unwrap();
        }
    }

    #[test]
    fn what_tmpfs_has_no_room_for_goes_to_temporary_files_or_nowhere() {
        let (dir, files) = (tempfile::tempdir().unwrap(), RealFiles::default());
        let (tmpfs, nowhere) = (dir.path().join("tmpfs"), dir.path().join("nowhere"));
        std::fs::create_dir(&tmpfs).unwrap();
        let small = place_in_memory(&files, (&dir.path().join("small"), 1), &tmpfs, "a").unwrap();
        assert!(small.starts_with(&tmpfs));
        let link = dir.path().join("large");
        let target = place_in_memory(&files, (&link, 1), &nowhere, "b").unwrap();
        assert!(target.starts_with(std::env::temp_dir()) && !target.starts_with(&tmpfs));
        assert_eq!(std::fs::read_link(&link).unwrap(), target);
        let error = place_in_memory(&files, (&dir.path().join("huge"), u64::MAX), &nowhere, "c")
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full);
        for words in ["nowhere has 0", "TMPDIR", "pm_path"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
