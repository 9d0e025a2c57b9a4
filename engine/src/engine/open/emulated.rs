//! Where the region of an emulated database lies when no option says: on tmpfs if there is room,
//! else among the temporary files, and then the statistics say so. The database's directory holds a
//! symbolic link to it, by which it is found again as long as the machine runs.
//!
//! A file that a link leads to is removed only if its name is one that this module gives.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::os::{Files, draw_random, free_space, is_on_tmpfs};

/// The name of the file in memory that is the region of a database.
pub(super) fn name_of_region(database_id: [u8; 16]) -> String {
    format!("terrace-{:032x}.region", u128::from_be_bytes(database_id))
}

/// A name for the file in memory that is the index of a database: another one each time.
///
/// # Errors
///
/// An I/O error.
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
///
/// # Errors
///
/// `Full` when no place has that much room; otherwise an I/O error.
pub(super) fn place(
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
///
/// # Errors
///
/// An I/O error.
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

/// What an opening should say when the link leads nowhere.
pub(super) fn vanished(files: &dyn Files, link: &Path) -> Option<Error> {
    let target = target_of(files, link).filter(|t| matches!(t.try_exists(), Ok(false)))?;
    Some(Error::new(
        ErrorKind::Unavailable,
        format!(
            "the emulated region {} is gone, as happens when the machine restarts: emulated \
             memory survives the process only; what was drained is lost with it, so make the \
             database again",
            target.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::RealFiles;

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
        let small = place(&files, (&dir.path().join("small"), 1), &tmpfs, "a").unwrap();
        assert!(small.starts_with(&tmpfs));
        let link = dir.path().join("large");
        let target = place(&files, (&link, 1), &nowhere, "b").unwrap();
        assert!(target.starts_with(std::env::temp_dir()) && !target.starts_with(&tmpfs));
        assert_eq!(std::fs::read_link(&link).unwrap(), target);
        let error = place(&files, (&dir.path().join("huge"), u64::MAX), &nowhere, "c").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full);
        for words in ["nowhere has 0", "TMPDIR", "pm_path"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
