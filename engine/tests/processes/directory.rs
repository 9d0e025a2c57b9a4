//! A database stays in the directory that it was opened in, whatever becomes of its path: the
//! process changes its working directory, a link leads elsewhere, the directory is moved, or it is
//! removed and another one has its name.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{tiny, wait_until};
use terrace::{Database, ErrorKind, Options};

const BASE: &str = "TERRACE_DIRECTORY_BASE";
const CASE: &str = "TERRACE_DIRECTORY_CASE";

/// What becomes of the path of an open database.
const CASES: [&str; 7] =
    ["chdir", "chdir to another", "link", "moved", "moved and another", "node", "region"];

/// The user that owns nothing, and its group.
const UNPRIVILEGED: u32 = 65534;

/// Rows that each round writes.
const ROWS: u64 = 40;

/// The bytes of all files under a path, by name.
fn content(under: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(under).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

fn options() -> Options {
    tiny()
}

/// Makes new extent files, tables and epochs of the journal.
fn work(db: &Database, round: u64) -> terrace::Result<()> {
    let table = db.table(&format!("t{round}"))?;
    for n in 0..ROWS {
        table.put(n.to_be_bytes(), vec![round as u8; 2000])?;
    }
    db.compact_range(&table, ..).map(drop)
}

fn check(db: &Database, rounds: u64) {
    for round in 0..rounds {
        let table = db.existing_table(&format!("t{round}")).unwrap();
        assert_eq!(table.range(..).count(), ROWS as usize, "round {round}");
    }
    assert_eq!(db.verify().unwrap().damages, []);
}

/// A database of its own, closed.
fn other(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let db = options().open(path).unwrap();
    work(&db, 9).unwrap();
    db.close().unwrap();
    content(path)
}

/// Not a test of its own: a process that changes its working directory. Without its variables it
/// does nothing.
#[test]
fn process_of_a_case() {
    let Some(base) = std::env::var_os(BASE).map(PathBuf::from) else { return };
    let case = std::env::var(CASE).unwrap();
    if case == "descriptors" {
        return run_out_of_descriptors(&base);
    }
    if case == "unreadable parent" {
        return open_below_an_unreadable_parent(&base);
    }
    let [one, two, empty] = ["one", "two", "empty"].map(|name| base.join(name));
    for directory in [&one, &two, &empty] {
        fs::create_dir(directory).unwrap();
    }
    std::env::set_current_dir(&one).unwrap();
    if case == "region" {
        return verify_elsewhere(&empty);
    }
    if case == "node" {
        return promote_elsewhere(&base, &empty);
    }
    let opened = if case == "link" { "link" } else { "db" };
    symlink("db", "link").unwrap();
    fs::create_dir("db").unwrap();
    let history = std::time::Duration::from_millis(100);
    let db = options().history(history).open(opened).unwrap();
    // In some cases there are no extent files yet when the path changes.
    let mut lies = one.join("db");
    let mut others = BTreeMap::new();
    match case.as_str() {
        "chdir" => std::env::set_current_dir(&empty).unwrap(),
        "chdir to another" => {
            others = other(&two.join("db"));
            std::env::set_current_dir(&two).unwrap();
        }
        "link" => {
            work(&db, 0).unwrap();
            others = other(&two.join("db"));
            fs::remove_file("link").unwrap();
            symlink(two.join("db"), "link").unwrap();
        }
        _ => {
            work(&db, 0).unwrap();
            lies = two.join("elsewhere");
            fs::rename("db", &lies).unwrap();
            if case == "moved and another" {
                others = other(&one.join("db"));
            }
        }
    }
    let was = others.keys().next().and_then(|path| path.parent()).map(Path::to_path_buf);
    for round in 0..4 {
        work(&db, round).unwrap();
    }
    check(&db, 4);
    // Bug: a page drew the history of the database that had the path now. Cause: it was read by the
    // path. Fix: by the directory that is open.
    let reader = db.stats_reader();
    let began = std::time::Instant::now();
    while reader.history(std::time::SystemTime::UNIX_EPOCH).is_empty() {
        assert!(began.elapsed() < std::time::Duration::from_mins(1), "{case}: no history");
        std::thread::yield_now();
    }
    db.close().unwrap();
    assert!(fs::read_dir(&empty).unwrap().next().is_none(), "nothing was made elsewhere");
    if let Some(was) = was {
        assert_eq!(content(&was).len(), others.len(), "the other database has no more files");
        assert!(content(&was) == others, "and the same bytes");
        options().open(&was).unwrap().close().unwrap();
    }
    let db = options().open(&lies).unwrap();
    check(&db, 4);
    work(&db, 5).unwrap();
}

/// A region with a relative path is found where it was, for as long as the database is open.
fn verify_elsewhere(elsewhere: &Path) {
    let db = options().pm_path("records").open("db").unwrap();
    work(&db, 0).unwrap();
    std::env::set_current_dir(elsewhere).unwrap();
    assert_eq!(db.verify().unwrap().damages, []);
    work(&db, 1).unwrap();
    check(&db, 2);
    db.close().unwrap();
    assert!(fs::read_dir(elsewhere).unwrap().next().is_none(), "nothing was made elsewhere");
}

/// A node whose directory has a relative path makes and opens databases in subdirectories for as
/// long as it runs.
fn promote_elsewhere(base: &Path, elsewhere: &Path) {
    let bucket = format!("file://{}", base.join("bucket").display());
    let shared = options().object_store(&bucket).share(true).open("db").unwrap();
    work(&shared, 0).unwrap();
    // The store has its first checkpoint some time after the opening.
    let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let standby = loop {
        match options().standby(&bucket, "node") {
            Ok(standby) => break standby,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
    };
    std::env::set_current_dir(elsewhere).unwrap();
    work(&shared, 1).unwrap();
    shared.close().unwrap();
    let db = standby.promote().unwrap();
    for round in 2..4 {
        work(&db, round).unwrap();
    }
    check(&db, 4);
    db.close().unwrap();
    assert!(fs::read_dir(elsewhere).unwrap().next().is_none(), "nothing was made elsewhere");
}

/// Databases in a directory that may be searched and written, and not be read. Their own may be
/// made before, by the user that gives it to this one, or by the opening.
fn open_below_an_unreadable_parent(base: &Path) {
    let parent = base.join("parent");
    let given = parent.join("given");
    fs::create_dir_all(&given).unwrap();
    // SAFETY: the call takes no memory.
    if unsafe { libc::getuid() } == 0 {
        for directory in [&parent, &given] {
            chown(directory, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        fs::set_permissions(base, fs::Permissions::from_mode(0o711)).unwrap();
        // SAFETY: the calls take no memory; this process ends with this case.
        assert_eq!(unsafe { [libc::setgid(UNPRIVILEGED), libc::setuid(UNPRIVILEGED)] }, [0, 0]);
    }
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o311)).unwrap();
    fs::read_dir(&parent).unwrap_err();
    for path in [given, parent.join("made"), parent.join("deeper/made")] {
        let db = options().open(&path).unwrap();
        work(&db, 0).unwrap();
        db.close().unwrap();
        check(&options().open(&path).unwrap(), 1);
    }
    let elsewhere = parent.join("region");
    let path = parent.join("small");
    options().pm_path(&elsewhere).open(&path).unwrap().close().unwrap();
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o700)).unwrap();
}

