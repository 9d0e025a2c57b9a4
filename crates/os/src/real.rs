//! [`Files`] on the operating system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::calls::{self, Place};
use super::direct;
use super::files::{Files, OpenHow, RawFile, Sealed};
use super::held::HeldDirectory;
use super::lock::PRIVATE;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::locks::RwLock;

/// The file system of this machine.
///
/// Thread safety: `held` is locked for a look, and while a directory is opened to be held.
#[derive(Debug)]
pub struct RealFiles {
    /// The permissions of files that it makes, before the umask takes some away.
    permissions: u32,
    /// Directories through the handles of which names below their paths are found.
    held: RwLock<Vec<Arc<HeldDirectory>>>,
}

impl Default for RealFiles {
    fn default() -> RealFiles {
        RealFiles::new(PRIVATE, None)
    }
}

impl RealFiles {
    /// One that makes files with these permissions, and directories that can be searched by those
    /// that may read. It finds what is below `within` through that.
    pub fn new(permissions: u32, within: Option<&Arc<HeldDirectory>>) -> RealFiles {
        RealFiles { permissions, held: RwLock::new(within.cloned().into_iter().collect()) }
    }

    /// The held directory that a path is in, the nearest one.
    pub fn held(&self, path: &Path) -> Option<Arc<HeldDirectory>> {
        let held = self.held.read();
        let has = held.iter().filter(|held| held.place(path).is_some());
        has.max_by_key(|held| held.depth()).cloned()
    }

