//! The file system as the engine uses it. Everything durable goes through these two traits, so
//! that the simulator can lose, tear and refuse exactly what a device may.
//!
//! What the engine assumes of a file system, and no more:
//!
//! 1. Bytes written are durable once a later [`File::sync`] of the same file returned. Before
//!    that, any subset of the 512-byte sectors written since the last sync may survive.
//! 2. A name created, renamed or removed is durable once a later [`Files::sync_directory`] of
//!    its directory returned. A rename is atomic.
//! 3. A sync that failed says nothing about the bytes; a later one that succeeds does not either.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How [`Files::open`] opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenHow {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A file that must not exist yet, for reading and writing.
    CreateNew,
}

/// An open file. All offsets are absolute; there is no file position.
pub(crate) trait File: Send + Sync + fmt::Debug {
    /// Reads at most `buffer.len()` bytes at `offset`; 0 means the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, growing the file when needed.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// The same, where nobody misses what is behind `bytes` up to the next multiple of 4096: it
    /// need not be read to be kept.
    fn write_last_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    /// Makes all that was written durable, with the length of the file.
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
pub(crate) trait Files: Send + Sync + fmt::Debug {
    /// Opens a file.
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>>;

    /// Renames a file over whatever has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates a directory and its parents where missing.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}
