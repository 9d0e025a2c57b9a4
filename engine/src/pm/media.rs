//! The file that is, or holds, a region: made and opened by mode.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::mapped::{Mapped, refuse_device};
use super::region::Media;
use super::zeros::zero;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Mode;
use crate::os::{File, Files, OpenHow};

impl Media {
    /// Fails if a region cannot lie at `path` whatever the mode: there is a device.
    pub(crate) fn check_path(path: &Path) -> Result<()> {
        refuse_device(path)
    }

    /// A new file of `len` zeros, with its space on the device. A file that is there already is
    /// left alone; after any other failure the new file is gone again.
    pub(crate) fn create(
        files: &Arc<dyn Files>,
        path: &Path,
        len: u64,
        mode: Mode,
    ) -> Result<Media> {
        refuse_device(path)?;
        let file = files.open(path, OpenHow::CreateNew).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Error::new(
                ErrorKind::Exists,
                format!(
                    "there is a file at {} already; name another place, or remove the file",
                    path.display()
                ),
            ),
            _ => Error::io("make the region", path, e),
        })?;
        // From here on the file is this call's own.
        let filled = Media::fill(files, (file, path), len, mode);
        filled.inspect_err(|_| files.remove(path).unwrap_or(()))
    }

    /// Gives a file that was just made its space.
    fn fill(
        files: &Arc<dyn Files>,
        (file, path): (Arc<File>, &Path),
        len: u64,
        mode: Mode,
    ) -> Result<Media> {
        let mapped = match mode {
            Mode::File => {
                zero(&file, 0, len).map_err(|e| Error::io("make the region", path, e))?;
                return Ok(Media::File(file));
            }
            Mode::Dax => Mapped::dax(&**files, path)?,
            Mode::Emulated { delay } => Mapped::emulated(&**files, path, delay)?,
        };
        mapped.reserve(path, len)?;
        Ok(Media::Mapped(mapped))
    }

    /// An existing file, and its length.
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
            Mode::Dax => Mapped::dax(&**files, path)?,
            Mode::Emulated { delay } => Mapped::emulated(&**files, path, delay)?,
        };
        let len = mapped.len().map_err(|e| Error::io("measure", path, e))?;
        Ok((Media::Mapped(mapped), len))
    }
}

fn file(files: &Arc<dyn Files>, path: &Path, how: OpenHow) -> Result<(Media, u64)> {
    let file = files.open(path, how).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("measure", path, e))?;
    Ok((Media::File(file), len))
}
