use super::*;
use crate::os::RealFiles;
use crate::os::sim::{SimFiles, Survive};

fn sim_store(files: &Arc<SimFiles>, taken: &[Location]) -> Result<Arc<ExtentStore>> {
    files.create_directory(Path::new("/db")).unwrap();
    ExtentStore::open(Arc::clone(files) as Arc<dyn Files>, Path::new("/db"), taken, false)
}

/// What every backend must do.
fn conformance(files: Arc<dyn Files>, directory: &Path) {
    let store = ExtentStore::open(Arc::clone(&files), directory, &[], false).unwrap();
    assert_eq!(store.space(), SpaceUse::default());
    let a = store.reserve(20_000).unwrap();
    let b = store.reserve(5).unwrap();
    assert_eq!(store.space(), SpaceUse { file_bytes: 4 << 20, taken_bytes: 3 * UNIT });
    store.write(&a.location(), &[7; 20_000]).unwrap();
    store.sync().unwrap();
    store.sync().unwrap();
    assert_eq!(store.syncs(), 1, "nothing was written between the syncs");
    assert_eq!(store.read(&a.location(), 19_998, 2).unwrap(), [7, 7]);
    let past = store.read(&a.location(), 19_998, 3).unwrap_err();
    assert_eq!(past.kind(), ErrorKind::Corrupt);
    let at = a.keep();
    drop(b);
    assert_eq!(store.space().taken_bytes, 2 * UNIT);
    drop(store);

    let store = ExtentStore::open(files, directory, &[at], true).unwrap();
    assert_eq!(store.space(), SpaceUse { file_bytes: 4 << 20, taken_bytes: 2 * UNIT });
    assert_eq!(store.read(&at, 0, 1).unwrap(), [7]);
    assert_eq!(store.reserve(1).unwrap_err().kind(), ErrorKind::Invalid);
    store.release(&at);
    assert_eq!(store.space().taken_bytes, 0);
}

#[test]
fn real_files_conform() {
    let directory = tempfile::tempdir().unwrap();
    conformance(Arc::new(RealFiles), directory.path());
}

#[test]
fn simulated_files_conform() {
    let files = SimFiles::new();
    files.create_directory(Path::new("/db")).unwrap();
    conformance(files, Path::new("/db"));
}

#[test]
fn what_was_synced_survives_with_its_name() {
    let files = SimFiles::new();
    let store = sim_store(&files, &[]).unwrap();
    let at = store.reserve(3).unwrap().keep();
    store.write(&at, b"abc").unwrap();
    let unsynced = files.crash(Survive::Nothing);
    assert_eq!(sim_store(&unsynced, &[at]).unwrap_err().kind(), ErrorKind::Corrupt);
    store.sync().unwrap();
    let synced = files.crash(Survive::Nothing);
    assert_eq!(sim_store(&synced, &[at]).unwrap().read(&at, 0, 3).unwrap(), b"abc");
}

#[test]
fn a_failed_sync_is_never_followed_by_a_good_one() {
    let files = SimFiles::new();
    let store = sim_store(&files, &[]).unwrap();
    let at = store.reserve(3).unwrap();
    store.write(&at.location(), b"abc").unwrap();
    files.fail_sync_after(1);
    assert_eq!(store.sync().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.sync().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_full_disk_is_an_error_at_growth() {
    let files = SimFiles::new();
    let store = sim_store(&files, &[]).unwrap();
    files.set_capacity(Some(5 << 20));
    let first = store.reserve(4 << 20).unwrap();
    let full = store.reserve(1).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full);
    assert!(full.to_string().contains("extents-00000001"), "{full}");
    drop(first);
    store.reserve(1).unwrap();
}

#[test]
fn overlapping_or_outlying_places_are_damage() {
    let files = SimFiles::new();
    let store = sim_store(&files, &[]).unwrap();
    let at = store.reserve(40_000).unwrap().keep();
    let second = Location { offset: UNIT, len: 1, ..at };
    let outside = Location { offset: 4 << 20, len: 1, ..at };
    let odd = Location { offset: 5, len: 1, ..at };
    let far = Location { offset: u64::MAX / UNIT * UNIT, len: 1, ..at };
    let missing = Location { file: 9, ..at };
    for bad in [second, outside, odd, missing, far] {
        let error = sim_store(&files, &[at, bad]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{bad:?}");
    }
}
