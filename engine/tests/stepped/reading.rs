//! How extents are read: past the operating system's cache or not, in pieces of many blocks, and
//! without pushing out of the cache what is read much.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use crate::common::{Chance, alone, together};
use bytes::Bytes;
use terrace::{Compression, Database, Durability, ErrorKind, Mode, Options, Table};

/// Not a multiple of [`STEP`], so that steps lead to each of them.
const ROWS: u64 = 3000;
const STEP: u64 = 2741;
const MIB: u64 = 1 << 20;

fn options() -> Options {
    let none = Compression::None;
    // All of it goes on to level 2, where extents are large.
    Options::new().pm_size(2 << 20).level1_size(1).compression(none, none).stepped()
}

fn run_until_idle(db: &Database) {
    while db.step().unwrap() {}
}

fn key(n: u64) -> String {
    format!("{n:06}")
}

/// What no compression makes smaller.
fn value(n: u64) -> Vec<u8> {
    static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| Chance::new(1).bytes(1 << 20));
    let at = (n * 7919 % (NOISE.len() as u64 - 2000)) as usize;
    [&n.to_be_bytes(), &NOISE[at..at + 1992]].concat()
}

fn check(
    rows: impl Iterator<Item = terrace::Result<(Bytes, Bytes)>>,
    numbers: impl Iterator<Item = u64>,
) {
    let mut count = 0;
    for (row, n) in rows.zip(numbers) {
        let (k, v) = row.unwrap();
        assert!(k == key(n) && v == value(n), "row {n}");
        count += 1;
    }
    assert_eq!(count, ROWS);
}

fn fill(db: &Database, table: &Table, rows: u64, value: impl Fn(u64) -> Vec<u8>) {
    // In no order, so that merges make large extents.
    for n in 0..rows {
        let row = n * STEP % rows;
        table.durability(Durability::Relaxed).put(key(row), value(row)).unwrap();
        if n % 100 == 0 {
            run_until_idle(db);
        }
    }
}

/// Six megabytes of rows in table `t`, all of them in extents, and in no cache.
fn filled(path: &Path) {
    let db = options().create(path).unwrap();
    fill(&db, &db.table("t").unwrap(), ROWS, value);
    fill(&db, &db.table("u").unwrap(), 1400, |_| vec![7; 4000]);
    run_until_idle(&db);
    let stats = db.stats();
    let t = stats.tables.iter().find(|t| t.name == "t").unwrap();
    assert_eq!(t.memtable_records + t.level0_records, 0, "{stats:?}");
    db.close().unwrap();
}

/// What was read meanwhile: reads, and bytes.
fn cost(db: &Database, f: impl FnOnce()) -> (u64, u64) {
    let before = db.stats().disk;
    f();
    let after = db.stats().disk;
    (after.reads - before.reads, after.read_bytes - before.read_bytes)
}

/// Whether the file system of a directory can do without the operating system's cache.
fn can_direct(directory: &Path) -> bool {
    let path = directory.join("probe");
    fs::write(&path, [0; 4096]).unwrap();
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let opened = fs::OpenOptions::new().read(true).custom_flags(direct).open(&path);
    fs::remove_file(&path).unwrap();
    opened.is_ok()
}

thread_local! {
    /// How often a read of this thread has told that it goes to the device.
    static TOLD: Cell<u32> = const { Cell::new(0) };
}

/// How often `read` tells.
fn told(read: impl FnOnce()) -> u32 {
    TOLD.set(0);
    terrace::before_device_read(|| TOLD.set(TOLD.get() + 1), read);
    TOLD.get()
}

#[test]
fn a_look_up_tells_before_it_goes_to_the_device_and_only_then() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    filled(&path);
    let db = options().open(&path).unwrap();
    let table = db.existing_table("t").unwrap();
    let mut chance = Chance::new(3);
    for _ in 0..200 {
        let n = chance.below(ROWS);
        let mut times = 0;
        // Index, filter and block: it tells once.
        let (reads, _) = cost(&db, || {
            times = told(|| {
                let is_right = table.get_with(key(n), |found| found == value(n));
                assert_eq!(is_right.unwrap(), Some(true));
            });
        });
        assert_eq!(times, u32::from(reads > 0), "{reads} reads of row {n}");
        let again = || assert!(table.contains_key(key(n)).unwrap());
        assert_eq!(told(again), 0, "row {n} is cached");
        let snapshot = db.snapshot().unwrap();
        assert_eq!(told(|| drop(snapshot.get(&table, key(n)).unwrap().unwrap())), 0);
    }
    table.put("new", "value").unwrap();
    assert_eq!(told(|| drop(table.get("new").unwrap().unwrap())), 0, "it is in memory");
    drop(table);
    db.close().unwrap();
    let db = options().open(&path).unwrap();
    let table = db.existing_table("t").unwrap();
    let lent_after = |told: &mut u32| {
        let lent = table.get_with(key(7), |_| TOLD.get());
        *told = lent.unwrap().unwrap();
    };
    let mut before_lending = 0;
    assert_eq!(told(|| lent_after(&mut before_lending)), 1, "nothing is cached");
    assert_eq!(before_lending, 1);
}