    /// Does `call` with the place of a path.
    fn at<T>(&self, path: &Path, call: impl FnOnce(Place<'_>) -> io::Result<T>) -> io::Result<T> {
        let held = self.held(path);
        match held.as_ref().and_then(|held| Some((held, held.place(path)?))) {
            Some((held, place)) => call(place).map_err(|e| held.explain(e)),
            None => call(Place { directory: None, path }),
        }
    }

    /// The same, of a call that makes, changes or removes a name.
    fn change<T>(
        &self,
        path: &Path,
        call: impl FnOnce(Place<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.check(path)?;
        self.at(path, call)
    }

    /// Opens a file of the operating system, to lock or to map it.
    pub fn open_system(&self, path: &Path, how: OpenHow) -> io::Result<fs::File> {
        let open = |at: Place<'_>| calls::open_file(at, how, self.permissions);
        if how == OpenHow::CreateNew { self.change(path, open) } else { self.at(path, open) }
    }

    /// The length of the regular file at the path; `None` where something else is there.
    pub(super) fn regular_len(&self, path: &Path) -> io::Result<Option<u64>> {
        self.at(path, calls::regular_len)
    }

    /// Opens a regular file to read.
    pub(super) fn open_regular(&self, path: &Path) -> io::Result<fs::File> {
        self.at(path, calls::open_regular)
    }

    /// Whether the path leads to this file.
    pub(super) fn leads_to(&self, path: &Path, file: &fs::File) -> io::Result<bool> {
        match self.at(path, calls::id_at) {
            Ok(found) => Ok(found == calls::id_of(file)?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// From now on nothing is made, changed or removed in a held directory once the path of its
    /// lock file leads to another file than this one.
    pub(super) fn locked_by(&self, path: &Path, file: &fs::File) -> io::Result<()> {
        if let Some(held) = self.held(path) {
            held.locked_by(path, calls::id_of(file)?);
        }
        Ok(())
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.change(link, |at| calls::make_link(target, at))
    }

    /// Where a symbolic link leads.
    pub fn read_link(&self, link: &Path) -> io::Result<PathBuf> {
        self.at(link, calls::read_link)
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    is_direct: AtomicBool,
}

/// How an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessWay {
    PastCache,
    ThroughCache,
}

impl RealFile {
    /// Runs an access the way that the file goes. Another thread may turn that way round between
    /// the look at it and the access: the system then refuses the access, which goes the other way.
    fn access<T>(&self, mut access: impl FnMut(AccessWay) -> io::Result<T>) -> io::Result<T> {
        if self.is_direct() {
            match access(AccessWay::PastCache) {
                Err(e) if direct::is_refusal(&e) => self.set_direct(false),
                done => return done,
            };
        }
        match access(AccessWay::ThroughCache) {
            Err(e) if direct::is_refusal(&e) && self.is_direct() => access(AccessWay::PastCache),
            done => done,
        }
    }
}

impl RawFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.access(|way| match way {
            AccessWay::PastCache => direct::read_at(&self.file, buffer, offset),
            AccessWay::ThroughCache => calls::read_at(&self.file, buffer, offset),
        })
    }

    fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.access(|way| match way {
            AccessWay::PastCache => direct::read_vec(&self.file, offset, len),
            AccessWay::ThroughCache => {
                let mut bytes = vec![0; len];
                calls::read_exact_at(&self.file, &mut bytes, offset).map(|()| bytes)
            }
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.access(|way| match way {
            AccessWay::PastCache => direct::write_all_at(&self.file, bytes, offset, true),
            AccessWay::ThroughCache => calls::write_all_at(&self.file, bytes, offset),
        })
    }

    fn write_last_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.access(|way| match way {
            AccessWay::PastCache => direct::write_all_at(&self.file, bytes, offset, false),
            AccessWay::ThroughCache => calls::write_all_at(&self.file, bytes, offset),
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
        let file = self.open_system(path, how)?;
        Ok(Box::new(RealFile { file, is_direct: AtomicBool::new(false) }))
    }

    fn hold(&self, directory: &Path) -> io::Result<()> {
        let mut held = self.held.write();
        if held.iter().any(|held| held.is(directory)) {
            return Ok(());
        }
        let above = held.iter().filter(|held| held.place(directory).is_some());
        let above = above.max_by_key(|held| held.depth()).cloned();
        let place = above.as_ref().and_then(|above| above.place(directory));
        let place = place.unwrap_or(Place { directory: None, path: directory });
        held.push(Arc::new(HeldDirectory::open(directory, place)?));
        Ok(())
    }

    fn check(&self, directory: &Path) -> io::Result<()> {
        self.held(directory).map_or(Ok(()), |held| held.check_lock())
    }

    fn real(&self) -> Option<&RealFiles> {
        Some(self)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(to, |to| self.at(from, |from| calls::rename(from, to)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(path, calls::remove_file)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = self.at(directory, |at| calls::list(at, false))?;
        names.sort();
        Ok(names)
    }

    fn directories(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.at(directory, |at| calls::list(at, true))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.change(path, calls::remove_directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let may_search = (self.permissions & 0o444) >> 2;
        self.change(path, |at| calls::make_directory(at, self.permissions | may_search))
    }

    fn has_directory(&self, path: &Path) -> io::Result<bool> {
        self.at(path, calls::is_directory)
    }

    fn sync_names(&self, path: &Path, _: Sealed) -> io::Result<()> {
        self.at(path, calls::sync_names)
    }

    fn sync_file_system(&self, path: &Path, _: Sealed) -> io::Result<()> {
        calls::sync_file_system(&self.open_system(path, OpenHow::Read)?)
    }
}

/// Gives a new or longer file that is mapped its length and its space, all zeros, durably.
///
/// # Errors
///
/// `StorageFull`, or another I/O error.
pub fn reserve_mapped(file: &fs::File, len: u64) -> io::Result<()> {
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
        assert_eq!(ways(Errno::IO), [AccessWay::PastCache]);
        assert!(file.is_direct(), "an I/O error is one, whatever the way");
        assert_eq!(ways(Errno::INVAL), [AccessWay::PastCache, AccessWay::ThroughCache]);
        assert!(!file.is_direct());
        assert_eq!(ways(Errno::IO), [AccessWay::ThroughCache], "not even tried");
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
                AccessWay::ThroughCache => Err(io::Error::from(Errno::INVAL)),
                AccessWay::PastCache => Ok(7),
            }
        });
        assert_eq!(done.unwrap(), 7);
        assert_eq!(ways, [AccessWay::ThroughCache, AccessWay::PastCache]);
    }
}
