//! An object store in a local directory: for tests, and where a network file system is the store.
//!
//! An object is one file. Its bytes come first, then a trailer with their checksum and a tag that
//! was drawn at random, so that a file says itself whether it is whole. The slashes of a name are
//! `%` in the file's name, so all objects lie in one directory.
//!
//! A put writes and syncs a file under another name, takes the lock of the directory, checks the
//! condition, renames, and syncs the directory. Other openings take the same lock. A file that a
//! crash left under another name is removed by the next opening.
//!
//! The caller of a put whose condition does not hold may build on the object that is there, as its
//! own of an earlier attempt. So that is answered after a sync of the directory, too. A sync that
//! failed is no passing failure, and every put through this opening fails from then on.
//!
//! Thread safety: every method may be called from any thread; `turn` is held while a condition is
//! checked and the file gets its name.
//!
//! Invariant: a file that has the name of an object is whole and never changed, and what a put says
//! of it is durable.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::name;
use super::store::{
    Answer, Answered, Failure, FailureKind, Got, LIST_LEN, ObjectInfo, ObjectStore, PutWhen, Span,
    Tag,
};
use crate::base::error::{Error, Result};
use crate::base::record::checksum;
use crate::os::sync::locks::Mutex;
use crate::os::{
    Access, Directory, DirectoryLock, File, FileLock, Files, OpenHow, RealFiles, create_directory,
    draw_random,
};

const MAGIC: &[u8; 8] = b"TERROBJ\0";
/// Magic, checksum of the bytes seeded with the tag, zero, tag.
const TRAILER: usize = 8 + 4 + 4 + 16;
const LOCK: &str = "LOCK";
const UNNAMED: &str = "new-";

/// A directory of objects.
#[derive(Debug)]
pub(crate) struct DirectoryStore {
    files: Arc<dyn Files>,
    path: PathBuf,
    names: Directory,
    turn: Mutex<()>,
}

impl DirectoryStore {
    /// The store in `path`, which is made where it is missing.
    ///
    /// # Errors
    ///
    /// The directory cannot be made, read or written.
    pub(crate) fn open(path: &Path) -> Result<DirectoryStore> {
        DirectoryStore::open_in(Arc::new(RealFiles::default()), path)
    }

    pub(crate) fn open_in(files: Arc<dyn Files>, path: &Path) -> Result<DirectoryStore> {
        create_directory(&*files, path).map_err(|e| Error::io("create the directory", path, e))?;
        files.hold(path).map_err(|e| Error::io("open the directory", path, e))?;
        let (names, path) = (Directory::at(path), path.to_path_buf());
        let store = DirectoryStore { files, path, names, turn: Mutex::new(()) };
        store.remove_unnamed().map_err(|e| Error::io("clean up", &store.path, e))?;
        Ok(store)
    }