#[test]
fn a_scan_of_so_many_mebibytes_makes_about_as_many_reads_either_way_round() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let can_direct = can_direct(dir.path());
    let path = dir.path().join("db");
    filled(&path);
    for direct in [true, false] {
        let db = options().direct_io(direct).open(&path).unwrap();
        assert_eq!(db.stats().disk.direct_io, direct && can_direct);
        let table = db.existing_table("t").unwrap();
        let forward = || check(table.iter(), 0..ROWS);
        let backward = || check(table.iter().rev(), (0..ROWS).rev());
        // Beside the rows, the end of each extent.
        let (reads, bytes) = cost(&db, forward);
        assert!(bytes >= ROWS * 1900, "nothing was cached: {bytes} bytes");
        assert!(reads <= 2 * bytes.div_ceil(MIB) + 8, "{reads} reads of {bytes} bytes");
        for walk in [&forward as &dyn Fn(), &backward] {
            let (reads, bytes) = cost(&db, walk);
            assert!(bytes > ROWS * 1900 - 2 * MIB, "the cache got the beginnings: {bytes} bytes");
            assert!(reads <= bytes.div_ceil(MIB) + 8, "{reads} reads of {bytes} bytes");
        }
        // One that is read in part holds what was read ahead, within bounds, and lets go of it.
        let mut many: Vec<_> = (0..20).map(|n| table.range(key(n * 100)..)).collect();
        for range in &mut many {
            assert_eq!(range.by_ref().take(1000).count(), 1000);
        }
        let memory = db.stats().memory;
        assert!(memory.read_ahead > 0, "{memory:?}");
        assert!(memory.read_ahead <= memory.cache_capacity / 16, "{memory:?}");
        drop(many);
        assert_eq!(db.stats().memory.read_ahead, 0);
        assert_eq!(db.verify().unwrap().damages, []);
    }
}

/// Bug: iterators that rested left nothing to others of what may be read ahead, which then read a
/// block at a time. Cause and fix: `readers_that_rest_leave_room_for_others`.
#[test]
fn ranges_that_rest_leave_room_for_others_to_read_ahead() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let db = options().cache_size(32 * MIB).open(dir.path()).unwrap();
    let table = db.existing_table("t").unwrap();
    // From behind, so that the cache has nothing of what the last one reads.
    let mut many: Vec<_> = (0..20).map(|n| table.range(key(1500 + n * 10)..)).collect();
    for range in &mut many {
        assert_eq!(range.by_ref().take(1000).count(), 1000);
    }
    let memory = db.stats().memory;
    assert!(memory.read_ahead <= memory.cache_capacity / 32 + MIB, "{memory:?}");
    let (reads, bytes) = cost(&db, || assert_eq!(table.iter().take(1000).count(), 1000));
    assert!(bytes > MIB && reads <= 40, "{reads} reads of {bytes} bytes");
    drop(many);
}

#[test]
fn a_short_range_is_cached_and_a_long_one_pushes_nothing_out() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let db = options().cache_size(2 * MIB).open(dir.path()).unwrap();
    let table = db.existing_table("t").unwrap();
    let hot = || {
        for n in (2000..2300).chain(2900..2950) {
            assert_eq!(table.get(key(n)).unwrap().unwrap(), value(n));
        }
    };
    (0..3).for_each(|_| hot());
    assert_eq!(cost(&db, hot), (0, 0), "all of it is cached");
    // More than once: what comes again soon after it was pushed out is taken for hot.
    for _ in 0..3 {
        let (_, bytes) = cost(&db, || assert_eq!(table.iter().count() as u64, ROWS));
        assert!(bytes > 2 * db.stats().cache.capacity, "more went by than the cache holds");
    }
    assert_eq!(cost(&db, hot), (0, 0), "and is cached still");

    // A few blocks, so that no shard of the cache has to choose between them.
    let short = || assert_eq!(table.range(key(100)..key(120)).count(), 20);
    (0..3).for_each(|_| short());
    assert_eq!(cost(&db, short), (0, 0));
}

