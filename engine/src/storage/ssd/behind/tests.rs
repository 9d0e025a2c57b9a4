use std::path::Path;
use std::sync::Weak;

use super::*;
use crate::base::error::ErrorKind;
use crate::os::{Files, RealFiles};
use terrace_testkit::SimFiles;

/// A store with one extent of bytes that differ.
fn store(files: Arc<dyn Files>, directory: &Path) -> (Arc<ExtentStore>, Location) {
    let store = ExtentStore::open(files, directory, &[], false).unwrap();
    let at = store.reserve(100_000).unwrap().keep();
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n / 7) as u8).collect();
    store.write(&at, &bytes).unwrap();
    (store, at)
}

/// The same on simulated files, reading behind.
fn simulated() -> (Arc<ExtentStore>, Location) {
    let files = SimFiles::new();
    crate::os::create_directory(&*files, Path::new("/db")).unwrap();
    let (store, at) = store(files, Path::new("/db"));
    store.go_behind();
    (store, at)
}

#[test]
fn what_is_read_behind_is_what_is_read() {
    for direct in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (store, at) = store(Arc::new(RealFiles::default()), directory.path());
        if direct {
            store.use_direct_io_beyond(0);
        }
        assert!(store.begin_read(&at, 0, 10).is_none(), "the store does not read behind yet");
        store.go_behind();
        let pieces = [(0, 100_000), (1, 3), (99_999, 1), (4096, 8192), (65_000, 35_000)];
        let begun = pieces.map(|(offset, len)| store.begin_read(&at, offset, len).unwrap());
        for (reading, piece) in begun.into_iter().zip(pieces) {
            assert_eq!(reading.range(), piece);
            let (offset, len) = piece;
            let reads = store.reads();
            let found = store.end_read(reading).unwrap();
            assert_eq!((store.reads(), found.len()), (reads + 1, len as usize));
            assert_eq!(found, store.read(&at, offset, len).unwrap());
        }
        assert!(store.begin_read(&at, 99_999, 2).is_none(), "past the end is for `read` to say");
    }
}

#[test]
fn an_error_is_that_of_a_read() {
    let (store, at) = simulated();
    let beyond = Location { offset: 1 << 40, ..at };
    let behind = store.end_read(store.begin_read(&beyond, 0, 5).unwrap()).unwrap_err();
    let alone = store.read(&beyond, 0, 5).unwrap_err();
    assert_eq!(behind.kind(), ErrorKind::Corrupt);
    assert_eq!(behind.to_string(), alone.to_string());
    let nowhere = Location { file: 99, ..at };
    assert!(store.begin_read(&nowhere, 0, 5).is_none());
}

#[test]
fn what_nobody_waits_for_holds_no_store() {
    let (store, at) = simulated();
    let forgotten = store.begin_read(&at, 0, 100_000).unwrap();
    let file: Weak<ExtentFile> = Arc::downgrade(store.handles.read().values().next().unwrap());
    drop(forgotten);
    drop(store);
    while file.strong_count() > 0 {
        std::thread::yield_now();
    }
}
