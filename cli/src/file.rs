//! A file that is written whole or not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Writes a file beside `path`, syncs it, and gives it that name. Where any of it fails, the file
/// that had the name stays as it was.
pub(crate) fn replace<T>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |error| Failure::io(format!("write {}", path.display()), &error);
    let (target, old) = target(path).map_err(failed)?;
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    // No other user reads it before it has the permissions of the old one.
    let mut beside = tempfile::Builder::new();
    #[cfg(unix)]
    if old.is_none() {
        beside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    }
    let mut file = beside.prefix(".terrace-").tempfile_in(directory).map_err(failed)?;
    let done = write(file.as_file_mut())?;
    let ended = old.map_or(Ok(()), |old| file.as_file().set_permissions(old.permissions()));
    ended.and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    file.persist(&target).map_err(|error| failed(error.error))?;
    if cfg!(unix) {
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
    }
    Ok(done)
}

/// The file that a path leads to, and what is there. What is there and is no file is not replaced,
/// nor is a link that leads to none: `/dev/stdout` leads to a pipe, which has no path.
fn target(path: &Path) -> io::Result<(PathBuf, Option<fs::Metadata>)> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((path.into(), None)),
        found => found?,
    };
    let old = fs::metadata(path)?;
    match old.is_file() {
        true => Ok((fs::canonicalize(path)?, Some(old))),
        false => Err(io::Error::other("it is no file; name another one")),
    }
}