    /// Removes what puts left that did not come to their end. Another opening may be at one: its
    /// rename fails then, and it tries again. While another one holds the lock, all is left
    /// for the next opening.
    fn remove_unnamed(&self) -> io::Result<()> {
        let _lock = match self.lock() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => return Ok(()),
            lock => lock?,
        };
        for found in self.files.list(&self.path)? {
            if found.starts_with(UNNAMED) {
                self.remove_if_there(&self.path.join(found))?;
            }
        }
        Ok(())
    }

    fn remove_if_there(&self, path: &Path) -> io::Result<()> {
        match self.files.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        debug_assert!(name::check(name).is_ok(), "names are plain: {name}");
        self.path.join(format!("{}.object", name.replace('/', "%")))
    }

    /// Keeps other openings out.
    fn lock(&self) -> io::Result<DirectoryLock> {
        let (path, access) = (self.path.join(LOCK), Access::Exclusive);
        let lock = match (self.files.real(), self.files.memory()) {
            (Some(files), _) => FileLock::at(files, &path, access)?.map(DirectoryLock::other),
            (_, Some(files)) => files.lock(&path, access)?.map(DirectoryLock::other),
            // The tasks of a simulated machine run one at a time.
            _ => Some(DirectoryLock::none()),
        };
        lock.ok_or_else(|| io::ErrorKind::ResourceBusy.into())
    }

    fn write(&self, name: &str, bytes: &[u8], when: &PutWhen) -> Answered<Tag> {
        let tag = draw().map_err(|e| self.failure("draw a tag for", name, &e))?;
        let unnamed = self.path.join(format!("{UNNAMED}{}", hex(tag)));
        let written = self.write_unnamed(&unnamed, bytes, tag);
        let named = written
            .map_err(|e| self.failure("write", name, &e))
            .and_then(|()| self.name(&unnamed, name, when));
        if named.is_err() {
            // It has no name that anyone looks for; the next opening removes it else.
            self.files.remove(&unnamed).unwrap_or(());
        }
        named.map(|()| of(tag))
    }

    fn write_unnamed(&self, path: &Path, bytes: &[u8], tag: [u8; 16]) -> io::Result<()> {
        let file = self.files.open(path, OpenHow::CreateNew)?;
        file.try_write_all_at(bytes, 0)?;
        file.try_write_all_at(&trailer(bytes, tag), bytes.len() as u64)?;
        file.sync()
    }

    fn name(&self, unnamed: &Path, name: &str, when: &PutWhen) -> Answered<()> {
        let _turn = self.turn.lock();
        let _lock = self.lock().map_err(|e| self.failure("lock the directory of", name, &e))?;
        let found = match self.read(name, Span::Whole) {
            Ok(got) => Some(got.tag),
            Err(failure) if failure.kind == FailureKind::Missing => None,
            Err(failure) => return Err(failure),
        };
        let holds = match when {
            PutWhen::Absent => found.is_none(),
            PutWhen::Tagged(tag) => found.as_ref() == Some(tag),
        };
        if !holds {
            self.sync_names(name)?;
            return Err(Failure::new(FailureKind::Changed, format!("found {found:?}")));
        }
        let renamed = self.files.rename(unnamed, &self.path_of(name));
        // Another opening of the store may have removed the file; the next try succeeds.
        renamed.map_err(|e| Failure::new(FailureKind::Away, format!("cannot name {name}: {e}")))?;
        self.sync_names(name)
    }

    /// Makes all names durable.
    fn sync_names(&self, name: &str) -> Answered<()> {
        self.names.sync(&*self.files).map_err(|e| {
            let place = self.path.display();
            Failure::new(FailureKind::Unsynced, format!("cannot sync {place} for {name}: {e}"))
        })
    }

    fn open_object(&self, name: &str) -> Answered<(Arc<File>, u64)> {
        let opened = self.files.open(&self.path_of(name), OpenHow::Read);
        let file = opened.map_err(|e| self.failure("open", name, &e))?;
        let len = file.len().map_err(|e| self.failure("measure", name, &e))?;
        match len.checked_sub(TRAILER as u64) {
            Some(len) => Ok((file, len)),
            None => Err(Failure::new(FailureKind::Short, format!("a file of {len} bytes"))),
        }
    }

    fn read(&self, name: &str, span: Span) -> Answered<Got> {
        let (file, len) = self.open_object(name)?;
        let trailer = file
            .read_vec(len, TRAILER)
            .map_err(|e| self.failure("read the trailer of", name, &e))?;
        let (sum, tag) = parse_trailer(&trailer)
            .ok_or_else(|| Failure::new(FailureKind::Wrong, "the file has no sound trailer"))?;
        let (offset, wanted) = match span {
            Span::Whole => (0, len),
            Span::Bytes { offset, len } => (offset, len),
        };
        if offset.checked_add(wanted).is_none_or(|end| end > len) {
            return Err(Failure::new(FailureKind::Short, format!("the object has {len} bytes")));
        }
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let bytes = file.read_vec(offset, wanted).map_err(|e| self.failure("read", name, &e))?;
        if span == Span::Whole && sum != sum_of(&bytes, tag) {
            let cause = "the bytes do not have the checksum of the trailer";
            return Err(Failure::new(FailureKind::Wrong, cause));
        }
        Ok(Got { bytes, tag: of(tag) })
    }

    fn remove(&self, names: &[String]) -> Answered<()> {
        for name in names {
            let removed = self.remove_if_there(&self.path_of(name));
            removed.map_err(|e| self.failure("remove", name, &e))?;
        }
        self.sync_names(names.first().map_or("", String::as_str))
    }

    fn failure(&self, doing: &str, name: &str, error: &io::Error) -> Failure {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => FailureKind::Missing,
            io::ErrorKind::UnexpectedEof => FailureKind::Short,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                FailureKind::Refused
            }
            io::ErrorKind::ResourceBusy => FailureKind::Throttled,
            _ => FailureKind::Away,
        };
        Failure::new(kind, format!("cannot {doing} {}: {error}", self.path_of(name).display()))
    }
}

fn draw() -> io::Result<[u8; 16]> {
    let mut tag = [0; 16];
    draw_random(&mut tag)?;
    Ok(tag)
}

