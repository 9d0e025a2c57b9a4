//! What every object store must do, whatever is behind it. Each implementation runs all of it.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use terrace_testkit::SimFiles;

use crate::storage::object::directory::DirectoryStore;
use crate::storage::object::memory::MemoryServer;
use crate::storage::object::store::{
    FailureKind, LIST_LEN, ObjectStore, PutWhen, Span, Tag, Waiting,
};

const SOON: Duration = Duration::from_secs(60);

fn failure<T: std::fmt::Debug>(
    answer: Result<T, crate::storage::object::store::Failure>,
) -> FailureKind {
    answer.unwrap_err().kind
}

fn names(store: &dyn ObjectStore, prefix: &str, after: &str) -> Vec<String> {
    store.list(prefix, after, SOON).unwrap().into_iter().map(|info| info.name).collect()
}

/// Runs everything on a store in which no name begins with `base`, which ends with a slash.
pub(in crate::storage::object) fn conforms(store: &Arc<dyn ObjectStore>, base: &str) {
    reads_give_the_bytes_that_were_written(&**store, base);
    conditions_of_puts_hold(&**store, base);
    lists_are_in_order(&**store, base);
    of_many_writers_one_wins(store, base);
    large_objects_come_whole(&**store, base);
}

fn reads_give_the_bytes_that_were_written(store: &dyn ObjectStore, base: &str) {
    let name = format!("{base}reads/1");
    assert_eq!(failure(store.head(&name, SOON)), FailureKind::Missing);
    assert_eq!(failure(store.get(&name, Span::Whole, SOON)), FailureKind::Missing);
    let part = Span::Bytes { offset: 1, len: 1 };
    assert_eq!(failure(store.get(&name, part, SOON)), FailureKind::Missing);

    let bytes: Bytes = (0..5000_u32).map(|n| (n % 251) as u8).collect();
    let tag = store.put(&name, &bytes, &PutWhen::Absent, SOON).unwrap();
    let got = store.get(&name, Span::Whole, SOON).unwrap();
    assert_eq!((got.bytes, got.tag), (bytes.to_vec(), tag.clone()));
    let info = store.head(&name, SOON).unwrap();
    assert_eq!((info.name, info.len), (name.clone(), 5000));
    for (offset, len) in [(0, 1), (0, 5000), (1, 4999), (4999, 1), (700, 2000)] {
        let got = store.get(&name, Span::Bytes { offset, len }, SOON).unwrap();
        assert_eq!(got.bytes, bytes[offset as usize..(offset + len) as usize]);
        assert_eq!(got.tag, tag);
    }
    for (offset, len) in [(0, 5001), (4999, 2), (5000, 1), (9000, 10)] {
        let answer = store.get(&name, Span::Bytes { offset, len }, SOON);
        assert_eq!(failure(answer), FailureKind::Short, "{len} from {offset}");
    }
}

fn conditions_of_puts_hold(store: &dyn ObjectStore, base: &str) {
    let name = format!("{base}fence");
    let nothing = Tag { entity: Some("\"0123\"".into()), version: None };
    let put = |bytes, when| store.put(&name, &Bytes::from_static(bytes), &when, SOON);
    assert_eq!(failure(put(b"x", PutWhen::Tagged(nothing))), FailureKind::Changed);
    assert_eq!(failure(store.head(&name, SOON)), FailureKind::Missing, "nothing was written");
    let first = put(b"first", PutWhen::Absent).unwrap();
    assert_eq!(failure(put(b"other", PutWhen::Absent)), FailureKind::Changed);
    let second = put(b"second", PutWhen::Tagged(first.clone())).unwrap();
    assert_ne!(first, second);
    assert_eq!(failure(put(b"third", PutWhen::Tagged(first))), FailureKind::Changed);
    let got = store.get(&name, Span::Whole, SOON).unwrap();
    assert_eq!((&got.bytes[..], got.tag), (&b"second"[..], second));
}

fn lists_are_in_order(store: &dyn ObjectStore, base: &str) {
    let prefix = format!("{base}list/");
    assert_eq!(names(store, &prefix, ""), [""; 0]);
    let mut written = Vec::new();
    for name in ["b/2", "a", "b/10", "b-1", "c"] {
        let name = format!("{prefix}{name}");
        store.put(&name, &name.clone().into(), &PutWhen::Absent, SOON).unwrap();
        written.push(name);
    }
    store
        .put(&format!("{base}lists"), &Bytes::from_static(b"beside"), &PutWhen::Absent, SOON)
        .unwrap();
    written.sort();
    assert_eq!(names(store, &prefix, ""), written);
    assert_eq!(names(store, &prefix, &written[1]), written[2..]);
    assert_eq!(names(store, &prefix, &written[4]), [""; 0]);
    assert_eq!(names(store, &format!("{prefix}b/"), ""), written[2..4]);
    let info = &store.list(&prefix, "", SOON).unwrap()[0];
    assert_eq!(info.len, info.name.len() as u64);
}

