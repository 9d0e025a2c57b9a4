//! The mapped modes: `emulated` is found again after closing, `dax` is refused where stores would
//! not be durable, and a user's file is never replaced.

use std::time::Duration;

use terrace::{Database, ErrorKind, Mode, Options};

fn emulated(region: &std::path::Path) -> Options {
    Options::new()
        .mode(Mode::Emulated { delay: Duration::from_nanos(100) })
        .pm_path(region)
        .pm_size(4 << 20)
}

#[test]
fn an_emulated_region_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, region) = (dir.path().join("db"), dir.path().join("region-on-tmpfs"));
    let db = emulated(&region).create(&path).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..8000u32 {
        table.put(n.to_be_bytes(), vec![n as u8; 700]).unwrap();
    }
    let stats = db.stats();
    assert_eq!((stats.mode, stats.commit.syncs), ("emulated", 0));
    let said = stats.pm.note.as_ref().is_some_and(|note| note.contains("no tmpfs"));
    assert_eq!(said, !region.starts_with("/dev/shm"), "{:?}", stats.pm.note);
    assert!(stats.commit.fences > 8000 && stats.commit.blocks > 3 * 8000, "{stats:?}");
    assert!(stats.background.drains > 0, "6 MB do not fit in a region of 4: {stats:?}");
    drop(table);
    db.close().unwrap();
    let db = emulated(&region).open(&path).unwrap();
    let table = db.existing_table("t").unwrap();
    assert_eq!(table.iter().count(), 8000);
    assert_eq!(table.get(77u32.to_be_bytes()).unwrap().unwrap(), vec![77; 700]);
    assert!(db.verify().unwrap().damages.is_empty());
}

#[test]
fn an_emulated_region_finds_a_place_and_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let open = || {
        let mode = Mode::Emulated { delay: Duration::ZERO };
        Options::new().mode(mode).pm_size(4 << 20).open(&path)
    };
    open().unwrap().table("t").unwrap().put("k", "v").unwrap();
    let region = std::fs::read_link(path.join("region")).unwrap();
    assert!(region.starts_with("/dev/shm") || region.starts_with(std::env::temp_dir()));
    let db = open().unwrap();
    assert_eq!(db.stats().pm.note.is_none(), region.starts_with("/dev/shm"));
    assert_eq!(db.existing_table("t").unwrap().get("k").unwrap().unwrap(), "v");
    db.close().unwrap();
    std::fs::remove_file(&region).unwrap();
    let error = open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("survives the process only"), "{error}");
}

/// Bug: a database whose emulated memory was gone could be neither salvaged nor verified, and the
/// message said that its extents were lost. Cause: the error had no damage, and these calls go on
/// behind damage alone. Fix: it has the region, as where the link is gone.
#[test]
fn what_was_drained_is_saved_where_emulated_memory_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mode = Mode::Emulated { delay: Duration::ZERO };
    let db = Options::new().mode(mode).pm_size(4 << 20).open(&path).unwrap();
    let mut load = db.table("t").unwrap().bulk_load(terrace::Existing::Refuse).unwrap();
    load.put("k", "v").unwrap();
    load.finish().unwrap();
    db.close().unwrap();
    std::fs::remove_file(std::fs::read_link(path.join("region")).unwrap()).unwrap();
    let found = terrace::Options::new().verify(&path).unwrap();
    assert_eq!(found.damages.len(), 1, "{:?}", found.damages);
    let report = terrace::Options::new().salvage(&path, dir.path().join("new")).unwrap();
    assert_eq!(report.records, 1, "{:?}", report.lost);
    let new = Database::open(dir.path().join("new")).unwrap();
    assert_eq!(new.existing_table("t").unwrap().get("k").unwrap().unwrap(), "v");
}

/// The file system in memory has no room, or there is none: the region goes to temporary files, and
/// the statistics say where if a disk is behind them.
#[test]
fn an_emulated_region_falls_back_to_temporary_files_with_a_word() {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let open = || {
        let mode = Mode::Emulated { delay: Duration::ZERO };
        let options = Options::new().mode(mode).pm_size(4 << 20);
        options.tmpfs(dir.path().join("no-such-place")).open(&path).unwrap()
    };
    let db = open();
    db.table("t").unwrap().put("k", "v").unwrap();
    let region = std::fs::read_link(path.join("region")).unwrap();
    assert!(region.starts_with(std::env::temp_dir()), "{region:?}");
    let note = db.stats().pm.note;
    let system = rustix::fs::statfs(&region).unwrap().f_type;
    #[allow(clippy::useless_conversion, reason = "the width differs between architectures")]
    match i64::try_from(system) {
        Ok(TMPFS_MAGIC) => assert_eq!(note, None),
        _ => {
            let note = note.unwrap();
            let named = note.contains(region.canonicalize().unwrap().to_str().unwrap());
            assert!(named && note.contains("no tmpfs"), "{note}");
        }
    }
    db.close().unwrap();
    let db = open();
    assert_eq!(db.existing_table("t").unwrap().get("k").unwrap().unwrap(), "v");
    assert_eq!(std::fs::read_link(path.join("region")).unwrap(), region, "it stays where it is");
    db.close().unwrap();
    std::fs::remove_file(region).unwrap();
}

#[test]
fn a_device_is_refused_by_name_as_a_region() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [Mode::Dax, Mode::Emulated { delay: Duration::ZERO }, Mode::File] {
        let options = Options::new().mode(mode).pm_path("/dev/null").pm_size(4 << 20);
        let error = options.create(dir.path().join("db")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        for words in ["/dev/null is a character device", "fsdax", "dax=always"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}

#[test]
fn dax_is_refused_by_name_where_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let refused = Options::new().mode(Mode::Dax).pm_size(4 << 20).create(&path);
    let error = match refused {
        Ok(db) => {
            // A machine whose temporary directory is on persistent memory: then it must be true.
            assert_eq!(db.stats().mode, "dax");
            eprintln!("skipped: the temporary directory is on a DAX file system");
            return;
        }
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    for word in ["MAP_SYNC", "dax=always", "`file`", "region"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["LOCK"], "nothing half done");
}

#[test]
fn a_file_at_the_path_of_a_new_region_is_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let region = dir.path().join("precious");
    std::fs::write(&region, "the user's").unwrap();
    let error = emulated(&region).create(dir.path().join("db")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert_eq!(std::fs::read(&region).unwrap(), b"the user's");
}
