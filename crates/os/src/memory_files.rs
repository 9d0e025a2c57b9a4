//! [`Files`] in memory: of those alone that have a handle of them, and gone with the last one.
//!
//! Names are names alone: a path has nothing to do with the directory that the process works in.
//!
//! Thread safety: the names are behind one mutex, the bytes of each file behind a lock of its own,
//! the space that is left behind a third. They are taken in this order. A forked child takes none
//! of them, since a thread of its parent may have held them at the fork.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::{Bound, Range};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Weak};

use super::ForkGuard;
use super::files::{Files, OpenHow, RawFile, Sealed};
use super::lock::Access;
use crate::sync::locks::{Mutex, MutexGuard, RwLock};

/// What space is taken and given back in.
const PAGE: usize = 16 * 1024;

/// A file system in memory.
#[derive(Debug)]
pub struct MemoryFiles {
    names: Mutex<MemoryNames>,
    /// The bytes that files may still take.
    left: Arc<Mutex<u64>>,
    /// Of the process that they are in.
    fork: ForkGuard,
}

#[derive(Debug, Default)]
struct MemoryNames {
    files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    directories: BTreeSet<PathBuf>,
    locks: BTreeMap<PathBuf, Weak<Access>>,
}

#[derive(Debug)]
struct MemoryFile {
    content: RwLock<Content>,
    left: Arc<Mutex<u64>>,
    fork: ForkGuard,
}

#[derive(Debug, Default)]
struct Content {
    len: u64,
    /// Those that a write or a preallocation has reached. Others read as zeros.
    pages: BTreeMap<u64, Box<[u8]>>,
}

/// The path without what leads nowhere.
fn key(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// The pages of a range of a file: the number of each, the bytes in it, and which these are of the
/// range.
fn pages(at: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let page = PAGE as u64;
    (at / page..(at + len).div_ceil(page)).map(move |number| {
        let (from, to) = (at.max(number * page), (at + len).min((number + 1) * page));
        let within = |base: u64| (from - base) as usize..(to - base) as usize;
        (number, within(number * page), within(at))
    })
}

impl MemoryFiles {
    /// Files that may take so many bytes together.
    pub fn new(bytes: u64) -> MemoryFiles {
        let (names, left) = (Mutex::default(), Arc::new(Mutex::new(bytes)));
        MemoryFiles { names, left, fork: ForkGuard::new() }
    }

    /// Locks a path for as long as what comes back lives; `None` if it is locked.
    ///
    /// # Errors
    ///
    /// `Unsupported` in a forked child, as for every call.
    pub fn lock(&self, path: &Path, access: Access) -> io::Result<Option<Arc<Access>>> {
        let mut names = self.names()?;
        names.locks.retain(|_, held| held.strong_count() > 0);
        let held = names.locks.entry(key(path)).or_default();
        Ok(match held.upgrade() {
            Some(lock) => (*lock == Access::Shared && access == Access::Shared).then_some(lock),
            None => {
                let lock = Arc::new(access);
                *held = Arc::downgrade(&lock);
                Some(lock)
            }
        })
    }

    fn names(&self) -> io::Result<MutexGuard<'_, MemoryNames>> {
        self.fork.check().map_err(|_| {
            let advice = "they are in the memory of the process that this one was forked from; \
                          make other options here";
            io::Error::new(io::ErrorKind::Unsupported, advice)
        })?;
        Ok(self.names.lock())
    }
}

