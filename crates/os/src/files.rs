//! The file system as the engine uses it. Everything durable goes through [`Files`], so that the
//! simulator can lose, tear and refuse exactly what a device may.
//!
//! What the engine assumes of a file system, and no more:
//!
//! 1. Bytes written are durable once a later sync of the same file returned. Before that, any
//!    subset of the 512-byte sectors written since the last sync may survive.
//! 2. A name created, renamed or removed is durable once a later sync of its directory returned. A
//!    rename is atomic.
//! 3. A sync that failed says nothing about the bytes; a later one that succeeds does not either.
//!    The bytes stay readable, and they are on no device until they are written again.
//! 4. The file system reports a failure to one sync of one open file, and to no other.
//! 5. Names and lengths lie in the file system's own journal. A file system that cannot write its
//!    journal stops: from then on every sync of it fails, until it is mounted again and shows what
//!    is on the device.
//!
//! From 3 and 4 follows the rule of `docs/internals/durability.md`: the engine uses one handle for
//! each file, [`File`], and that handle believes nothing after its first failure. The traits here
//! are what it is made of; [`Sealed`] keeps others from calling their syncs.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::handle::File;
use super::memory_files::MemoryFiles;
use super::real::RealFiles;

/// How [`Files::open`] opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenHow {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A file that must not exist yet, for reading and writing.
    CreateNew,
}

impl OpenHow {
    /// An existing file, to sync what another process wrote.
    pub const TO_SYNC: OpenHow = if cfg!(windows) { OpenHow::Write } else { OpenHow::Read };
}

/// What a caller of a raw operation has to show. Only the handles of this folder make one.
#[derive(Clone, Copy, Debug)]
pub struct Sealed(());

impl Sealed {
    pub(super) fn new() -> Sealed {
        Sealed(())
    }

    /// For a test of files below their handles.
    #[cfg(feature = "testing")]
    pub fn for_test() -> Sealed {
        Sealed(())
    }
}

/// An open file of a file system, without the rules of [`File`]. All offsets are absolute; there is
/// no file position.
pub trait RawFile: Send + Sync + fmt::Debug {
    /// Reads at most `buffer.len()` bytes at `offset`; 0 means the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, growing the file when needed.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// The same, where nothing uses what is behind `bytes` up to the next multiple of 4096: it need
    /// not be read to be kept.
    fn write_last_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    /// Makes all that was written durable, with the length of the file. Does not try again: an
    /// interrupted sync may have taken the report of a failure with it.
    fn sync(&self) -> io::Result<()>;

    /// Cuts or extends (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes sure that the bytes from `from` up to `to` have space on the device, and extends to
    /// there. A full device is an error here, not at a later write.
    fn preallocate(&self, from: u64, to: u64) -> io::Result<()>;

    /// Gives back the space of `len` bytes from `from`, within the length; they read as zeros from
    /// then on, and after a power cut as that or as what they were. Whether the file system can.
    fn punch(&self, from: u64, len: u64) -> io::Result<bool>;

    /// Hints that a range will be needed soon. It may be read ahead.
    fn will_need(&self, offset: u64, len: u64);

    /// Says that reads follow no order: nothing is read ahead.
    fn expect_random_reads(&self) {}

    /// Has reads and writes pass by the operating system's cache from now on, or no more; whether
    /// they do then. They never do where that is not known. The length must be a multiple of 4096
    /// meanwhile, and no two writes at a time may touch the same 4096 bytes.
    fn set_direct(&self, _on: bool) -> bool {
        false
    }

    /// Whether reads and writes pass by the operating system's cache.
    fn is_direct(&self) -> bool {
        false
    }

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Fills all of `buffer` from `offset`, or fails with `UnexpectedEof`.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buffer = &mut buffer[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The `len` bytes from `offset`, or fails with `UnexpectedEof`.
    fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// The file system of one database.
pub trait Files: Send + Sync + fmt::Debug {
    /// Opens a file, for [`Files::open`].
    fn open_raw(&self, path: &Path, how: OpenHow, _: Sealed) -> io::Result<Box<dyn RawFile>>;

    /// Makes names in a directory durable, for [`Directory`](super::Directory).
    fn sync_names(&self, path: &Path, _: Sealed) -> io::Result<()>;

    /// Makes all of the file system durable that a path is in, for
    /// [`sync_name`](super::sync_name).
    fn sync_file_system(&self, path: &Path, _: Sealed) -> io::Result<()> {
        debug_assert!(path.parent().is_some(), "the name of a root is always durable");
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Keeps a handle of a directory. What is below its path is found through that from now on,
    /// whatever becomes of the path.
    ///
    /// # Errors
    ///
    /// There is no such directory, or this process may not read it.
    fn hold(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Fails if a directory that is held is not this process's any more: it was removed, or its
    /// lock file was removed or replaced.
    fn check(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }

    /// The files of the operating system, where these are they: to lock, map and link them.
    fn real(&self) -> Option<&RealFiles> {
        None
    }

    /// The files in memory, where these are they: to lock them.
    fn memory(&self) -> Option<&MemoryFiles> {
        None
    }

    /// Renames a file over whatever has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// The names of the directories in a directory.
    fn directories(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Removes a directory that is empty.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory where it is missing. That alone does not make it durable: see
    /// [`create_directory`](super::create_directory).
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Whether there is a directory.
    fn has_directory(&self, path: &Path) -> io::Result<bool> {
        match self.list(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Opens a file. A path has one handle at a time that writes: its failure is known to all that
    /// use it.
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<File>> {
        let raw = self.open_raw(path, how, Sealed::new())?;
        Ok(Arc::new(File::new(raw, path)))
    }
}
