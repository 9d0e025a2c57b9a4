//! Which file, or memory, is the region: by mode.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::emulated;
use crate::error::{Error, Result};
use crate::options::{Mode, Options, Storage};
use crate::os::{Files, OpenHow};
use crate::pm::{Geometry, Mapped, Media, zero};

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
    let mapped = match options.mode {
        Mode::File => return zeroed_file(files, path, len),
        Mode::Dax => Mapped::dax(path, true)?,
        Mode::Emulated { delay } if options.pm_path.is_none() => {
            Mapped::emulated(&emulated::place(path, len)?, true, delay)?
        }
        Mode::Emulated { delay } => Mapped::emulated(path, true, delay)?,
    };
    mapped.reserve(path, len)?;
    Ok(Media::Mapped(mapped))
}

/// Removes what an unfinished creation left.
pub(super) fn remove(files: &dyn Files, path: &Path, options: &Options) {
    match (&options.storage, options.mode) {
        (Storage::Real, Mode::Emulated { .. }) => emulated::remove(path),
        _ => drop(files.remove(path)),
    }
}

fn zeroed_file(files: &Arc<dyn Files>, path: &Path, len: u64) -> Result<Media> {
    let making = |e| Error::io("make the region", path, e);
    let file = files.open(path, OpenHow::CreateNew).map_err(making)?;
    zero(&*file, 0, len).map_err(making)?;
    Ok(Media::File(file))
}

/// The media of an existing region, and its length.
///
/// # Errors
///
/// `Invalid` when a mapped mode is opened read-only; otherwise an I/O error.
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
                let missing = || Error::invalid("the simulated machine has no region");
                let pm = memory.get().ok_or_else(missing)?;
                return Ok((Media::Simulated(Arc::clone(pm)), pm.len()));
            }
        }
    }
    if let Some(error) = emulated::vanished(path) {
        return Err(error);
    }
    let mapped = match options.mode {
        // Reading needs no persistence: an image of the file serves in every mode.
        _ if read_only => return file(files, path, OpenHow::Read),
        Mode::File => return file(files, path, OpenHow::Write),
        Mode::Dax => Mapped::dax(path, false)?,
        Mode::Emulated { delay } => Mapped::emulated(path, false, delay)?,
    };
    let len = mapped.len().map_err(|e| Error::io("measure", path, e))?;
    Ok((Media::Mapped(mapped), len))
}

fn file(files: &Arc<dyn Files>, path: &Path, how: OpenHow) -> Result<(Media, u64)> {
    let file = files.open(path, how).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("measure", path, e))?;
    Ok((Media::File(file), len))
}
