//! The interface as a user meets it: what is put is got, now and after reopening.

use terrace::{Database, Durability, ErrorKind, Options, WriteBatch};

fn small() -> Options {
    Options::new().pm_size(4 << 20).cache_size(4 << 20)
}

#[test]
fn what_is_put_is_found_again_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path().join("db")).unwrap();
    let users = db.table("users").unwrap();
    for n in 0..1000u32 {
        users.durability(Durability::Relaxed).put(n.to_be_bytes(), format!("user {n}")).unwrap();
    }
    users.delete(7u32.to_be_bytes()).unwrap();
    let check = |users: &terrace::Table| {
        assert_eq!(users.get(8u32.to_be_bytes()).unwrap().as_deref(), Some(&b"user 8"[..]));
        assert_eq!(users.get(7u32.to_be_bytes()).unwrap(), None);
        assert_eq!(users.iter().count(), 999);
        assert_eq!(users.iter().rev().count(), 999);
        let rows: Vec<_> = users.range(10u32.to_be_bytes()..13u32.to_be_bytes()).collect();
        assert_eq!(rows.len(), 3);
    };
    check(&users);
    drop(users);
    db.close().unwrap();
    let db = small().open(dir.path().join("db")).unwrap();
    assert_eq!(db.stats().open.records_rebuilt, 1000, "the newest version of each");
    check(&db.existing_table("users").unwrap());
}

#[test]
fn more_than_the_region_holds_goes_to_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = small().open(&path).unwrap();
    let table = db.table("t").unwrap();
    let value = vec![7u8; 1000];
    let n = 20_000u32;
    for i in 0..n {
        let key = (i.wrapping_mul(2_654_435_761)).to_be_bytes();
        table.durability(Durability::Relaxed).put(key, &value).unwrap();
    }
    let stats = db.stats();
    assert!(stats.background.drains > 0, "{stats:?}");
    assert_eq!(table.iter().count(), n as usize);
    assert_eq!(table.iter().rev().count(), n as usize);
    for i in 0..n {
        let key = (i.wrapping_mul(2_654_435_761)).to_be_bytes();
        assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]), "key {i}");
    }
    drop(table);
    db.close().unwrap();
    let db = small().open(&path).unwrap();
    let table = db.existing_table("t").unwrap();
    assert_eq!(table.iter().filter(|row| row.is_ok()).count(), n as usize);
    let report = db.verify().unwrap();
    assert!(report.damages.is_empty() && report.checked > 100, "{report:?}");
}

#[test]
fn tables_are_created_dropped_renamed_and_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = small().open(&path).unwrap();
    let (a, b) = (db.table("a").unwrap(), db.table("b").unwrap());
    let mut batch = WriteBatch::new();
    batch.put(&a, "k", "in a").put(&b, "k", "in b");
    db.write(batch).unwrap();
    db.truncate_table("a").unwrap();
    assert_eq!(a.get("k").unwrap(), None);
    a.put("k", "again").unwrap();
    db.rename_table("b", "c").unwrap();
    assert_eq!(b.name(), "c");
    assert_eq!(db.rename_table("c", "a").unwrap_err().kind(), ErrorKind::Exists);
    let d = db.table("d").unwrap();
    db.drop_table("d").unwrap();
    assert_eq!(d.put("k", "v").unwrap_err().kind(), ErrorKind::MissingTable);
    assert_eq!(d.get("k").unwrap_err().kind(), ErrorKind::MissingTable);
    drop((a, b, d));
    db.close().unwrap();
    let db = Database::open(&path).unwrap();
    assert_eq!(db.table_names(), ["a", "c"]);
    assert_eq!(db.table("a").unwrap().get("k").unwrap().as_deref(), Some(&b"again"[..]));
    assert_eq!(db.table("c").unwrap().get("k").unwrap().as_deref(), Some(&b"in b"[..]));
}

/// What the README says of handles, checked by the compiler.
#[test]
fn handles_and_iterators_go_anywhere() {
    fn goes_anywhere<T: Send + Sync + 'static>() {}
    goes_anywhere::<Database>();
    goes_anywhere::<terrace::Table>();
    goes_anywhere::<terrace::Snapshot>();
    goes_anywhere::<terrace::Range>();
    goes_anywhere::<WriteBatch>();
}

/// Bug: handles could not be used in `catch_unwind`, as servers do around requests.
#[test]
fn handles_may_be_used_again_after_a_panic() {
    fn check<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe + Send + Sync + 'static>() {}
    check::<terrace::Database>();
    check::<terrace::Table>();
    check::<terrace::Snapshot>();
    check::<terrace::Transaction>();
    check::<terrace::WriteBatch>();
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let txn = db.begin().unwrap();
    let panicked = std::panic::catch_unwind(|| {
        txn.put(&table, "k", "in the transaction").unwrap();
        let mut range = table.range(..);
        assert!(range.next().is_some(), "the caller's own panic");
    });
    assert!(panicked.is_err());
    txn.put(&table, "l", "too").unwrap();
    txn.commit().unwrap();
    assert_eq!(table.range(..).count(), 2);
}

/// Bug: a new database was refused at the top of a volume that was just made. Cause: `lost+found`
/// counted as a file of something else. Fix: names that file systems make do not count.
#[test]
fn the_top_of_a_new_volume_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("lost+found")).unwrap();
    let db = small().open(dir.path()).unwrap();
    db.table("t").unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    let db = small().open(dir.path()).unwrap();
    assert!(db.existing_table("t").unwrap().get("k").unwrap().is_some());
    assert!(dir.path().join("lost+found").is_dir());
    let other = tempfile::tempdir().unwrap();
    std::fs::create_dir(other.path().join("lost")).unwrap();
    assert_eq!(small().open(other.path()).unwrap_err().kind(), ErrorKind::Exists);
}

/// Bug: a copy of a directory without its `LOCK` could not be salvaged, nor opened to read, until
/// an empty one was made by hand. Cause: only an opening for writing made a lock file.
#[test]
fn a_copy_without_a_lock_file_is_read_and_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = small().open(&path).unwrap();
    db.table("t").unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    std::fs::remove_file(path.join("LOCK")).unwrap();
    let report = terrace::Options::new().salvage(&path, dir.path().join("new")).unwrap();
    assert_eq!((report.tables, report.records), (1, 1));
    std::fs::remove_file(path.join("LOCK")).unwrap();
    let read = small().open_read_only(&path).unwrap();
    assert!(read.existing_table("t").unwrap().get("k").unwrap().is_some());
    // A writer may begin beside it, as with a lock file that was there, and keeps another one out.
    let _writer = small().open(&path).unwrap();
    assert_eq!(small().open(&path).unwrap_err().kind(), ErrorKind::Busy);
    assert!(read.existing_table("t").unwrap().get("k").unwrap().is_some());
}
