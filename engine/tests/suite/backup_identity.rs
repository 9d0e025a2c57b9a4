//! Backups of databases that give numbers again: what a set has of an extent counts only if it has
//! the same content.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::Chance;
use terrace::{
    Database, ErrorKind, Existing, ObjectServer, Options, Table, TableOptions, WriteBatch,
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const LARGE: u32 = 1024;

fn options() -> Options {
    Options::new().pm_size(8 << 20)
}

/// A database, and its table with values beyond so many bytes apart; either is made if it is not
/// there.
fn open(path: &Path, large_values: Option<u32>) -> (Database, Table) {
    let db = options().open(path).unwrap();
    let shape = TableOptions::new();
    let shape = large_values.map_or(shape, |from| shape.large_values(from));
    let table = db.table_with("t", shape).unwrap();
    (db, table)
}

/// Puts rows of the same keys and lengths, whatever the seed.
fn fill(table: &Table, seed: u64) -> Rows {
    let mut chance = Chance::new(seed);
    let mut rows = Rows::new();
    for n in 0..50u64 {
        let len = if n % 5 == 0 { 100 } else { 4096 };
        let (key, value) = (n.to_be_bytes().to_vec(), chance.bytes(len));
        table.put(&key, &value).unwrap();
        rows.insert(key, value);
    }
    rows
}

fn rows_of(db: &Database) -> Rows {
    let table = db.existing_table("t").unwrap();
    let rows = table.iter().map(|row| row.unwrap());
    rows.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn restored(set: &Path, number: u64, to: &Path) -> (Rows, Option<Vec<u8>>) {
    let backups = options().backup_set(set).unwrap();
    assert_eq!(backups.verify().unwrap().damages, []);
    backups.restore(number, to).unwrap();
    let db = options().open(to).unwrap();
    assert_eq!(db.verify().unwrap().damages, []);
    let found = (rows_of(&db), db.last_blob().map(|blob| blob.to_vec()));
    db.close().unwrap();
    found
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A set of each kind: a directory, a directory as a store, a bucket.
fn sets(dir: &Path, bucket: &ObjectServer) -> [PathBuf; 3] {
    let url = format!("file://{}", dir.join("objects").display());
    [dir.join("set"), url.into(), bucket.url().into()]
}

/// Bug: the second backup of a database had the values of the first one, and its restore failed.
/// Cause: what is above the levels was written into the set under ids that the next opening gave
/// again. An extent counted as there by its id, its counts, and a footer that said no more.
/// Fix: the footer has a checksum of the content, which the comparison goes by.
#[test]
fn what_a_backup_wrote_is_not_taken_for_an_extent_of_the_next_opening() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    for (n, set) in sets(dir.path(), &bucket).iter().enumerate() {
        let path = dir.path().join(format!("db{n}"));
        let mut expected = Vec::new();
        for opening in 0..3 {
            let (db, table) = open(&path, Some(LARGE));
            let rows = fill(&table, 10 * opening + n as u64);
            if opening > 0 {
                db.compact_range(&table, ..).unwrap();
            }
            expected.push((db.backup(set).unwrap().number, rows));
            db.close().unwrap();
        }
        for (number, rows) in expected {
            let to = dir.path().join(format!("new{n}-{number}"));
            assert!(restored(set, number, &to).0 == rows, "backup {number} in {set:?}");
        }
    }
}

/// Bug: a backup of a directory that was put back to an earlier copy had the records of the history
/// that was abandoned, and nothing said so.
/// Cause: both histories gave their extents the same ids. Where the lengths were the same too, the
/// footers were, since they had no checksum of the content.
/// Fix: the footer has one, and the set's own copy counts only if it is the same.
#[test]
fn a_directory_that_was_put_back_is_backed_up_as_it_is() {
    for large_values in [None, Some(LARGE)] {
        let (dir, bucket) = (tempfile::tempdir().unwrap(), ObjectServer::new());
        for (n, set) in sets(dir.path(), &bucket).iter().enumerate() {
            let (path, earlier) = (dir.path().join("db"), dir.path().join("earlier"));
            open(&path, large_values).0.close().unwrap();
            copy_directory(&path, &earlier);
            let mut expected = Vec::new();
            for history in 0..2 {
                let (db, table) = open(&path, large_values);
                let rows = fill(&table, 100 * history + n as u64);
                db.compact_range(&table, ..).unwrap();
                let info = db.backup(set).unwrap();
                assert!(info.added_bytes > 40 * 4000, "{info:?} in {set:?}");
                expected.push((info.number, rows));
                // Nothing has changed, so nothing is copied.
                let again = db.backup(set).unwrap();
                assert_eq!(again.added_bytes, 0, "{again:?} in {set:?}");
                db.close().unwrap();
                fs::remove_dir_all(&path).unwrap();
                copy_directory(&earlier, &path);
            }
            for (number, rows) in expected {
                let to = dir.path().join(format!("new{n}-{number}"));
                assert!(restored(set, number, &to).0 == rows, "backup {number} in {set:?}");
                fs::remove_dir_all(&to).unwrap();
            }
            fs::remove_dir_all(&path).unwrap();
            fs::remove_dir_all(&earlier).unwrap();
        }
    }
}

/// Bug: a backup beside bulk loads of large values failed as if the database were damaged.
/// Cause: records were read from the runs of the view, among them those whose edit is still to be
/// made; their values were looked for in the runs of the version, which lacks these.
/// Fix: both are of the view.
#[test]
fn a_backup_beside_bulk_loads_of_large_values_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("set");
    let (db, table) = open(&dir.path().join("db"), Some(LARGE));
    let is_done = AtomicBool::new(false);
    let mut numbers = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..150u64 {
                let mut load = table.bulk_load(Existing::Replace).unwrap();
                for k in 0..5 {
                    load.put((n * 100 + k).to_be_bytes(), vec![n as u8; 5000]).unwrap();
                }
                load.finish().unwrap();
            }
            is_done.store(true, Ordering::Release);
        });
        // One at least, however late this thread is.
        loop {
            numbers.push(db.backup(&set).unwrap().number);
            if is_done.load(Ordering::Acquire) {
                break;
            }
        }
    });
    let last = db.backup(&set).unwrap().number;
    let all = rows_of(&db);
    assert_eq!(all.len(), 750);
    assert!(restored(&set, last, &dir.path().join("last")).0 == all);
    for number in [numbers[0], numbers[numbers.len() / 2]] {
        let (rows, _) = restored(&set, number, &dir.path().join(format!("new{number}")));
        assert_eq!(rows.len() % 5, 0, "a load is there as a whole");
        assert!(rows.iter().all(|row| all.get_key_value(row.0) == Some(row)));
    }
}

