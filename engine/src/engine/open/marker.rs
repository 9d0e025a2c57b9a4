//! The marker of a directory that is being made: a file that is made first and removed last. While
//! it is there, and no opening has used the region but those of the call that makes the directory,
//! there is no database. It says which call that is. What a restore, a salvage or a takeover left
//! is not taken for an empty directory: the same call starts over, and all others refuse.

use std::io::ErrorKind::{AlreadyExists, NotFound};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::options::Making;
use crate::os::{Directory, Files, OpenHow, bytes_of_path, path_of_bytes};
use crate::record::{Reader, checksum, put_bytes, put_u32};

/// The marker's file name.
pub(super) const MARKER: &str = "CREATING";

const MAGIC: &[u8; 8] = b"TERRNEW\0";

/// No marker is longer: a path has a bound.
const LONGEST: usize = 16 * 1024;

impl Making {
    const ALL: [Making; 4] = [Making::Creation, Making::Restore, Making::Salvage, Making::Takeover];

    /// The greatest incarnation of a region that is still being made: creation's own, and that of
    /// each opening by the call.
    pub(super) fn last_incarnation(self) -> u64 {
        match self {
            Making::Creation => 1,
            Making::Restore | Making::Salvage => 2,
            Making::Takeover => 3,
        }
    }

    /// The error of all other calls on what was cut off.
    pub(crate) fn cut_off(self, directory: &Path) -> Error {
        let (what, again) = match self {
            Making::Creation => ("the creation of a database", "create it again"),
            Making::Restore => ("a restore", "run the restore again"),
            Making::Salvage => ("a salvage", "run the salvage again"),
            Making::Takeover => ("a takeover of a shared database", "run the takeover again"),
        };
        Error::invalid(format!(
            "{what} into {} was cut off before its end, so there is no whole database: {again} \
             with this directory, which starts over, or remove the directory",
            directory.display()
        ))
    }
}

/// What the marker says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The database that is made; `None` where the marker itself is torn, and then it is all there
    /// is of the creation.
    pub(crate) database_id: Option<[u8; 16]>,
    /// Where its region is made, if not in the directory.
    pub(crate) pm_path: Option<PathBuf>,
    pub(crate) making: Making,
}

impl Marker {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let path = self.pm_path.as_deref().map(bytes_of_path).unwrap_or_default();
        let mut body = self.database_id.unwrap_or_default().to_vec();
        put_bytes(&mut body, &path);
        if self.making != Making::Creation {
            body.push(self.making as u8);
        }
        let mut bytes = MAGIC.to_vec();
        put_u32(&mut bytes, checksum(&[], &body));
        bytes.extend(body);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Marker> {
        let mut r = Reader::new(bytes);
        let (magic, sum) = (r.take(8)?, r.u32()?);
        if magic != MAGIC || sum != checksum(&[], bytes.get(12..)?) {
            return None;
        }
        let database_id = Some(r.take(16)?.try_into().ok()?);
        let path = r.bytes()?;
        let making = match r.rest() {
            [] => Making::Creation,
            // Creation's own is not written.
            [0] => return None,
            [code] => *Making::ALL.get(usize::from(*code))?,
            _ => return None,
        };
        let pm_path = if path.is_empty() { None } else { Some(path_of_bytes(path)?) };
        Some(Marker { database_id, pm_path, making })
    }

    /// Reads the marker in `directory`. A torn one says nothing.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(super) fn read(files: &dyn Files, directory: &Path) -> Result<Marker> {
        let path = directory.join(MARKER);
        let file = match files.open(&path, OpenHow::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == NotFound => return Ok(Marker::default()),
            Err(e) => return Err(Error::io("open", &path, e)),
        };
        let len = file.len().map_err(|e| Error::io("measure", &path, e))?;
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(LONGEST);
        let bytes = file.read_vec(0, len).map_err(|e| Error::io("read", &path, e))?;
        Ok(Marker::decode(&bytes).unwrap_or_default())
    }

    /// Makes the marker, durably.
    ///
    /// # Errors
    ///
    /// `Full`, or another I/O error; there may be a torn marker then.
    pub(super) fn write(&self, files: &dyn Files, directory: &Path) -> Result<()> {
        let path = directory.join(MARKER);
        debug_assert_eq!(
            Marker::decode(&self.encode()).as_ref(),
            Some(self),
            "an opening reads the marker that a creation wrote"
        );
        let file = files.open(&path, OpenHow::CreateNew).map_err(|e| match e.kind() {
            AlreadyExists => Error::invalid(format!("{} is there already", path.display())),
            _ => Error::io("create", &path, e),
        })?;
        file.try_write_all_at(&self.encode(), 0).map_err(|e| Error::io("write", &path, e))?;
        file.sync().map_err(|e| Error::io("sync", &path, e))?;
        sync_names(files, directory)
    }
}

/// Removes the marker in `directory`, durably, if there is one.
///
/// # Errors
///
/// An I/O error; the marker may be there or not.
pub(crate) fn remove(files: &dyn Files, directory: &Path) -> Result<()> {
    let path = directory.join(MARKER);
    match files.remove(&path) {
        Ok(()) => sync_names(files, directory),
        Err(e) if e.kind() == NotFound => Ok(()),
        Err(e) => Err(Error::io("remove", &path, e)),
    }
}

fn sync_names(files: &dyn Files, directory: &Path) -> Result<()> {
    Directory::at(directory).sync(files).map_err(|e| Error::io("sync", directory, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_round_trips_and_a_torn_one_says_nothing() {
        let paths = [None, Some(PathBuf::from("/mnt/pmem/region"))];
        let each = |making| paths.clone().map(|pm_path| (pm_path, making));
        for (pm_path, making) in Making::ALL.into_iter().flat_map(each) {
            let marker = Marker { database_id: Some([7; 16]), pm_path, making };
            let bytes = marker.encode();
            assert_eq!(Marker::decode(&bytes), Some(marker));
            // A cut marker is no marker, not one of another call.
            for len in 0..bytes.len() {
                assert_eq!(Marker::decode(&bytes[..len]), None);
            }
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1;
                assert_eq!(Marker::decode(&flipped), None, "byte {at}");
            }
        }
    }
}
