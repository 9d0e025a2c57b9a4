//! The handle of a file: the one place that syncs, and that knows whether a sync can be believed.
//!
//! Thread safety: every method may be called from any thread. `syncing` is held over a sync; the
//! cause of a failure is behind a mutex that is held for an instant.
//!
//! Invariants:
//!
//! 1. After the first failed sync every later write, sync and change of length of this handle
//!    fails. So they do after the first failed write of bytes that a later sync was to cover.
//! 2. Syncs take turns. The file system reports a failure to one caller; the next caller in turn
//!    finds it noted here.
//! 3. An error of a sync is never [`StorageFull`](io::ErrorKind::StorageFull): a caller takes that
//!    for "nothing has changed", and after a failed sync that is not known.

use std::io;
use std::path::{Path, PathBuf};

use super::files::RawFile;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::locks::Mutex;

/// The first failure of a handle.
#[derive(Debug, Default)]
pub(super) struct Failure {
    is_set: AtomicBool,
    cause: Mutex<Option<String>>,
}

impl Failure {
    /// Fails if there was one, naming the path, the cause and what to do.
    pub(super) fn check(&self, path: &Path) -> io::Result<()> {
        if !self.is_set.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.cause.lock().clone().unwrap_or_default();
        Err(io::Error::other(format!(
            "an earlier {cause}, and nothing that {} has got since counts as durable; open the \
             database again",
            path.display()
        )))
    }

    /// Takes note of a failure, unless there was one; the error for the caller (invariant 3).
    pub(super) fn note(&self, what: &str, error: io::Error) -> io::Error {
        self.cause.lock().get_or_insert_with(|| format!("{what} failed ({error})"));
        self.is_set.store(true, Ordering::Release);
        io::Error::other(error)
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

/// An open file. All offsets are absolute; there is no file position.
#[derive(Debug)]
pub struct File {
    raw: Box<dyn RawFile>,
    path: PathBuf,
    failure: Failure,
    /// Held over a sync (invariant 2).
    syncing: Mutex<()>,
}

impl File {
    pub(super) fn new(raw: Box<dyn RawFile>, path: &Path) -> File {
        let (path, failure) = (path.to_path_buf(), Failure::default());
        File { raw, path, failure, syncing: Mutex::new(()) }
    }

    /// Writes all of `bytes` at `offset`, growing the file when needed. A later sync covers them.
    ///
    /// # Errors
    ///
    /// The write failed, or the file failed before; it takes no more writes and syncs.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check()?;
        let written = self.raw.write_all_at(bytes, offset);
        written.map_err(|e| self.failure.note("write", e))
    }

    /// The same, for bytes that nothing refers to yet. A caller that meets an error gives them up,
    /// and the file goes on.
    ///
    /// # Errors
    ///
    /// The write failed, or the file failed before.
    pub fn try_write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check()?;
        self.raw.write_all_at(bytes, offset)
    }