impl MemoryNames {
    fn check_directory(&self, directory: &Path) -> io::Result<()> {
        match directory.parent().is_none() || self.directories.contains(directory) {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// That a file may have this name: its directory is there, and no directory has the name.
    fn check_name(&self, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), |directory| self.check_directory(directory))?;
        match self.directories.contains(path) {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => Ok(()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.check_directory(directory)?;
        let files = self.files.range::<Path, _>(from(directory)).map(|(path, _)| path);
        let mut found = names_in(files, directory);
        found.extend(self.directories_in(directory));
        found.sort();
        Ok(found)
    }

    fn directories_in(&self, directory: &Path) -> Vec<String> {
        names_in(self.directories.range::<Path, _>(from(directory)), directory)
    }
}

fn from(directory: &Path) -> (Bound<&Path>, Bound<&Path>) {
    (Bound::Included(directory), Bound::Unbounded)
}

/// The names of those of some paths that are in a directory. They are in order, from it on.
fn names_in<'a>(paths: impl Iterator<Item = &'a PathBuf>, directory: &Path) -> Vec<String> {
    let below = paths.take_while(|path| path.starts_with(directory));
    let inside = below.filter(|path| path.parent() == Some(directory));
    inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
}

impl Files for MemoryFiles {
    fn open_raw(&self, path: &Path, how: OpenHow, _: Sealed) -> io::Result<Box<dyn RawFile>> {
        let (mut names, path) = (self.names()?, key(path));
        let found = names.files.get(&path).map(Arc::clone);
        let file = match (found, how) {
            (Some(_), OpenHow::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => file,
            (None, OpenHow::CreateNew) => {
                names.check_name(&path).map_err(|e| match e.kind() {
                    io::ErrorKind::IsADirectory => io::ErrorKind::AlreadyExists.into(),
                    _ => e,
                })?;
                let (content, left) = (RwLock::default(), Arc::clone(&self.left));
                let file = Arc::new(MemoryFile { content, left, fork: self.fork });
                names.files.insert(path, Arc::clone(&file));
                file
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Box::new(file))
    }

    fn sync_names(&self, _: &Path, _: Sealed) -> io::Result<()> {
        Ok(())
    }

    fn memory(&self) -> Option<&MemoryFiles> {
        Some(self)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut names, from, to) = (self.names()?, key(from), key(to));
        names.check_name(&to)?;
        let file = names.files.remove(&from).ok_or(io::ErrorKind::NotFound)?;
        names.files.insert(to, file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.names()?.files.remove(&key(path));
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.names()?.list(&key(directory))
    }

    fn directories(&self, directory: &Path) -> io::Result<Vec<String>> {
        let (names, directory) = (self.names()?, key(directory));
        names.check_directory(&directory)?;
        Ok(names.directories_in(&directory))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let (mut names, path) = (self.names()?, key(path));
        if !names.list(&path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        names.directories.remove(&path);
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let (mut names, path) = (self.names()?, key(path));
        path.parent().map_or(Ok(()), |parent| names.check_directory(parent))?;
        if names.files.contains_key(&path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        names.directories.insert(path);
        Ok(())
    }
}

impl MemoryFile {
    /// Gives a range its space, or nothing of it.
    fn allocate(&self, content: &mut Content, at: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let mut lacking: Vec<u64> = pages(at, len).map(|(number, ..)| number).collect();
        lacking.retain(|number| !content.pages.contains_key(number));
        let mut left = self.left.lock();
        let rest = left.checked_sub((lacking.len() * PAGE) as u64);
        *left = rest.ok_or(io::ErrorKind::StorageFull)?;
        let zeros = |number| (number, vec![0; PAGE].into_boxed_slice());
        content.pages.extend(lacking.into_iter().map(zeros));
        content.len = content.len.max(at + len);
        Ok(())
    }

    /// Has a range read as zeros, and gives its whole pages back.
    fn clear(&self, content: &mut Content, at: u64, len: u64) {
        let mut freed = 0;
        for (number, within, _) in pages(at, len) {
            if within.len() == PAGE {
                freed += content.pages.remove(&number).map_or(0, |page| page.len() as u64);
            } else if let Some(page) = content.pages.get_mut(&number) {
                page[within].fill(0);
            }
        }
        *self.left.lock() += freed;
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if !self.fork.is_forked() {
            *self.left.lock() += (self.content.write().pages.len() * PAGE) as u64;
        }
    }
}

impl RawFile for Arc<MemoryFile> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.content.read();
        let len = content.len.saturating_sub(offset).min(buffer.len() as u64);
        for (number, within, part) in pages(offset, len) {
            match content.pages.get(&number) {
                Some(page) => buffer[part].copy_from_slice(&page[within]),
                None => buffer[part].fill(0),
            }
        }
        Ok(len as usize)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut content = self.content.write();
        self.allocate(&mut content, offset, bytes.len() as u64)?;
        for (number, within, part) in pages(offset, bytes.len() as u64) {
            if let Some(page) = content.pages.get_mut(&number) {
                page[within].copy_from_slice(&bytes[part]);
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut content = self.content.write();
        // To the end of a page, so that all of it comes free.
        let end = content.len.next_multiple_of(PAGE as u64);
        self.clear(&mut content, len, end.saturating_sub(len));
        content.len = len;
        Ok(())
    }

    fn preallocate(&self, from: u64, to: u64) -> io::Result<()> {
        self.allocate(&mut self.content.write(), from, to.saturating_sub(from))
    }

    fn punch(&self, from: u64, len: u64) -> io::Result<bool> {
        self.clear(&mut self.content.write(), from, len);
        Ok(true)
    }

    fn will_need(&self, _: u64, _: u64) {}

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.read().len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealFiles;

    /// The same calls, of files of the system and of files in memory, find the same.
    #[test]
    fn files_in_memory_do_what_those_of_the_system_do() {
        let root = tempfile::tempdir().unwrap();
        let (real, memory) = (RealFiles::default(), MemoryFiles::new(1 << 20));
        let at = |path: &str| root.path().join(path);
        crate::create_directory(&memory, root.path()).unwrap();
        let kind = |e: io::Error| e.kind();
        let names = |files: &dyn Files| {
            let (a, b) = (at("a"), at("a/b"));
            assert_eq!(
                files.open(&b, OpenHow::CreateNew).map_err(kind).unwrap_err(),
                io::ErrorKind::NotFound
            );
            files.create_directory(&a).unwrap();
            files.open(&b, OpenHow::CreateNew).unwrap();
            files.create_directory(&at("d")).unwrap();
            let told = [
                files.open(&b, OpenHow::CreateNew).map(drop).map_err(kind),
                files.open(&a, OpenHow::CreateNew).map(drop).map_err(kind),
                files.create_directory(&b).map_err(kind),
                files.rename(&b, &at("d")).map_err(kind),
                files.rename(&b, &at("none/b")).map_err(kind),
                files.rename(&at("d/none"), &b).map_err(kind),
                files.remove_directory(&a).map_err(kind),
                files.remove_directory(&at("d")).map_err(kind),
                files.rename(&b, &at("a/c")).map_err(kind),
                files.remove(&b).map_err(kind),
                files.open(&b, OpenHow::Write).map(drop).map_err(kind),
                files.remove(&at("a/c")).map_err(kind),
            ];
            let lists =
                [files.list(&a).map_err(kind), files.directories(root.path()).map_err(kind)];
            (told, lists, files.remove_directory(&a).map_err(kind), files.list(&a).map_err(kind))
        };
        assert_eq!(names(&real), names(&memory));
        let [real, memory] = [&real as &dyn Files, &memory]
            .map(|files| files.open(&at("file"), OpenHow::CreateNew).unwrap());
        let mut random = 7_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for step in 0..2000 {
            let (from, len) = (draw(200_000), draw(40_000));
            let (action, bytes) = (draw(6), vec![step as u8; len as usize]);
            let [one, two] = [&real, &memory].map(|file| match action {
                0 | 1 => file.try_write_all_at(&bytes, from).map(|()| true),
                2 => file.set_len(from).map(|()| true),
                3 => file.preallocate(from, from + len.max(1)).map(|()| true),
                4 => file
                    .punch(from.min(file.len()?), len.min(file.len()?.saturating_sub(from)).max(1)),
                _ => Ok(true),
            });
            assert_eq!(one.map_err(kind), two.map_err(kind), "step {step}: {action} {from} {len}");
            let read = |file: &crate::File| file.read_vec(0, file.len().unwrap() as usize).unwrap();
            assert!(read(&real) == read(&memory), "step {step}: {action} {from} {len}");
        }
    }

    #[test]
    fn space_is_bounded_and_comes_back() {
        let files = MemoryFiles::new(4 * PAGE as u64);
        let make = |name: &str| files.open(Path::new(name), OpenHow::CreateNew).unwrap();
        let (one, two) = (make("one"), make("./two"));
        one.preallocate(0, 3 * PAGE as u64).unwrap();
        two.try_write_all_at(&[1; 10], 0).unwrap();
        let full = two.try_write_all_at(&[2; 10], PAGE as u64).unwrap_err();
        assert_eq!((full.kind(), two.len().unwrap()), (io::ErrorKind::StorageFull, 10));
        one.try_write_all_at(&[3; 2 * PAGE], 0).unwrap();
        one.set_len(PAGE as u64 + 1).unwrap();
        two.try_write_all_at(&[2; 10], PAGE as u64).unwrap();
        drop((one, two));
        for name in ["./one", "two"] {
            files.remove(Path::new(name)).unwrap();
        }
        make("three").preallocate(0, 4 * PAGE as u64).unwrap();
    }

    /// Bug: each path that was ever locked kept its entry. Cause: nothing removed that of a lock
    /// that was given back. Fix: the next lock does.
    #[test]
    fn locks_that_were_given_back_leave_nothing() {
        let files = MemoryFiles::new(0);
        for n in 0..100 {
            files.lock(Path::new(&n.to_string()), Access::Exclusive).unwrap();
        }
        assert_eq!(files.names().unwrap().locks.len(), 1);
    }

    #[test]
    fn a_directory_is_locked_once_or_for_readers() {
        let files = MemoryFiles::new(0);
        let lock = |access| files.lock(Path::new("db"), access).unwrap();
        let held = lock(Access::Exclusive);
        assert!(held.is_some() && lock(Access::Exclusive).is_none());
        assert!(lock(Access::Shared).is_none());
        drop(held);
        let reader = lock(Access::Shared);
        assert!(reader.is_some() && lock(Access::Shared).is_some());
        assert!(lock(Access::Exclusive).is_none());
    }
}