/// Of a thousand objects, so a store that syncs each of them takes a while.
pub(in crate::storage::object) fn lists_come_in_pages_and_deletions_in_batches(
    store: &dyn ObjectStore,
    base: &str,
) {
    let prefix = format!("{base}many/");
    let all: Vec<String> = (0..LIST_LEN + 3).map(|n| format!("{prefix}{n:05}")).collect();
    let waiting = Waiting::default();
    for part in all.chunks(50) {
        for name in part {
            store.begin_put(
                name,
                &Bytes::from_static(b"1"),
                &PutWhen::Absent,
                SOON,
                waiting.answer(),
            );
        }
        part.iter().for_each(|_| drop(waiting.next(SOON).unwrap().unwrap()));
    }
    let first = names(store, &prefix, "");
    assert_eq!(first, all[..LIST_LEN]);
    assert_eq!(names(store, &prefix, &first[LIST_LEN - 1]), all[LIST_LEN..]);
    store.delete(&all[..LIST_LEN], SOON).unwrap();
    assert_eq!(names(store, &prefix, ""), all[LIST_LEN..]);
    // Some are gone already.
    store.delete(&all[LIST_LEN - 2..], SOON).unwrap();
    assert_eq!(names(store, &prefix, ""), [""; 0]);
    store.delete(&[], SOON).unwrap();
}

fn of_many_writers_one_wins(store: &Arc<dyn ObjectStore>, base: &str) {
    let name = format!("{base}race");
    let tag = store.put(&name, &Bytes::from_static(b"start"), &PutWhen::Absent, SOON).unwrap();
    let write = |n: u8| {
        let (store, name, when) = (Arc::clone(store), name.clone(), PutWhen::Tagged(tag.clone()));
        thread::spawn(move || {
            loop {
                match store.put(&name, &vec![n].into(), &when, SOON) {
                    Err(failure) if failure.kind == FailureKind::Throttled => thread::yield_now(),
                    answer => return answer.is_ok(),
                }
            }
        })
    };
    let writers: Vec<_> = (0..8).map(write).collect();
    let won: Vec<bool> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let winners: Vec<u8> = (0..8).filter(|n| won[usize::from(*n)]).collect();
    assert_eq!(winners.len(), 1, "{won:?}");
    assert_eq!(store.get(&name, Span::Whole, SOON).unwrap().bytes, winners);
}

fn large_objects_come_whole(store: &dyn ObjectStore, base: &str) {
    let name = format!("{base}large");
    let bytes: Bytes = (0..20_u32 << 20).map(|n| (n >> 3).to_le_bytes()[n as usize % 3]).collect();
    store.put(&name, &bytes, &PutWhen::Absent, SOON).unwrap();
    assert!(store.get(&name, Span::Whole, SOON).unwrap().bytes == bytes, "all bytes came back");
    let (offset, len) = (8 << 20, 9 << 20);
    let got = store.get(&name, Span::Bytes { offset, len }, SOON).unwrap();
    assert!(got.bytes == bytes[8 << 20..17 << 20]);
    assert_eq!(failure(store.put(&name, &bytes, &PutWhen::Absent, SOON)), FailureKind::Changed);
    store.delete(&[name], SOON).unwrap();
}

#[test]
fn the_store_in_memory_conforms() {
    let store: Arc<dyn ObjectStore> = Arc::new(MemoryServer::new().client());
    conforms(&store, "base/");
    lists_come_in_pages_and_deletions_in_batches(&*store, "base/");
}

#[test]
fn the_store_in_a_directory_conforms() {
    let root = tempfile::tempdir().unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(DirectoryStore::open(root.path()).unwrap());
    conforms(&store, "base/");
}

#[test]
fn the_store_in_a_simulated_directory_conforms() {
    let (files, path) = (SimFiles::new(), Path::new("/store"));
    let store: Arc<dyn ObjectStore> = Arc::new(DirectoryStore::open_in(files, path).unwrap());
    conforms(&store, "base/");
    lists_come_in_pages_and_deletions_in_batches(&*store, "base/");
}
