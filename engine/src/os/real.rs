//! [`Files`] on the operating system.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::direct;
use super::files::{Files, OpenHow, RawFile, Sealed};
use super::lock::PRIVATE;

/// The file system of this machine.
#[derive(Debug)]
pub(crate) struct RealFiles {
    /// The permissions of files that it makes, before the umask takes some away.
    permissions: u32,
}

impl Default for RealFiles {
    fn default() -> RealFiles {
        RealFiles { permissions: PRIVATE }
    }
}

impl RealFiles {
    /// One that makes files with these permissions, and directories that can be searched by those
    /// that may read.
    pub(crate) fn with_permissions(permissions: u32) -> RealFiles {
        RealFiles { permissions }
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    is_direct: AtomicBool,
}

impl RealFile {
    /// Runs a direct access, if they are; `None` if the caller has to go through the cache.
    fn directly<T>(&self, access: impl FnOnce() -> io::Result<T>) -> Option<io::Result<T>> {
        if !self.is_direct() {
            return None;
        }
        match access() {
            Err(e) if direct::is_refusal(&e) => {
                self.set_direct(false);
                None
            }
            done => Some(done),
        }
    }
}

impl RawFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let done = self.directly(|| direct::read_at(&self.file, buffer, offset));
        done.unwrap_or_else(|| self.file.read_at(buffer, offset))
    }

    fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let through_cache = || {
            let mut bytes = vec![0; len];
            self.file.read_exact_at(&mut bytes, offset).map(|()| bytes)
        };
        let done = self.directly(|| direct::read_vec(&self.file, offset, len));
        done.unwrap_or_else(through_cache)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let done = self.directly(|| direct::write_all_at(&self.file, bytes, offset, true));
        done.unwrap_or_else(|| self.file.write_all_at(bytes, offset))
    }

    fn write_last_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let done = self.directly(|| direct::write_all_at(&self.file, bytes, offset, false));
        done.unwrap_or_else(|| self.file.write_all_at(bytes, offset))
    }

    fn set_direct(&self, on: bool) -> bool {
        let is_direct = direct::set(&self.file, on);
        self.is_direct.store(is_direct, Ordering::Relaxed);
        is_direct
    }

    fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    #[expect(clippy::disallowed_methods, reason = "a sync that handles are made of")]
    fn sync(&self) -> io::Result<()> {
        // Once: the standard library tries an interrupted sync again, and the kernel may have
        // reported a failed write-back to the interrupted one.
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn preallocate(&self, from: u64, to: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        let allocate = || {
            let len = to - from;
            rustix::fs::fallocate(&self.file, FallocateFlags::empty(), from, len)
        };
        match rustix::io::retry_on_intr(allocate) {
            Ok(()) => Ok(()),
            // A file system without preallocation: the space is found at the write.
            Err(rustix::io::Errno::OPNOTSUPP) if self.len()? < to => self.file.set_len(to),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn punch(&self, from: u64, len: u64) -> io::Result<bool> {
        use rustix::fs::FallocateFlags;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, how, from, len)) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn will_need(&self, offset: u64, len: u64) {
        use rustix::fs::{Advice, fadvise};
        // A hint that is refused is no failure.
        fadvise(&self.file, offset, std::num::NonZeroU64::new(len), Advice::WillNeed).unwrap_or(());
    }

    fn expect_random_reads(&self) {
        use rustix::fs::{Advice, fadvise};
        // A hint that is refused is no failure.
        fadvise(&self.file, 0, None, Advice::Random).unwrap_or(());
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

impl Files for RealFiles {
    fn open_raw(&self, path: &Path, how: OpenHow, _: Sealed) -> io::Result<Box<dyn RawFile>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match how {
            OpenHow::Read => {}
            OpenHow::Write => {
                options.write(true);
            }
            OpenHow::CreateNew => {
                options.write(true).create_new(true).mode(self.permissions);
            }
        }
        let file = options.open(path)?;
        Ok(Box::new(RealFile { file, is_direct: AtomicBool::new(false) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let may_search = (self.permissions & 0o444) >> 2;
        let mode = self.permissions | may_search;
        fs::DirBuilder::new().recursive(true).mode(mode).create(path)
    }

    fn has_directory(&self, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(metadata.is_dir()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a sync that handles are made of")]
    fn sync_names(&self, path: &Path, _: Sealed) -> io::Result<()> {
        Ok(rustix::fs::fsync(fs::File::open(path)?)?)
    }
}

/// Gives a new or longer file that is mapped its length and its space, all zeros, durably.
///
/// # Errors
///
/// `StorageFull`, or another I/O error.
#[expect(clippy::disallowed_methods, reason = "a mapped file has no handle; its bytes are flushed")]
pub(crate) fn reserve_mapped(file: &fs::File, len: u64) -> io::Result<()> {
    let empty = rustix::fs::FallocateFlags::empty();
    rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, empty, 0, len))?;
    rustix::fs::fsync(file).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{OFlags, fcntl_getfl};
    use rustix::io::Errno;

    use super::*;

    /// The kernel's own refusal: no file system takes an access at an offset below zero, direct or
    /// not, so it is refused twice, and from then on there is no direct access.
    #[test]
    fn what_the_kernel_refuses_is_tried_through_the_cache() {
        type Access = fn(&RealFile) -> io::Result<()>;
        let accesses: [Access; 3] = [
            |file| file.read_at(&mut [0; 10], 1 << 63).map(drop),
            |file| file.write_all_at(b"nowhere", 1 << 63),
            |file| file.write_last_at(b"nowhere", 1 << 63),
        ];
        for access in accesses {
            let file = RealFile { file: tempfile::tempfile().unwrap(), is_direct: false.into() };
            file.write_all_at(&[5; 8192], 0).unwrap();
            // Where the file system cannot, the file is taken for direct all the same.
            file.set_direct(true);
            file.is_direct.store(true, Ordering::Relaxed);
            let error = access(&file).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::INVAL), "{error}");
            assert!(!file.is_direct(), "it has given up");
            assert!(
                !fcntl_getfl(&file.file).unwrap().contains(OFlags::DIRECT),
                "so has the system"
            );
            // No place that direct access could read or write.
            file.write_all_at(b"abc", 4095).unwrap();
            let mut found = [0; 5];
            file.read_exact_at(&mut found, 4094).unwrap();
            assert_eq!(&found, b"\x05abc\x05");
        }
    }

    #[test]
    fn a_refused_access_goes_through_the_cache_from_then_on() {
        let file = tempfile::tempfile().unwrap();
        let file = RealFile { file, is_direct: AtomicBool::new(true) };
        let failing = |errno: Errno| move || Err::<(), _>(io::Error::from(errno));
        let failed = file.directly(failing(Errno::IO)).unwrap();
        assert_eq!(Errno::from_io_error(&failed.unwrap_err()), Some(Errno::IO));
        assert!(file.is_direct(), "an I/O error is one, whatever the way");
        assert!(file.directly(failing(Errno::INVAL)).is_none() && !file.is_direct());
        assert!(file.directly(failing(Errno::IO)).is_none(), "not even tried");
    }
}