/// Bug: a database that is open read-only could not be backed up to a bucket.
/// Cause: what is above the levels was written into the files of the database first.
/// Fix: it is sent to the set at once.
#[test]
fn a_database_that_is_only_read_is_backed_up_wherever_the_set_is() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let path = dir.path().join("db");
    let (db, table) = open(&path, Some(LARGE));
    fill(&table, 1);
    db.compact_range(&table, ..).unwrap();
    let mut expected = fill(&table, 2);
    let mut load = table.bulk_load(Existing::Replace).unwrap();
    for n in 40..60u64 {
        load.put(n.to_be_bytes(), vec![n as u8; 3000]).unwrap();
        expected.insert(n.to_be_bytes().to_vec(), vec![n as u8; 3000]);
    }
    load.finish().unwrap();
    let mut batch = WriteBatch::new();
    batch.delete(&table, 7u64.to_be_bytes()).set_blob("position 9");
    db.write(batch).unwrap();
    expected.remove(&7u64.to_be_bytes()[..]);
    db.close().unwrap();
    let files = || -> Vec<(PathBuf, u64)> {
        let entries = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap());
        let mut all: Vec<_> =
            entries.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect();
        all.sort();
        all
    };
    let before = files();
    for (n, set) in sets(dir.path(), &bucket).iter().enumerate() {
        let mut numbers = Vec::new();
        for _ in 0..2 {
            let reader = options().open_read_only(&path).unwrap();
            numbers.push(reader.backup(set).unwrap().number);
            reader.close().unwrap();
        }
        for number in numbers {
            let to = dir.path().join(format!("new{n}-{number}"));
            let (rows, blob) = restored(set, number, &to);
            assert!(rows == expected, "backup {number} in {set:?}");
            assert_eq!(blob.as_deref(), Some(&b"position 9"[..]));
        }
    }
    assert_eq!(files(), before, "no file of the database has changed");
}

