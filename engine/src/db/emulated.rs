//! Where the region of an emulated database lies when nobody says: on tmpfs if there is room, else
//! among the temporary files, and then the statistics say so. The database's directory holds a
//! symbolic link to it, by which it is found again as long as the machine runs.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// Makes `link` point to a place for a new region of `len` bytes, in `tmpfs` if there is room, and
/// returns that.
///
/// # Errors
///
/// `Full` when no place has that much room; otherwise an I/O error.
pub(super) fn place(link: &Path, len: u64, tmpfs: &Path) -> Result<PathBuf> {
    let mut id = [0; 8];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Error::io("draw a name for the region of", link, e.into()))?;
    let name = format!("terrace-{:016x}.region", u64::from_le_bytes(id));
    let temporary = std::env::temp_dir();
    let homes = [tmpfs, temporary.as_path()];
    let Some(home) = homes.into_iter().find(|home| room(home).is_some_and(|room| room >= len))
    else {
        let rooms = homes.map(|home| format!("{} has {}", home.display(), room(home).unwrap_or(0)));
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
    std::os::unix::fs::symlink(&target, link).map_err(|e| Error::io("link", link, e))?;
    Ok(target)
}

/// Free bytes of a writable directory.
fn room(directory: &Path) -> Option<u64> {
    let writable = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok();
    let system = rustix::fs::statvfs(directory).ok().filter(|_| writable)?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Removes a region that an unfinished creation left, and where it points to.
pub(super) fn remove(link: &Path) {
    if let Ok(target) = std::fs::read_link(link) {
        drop(std::fs::remove_file(target));
    }
    drop(std::fs::remove_file(link));
}

/// What users should know of where an emulated region lies.
pub(super) fn note(path: &Path) -> Option<String> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    let system = rustix::fs::statfs(path).ok()?;
    #[allow(clippy::useless_conversion, reason = "the width differs between architectures")]
    let on_tmpfs = i64::try_from(system.f_type).is_ok_and(|kind| kind == TMPFS_MAGIC);
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
pub(super) fn vanished(link: &Path) -> Option<Error> {
    let target = std::fs::read_link(link).ok().filter(|target| !target.exists())?;
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

    #[test]
    fn what_tmpfs_has_no_room_for_goes_to_temporary_files_or_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (tmpfs, nowhere) = (dir.path().join("tmpfs"), dir.path().join("nowhere"));
        std::fs::create_dir(&tmpfs).unwrap();
        let small = place(&dir.path().join("small"), 1, &tmpfs).unwrap();
        assert!(small.starts_with(&tmpfs));
        let link = dir.path().join("large");
        let target = place(&link, 1, &nowhere).unwrap();
        assert!(target.starts_with(std::env::temp_dir()) && !target.starts_with(&tmpfs));
        assert_eq!(std::fs::read_link(&link).unwrap(), target);
        let error = place(&dir.path().join("huge"), u64::MAX, &nowhere).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full);
        for words in ["nowhere has 0", "TMPDIR", "pm_path"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
