use std::io;
use std::path::Path;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::base::options::Compression;
use crate::os::{Files, OpenHow, RawFile, Sealed};
use crate::sstable::tests::{Entry, check_cursor, entries, forward, sim_store, write_extent};
use crate::sstable::{BlockWalk, ExtentBuilder, Format};
use crate::storage::ExtentStore;
use terrace_testkit::SimFiles;

proptest! {
    #[test]
    fn a_level_is_a_sorted_list(
        list in entries(0..120),
        cut in 1usize..8,
        key in prop::collection::vec(0u8..4, 0..4),
        seq in 0u64..12,
    ) {
        let (_, store) = sim_store();
        let keys: Vec<_> = list.chunk_by(|a, b| a.key == b.key).collect();
        let extents: Vec<_> = keys
            .chunks(cut)
            .enumerate()
            .map(|(n, keys)| write_extent(&store, n as u64, &keys.concat()))
            .collect();
        let cache = BlockCache::new(1 << 20);
        let mut cursor = LevelCursor::new(extents.into(), cache, ReadAhead::for_user());
        check_cursor(&mut cursor, &list, &key, seq);
    }
}

/// The thread that read, and how many bytes.
type Reads = Arc<Mutex<Vec<(Option<String>, usize)>>>;

/// Files that tell which thread reads them.
#[derive(Debug)]
struct Watched(Arc<SimFiles>, Reads);

#[derive(Debug)]
struct WatchedFile(Box<dyn RawFile>, Reads);

impl Files for Watched {
    fn open_raw(&self, path: &Path, how: OpenHow, seal: Sealed) -> io::Result<Box<dyn RawFile>> {
        Ok(Box::new(WatchedFile(self.0.open_raw(path, how, seal)?, Arc::clone(&self.1))))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }
    fn directories(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.directories(directory)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.remove_directory(path)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.create_directory(path)
    }
    fn sync_names(&self, path: &Path, seal: Sealed) -> io::Result<()> {
        self.0.sync_names(path, seal)
    }
}

