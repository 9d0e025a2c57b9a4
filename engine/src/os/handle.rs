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
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;

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
pub(crate) struct File {
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
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
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
    pub(crate) fn try_write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check()?;
        self.raw.write_all_at(bytes, offset)
    }

    /// As [`try_write_all_at`](Self::try_write_all_at), where nothing uses what is behind `bytes`
    /// up to the next multiple of 4096: it need not be read to be kept.
    ///
    /// # Errors
    ///
    /// The write failed, or the file failed before.
    pub(crate) fn try_write_last_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check()?;
        self.raw.write_last_at(bytes, offset)
    }

    /// Makes all that was written before this call durable, with the length of the file.
    ///
    /// # Errors
    ///
    /// The sync failed, or the file failed before; it takes no more writes and syncs. An
    /// interrupted sync is a failed one.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let _turn = self.syncing.lock();
        self.check()?;
        let synced = self.raw.sync().map_err(|e| self.failure.note("sync", e));
        debug_assert!(synced.is_ok() || self.has_failed(), "a failed sync is noted (invariant 1)");
        synced
    }

    /// Cuts or extends (with zeros) to `len` bytes.
    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.raw.set_len(len)
    }

    /// Makes sure that the bytes from `from` up to `to` have space on the device, and extends to
    /// there. A full device is an error here, not at a later write.
    pub(crate) fn preallocate(&self, from: u64, to: u64) -> io::Result<()> {
        self.check()?;
        self.raw.preallocate(from, to)
    }

    /// Gives back the space of `len` bytes from `from`, within the length; they read as zeros from
    /// then on, and after a power cut as that or as what they were. Whether the file system can.
    pub(crate) fn punch(&self, from: u64, len: u64) -> io::Result<bool> {
        self.check()?;
        self.raw.punch(from, len)
    }

    /// Reads at most `buffer.len()` bytes at `offset`; 0 means the end of the file.
    #[cfg(test)]
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.raw.read_at(buffer, offset)
    }

    /// Fills all of `buffer` from `offset`, or fails with `UnexpectedEof`.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.raw.read_exact_at(buffer, offset)
    }

    /// The `len` bytes from `offset`, or fails with `UnexpectedEof`.
    pub(crate) fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.raw.read_vec(offset, len)
    }

    /// Hints that a range will be needed soon. It may be read ahead.
    pub(crate) fn will_need(&self, offset: u64, len: u64) {
        self.raw.will_need(offset, len);
    }

    /// Says that reads follow no order: nothing is read ahead.
    pub(crate) fn expect_random_reads(&self) {
        self.raw.expect_random_reads();
    }

    /// Has reads and writes pass by the operating system's cache from now on, or no more; whether
    /// they do then. They never do where that is not known. The length must be a multiple of 4096
    /// meanwhile, and no two writes at a time may touch the same 4096 bytes.
    pub(crate) fn set_direct(&self, on: bool) -> bool {
        self.raw.set_direct(on)
    }

    /// Whether reads and writes pass by the operating system's cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.raw.is_direct()
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> io::Result<u64> {
        self.raw.len()
    }

    /// Whether it takes no more writes and syncs.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_set()
    }

    /// Forgets that it failed: a planted bug.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn forget_failure(&self) {
        self.failure.is_set.store(false, Ordering::Release);
    }

    fn check(&self) -> io::Result<()> {
        self.failure.check(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::os::sim::{SimFiles, Survive};
    use crate::os::{Files, OpenHow};

    fn made() -> (Arc<SimFiles>, Arc<File>) {
        let files = SimFiles::new();
        let file = files.open(Path::new("/f"), OpenHow::CreateNew).unwrap();
        file.write_all_at(b"before", 0).unwrap();
        file.sync().unwrap();
        files.sync_directory(Path::new("/")).unwrap();
        (files, file)
    }

    fn found(files: &SimFiles) -> Vec<u8> {
        let file = files.crash(Survive::Nothing).open(Path::new("/f"), OpenHow::Read).unwrap();
        file.read_vec(0, file.len().unwrap() as usize).unwrap()
    }

    fn refuses_everything(file: &File, cause: &str) {
        let changes: [(&str, io::Result<()>); 7] = [
            ("write", file.write_all_at(b"x", 0)),
            ("try", file.try_write_all_at(b"x", 0)),
            ("last", file.try_write_last_at(b"x", 0)),
            ("sync", file.sync()),
            ("length", file.set_len(1)),
            ("space", file.preallocate(0, 1)),
            ("hole", file.punch(0, 1).map(drop)),
        ];
        for (what, done) in changes {
            let told = done.unwrap_err().to_string();
            assert!(told.contains(cause), "{what}: the first cause is named: {told}");
            assert!(told.contains("/f") && told.contains("open the database again"), "{told}");
        }
        assert_eq!(file.read_vec(0, 3).unwrap().len(), 3, "reads go on");
    }

    #[test]
    fn after_a_failed_sync_nothing_is_written_or_believed() {
        let (files, file) = made();
        file.write_all_at(b"lost", 0).unwrap();
        files.fail_sync_after(1);
        let failed = file.sync().unwrap_err();
        assert!(failed.to_string().contains("simulated I/O error"), "{failed}");
        refuses_everything(&file, "sync failed (simulated I/O error: sync");
        assert_eq!(found(&files), b"before");
        // A handle that is opened afterwards begins anew; what it writes counts.
        let again = files.open(Path::new("/f"), OpenHow::Write).unwrap();
        again.write_all_at(b"again!", 0).unwrap();
        again.sync().unwrap();
        assert_eq!(found(&files), b"again!");
    }

    #[test]
    fn after_a_failed_write_of_what_a_sync_was_to_cover_nothing_is_believed() {
        let (files, file) = made();
        files.fail_write_after(1);
        file.write_all_at(b"lost", 0).unwrap_err();
        refuses_everything(&file, "write failed (simulated I/O error: write");
    }

    #[test]
    fn bytes_that_nothing_refers_to_are_given_up_and_the_file_goes_on() {
        let (files, file) = made();
        for write in [File::try_write_all_at, File::try_write_last_at] {
            files.fail_write_after(1);
            write(&file, b"lost", 10).unwrap_err();
            assert!(!file.has_failed());
        }
        file.set_len(6).unwrap();
        file.write_all_at(b"after!", 0).unwrap();
        file.sync().unwrap();
        assert_eq!(found(&files), b"after!");
    }

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

    /// Two threads sync at a time, and the device fails once: both must know.
    #[test]
    fn of_syncs_side_by_side_none_is_believed_after_the_one_that_failed() {
        for _ in 0..20 {
            let (files, file) = made();
            file.write_all_at(b"lost", 100).unwrap();
            files.fail_sync_after(1);
            let failed = std::thread::scope(|scope| {
                let syncs: Vec<_> = (0..4).map(|_| scope.spawn(|| file.sync().is_err())).collect();
                syncs.into_iter().map(|sync| sync.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(failed, [true; 4], "the first of them failed");
        }
    }
}
