//! Records to test with, and the tests of whole extents.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::base::error::{ErrorKind, Findings};
use crate::base::options::Compression;
pub(crate) use crate::base::record::tests::{Entry, backward, check_cursor, entries, forward};
use crate::base::record::{Cursor as _, LSN_MAX};
use crate::mvcc::{drive_until, pin};
use crate::storage::ExtentStore;
use std::sync::Arc;
use terrace_testkit::{Call, CallSite, Fault, Faulty, FileKind, ReadFaults, SimFiles};

/// A store on fresh simulated files.
pub(crate) fn sim_store() -> (Arc<SimFiles>, Arc<ExtentStore>) {
    let files = SimFiles::new();
    crate::os::create_directory(&*files, Path::new("/db")).unwrap();
    let store = ExtentStore::open(Arc::clone(&files) as _, Path::new("/db"), &[], false).unwrap();
    (files, store)
}

/// Tests run on all compressions, in turn by the extent's id.
fn compression_of(id: u64) -> Compression {
    [Compression::None, Compression::Lz4, Compression::Zstd][(id % 3) as usize]
}

/// Writes an extent with these records.
pub(crate) fn write_extent(store: &Arc<ExtentStore>, id: u64, entries: &[Entry]) -> Arc<Extent> {
    let mut builder = ExtentBuilder::new(id, Format::new(compression_of(id)));
    entries.iter().for_each(|entry| builder.add(entry.as_ref()));
    builder.finish().write(store).unwrap()
}

/// About a hundred blocks' worth of numbered keys, every third with two versions.
fn numbered(count: u32) -> Vec<Entry> {
    let mut list = Vec::new();
    for n in 0..count {
        let key = format!("key{n:06}");
        if n.is_multiple_of(3) {
            list.push(Entry::delete(key.as_bytes(), 100));
        }
        list.push(Entry::put(key.as_bytes(), 50, &[n as u8; 100]));
    }
    list
}

fn cache() -> Arc<BlockCache> {
    BlockCache::new(64 << 20)
}

proptest! {
    #[test]
    fn an_extent_is_a_sorted_list(
        list in entries(1..200),
        key in prop::collection::vec(0u8..4, 0..4),
        seq in 0u64..12,
    ) {
        let (_, store) = sim_store();
        let cache = cache();
        let extent = write_extent(&store, 3, &list);
        check_cursor(&mut extent.cursor(&cache, &ReadAhead::for_user()), &list, &key, seq);
        let want = list.iter().find(|e| e.key == key && e.seq <= seq);
        let guard = pin();
        let got = extent.get(&key, seq, Blocks::new(&cache, &guard)).unwrap();
        prop_assert_eq!(got.map(|f| (f.seq, f.kind, f.into_value().unwrap().to_vec())),
            want.map(|e| (e.seq, e.kind, e.value.clone())));
        let mut report = Findings::default();
        prop_assert!(extent.verify(&mut report) > 3);
        prop_assert_eq!(report, Findings::default());
    }
}

#[test]
fn large_extents_have_many_blocks() {
    let (_, store) = sim_store();
    let list = numbered(10_000);
    let extent = write_extent(&store, 1, &list);
    assert!(extent.verify(&mut Findings::default()) > 60);
    assert_eq!((extent.meta().records, extent.meta().deletes), (13_334, 3334));
    let cache = cache();
    let mut cursor = extent.cursor(&cache, &ReadAhead::for_job(1));
    cursor.seek(b"", LSN_MAX).unwrap();
    assert_eq!(forward(&mut cursor), list);
    cursor.seek_before(None).unwrap();
    assert_eq!(backward(&mut cursor), list);
    assert_eq!(cache.used(), 0, "a cursor that does not fill leaves the cache alone");
    let guard = pin();
    let blocks = Blocks::new(&cache, &guard);
    assert_eq!(extent.get(b"key000003", 99, blocks).unwrap().unwrap().seq, 50);
    assert!(extent.get(b"key000003", 49, blocks).unwrap().is_none());
    assert!(extent.get(b"key0000030", LSN_MAX, blocks).unwrap().is_none());
    assert!(cache.used() > 16_000);
    assert!(store.memory().parts.bytes() > 10_000);
}