/// Has no descriptor left for a while, and some again.
fn run_out_of_descriptors(base: &Path) {
    let path = base.join("db");
    let db = options().open(&path).unwrap();
    db.table("t").unwrap().put("a", "1").unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let before = limit_descriptors(open + 3);
    let held: Vec<fs::File> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    let table = db.existing_table("t").unwrap();
    let mut written = 0u64;
    let refused = loop {
        match table.put(written.to_be_bytes(), [7; 2000]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1_000_000, "the region has no room for all this");
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    for words in ["extents-00000001", "ulimit -n", "nothing was written"] {
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let by_hand = db.compact_range(&table, ..).unwrap_err();
    assert_eq!(by_hand.kind(), ErrorKind::Unavailable, "{by_hand}");
    assert_eq!(table.get("a").unwrap().unwrap(), "1", "reads go on");
    drop(held);
    limit_descriptors(before);
    wait_until("writes go on", || table.put("b", "2").is_ok());
    db.compact_range(&table, ..).unwrap();
    assert_eq!(table.range(..).count() as u64, written + 2);
    db.close().unwrap();
    let db = options().open(&path).unwrap();
    assert_eq!(db.existing_table("t").unwrap().range(..).count() as u64, written + 2);
}

/// Sets how many descriptors this process may have; how many it might have before.
fn limit_descriptors(most: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives while the call fills it.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, most);
    // SAFETY: the call only reads the structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    before
}

/// Bug: a moment without free descriptors stopped the database for good. Cause: any error of a job
/// but a full disk did. Fix: what the system refuses for want of descriptors, memory or threads is
/// tried again after a pause, and longer ones while it lasts.
#[test]
fn a_database_goes_on_when_there_are_descriptors_again() {
    run("descriptors");
}

/// Bug: a directory of the user's own was refused where its parent may not be read. Cause: creation
/// syncs the parent, which takes a handle to read it by. Fix: the whole file system is synced
/// there.
#[test]
fn a_directory_whose_parent_may_not_be_read_takes_a_database() {
    run("unreadable parent");
}

/// Bug: after the process had changed its working directory, a database with a relative path made
/// its extent files elsewhere, in another database's directory for example. So it did after a link
/// in its path had been made anew. Cause: each file was opened by the path. Fix: the directory is
/// opened once, and names are found through that handle.
#[test]
fn a_database_stays_in_its_directory_whatever_becomes_of_the_path() {
    for case in CASES {
        run(case);
    }
}

/// Runs a case in a process of its own.
fn run(case: &str) {
    let base = tempfile::tempdir().unwrap();
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["directory::process_of_a_case", "--exact", "--nocapture", "--test-threads=1"])
        .env(BASE, base.path())
        .env(CASE, case)
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(run.status.success(), "{case}: {}", String::from_utf8_lossy(&run.stderr));
}