/// Bug: a file that is not of Terrace made all backups of a set unusable.
/// Cause: each call refused a directory with a name in it that a set does not give.
/// Fix: other names are left alone. A directory of a database is refused, by its files.
#[test]
fn what_others_put_beside_a_set_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("set");
    fs::create_dir_all(set.join("lost+found")).unwrap();
    assert_eq!(options().backup_set(&set).unwrap_err().kind(), ErrorKind::Invalid);
    let (db, table) = open(&dir.path().join("db"), None);
    let rows = fill(&table, 1);
    let first = db.backup(&set).unwrap();
    fs::write(set.join(".DS_Store"), "index").unwrap();
    fs::write(set.join("README"), "note").unwrap();
    fs::write(set.join("letter.new"), "dear").unwrap();
    table.put("more", "rows").unwrap();
    let second = db.backup(&set).unwrap();
    let backups = options().backup_set(&set).unwrap();
    assert_eq!(backups.list().unwrap(), [first.clone(), second.clone()]);
    // A database may even be made there.
    assert!(restored(&set, first.number, &set.join("new")).0 == rows);
    backups.delete(first.number).unwrap();
    assert_eq!(backups.list().unwrap(), [second]);
    for (name, content) in [(".DS_Store", "index"), ("README", "note"), ("letter.new", "dear")] {
        assert_eq!(fs::read_to_string(set.join(name)).unwrap(), content);
    }
    assert!(set.join("lost+found").is_dir());
}

/// Backups that were broken off at any request leave a set whose backups are whole, and the next
/// one takes over what is the same and nothing else.
#[test]
fn a_backup_after_one_that_was_broken_off_has_its_own_content() {
    use terrace::StoreFault;
    let dir = tempfile::tempdir().unwrap();
    for at in 1..10 {
        let bucket = ObjectServer::new();
        let path = dir.path().join(format!("db{at}"));
        let (db, table) = open(&path, Some(LARGE));
        fill(&table, at);
        bucket.plan(bucket.requests() + at, StoreFault::Refuse);
        drop(db.backup(bucket.url()));
        bucket.forget_plans();
        drop(table);
        db.close().unwrap();
        let (db, table) = open(&path, Some(LARGE));
        let rows = fill(&table, 1000 + at);
        db.compact_range(&table, ..).unwrap();
        let info = db.backup(bucket.url()).unwrap();
        let to = dir.path().join(format!("new{at}"));
        assert!(restored(bucket.url().as_ref(), info.number, &to).0 == rows, "request {at}");
    }
}

/// Bug: a backup and a deletion said that they had failed after they had done all that was asked.
/// Cause: they deleted then what no backup needs any more, and a failure of that was theirs.
/// Fix: it is not; a later call deletes the rest.
#[test]
fn no_cleaning_up_fails_a_call_whose_work_is_done() {
    use terrace::StoreFault;
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir.path().join("db"), None);
    // One backup, and what a second one left that was broken off.
    let set = |seed| {
        let bucket = ObjectServer::new();
        fill(&table, seed);
        db.backup(bucket.url()).unwrap();
        bucket.plan(bucket.requests() + 6, StoreFault::Refuse);
        db.backup(bucket.url()).unwrap_err();
        bucket.forget_plans();
        bucket
    };
    let numbers = |bucket: &ObjectServer| -> Vec<u64> {
        let list = options().backup_set(bucket.url()).unwrap().list().unwrap();
        list.iter().map(|info| info.number).collect()
    };
    let back_up = |bucket: &ObjectServer| db.backup(bucket.url()).map(drop);
    let delete = |bucket: &ObjectServer| options().backup_set(bucket.url())?.delete(1);
    type Call<'a> = &'a dyn Fn(&ObjectServer) -> terrace::Result<()>;
    let calls: [Call<'_>; 2] = [&back_up, &delete];
    for (n, call) in calls.iter().enumerate() {
        let bucket = set(1);
        let before = bucket.requests();
        call(&bucket).unwrap();
        let (requests, mut passed_over) = (bucket.requests() - before, 0);
        for at in 1..=requests {
            let bucket = set(1 + at);
            bucket.plan(bucket.requests() + at, StoreFault::Refuse);
            let done = call(&bucket);
            bucket.forget_plans();
            let is_changed = numbers(&bucket) != [1];
            assert_eq!(done.is_ok(), is_changed, "call {n}, request {at}: {done:?}");
            passed_over += u64::from(done.is_ok());
        }
        assert!(passed_over > 0, "some requests of call {n} clean up");
    }
}