impl RawFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let thread = std::thread::current().name().map(str::to_string);
        self.1.lock().push((thread, buffer.len()));
        self.0.read_at(buffer, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn preallocate(&self, from: u64, to: u64) -> io::Result<()> {
        self.0.preallocate(from, to)
    }

    fn punch(&self, from: u64, len: u64) -> io::Result<bool> {
        self.0.punch(from, len)
    }
    fn will_need(&self, offset: u64, len: u64) {
        self.0.will_need(offset, len);
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

/// Three extents of some blocks each, with what is in them.
fn three(files: Arc<dyn Files>) -> (Arc<ExtentStore>, Vec<Arc<Extent>>, Vec<Entry>) {
    several(files, 3)
}

fn several(files: Arc<dyn Files>, count: u32) -> (Arc<ExtentStore>, Vec<Arc<Extent>>, Vec<Entry>) {
    crate::os::create_directory(&*files, Path::new("/db")).unwrap();
    let store = ExtentStore::open(files, Path::new("/db"), &[], false).unwrap();
    let (mut all, mut extents) = (Vec::new(), Vec::new());
    for id in 0..count {
        let mut builder = ExtentBuilder::new(u64::from(id), Format::new(Compression::None));
        for n in 0..150 {
            let entry = Entry::put(&(1000 * id + n).to_be_bytes(), 9, &[n as u8; 1500]);
            builder.add(entry.as_ref());
            all.push(entry);
        }
        extents.push(builder.finish().write(&store).unwrap());
    }
    (store, extents, all)
}

/// The records that a walk comes to.
fn walked(walk: &mut BlockWalk) -> Vec<Entry> {
    let mut found = Vec::new();
    while walk.key().is_some() {
        walk.open().unwrap();
        found.extend(walk.entry().map(Entry::from));
        walk.next().unwrap();
    }
    found
}

/// What a job comes to is read while it is at work on what it has: from the second piece on, over
/// the ends of extents too, by threads of the store; and all of it is counted.
#[test]
fn a_job_reads_its_first_piece_itself_and_no_other() {
    const AHEAD: u64 = 64 * 1024;
    for by_cursor in [true, false] {
        let reads = Reads::default();
        let files = Arc::new(Watched(SimFiles::new(), Arc::clone(&reads)));
        let (store, extents, all) = three(files);
        store.memory().set_job(1 << 20, (AHEAD, AHEAD), AHEAD);
        store.go_behind();
        let cache = BlockCache::new(0);
        let own = std::thread::current().name().map(str::to_string);
        let jobs = Arc::clone(&store.memory().jobs);
        assert_eq!(jobs.bytes(), 0);
        reads.lock().clear();
        if by_cursor {
            let ahead = ReadAhead::for_job(1);
            extents[0].begin_walk(&cache, &ahead);
            let mut cursor = LevelCursor::new(extents.into(), cache, ahead);
            cursor.seek(b"", LSN_MAX).unwrap();
            assert!((AHEAD / 2 + 1..=AHEAD).contains(&jobs.bytes()), "two: {}", jobs.bytes());
            assert_eq!(forward(&mut cursor), all);
        } else {
            let mut walk = BlockWalk::new(&extents, &cache, false);
            assert_eq!(walked(&mut walk), all);
        }
        assert_eq!(jobs.bytes(), 0, "nothing is held any more");
        let reads = reads.lock();
        let bytes: usize = reads.iter().map(|(_, len)| len).sum();
        let least = all.len() * 1500;
        assert!((least..least * 11 / 10).contains(&bytes), "each block once: {bytes}");
        assert!(reads.len() >= 18, "{} reads", reads.len());
        let itself = reads.iter().filter(|(thread, _)| *thread == own).count();
        // A thread that begins a walk before it comes to it reads nothing itself.
        assert_eq!(itself, usize::from(!by_cursor), "{reads:?}");
    }
}

/// A user's walk that has become a long one has what it comes to be read meanwhile, in either
/// direction and over the ends of extents; all of it is counted, and no more than may be.
#[test]
fn a_long_walk_reads_little_itself() {
    for is_backward in [false, true] {
        let reads = Reads::default();
        let files = Arc::new(Watched(SimFiles::new(), Arc::clone(&reads)));
        let (store, extents, mut all) = several(files, 12);
        store.go_behind();
        let cache = BlockCache::new(16 << 20);
        let most = cache.capacity() / 16;
        let own = std::thread::current().name().map(str::to_string);
        reads.lock().clear();
        let ahead = ReadAhead::for_user();
        let still_there: Vec<_> = extents.iter().map(Arc::downgrade).collect();
        let mut cursor = LevelCursor::new(extents.into(), cache, Arc::clone(&ahead));
        if is_backward {
            cursor.seek_before(None).unwrap();
            all.reverse();
        } else {
            cursor.seek(b"", LSN_MAX).unwrap();
        }
        for entry in &all {
            assert_eq!(cursor.entry().map(Entry::from).as_ref(), Some(entry));
            let held = store.memory().ahead.bytes();
            assert!(held <= most, "{held} bytes of {most}");
            if is_backward { cursor.prev().unwrap() } else { cursor.next().unwrap() }
        }
        assert!(cursor.entry().is_none());
        drop(cursor);
        assert!(still_there.iter().all(|extent| extent.upgrade().is_none()), "a chunk holds them");
        drop(ahead);
        assert_eq!(store.memory().ahead.bytes(), 0, "nothing is held any more");
        let reads = reads.lock();
        let sum = |itself: bool| {
            let of = reads.iter().filter(|(thread, _)| (*thread == own) == itself);
            of.map(|(_, len)| len).sum::<usize>()
        };
        let (itself, meanwhile, least) = (sum(true), sum(false), all.len() * 1500);
        assert!((least..least * 11 / 10).contains(&(itself + meanwhile)), "each block once");
        assert!(itself < 1 << 20, "{itself} bytes itself, {meanwhile} meanwhile");
    }
}

/// What was begun for an extent that the walk leaves out is not waited for, and not held.
#[test]
fn a_walk_may_step_over_what_is_on_its_way() {
    let (store, extents, all) = three(SimFiles::new());
    store.go_behind();
    let cache = BlockCache::new(0);
    let mut walk = BlockWalk::new(&extents, &cache, false);
    walk.open().unwrap();
    let first = walk.entry().map(Entry::from);
    walk.skip_extent();
    walk.skip_extent();
    let found: Vec<_> = first.into_iter().chain(walked(&mut walk)).collect();
    let wanted: Vec<_> = all[..1].iter().chain(&all[300..]).cloned().collect();
    assert_eq!(found, wanted);
    drop(walk);
    assert_eq!(store.memory().jobs.bytes(), 0);
}

/// The cursor that needs a read makes it again after a failure, and has the error then.
#[test]
fn a_read_that_failed_meanwhile_is_made_again() {
    let files = SimFiles::new();
    let (store, extents, _) = three(Arc::clone(&files) as _);
    store.go_behind();
    let path = store.path(1);
    files.open(&path, OpenHow::Write).unwrap().set_len(200_000).unwrap();
    let ahead = ReadAhead::for_job(1);
    let mut cursor = LevelCursor::new(extents.into(), BlockCache::new(0), ahead);
    let mut placed = cursor.seek(b"", LSN_MAX);
    let mut seen = 0;
    while placed.is_ok() && cursor.entry().is_some() {
        seen += 1;
        placed = cursor.next();
    }
    let damage = placed.unwrap_err().damage().cloned().unwrap();
    assert_eq!((damage.file, damage.got.as_str()), (path, "the end of the file"));
    assert!((100..150).contains(&seen), "all blocks before it: {seen}");
}