#[test]
fn parts_that_were_let_go_of_are_read_again() {
    let (files, store) = sim_store();
    let (held, list, cache) = (store.memory(), numbered(2000), cache());
    let extents: Vec<_> = (0..9).map(|id| write_extent(&store, id, &list)).collect();
    let all = held.parts.bytes();
    held.clock.set_most(all / 3);
    let is_within = || (all / 9..=all / 3).contains(&held.parts.bytes());
    assert!(drive_until(|| is_within() && held.parts.bytes() == held.clock.kept()));
    for (n, entry) in list.iter().step_by(50).enumerate() {
        let guard = pin();
        let blocks = Blocks::new(&cache, &guard);
        let found = extents[n % 9].get(&entry.key, entry.seq, blocks).unwrap().unwrap();
        assert_eq!((found.seq, found.kind), (entry.seq, entry.kind));
        drop(found);
        drop(guard);
        assert!(drive_until(is_within), "{} of {all} bytes", held.parts.bytes());
    }
    // A cursor that reads them has them.
    let mut cursor = extents[0].cursor(&cache, &ReadAhead::for_user());
    cursor.seek(b"", LSN_MAX).unwrap();
    held.clock.set_most(0);
    assert!(held.clock.kept() == 0 && held.parts.bytes() > 0, "{held:?}");
    assert_eq!(forward(&mut cursor), list);
    drop(cursor);
    assert!(drive_until(|| held.parts.bytes() == 0));
    let has_7 = |n: usize| {
        let guard = pin();
        let found = extents[n].get(b"key000007", LSN_MAX, Blocks::new(&cache, &guard));
        found.map(|found| found.is_some())
    };
    assert!(has_7(1).unwrap());
    assert!(drive_until(|| held.parts.bytes() == 0), "nor are they kept");
    // They are checked each time.
    let at = extents[1].meta().location;
    files.corrupt(&store.path(at.file), at.offset + u64::from(at.len) - 100, 1);
    let error = has_7(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    held.clock.set_most(u64::MAX);
    assert!(has_7(2).unwrap());
    assert!(held.parts.bytes() > 0 && held.descriptions.bytes() > 9 * 18);
    drop(extents);
    let all = || held.parts.bytes() + held.clock.kept() + held.descriptions.bytes();
    assert!(drive_until(|| all() == 0), "{held:?}");
}

/// Bug: an extent that was read all the time had its parts read anew each time.
/// Cause: the clock's hand stood before the place that comes next, and took what was put there for
/// unused.
/// Fix: a reader uses the parts that it has read.
#[test]
fn what_is_read_again_and_again_stays() {
    let (_, store) = sim_store();
    let (held, list, cache) = (store.memory(), numbered(2000), cache());
    // Of one compression: so each takes as much memory.
    let extents: Vec<_> = (0..9).map(|id| write_extent(&store, 3 * id, &list)).collect();
    let get = |n: usize| {
        let guard = pin();
        extents[n].get(b"key000007", LSN_MAX, Blocks::new(&cache, &guard)).unwrap().is_some()
    };
    held.clock.set_most(held.parts.bytes() / 3);
    // The hand passes those that are used, and comes to stand before what is read next.
    assert!((1..9).all(|n| get(n) && get(n)) && get(0));
    let before = store.reads();
    assert!((0..10).all(|_| get(0)));
    assert_eq!(store.reads(), before, "{held:?}");
    // It stays beside others that are read once each, and come and go.
    let mut reads = [0; 2];
    for n in (1..9).cycle().take(80) {
        let before = store.reads();
        assert!(get(n));
        let between = store.reads();
        assert!(get(0));
        reads[0] += between - before;
        reads[1] += store.reads() - between;
    }
    assert_eq!(reads, [80, 0], "of others, and of it: {held:?}");
}

/// Threads read extents of which one has room at a time.
#[test]
fn parts_come_and_go_under_readers() {
    let (_, store) = sim_store();
    let (list, cache) = (numbered(500), cache());
    let extents: Vec<_> = (0..5).map(|id| write_extent(&store, id, &list)).collect();
    store.memory().clock.set_most(store.memory().parts.bytes() / 4);
    std::thread::scope(|scope| {
        for start in 0..4 {
            let (list, cache, extents) = (&list, &cache, &extents);
            scope.spawn(move || {
                for n in 0..400 {
                    let entry = &list[n * 7 % list.len()];
                    let guard = pin();
                    let (extent, blocks) = (&extents[(start + n) % 5], Blocks::new(cache, &guard));
                    let found = extent.get(&entry.key, entry.seq, blocks).unwrap();
                    assert_eq!(found.unwrap().seq, entry.seq);
                }
            });
        }
    });
    let held = store.memory();
    let is_settled = || held.parts.bytes() == held.clock.kept();
    assert!(drive_until(is_settled), "what no reader has is gone: {held:?}");
    drop(extents);
    assert!(drive_until(|| held.parts.bytes() + held.clock.kept() == 0), "{held:?}");
}

#[test]
fn the_largest_records_fit() {
    let (_, store) = sim_store();
    let list = [
        Entry::put(b"", 1, b""),
        Entry::put(&[7; 64 * 1024], 2, &vec![1; 1 << 20]),
        Entry::put(&[8], 2, b"small"),
    ];
    let extent = write_extent(&store, 1, &list);
    let mut cursor = extent.cursor(&cache(), &ReadAhead::for_user());
    cursor.seek(b"", LSN_MAX).unwrap();
    assert_eq!(forward(&mut cursor), list);
}

#[test]
fn a_flip_of_any_byte_is_found_and_never_served() {
    let (files, store) = sim_store();
    let list = numbered(60);
    let extent = write_extent(&store, 1, &list);
    extent.installed(1);
    let at = extent.meta().location;
    for i in 0..u64::from(at.len) {
        files.corrupt(&store.path(at.file), at.offset + i, 1 << (i % 8));
        let fresh = Extent::open(extent.meta().clone(), Arc::clone(&store));
        let mut report = Findings::default();
        fresh.verify(&mut report);
        assert_eq!(report.count(), 1, "byte {i}");
        assert_eq!(
            (report.damages[0].tier, &report.damages[0].file),
            ("ssd", &store.path(at.file))
        );
        let damaged = at.offset + i;
        let offset = report.damages[0].offset;
        assert!((offset..offset + 20_000).contains(&damaged), "byte {i}");
        let cache = BlockCache::new(0);
        for entry in list.iter().step_by(7) {
            let guard = pin();
            match fresh.get(&entry.key, entry.seq, Blocks::new(&cache, &guard)) {
                Ok(found) => assert_eq!(found.unwrap().into_value().unwrap(), entry.value),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
            }
        }
        files.corrupt(&store.path(at.file), at.offset + i, 1 << (i % 8));
    }
}

/// Bug: a backup, a checkpoint or a restore could copy other bytes than those that it had checked.
/// Cause: an extent was checked by reading its parts, and then read once more for the copy.
/// Fix: it is read once, and the bytes in hand are checked.
#[test]
fn the_bytes_that_are_copied_are_those_that_were_checked() {
    let (files, store) = sim_store();
    let extent = write_extent(&store, 3, &numbered(400));
    let written = extent.read_whole().unwrap();
    let (mut refused, mut whole) = (0, 0);
    for seed in 0..200 {
        files.fault_reads(Some(ReadFaults { seed, every: 4, flips: true }));
        let read = extent.read_whole();
        files.fault_reads(None);
        match read {
            Ok(bytes) => {
                assert!(bytes == written, "seed {seed}: other bytes than were checked");
                whole += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 20 && whole > 20, "{refused} refused, {whole} read");
}

/// A block that cannot be read, or is damaged, fails the look-up with where it lies. It leaves no
/// frame and no room taken, and is read as soon as it can be.
#[test]
fn a_block_that_is_not_loaded_takes_no_room() {
    let (files, store) = sim_store();
    let (list, cache) = (numbered(2000), cache());
    let extent = write_extent(&store, 3, &list);
    let (at, entry) = (extent.meta().location, &list[list.len() / 2]);
    let get = || {
        let guard = pin();
        let found = extent.get(&entry.key, entry.seq, Blocks::new(&cache, &guard));
        found.map(|found| found.unwrap().into_value().unwrap())
    };
    let path = store.path(at.file);
    for _ in 0..3 {
        let site = CallSite { call: Call::Read, file: FileKind::Extents };
        files.fail(Fault::once(Faulty::Site(site), 1));
        let error = get().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert_eq!((cache.used(), cache.check()), (0, None));
    }
    let (start, len) = (at.offset, u64::from(at.len));
    for offset in (start..start + len).step_by(4000) {
        files.corrupt(&path, offset, 1);
        if let Err(error) = get() {
            let damage = error.damage().unwrap();
            assert_eq!((damage.tier, &damage.file), ("ssd", &path));
            assert!(damage.offset <= offset && offset < damage.offset + 20_000, "{damage:?}");
            assert!(damage.what.contains("block of extent 3"), "{damage:?}");
            // What was loaded before goes once no reader of another test may have it.
            assert!(drive_until(|| cache.used() == 0), "{} bytes are used", cache.used());
            assert_eq!(cache.check(), None);
            files.corrupt(&path, offset, 1);
            assert_eq!(get().unwrap(), entry.value);
            assert!(cache.used() > 0);
            return;
        }
        cache.set_capacity(0);
        cache.set_capacity(64 << 20);
        files.corrupt(&path, offset, 1);
    }
    unreachable!("one of the places is in the block");
}

#[test]
fn another_extents_bytes_do_not_pass() {
    let (_, store) = sim_store();
    let a = write_extent(&store, 1, &numbered(60));
    let b = write_extent(&store, 2, &numbered(60));
    let swapped = ExtentMeta { location: b.meta().location, ..a.meta().clone() };
    let swapped = Extent::open(swapped, Arc::clone(&store));
    let (cache, guard) = (cache(), pin());
    let error = swapped.get(b"key000001", LSN_MAX, Blocks::new(&cache, &guard)).unwrap_err();
    assert!(error.damage().unwrap().what.contains("footer of extent 1"), "{error}");
}

#[test]
fn space_belongs_to_the_extent_or_to_the_journal() {
    let (_, store) = sim_store();
    let taken = || store.space().taken_bytes;
    drop(write_extent(&store, 1, &numbered(1)));
    assert_eq!(taken(), 0, "never installed");
    let extent = write_extent(&store, 2, &numbered(1));
    extent.installed(1);
    let meta = extent.meta().clone();
    drop(extent);
    assert!(taken() > 0, "the journal names it");
    let extent = Extent::open(meta, Arc::clone(&store));
    let reader = Arc::clone(&extent);
    extent.mark_obsolete();
    drop(extent);
    assert!(taken() > 0, "a reader has it");
    drop(reader);
    assert_eq!(taken(), 0);
}

/// Bug: a backup took an extent of an abandoned history for the one of the same id.
/// Cause: their descriptions and footers were the same, since keys and lengths were.
/// Fix: the footer has a checksum of all blocks and range tombstones.
#[test]
fn extents_of_one_id_are_the_same_only_with_the_same_records() {
    let (_, store) = sim_store();
    let entries = |byte: u8| -> Vec<Entry> {
        (0..500u32).map(|n| Entry::put(&n.to_be_bytes(), 7, &[byte ^ n as u8; 90])).collect()
    };
    for id in 1..4 {
        let metas = [0, 0, 1].map(|byte| write_extent(&store, id, &entries(byte)).meta().clone());
        assert!(metas[0].is_copy_of(&metas[1]) && !metas[0].is_copy_of(&metas[2]), "extent {id}");
        assert_ne!(metas[0].footer_checksum, metas[2].footer_checksum);
    }
}
