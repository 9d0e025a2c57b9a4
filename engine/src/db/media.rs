//! Which file, or memory, is the region: by where the database is kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::emulated;
use crate::error::Result;
use crate::options::{Mode, Options, Storage};
use crate::os::Files;
use crate::pm::{Geometry, Media};

/// The region's file name in a database's directory.
pub(super) const REGION: &str = "region";

/// Where the region of the database in `directory` is.
pub(super) fn path(directory: &Path, options: &Options) -> PathBuf {
    options.pm_path.clone().unwrap_or_else(|| directory.join(REGION))
}

/// A new region's media, all zeros and with its space on the device. What an earlier, unfinished
/// creation left there is replaced; anything else at the path is an error of the caller's check.
///
/// # Errors
///
/// `Full`, or another I/O error.
pub(super) fn create(
    files: &Arc<dyn Files>,
    path: &Path,
    geometry: Geometry,
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
    remove(&**files, path, options);
    create_file(files, path, len, options)
}

/// A new file of `len` zeros at the path, or where the path leads to then.
///
/// # Errors
///
/// `Full`, or another I/O error.
pub(super) fn create_file(
    files: &Arc<dyn Files>,
    path: &Path,
    len: u64,
    options: &Options,
) -> Result<Media> {
    let place = match options.mode {
        Mode::Emulated { .. } if options.pm_path.is_none() => {
            emulated::place(path, len, options.tmpfs_directory())?
        }
        _ => path.to_path_buf(),
    };
    Media::create(files, &place, len, options.mode)
}

/// Removes what an unfinished creation left.
pub(super) fn remove(files: &dyn Files, path: &Path, options: &Options) {
    match (&options.storage, options.mode) {
        (Storage::Real, Mode::Emulated { .. }) => emulated::remove(path),
        _ => drop(files.remove(path)),
    }
}

/// The media of an existing region, and its length.
///
/// # Errors
///
/// An I/O error.
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
    if let Some(error) = emulated::vanished(path) {
        return Err(error);
    }
    Media::open(files, path, read_only, options.mode)
}