/// As above, where the directory was removed: nothing can be made in it, and another database with
/// its name is left alone.
#[test]
fn in_a_directory_that_was_removed_nothing_is_made_and_the_error_says_so() {
    for is_there_another in [false, true] {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("db");
        let db = options().open(&path).unwrap();
        work(&db, 0).unwrap();
        fs::remove_dir_all(&path).unwrap();
        let before = is_there_another.then(|| other(&path));
        let failed = work(&db, 1).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
        assert!(failed.to_string().contains(&*path.to_string_lossy()), "{failed}");
        assert!(tells_of_the_removal(&failed.to_string()), "{failed}");
        assert!(db.existing_table("t0").unwrap().get(0u64.to_be_bytes()).unwrap().is_some());
        db.close().unwrap_err();
        if let Some(before) = before {
            assert!(content(&path) == before, "the other database is as it was");
            options().open(&path).unwrap().close().unwrap();
        } else {
            assert!(!path.exists());
        }
    }
}

/// Bug: small commits went on, and were acknowledged, in a directory that was removed. Cause: only
/// a job that makes or removes a file looked. Fix: the background looks whenever it has nothing
/// else to do, and stops the database.
#[test]
fn a_database_whose_directory_was_removed_stops_without_a_job() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("db");
    let db = options().open(&path).unwrap();
    let table = db.table("t").unwrap();
    table.put("k", "1").unwrap();
    fs::remove_dir_all(&path).unwrap();
    let began = std::time::Instant::now();
    let failed = loop {
        match table.put("k", "2") {
            Ok(()) => assert!(began.elapsed().as_secs() < 60, "it goes on"),
            Err(failed) => break failed,
        }
    };
    assert!(tells_of_the_removal(&failed.to_string()), "{failed}");
}

/// Whether an error is that of a removed directory. The background may look between the removal of
/// the files and that of the directory: then the lock file alone is gone.
fn tells_of_the_removal(text: &str) -> bool {
    let advice = if text.contains("LOCK") { "open it again" } else { "restore" };
    text.contains("was removed") && text.contains(advice)
}

/// Bug: a writer whose lock file was removed or replaced worked on beside a second one. Cause: the
/// lock is that of the file, which has no name any more. Fix: no name is made, changed or removed
/// in the directory before the lock file's name was found to lead to the file that is locked.
#[test]
fn a_writer_that_lost_its_lock_file_changes_no_names() {
    for is_replaced in [false, true] {
        let base = tempfile::tempdir().unwrap();
        let (path, lock) = (base.path().join("db"), base.path().join("db/LOCK"));
        let db = options().open(&path).unwrap();
        work(&db, 0).unwrap();
        if is_replaced {
            // By one call, so that the background finds a file whenever it looks.
            fs::write(base.path().join("new"), "").unwrap();
            fs::rename(base.path().join("new"), &lock).unwrap();
        } else {
            fs::remove_file(&lock).unwrap();
        }
        let names: Vec<PathBuf> = content(&path).into_keys().collect();
        let failed = work(&db, 1).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
        let became = if is_replaced { "was replaced" } else { "was removed" };
        for word in ["LOCK", became, "open it again"] {
            assert!(failed.to_string().contains(word), "{failed}");
        }
        assert_eq!(content(&path).into_keys().collect::<Vec<_>>(), names);
        // The region has a lock of its own, so no second writer gets in.
        let second = options().open(&path).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::Busy, "{second}");
        drop(db.close());
        let db = options().open(&path).unwrap();
        check(&db, 1);
    }
}