    /// As [`try_write_all_at`](Self::try_write_all_at), where nothing uses what is behind `bytes`
    /// up to the next multiple of 4096: it need not be read to be kept.
    ///
    /// # Errors
    ///
    /// The write failed, or the file failed before.
    pub fn try_write_last_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check()?;
        self.raw.write_last_at(bytes, offset)
    }

    /// Makes all that was written before this call durable, with the length of the file.
    ///
    /// # Errors
    ///
    /// The sync failed, or the file failed before; it takes no more writes and syncs. An
    /// interrupted sync is a failed one.
    pub fn sync(&self) -> io::Result<()> {
        let _turn = self.syncing.lock();
        self.check()?;
        let synced = self.raw.sync().map_err(|e| self.failure.note("sync", e));
        debug_assert!(synced.is_ok() || self.has_failed(), "a failed sync is noted (invariant 1)");
        synced
    }

    /// Cuts or extends (with zeros) to `len` bytes.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.raw.set_len(len)
    }

    /// Makes sure that the bytes from `from` up to `to` have space on the device, and extends to
    /// there. A full device is an error here, not at a later write.
    pub fn preallocate(&self, from: u64, to: u64) -> io::Result<()> {
        self.check()?;
        self.raw.preallocate(from, to)
    }

    /// Gives back the space of `len` bytes from `from`, within the length; they read as zeros from
    /// then on, and after a power cut as that or as what they were. Whether the file system can.
    pub fn punch(&self, from: u64, len: u64) -> io::Result<bool> {
        self.check()?;
        self.raw.punch(from, len)
    }

    /// Reads at most `buffer.len()` bytes at `offset`; 0 means the end of the file.
    #[cfg(feature = "testing")]
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.raw.read_at(buffer, offset)
    }

    /// Fills all of `buffer` from `offset`, or fails with `UnexpectedEof`.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.raw.read_exact_at(buffer, offset)
    }

    /// The `len` bytes from `offset`, or fails with `UnexpectedEof`.
    pub fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.raw.read_vec(offset, len)
    }

    /// Hints that a range will be needed soon. It may be read ahead.
    pub fn will_need(&self, offset: u64, len: u64) {
        self.raw.will_need(offset, len);
    }

    /// Says that reads follow no order: nothing is read ahead.
    pub fn expect_random_reads(&self) {
        self.raw.expect_random_reads();
    }

    /// Has reads and writes pass by the operating system's cache from now on, or no more; whether
    /// they do then. They never do where that is not known. The length must be a multiple of 4096
    /// meanwhile, and no two writes at a time may touch the same 4096 bytes.
    pub fn set_direct(&self, on: bool) -> bool {
        self.raw.set_direct(on)
    }

    /// Whether reads and writes pass by the operating system's cache.
    pub fn is_direct(&self) -> bool {
        self.raw.is_direct()
    }

    /// The length in bytes.
    pub fn len(&self) -> io::Result<u64> {
        self.raw.len()
    }

    /// Whether it takes no more writes and syncs.
    pub fn has_failed(&self) -> bool {
        self.failure.is_set()
    }

    /// Forgets that it failed: a planted bug.
    #[cfg(any(test, feature = "testing"))]
    pub fn forget_failure(&self) {
        self.failure.is_set.store(false, Ordering::Release);
    }

    fn check(&self) -> io::Result<()> {
        self.failure.check(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose syncs fail so, and whose every other read is interrupted; the others give a
    /// byte.
    #[derive(Debug)]
    struct Odd(io::ErrorKind, AtomicBool);

    impl RawFile for Odd {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            if !self.1.fetch_xor(true, Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            buffer[0] = offset as u8;
            Ok(1)
        }
        fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }
        fn sync(&self) -> io::Result<()> {
            Err(self.0.into())
        }
        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn preallocate(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn punch(&self, _: u64, _: u64) -> io::Result<bool> {
            Ok(true)
        }
        fn will_need(&self, _: u64, _: u64) {}
        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }
    }

    fn odd(sync: io::ErrorKind) -> File {
        File::new(Box::new(Odd(sync, AtomicBool::new(false))), Path::new("/f"))
    }

    #[test]
    fn a_sync_that_finds_no_space_or_is_interrupted_is_a_failed_sync() {
        let ways = [
            (io::ErrorKind::StorageFull, "no storage space"),
            (io::ErrorKind::Interrupted, "interrupted"),
        ];
        for (kind, told) in ways {
            let file = odd(kind);
            let error = file.sync().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other, "not as if nothing had changed");
            assert!(error.to_string().contains(told), "{error}");
            assert!(file.has_failed() && file.sync().is_err());
        }
    }

    #[test]
    fn interrupted_and_short_reads_go_on() {
        let bytes = odd(io::ErrorKind::Other).read_vec(7, 5).unwrap();
        assert_eq!(bytes, [7, 8, 9, 10, 11]);
    }
}