#[test]
fn merges_read_large_pieces() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let zstd = Compression::Zstd;
    // Of another compression than there is: nothing is copied.
    let options = options().level1_size(MIB).compression(zstd, zstd);
    // Without a cache, from which drains would spare them reads.
    let db = options.cache_size(0).open(dir.path()).unwrap();
    let table = db.existing_table("t").unwrap();
    run_until_idle(&db);
    let (reads, bytes) = cost(&db, || {
        fill(&db, &table, ROWS, value);
        fill(&db, &db.table("u").unwrap(), 1400, |_| vec![8; 4000]);
        run_until_idle(&db);
    });
    let stats = db.stats();
    assert!(stats.background.compactions > 0, "{:?}", stats.background);
    assert!(bytes > 4 * MIB, "{bytes} bytes");
    // Pieces begin small, and a busy machine begins more of them: six blocks each at least.
    assert!(reads <= bytes / (96 << 10), "{reads} reads of {bytes} bytes");
    assert_eq!(table.iter().map(Result::unwrap).count() as u64, ROWS);
}

#[test]
fn compactions_leave_the_cache_alone() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    // Newer versions of all rows, in a level 1 that is large enough for them.
    let db = options().level1_size(64 * MIB).open(dir.path()).unwrap();
    fill(&db, &db.existing_table("t").unwrap(), ROWS, value);
    fill(&db, &db.table("u").unwrap(), 1400, |_| vec![8; 4000]);
    run_until_idle(&db);
    db.close().unwrap();
    let db = options().level1_size(MIB).open(dir.path()).unwrap();
    let (_, bytes) = cost(&db, || run_until_idle(&db));
    let stats = db.stats();
    assert!(stats.background.compactions > 0, "{:?}", stats.background);
    assert!(bytes > 4 * MIB, "{bytes} bytes");
    assert_eq!(stats.cache.used, 0);
    let table = db.existing_table("t").unwrap();
    assert_eq!(table.iter().map(Result::unwrap).count() as u64, ROWS);
}

#[test]
fn what_drains_write_is_cached_while_there_is_room() {
    let _together = together();
    // Of a level 1 that stays as it is, and of one that all goes on from.
    for (level1, cache) in [(64 * MIB, 16 * MIB), (1, 16 * MIB), (64 * MIB, 2 * MIB)] {
        let dir = tempfile::tempdir().unwrap();
        let options = options().level1_size(level1).cache_size(cache);
        let db = options.create(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        fill(&db, &table, ROWS, value);
        fill(&db, &db.table("u").unwrap(), 700, |_| vec![7; 4000]);
        run_until_idle(&db);
        let has_all = cache > 2 * MIB;
        let used = db.stats().cache.used;
        assert!(used <= cache && (used > cache / 2), "{used} of {cache} bytes");
        let all =
            || (0..ROWS).for_each(|n| assert_eq!(table.get(key(n)).unwrap().unwrap(), value(n)));
        let (reads, _) = cost(&db, all);
        assert_eq!(reads == 0, has_all, "{reads} reads");
        db.close().unwrap();
    }
}

#[test]
fn under_a_limit_drains_fill_no_cache_that_is_too_small() {
    let _together = together();
    for (limit, has_all) in [(64 * MIB, true), (12 * MIB, false)] {
        let dir = tempfile::tempdir().unwrap();
        let db = options().memory(limit).create(dir.path()).unwrap();
        fill(&db, &db.table("t").unwrap(), 3 * ROWS, value);
        run_until_idle(&db);
        let before = db.stats().cache.used;
        fill(&db, &db.table("t").unwrap(), ROWS, value);
        run_until_idle(&db);
        let stats = db.stats();
        assert!(stats.memory.cache_capacity > MIB, "{:?}", stats.memory);
        assert_eq!(stats.cache.used > 12 * MIB, has_all, "{}", stats.cache.used);
        assert!(has_all || stats.cache.used <= before, "{before}, {}", stats.cache.used);
    }
}

#[test]
fn what_is_read_stays_cached_while_drains_write() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let db = options().level1_size(64 * MIB).cache_size(2 * MIB).create(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let others = |byte| fill(&db, &db.table("u").unwrap(), 1400, |_| vec![byte; 4000]);
    fill(&db, &table, ROWS, value);
    others(7);
    let hot = || (0..100).for_each(|n| assert_eq!(table.get(key(n)).unwrap().unwrap(), value(n)));
    (0..3).for_each(|_| hot());
    assert_eq!(cost(&db, hot), (0, 0));
    others(8);
    run_until_idle(&db);
    assert_eq!(cost(&db, hot), (0, 0));
}

#[test]
fn a_flipped_byte_in_a_piece_is_the_fault_of_its_block_alone() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let file = dir.path().join("extents-00000001");
    let bytes = fs::read(&file).unwrap();
    // In the middle of the value of row 2000, wherever it is and was: space that is free again
    // keeps what it held.
    let copies = bytes.windows(64).enumerate().filter(|(_, w)| *w == &value(2000)[..64]);
    let copies: Vec<u64> = copies.map(|(at, _)| at as u64 + 1000).collect();
    let open = fs::OpenOptions::new().write(true).open(&file).unwrap();
    for at in &copies {
        open.write_all_at(&[bytes[*at as usize] ^ 4], *at).unwrap();
    }

    let db = options().open(dir.path()).unwrap();
    let table = db.existing_table("t").unwrap();
    let mut rows = 0;
    let error = loop {
        match table.range(key(rows)..).next().unwrap() {
            Ok((k, v)) => assert_eq!((&k[..], &v[..]), (key(rows).as_bytes(), &value(rows)[..])),
            Err(e) => break e,
        }
        rows += 1;
    };
    assert!((1960..=2000).contains(&rows), "{rows} rows");
    let mut walk = table.iter();
    let read = walk.by_ref().take_while(Result::is_ok).count() as u64;
    assert!(read <= rows && read + 600 > rows, "{read} rows before the chunk with the block");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let damage = error.damage().unwrap();
    let is_there = |at: &u64| (damage.offset..damage.offset + 20_000).contains(at);
    assert!(damage.file == file && copies.iter().any(is_there), "{damage:?}");
    assert_eq!(table.get(key(2020)).unwrap().unwrap(), value(2020));
    assert_eq!(db.verify().unwrap().damages.len(), 1);
}

