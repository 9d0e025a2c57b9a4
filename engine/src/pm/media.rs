//! The file that is, or holds, a region: made and opened by mode.

use std::path::Path;
use std::sync::Arc;

use super::mapped::{Mapped, refuse_device};
use super::region::{Media, zero};
use crate::error::{Error, Result};
use crate::options::Mode;
use crate::os::{Files, OpenHow};

impl Media {
    /// Fails if a region cannot lie at `path` whatever the mode: there is a device.
    ///
    /// # Errors
    ///
    /// `Invalid`, with what to do instead.
    pub(crate) fn check_path(path: &Path) -> Result<()> {
        refuse_device(path)
    }

    /// A new file of `len` zeros, with its space on the device; nothing may be at the path.
    ///
    /// # Errors
    ///
    /// `Full`, or another I/O error.
    pub(crate) fn create(
        files: &Arc<dyn Files>,
        path: &Path,
        len: u64,
        mode: Mode,
    ) -> Result<Media> {
        let mapped = match mode {
            Mode::File => return zeroed_file(files, path, len),
            Mode::Dax => Mapped::dax(path, true)?,
            Mode::Emulated { delay } => Mapped::emulated(path, true, delay)?,
        };
        mapped.reserve(path, len)?;
        Ok(Media::Mapped(mapped))
    }

    /// An existing file, and its length.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn open(
        files: &Arc<dyn Files>,
        path: &Path,
        read_only: bool,
        mode: Mode,
    ) -> Result<(Media, u64)> {
        let mapped = match mode {
            // Reading needs no persistence: an image of the file serves in every mode.
            _ if read_only => return file(files, path, OpenHow::Read),
            Mode::File => return file(files, path, OpenHow::Write),
            Mode::Dax => Mapped::dax(path, false)?,
            Mode::Emulated { delay } => Mapped::emulated(path, false, delay)?,
        };
        let len = mapped.len().map_err(|e| Error::io("measure", path, e))?;
        Ok((Media::Mapped(mapped), len))
    }
}

fn zeroed_file(files: &Arc<dyn Files>, path: &Path, len: u64) -> Result<Media> {
    let making = |e| Error::io("make the region", path, e);
    let file = files.open(path, OpenHow::CreateNew).map_err(making)?;
    zero(&file, 0, len).map_err(making)?;
    Ok(Media::File(file))
}

fn file(files: &Arc<dyn Files>, path: &Path, how: OpenHow) -> Result<(Media, u64)> {
    let file = files.open(path, how).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("measure", path, e))?;
    Ok((Media::File(file), len))
}