fn hex(tag: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(tag))
}

fn of(tag: [u8; 16]) -> Tag {
    Tag { entity: Some(hex(tag)), version: None }
}

fn sum_of(bytes: &[u8], tag: [u8; 16]) -> u32 {
    let (first, last) = tag.split_at(8);
    let number = |half: &[u8]| half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    checksum(&[number(first), number(last)], bytes)
}

fn trailer(bytes: &[u8], tag: [u8; 16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(TRAILER);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&sum_of(bytes, tag).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&tag);
    out
}

fn parse_trailer(bytes: &[u8]) -> Option<(u32, [u8; 16])> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let tag = rest.strip_prefix(&[0; 4])?;
    Some((u32::from_le_bytes(*sum), tag.try_into().ok()?))
}

impl fmt::Display for DirectoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file://{}", self.path.display())
    }
}

impl ObjectStore for DirectoryStore {
    fn address(&self) -> String {
        self.to_string()
    }

    fn begin_put(
        &self,
        name: &str,
        bytes: &Bytes,
        when: &PutWhen,
        _: Duration,
        answer: Answer<Tag>,
    ) {
        answer.send(self.write(name, bytes, when));
    }

    fn begin_get(&self, name: &str, span: Span, _: Duration, answer: Answer<Got>) {
        answer.send(self.read(name, span));
    }

    fn head(&self, name: &str, _: Duration) -> Answered<ObjectInfo> {
        let (_, len) = self.open_object(name)?;
        Ok(ObjectInfo { name: name.to_string(), len })
    }

    fn delete(&self, names: &[String], _: Duration) -> Answered<()> {
        self.remove(names)
    }

