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
    let beside = directory.join(format!(".terrace-{}", std::process::id()));
    let mut file = File::create_new(&beside).map_err(failed)?;
    let written = write(&mut file).and_then(|done| {
        let ended = old.map_or(Ok(()), |old| file.set_permissions(old.permissions()));
        let ended =
            ended.and_then(|()| file.sync_all()).and_then(|()| fs::rename(&beside, &target));
        ended.map(|()| done).map_err(failed)
    });
    if written.is_err() {
        // What failed first is what the caller has to know.
        fs::remove_file(&beside).unwrap_or_default();
    }
    let done = written?;
    if cfg!(unix) {
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
    }
    Ok(done)
}

/// The file that a path leads to, and what is there. A device or a directory is not replaced.
fn target(path: &Path) -> io::Result<(PathBuf, Option<fs::Metadata>)> {
    let target = match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((path.into(), None)),
        target => target?,
    };
    let old = fs::metadata(&target)?;
    match old.is_file() {
        true => Ok((target, Some(old))),
        false => Err(io::Error::other("it is no file; name another one")),
    }
}
