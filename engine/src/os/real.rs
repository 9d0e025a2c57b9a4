//! [`Files`] on the operating system.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::calls;
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

/// How an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    PastCache,
    ThroughCache,
}

impl RealFile {
    /// Runs an access the way that the file goes. Another thread may turn that way round between
    /// the look at it and the access: the system then refuses the access, which goes the other way.
    fn access<T>(&self, mut access: impl FnMut(Way) -> io::Result<T>) -> io::Result<T> {
        if self.is_direct() {
            match access(Way::PastCache) {
                Err(e) if direct::is_refusal(&e) => self.set_direct(false),
                done => return done,
            };
        }
        match access(Way::ThroughCache) {
            Err(e) if direct::is_refusal(&e) && self.is_direct() => access(Way::PastCache),
            done => done,
        }
    }
}

impl RawFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.access(|way| match way {
            Way::PastCache => direct::read_at(&self.file, buffer, offset),
            Way::ThroughCache => calls::read_at(&self.file, buffer, offset),
        })
    }

    fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.access(|way| match way {
            Way::PastCache => direct::read_vec(&self.file, offset, len),
            Way::ThroughCache => {
                let mut bytes = vec![0; len];
                calls::read_exact_at(&self.file, &mut bytes, offset).map(|()| bytes)
            }
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.access(|way| match way {
            Way::PastCache => direct::write_all_at(&self.file, bytes, offset, true),
            Way::ThroughCache => calls::write_all_at(&self.file, bytes, offset),
        })
    }

    fn write_last_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.access(|way| match way {
            Way::PastCache => direct::write_all_at(&self.file, bytes, offset, false),
            Way::ThroughCache => calls::write_all_at(&self.file, bytes, offset),
        })
    }

    fn set_direct(&self, on: bool) -> bool {
        let is_direct = direct::set(&self.file, on);
        self.is_direct.store(is_direct, Ordering::Relaxed);
        is_direct
    }

    fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    fn sync(&self) -> io::Result<()> {
        calls::sync_data(&self.file)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn preallocate(&self, from: u64, to: u64) -> io::Result<()> {
        calls::allocate(&self.file, from, to)
    }

    fn punch(&self, from: u64, len: u64) -> io::Result<bool> {
        calls::punch(&self.file, from, len)
    }

    fn will_need(&self, offset: u64, len: u64) {
        calls::will_need(&self.file, offset, len);
    }

    fn expect_random_reads(&self) {
        calls::expect_random_reads(&self.file);
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
                options.write(true).create_new(true);
                calls::set_permissions(&mut options, self.permissions);
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

    fn directories(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let may_search = (self.permissions & 0o444) >> 2;
        calls::make_directory(path, self.permissions | may_search)
    }

    fn has_directory(&self, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(metadata.is_dir()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn sync_names(&self, path: &Path, _: Sealed) -> io::Result<()> {
        calls::sync_names(path)
    }
}

/// Gives a new or longer file that is mapped its length and its space, all zeros, durably.
///
/// # Errors
///
/// `StorageFull`, or another I/O error.
pub(crate) fn reserve_mapped(file: &fs::File, len: u64) -> io::Result<()> {
    calls::allocate_mapped(file, len)?;
    calls::sync_all(file).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
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
            #[cfg(target_os = "linux")]
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
        let ways = |errno: Errno| {
            let mut ways = Vec::new();
            let failed = file.access(|way| {
                ways.push(way);
                Err::<(), _>(io::Error::from(errno))
            });
            assert_eq!(Errno::from_io_error(&failed.unwrap_err()), Some(errno));
            ways
        };
        assert_eq!(ways(Errno::IO), [Way::PastCache]);
        assert!(file.is_direct(), "an I/O error is one, whatever the way");
        assert_eq!(ways(Errno::INVAL), [Way::PastCache, Way::ThroughCache]);
        assert!(!file.is_direct());
        assert_eq!(ways(Errno::IO), [Way::ThroughCache], "not even tried");
    }

    /// The store turns direct access on while other threads read.
    #[test]
    fn an_access_that_meets_the_turn_goes_the_other_way() {
        let file = tempfile::tempfile().unwrap();
        let file = RealFile { file, is_direct: AtomicBool::new(false) };
        let mut ways = Vec::new();
        let done = file.access(|way| {
            ways.push(way);
            file.is_direct.store(true, Ordering::Relaxed);
            match way {
                Way::ThroughCache => Err(io::Error::from(Errno::INVAL)),
                Way::PastCache => Ok(7),
            }
        });
        assert_eq!(done.unwrap(), 7);
        assert_eq!(ways, [Way::ThroughCache, Way::PastCache]);
    }
}
