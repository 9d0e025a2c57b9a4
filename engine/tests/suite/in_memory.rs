//! Databases in memory: every call works there, nothing is on disk, and nothing is left.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::path::Path;
use std::time::{Duration, Instant};

use terrace::{
    Database, DumpOptions, ErrorKind, Existing, Mode, Options, TableOptions, Tier, TxnOptions,
};

fn in_memory(bytes: u64) -> Options {
    Options::new().pm_size(4 << 20).in_memory(bytes)
}

fn fill(db: &Database, table: &str, rows: u32) {
    let table = db.table(table).unwrap();
    let mut load = table.bulk_load(Existing::Replace).unwrap();
    for n in 0..rows {
        load.put(n.to_be_bytes(), n.to_le_bytes().repeat(100)).unwrap();
    }
    load.finish().unwrap();
}

/// The path would be the first thing to be made on a disk.
fn nothing_is_at(path: &Path) {
    assert!(!path.exists(), "{} is on disk", path.display());
}

#[test]
fn every_call_works_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let url = format!("file://{}", path("objects").display());
    let options = in_memory(256 << 20);
    let shared = options.clone().object_store(&url).share(true);
    let db = shared.clone().create(path("db")).unwrap();
    fill(&db, "rows", 10_000);
    let rows = db.table("rows").unwrap();
    for n in 0..5000_u32 {
        rows.durability(terrace::Durability::Relaxed).put(n.to_be_bytes(), "new").unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    db.run(|txn| {
        assert_eq!(txn.retain(&rows, .., |key, _| key[3] % 2 == 0)?, 5000);
        txn.pop_first(&rows)
    })
    .unwrap();
    let txn = db.begin_with(TxnOptions::new().spill_at(4096)).unwrap();
    (0..2000_u32).for_each(|n| txn.put(&rows, n.to_le_bytes(), [7; 100]).unwrap());
    txn.prepare("later").unwrap();
    assert!(db.compact_range(&rows, ..).unwrap().is_finished);
    assert_eq!(snapshot.iter(&rows).count(), 10_000);
    assert_eq!(rows.range(..).rev().count(), 4999);
    assert!(db.verify().unwrap().is_sound());
    db.create_table("cold", TableOptions::new().cold(Tier::Object)).unwrap();
    fill(&db, "cold", 1000);
    let cold = db.table("cold").unwrap();
    assert!(db.compact_range(&cold, ..).unwrap().is_finished);
    assert!(db.stats().share.unwrap().puts > 0);
    db.grow_pm(8 << 20).unwrap();

    // A dump goes to another database, which is apart at the same path.
    let (mut dump, all) = (Vec::new(), DumpOptions::new().without_prepared());
    db.dump(&all, &mut dump).unwrap();
    let other = in_memory(256 << 20).object_store(&url).create(path("db")).unwrap();
    other.load(&all, &dump[..]).unwrap();
    let loaded = other.table("rows").unwrap();
    assert!(loaded.iter().map(Result::unwrap).eq(rows.iter().map(Result::unwrap)));
    loaded.delete_range(..).unwrap();
    assert_eq!(rows.iter().count(), 4999);

    // Backups, in the same memory.
    let backup = db.backup(path("set")).unwrap();
    let set = options.clone().backup_set(path("set")).unwrap();
    assert!(set.verify().unwrap().is_sound());
    set.restore(backup.number, path("restored")).unwrap();
    let restored = options.clone().open_existing(path("restored")).unwrap();
    assert_eq!(restored.table("rows").unwrap().iter().count(), 4999);

    // It is locked while it is open, and found again.
    let busy = shared.clone().open(path("db")).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    drop((snapshot, cold, rows));
    db.close().unwrap();
    let follower = options.clone().follow(&url, "node").unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    let read = || Some(follower.database().ok()?.existing_table("rows").ok()?.iter().count());
    while read() != Some(4999) {
        assert!(Instant::now() < deadline, "{:?}", follower.status());
        std::thread::yield_now();
    }
    follower.close().unwrap();
    // Bug: a database of a node was opened to write, where its path was relative. Cause: the file
    // that marks a node was looked for at the path that a disk has for it. Fix: it is looked for
    // beside the database.
    let of_node = options.open_existing("node/00000001").unwrap_err();
    assert_eq!(of_node.kind(), ErrorKind::Invalid, "{of_node}");
    assert!(of_node.to_string().contains("is a place of the follower"), "{of_node}");
    nothing_is_at(Path::new("node"));
    let db = shared.clone().open_read_only(path("db")).unwrap();
    assert_eq!(db.list_prepared()[0].id, b"later");
    assert_eq!(db.table("rows").unwrap().iter().count(), 4999);
    drop(db);
    shared.clone().open_existing(path("db")).unwrap().commit_prepared("later").unwrap();
    assert!(shared.verify(path("db")).unwrap().is_sound());
    let salvaged = shared.salvage(path("db"), path("salvaged")).unwrap();
    assert!(salvaged.lost.is_empty(), "{salvaged:?}");
    for name in ["db", "set", "restored", "objects", "salvaged"] {
        nothing_is_at(&path(name));
    }
    let gone = in_memory(1 << 20).open_existing(path("db")).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::MissingDatabase, "other options have another memory");
}

/// Where nothing can be written: a path below a file.
#[test]
fn full_memory_is_told_and_space_comes_back() {
    let options = in_memory(12 << 20);
    let db = options.open("/proc/version/db").unwrap();
    let table = db.table("t").unwrap();
    let full = (0..10_000_u32).find_map(|n| {
        let mut load = table.bulk_load(Existing::Replace).ok()?;
        let values = (0..100_u32).map(|row| (n * 100 + row, row.wrapping_mul(2_654_435_761)));
        let put = |(key, row): (u32, u32)| {
            let value: Vec<u8> = (0..1000)
                .map(|at| (row.rotate_left(at % 31).wrapping_mul(at) >> 7) as u8)
                .collect();
            load.put(key.to_be_bytes(), value)
        };
        values.map(put).find_map(Result::err).or_else(|| load.finish().err())
    });
    let full = full.unwrap();
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    db.truncate_table(&table).unwrap();
    fill(&db, "t", 100);
    assert_eq!(table.iter().count(), 100);
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn options_of_other_places_are_refused() {
    for options in
        [in_memory(1 << 20).pm_path("/dev/shm/region"), in_memory(1 << 20).mode(Mode::Dax)]
    {
        let refused = options.open("db").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    let mut named = Options::new();
    named.set("in_memory", "64MiB").unwrap();
    named.open("/proc/version/db").unwrap().table("t").unwrap().put("a", "1").unwrap();
}