#[test]
fn a_database_in_memory_simply_works() {
    let _together = together();
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let can_direct = can_direct(dir.path());
    let path = dir.path().join("db");
    let db = options().open(&path).unwrap();
    let table = db.table("t").unwrap();
    fill(&db, &table, 2500, value);
    assert!(db.stats().background.drains > 0);
    assert_eq!(db.stats().disk.direct_io, can_direct);
    drop(table);
    db.close().unwrap();
    let db = options().open(&path).unwrap();
    let table = db.existing_table("t").unwrap();
    assert!((0..2500).all(|n| table.get(key(n)).unwrap().unwrap() == value(n)));
    assert_eq!(db.verify().unwrap().damages, []);
}

/// What no zone has of the region holds blocks, until zones need it; and it costs no line.
#[test]
fn free_units_of_an_emulated_region_are_a_cache_that_gives_way_to_records() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mode = Mode::Emulated { delay: Duration::from_nanos(100) };
    let options = || {
        let options = Options::new().mode(mode).pm_path(dir.path().join("region")).pm_size(4 * MIB);
        options.cache_size(64 << 10).stepped()
    };
    let db = options().create(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let write = |rows: std::ops::Range<u32>| {
        for n in rows {
            while db.stats().pm.zones_used * 2 >= db.stats().pm.zones && db.step().unwrap() {}
            table
                .durability(Durability::Relaxed)
                .put(n.to_be_bytes(), vec![n as u8; 1000])
                .unwrap();
        }
    };
    write(0..6000);
    assert!(db.stats().background.drains > 0, "{:?}", db.stats());
    let read = || {
        let right = |n: &u32| table.get(n.to_be_bytes()).unwrap().unwrap() == vec![*n as u8; 1000];
        assert!((0..1500).all(|n| right(&n)));
    };
    let cost = || {
        let spent = db.stats().persistence;
        spent.iter().map(|spent| spent.flushes + spent.fences).sum::<u64>()
    };
    read();
    let (before, read_bytes) = (cost(), db.stats().disk.read_bytes);
    read();
    let stats = db.stats();
    assert!(stats.cache.below_hits > 50 && stats.cache.below_used > 0, "{stats:?}");
    assert!(stats.pm.zones_used <= stats.pm.zones, "{stats:?}");
    assert_eq!(cost(), before, "no flush and no fence");
    assert!(stats.disk.read_bytes - read_bytes < 512 << 10, "{stats:?}");
    // Records take the units back.
    write(6000..12_000);
    read();
    assert!(db.verify().unwrap().damages.is_empty());
    drop(table);
    db.close().unwrap();
    let db = options().open(dir.path().join("db")).unwrap();
    let cache = db.stats().cache;
    assert_eq!((cache.below_used, cache.below_hits), (0, 0), "it is gone after a restart");
    assert_eq!(db.existing_table("t").unwrap().iter().count(), 12_000);
}