    fn list(&self, prefix: &str, after: &str, within: Duration) -> Answered<Vec<ObjectInfo>> {
        let found = self.files.list(&self.path).map_err(|e| self.failure("list", prefix, &e))?;
        let named = found.iter().filter_map(|name| name.strip_suffix(".object"));
        let mut names: Vec<String> = named
            .map(|name| name.replace('%', "/"))
            .filter(|name| name.starts_with(prefix) && name.as_str() > after)
            .collect();
        names.sort_unstable();
        names.truncate(LIST_LEN);
        let mut infos = Vec::with_capacity(names.len());
        for name in names {
            match self.head(&name, within) {
                Ok(info) => infos.push(info),
                // Deleted since the directory was read.
                Err(failure) if failure.kind == FailureKind::Missing => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(infos)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::storage::object::client::{Client, Patience};
    use crate::storage::object::clock::MachineTimer;
    use terrace_testkit::{Fault, Faulty, SimFiles, Survive};

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn an_object_that_was_answered_survives_a_power_cut() {
        let files = SimFiles::new();
        let path = Path::new("/store");
        let store = DirectoryStore::open_in(Arc::clone(&files) as _, path).unwrap();
        store.put("a/1", &Bytes::from_static(b"one"), &PutWhen::Absent, SOON).unwrap();
        let after = files.crash(Survive::Nothing);
        let store = DirectoryStore::open_in(after, path).unwrap();
        assert_eq!(store.get("a/1", Span::Whole, SOON).unwrap().bytes, b"one");
    }

    /// Bug: two openings of a store in memory both won a put whose condition only one can meet.
    /// Cause: the directory's lock was one of the operating system alone. Fix: files in memory have
    /// one too.
    #[test]
    fn one_opening_wins_a_put_in_memory() {
        let files: Arc<dyn Files> = Arc::new(crate::os::MemoryFiles::new(64 << 20));
        let open = || DirectoryStore::open_in(Arc::clone(&files), Path::new("store")).unwrap();
        let stores = [open(), open()];
        let held = stores[0].lock().unwrap();
        let bytes = Bytes::from_static(b"one");
        let refused = stores[1].put("a/0", &bytes, &PutWhen::Absent, SOON).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Throttled, "{refused}");
        drop(held);
        let won = |store: &DirectoryStore| {
            let put = |n: u32| loop {
                match store.put(&format!("a/{n}"), &bytes, &PutWhen::Absent, SOON) {
                    // The other one has the lock, or has taken the file for one that was left.
                    Err(failure) if failure.kind != FailureKind::Changed => {
                        std::thread::yield_now()
                    }
                    done => break done.is_ok(),
                }
            };
            (0..300).filter(|n| put(*n)).count()
        };
        let wins: usize = std::thread::scope(|scope| {
            let threads = [&stores[0], &stores[1]].map(|store| scope.spawn(move || won(store)));
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert_eq!(wins, 300);
    }

    /// Bug: a put was acknowledged, and a power cut took the object back.
    /// Cause: the sync of its name failed, which was a passing failure. The next attempt found the
    /// name with the same bytes, and nothing was synced again.
    /// Fix: the directory is synced before a put says what is there, and a failed sync does not
    /// pass.
    #[test]
    fn a_name_whose_sync_failed_is_never_acknowledged() {
        let files = SimFiles::new();
        let path = Path::new("/store");
        let open = || {
            let store = DirectoryStore::open_in(Arc::clone(&files) as _, path).unwrap();
            Client::new(Arc::new(store), Arc::new(MachineTimer::default()), Patience::default())
        };
        // The first sync of a put is that of the file.
        let sync_fails = || files.fail(Fault::once(Faulty::AnySync, 2));

        let client = open();
        sync_fails();
        let new = client.begin_put("a/1", Bytes::from_static(b"one")).finish(&client).unwrap_err();
        assert_eq!(new.kind, FailureKind::Unsynced, "{new}");
        // Neither does what is there already become an answer of this opening.
        for _ in 0..2 {
            let again =
                client.begin_put("a/1", Bytes::from_static(b"one")).finish(&client).unwrap_err();
            assert_eq!(again.kind, FailureKind::Unsynced, "{again}");
        }
        let deleted = client.delete(&["a/1".to_string()]).unwrap_err();
        assert_eq!(deleted.kind, FailureKind::Unsynced, "{deleted}");
        assert_eq!(client.counts().retries, 0);

        // As with the fence: under a condition.
        let client = open();
        sync_fails();
        let fence =
            client.put("a/fence", &Bytes::from_static(b"me"), &PutWhen::Absent).unwrap_err();
        assert_eq!(fence.kind, FailureKind::Unsynced, "{fence}");
        // What another opening finds it makes durable before it says so.
        let client = open();
        let found =
            client.put("a/fence", &Bytes::from_static(b"me"), &PutWhen::Absent).unwrap_err();
        assert_eq!(found.kind, FailureKind::Changed, "{found}");
        let after = files.crash(Survive::Nothing);
        let store = DirectoryStore::open_in(after, path).unwrap();
        assert_eq!(store.get("a/fence", Span::Whole, SOON).unwrap().bytes, b"me");
    }

    #[test]
    fn what_a_put_left_without_its_name_is_no_object() {
        let root = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(root.path()).unwrap();
        store.write_unnamed(&root.path().join("new-1"), b"half", [7; 16]).unwrap();
        assert_eq!(store.list("", "", SOON), Ok(vec![]));
        let store = DirectoryStore::open(root.path()).unwrap();
        assert!(!root.path().join("new-1").exists());
        drop(store);
    }

    /// Bug: a takeover failed with "cannot clean up". Cause: a put of the writer found the lock
    /// taken and removed its file, which the opening had seen. Fix: what is gone is no error.
    #[test]
    fn an_opening_cleans_up_while_another_one_gives_its_puts_up() {
        let root = tempfile::tempdir().unwrap();
        let writer = DirectoryStore::open(root.path()).unwrap();
        writer.put("a/1", &Bytes::from_static(b"first"), &PutWhen::Absent, SOON).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    writer
                        .put("a/1", &Bytes::from_static(b"second"), &PutWhen::Absent, SOON)
                        .unwrap_err();
                }
            });
            let opened = (0..500).find_map(|_| DirectoryStore::open(root.path()).err());
            is_over.store(true, Ordering::Relaxed);
            assert!(opened.is_none(), "{opened:?}");
        });
    }

    /// Bug: an opening failed while a put of another process held the lock of the directory.
    /// Cause: it needs the lock to clean up. Fix: it leaves that to the next opening.
    #[test]
    fn an_opening_does_not_need_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let other = DirectoryStore::open(root.path()).unwrap();
        let lock = other.lock().unwrap();
        DirectoryStore::open(root.path()).unwrap();
        drop(lock);
    }

    #[test]
    fn a_changed_byte_is_found() {
        let root = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(root.path()).unwrap();
        store.put("a/1", &Bytes::from_static(b"some bytes"), &PutWhen::Absent, SOON).unwrap();
        let path = store.path_of("a/1");
        let mut bytes = fs::read(&path).unwrap();
        bytes[3] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let failure = store.get("a/1", Span::Whole, SOON).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Wrong, "{failure}");
    }
}