/// The value of a row as of commit `n`, which lies apart.
fn value_of(key: u64, n: u64) -> Vec<u8> {
    let fill = Chance::new(key * 1_000_003 + n).bytes(1500 + key as usize % 900);
    [&n.to_le_bytes()[..], &fill].concat()
}

/// Writers, the collection of values, and tables that are truncated, dropped and made again: each
/// backup is one moment, with its blob and its options, over several openings.
#[test]
fn beside_all_kinds_of_work_a_backup_is_of_one_moment() {
    let (dir, bucket) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let sets = sets(dir.path(), &bucket);
    let options = || Options::new().pm_size(4 << 20).level1_size(256 << 10);
    let path = dir.path().join("db");
    let mut taken = Vec::new();
    let mut next = 0u64;
    for _ in 0..3 {
        let db = options().open(&path).unwrap();
        let shape = TableOptions::new().large_values(LARGE);
        let table = db.table_with("t", shape).unwrap();
        let (is_done, before) = (AtomicBool::new(false), next);
        next = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut n = before;
                while !is_done.load(Ordering::Acquire) || n < before + 300 {
                    n += 1;
                    let mut batch = WriteBatch::new();
                    for key in [n % 40, (n * 7) % 40] {
                        batch.put(&table, key.to_be_bytes(), value_of(key, n));
                    }
                    batch.put(&table, "last", n.to_le_bytes()).set_blob(n.to_le_bytes());
                    db.write(batch).unwrap();
                }
                n
            });
            scope.spawn(|| {
                for n in 0u64.. {
                    if is_done.load(Ordering::Acquire) {
                        break;
                    }
                    let other = db.create_table("other", shape).unwrap();
                    other.put("k", vec![n as u8; 3000]).unwrap();
                    if n % 2 == 0 {
                        db.truncate_table("other").unwrap();
                        other.put("k", vec![n as u8; 3000]).unwrap();
                    }
                    db.drop_table("other").unwrap();
                }
            });
            scope.spawn(|| {
                while !is_done.load(Ordering::Acquire) {
                    db.compact_range(&table, ..).unwrap();
                }
            });
            for set in sets.iter().chain(&sets) {
                taken.push((set, db.backup(set).unwrap().number));
            }
            is_done.store(true, Ordering::Release);
            writer.join().unwrap()
        });
        drop(table);
        db.close().unwrap();
    }
    for (n, (set, number)) in taken.into_iter().enumerate() {
        let to = dir.path().join(format!("new{n}"));
        let (rows, blob) = restored(set, number, &to);
        assert_eq!(rows.get(&b"last"[..]), blob.as_ref(), "backup {number} of {set:?}");
        let last =
            rows.get(&b"last"[..]).map_or(0, |n| u64::from_le_bytes(n[..].try_into().unwrap()));
        for (key, value) in rows.iter().filter(|(key, _)| key.len() == 8) {
            let key = u64::from_be_bytes(key[..].try_into().unwrap());
            let n = u64::from_le_bytes(value[..8].try_into().unwrap());
            let newest = (0..=last).rev().find(|n| n % 40 == key || (n * 7) % 40 == key);
            assert_eq!(Some(n), newest, "row {key} as of {last}, backup {number} of {set:?}");
            assert!(*value == value_of(key, n), "row {key} of commit {n}");
        }
        let db = options().open_read_only(&to).unwrap();
        let shape = db.existing_table("t").unwrap().options();
        assert_eq!(shape, TableOptions::new().large_values(LARGE));
        fs::remove_dir_all(&to).unwrap();
    }
}
