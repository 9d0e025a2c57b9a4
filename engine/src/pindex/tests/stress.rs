//! Threads on one tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::support::{
    Chance, KEYS, Keys, Map, Model, Told, Zones, check_shape, content, create, open,
};
use crate::base::options::Mode;
use crate::os::{Files, RealFiles};
use crate::pindex::node::Shape;
use crate::pm::{Media, Region};
use terrace_testkit::Explorer;

const THREADS: u64 = 4;

/// Random operations on the keys that are this thread's, looks at the others'.
fn work(tree: &Map, thread: u64, operations: u64, keys: u64) -> Model {
    let (mut chance, mut model) = (Chance(thread), Model::new());
    for n in 0..operations {
        let key = chance.below(keys) * THREADS + thread;
        let value = (key << 32) | (n % 4);
        // In turns everything goes, so that leaves become empty.
        let deletes = if n / 500 % 2 == 0 { 2 } else { 8 };
        if chance.below(10) < deletes {
            assert_eq!(tree.delete(key).unwrap(), model.remove(&key));
        } else {
            assert_eq!(tree.insert(key, value).unwrap(), model.insert(key, value));
        }
        let other = chance.below(keys * THREADS);
        let found = tree.get(other).unwrap();
        assert!(found.is_none_or(|value| value >> 32 == other), "key {other} has {found:?}");
        if other % THREADS == thread {
            assert_eq!(found, model.get(&other).copied());
        }
    }
    model
}

/// An index in a file that is mapped.
fn mapped(dir: &tempfile::TempDir, keys: Keys) -> Map {
    let (files, path): (Arc<dyn Files>, _) =
        (Arc::new(RealFiles::default()), dir.path().join("index"));
    let shape = Shape { segment: 16 << 10, segments: 64 };
    let mode = Mode::Emulated { delay: Duration::ZERO };
    let media = Media::create(&files, &path, shape.region_len(), mode).unwrap();
    let region = Arc::new(Region::new(media, &path, shape.region_len()).unwrap());
    Map::format(&region, shape, &Zones::new(keys))
}

#[test]
fn every_thread_finds_what_it_wrote_and_ranges_ascend() {
    let operations = if std::env::var_os("TERRACE_LONG").is_some() { 400_000 } else { 12_000 };
    for keys in KEYS {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = mapped(&dir, keys);
        let done = AtomicBool::new(false);
        let mut model: Model = std::thread::scope(|scope| {
            let (tree, done) = (&tree, &done);
            let reader = scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for backward in [false, true] {
                        let rows = match backward {
                            false => tree.range(100..=1500).unwrap(),
                            true => tree.range_back(100..=1500).unwrap(),
                        };
                        let keys: Vec<u64> = rows.into_iter().map(|(key, _)| key).collect();
                        let ascends = |a: &u64, b: &u64| if backward { a > b } else { a < b };
                        assert!(keys.is_sorted_by(ascends), "{keys:?}");
                    }
                }
            });
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || work(tree, thread, operations, 500)))
                .collect();
            let model = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
            model
        });
        assert_eq!(content(&tree).unwrap(), model);
        // Whatever the threads left: of so many neighbours some have leaves of their own.
        for key in 500..1500 {
            assert_eq!(tree.delete(key).unwrap(), model.remove(&key));
        }
        check_shape(&tree.tree);
        assert_eq!(tree.reclaim().unwrap(), 0);
        assert!(tree.unlinks() > 0);
        assert_eq!(content(&tree).unwrap(), model);
    }
}

/// A key that a thread gives itself for a value, or deletes.
type Call = (u64, bool);

/// The calls of a thread, on keys that only it touches.
fn calls(seed: u64, thread: u64) -> Vec<Call> {
    let mut chance = Chance(seed << 8 | thread);
    (0..20).map(|n| (chance.below(60) * 10 + 1 + thread, n % 3 < 2)).collect()
}

/// What the keys of a thread hold before and after each of its calls.
fn states(calls: &[Call]) -> Vec<Model> {
    let mut states = vec![Model::new()];
    for (key, inserts) in calls {
        let mut state = states[states.len() - 1].clone();
        match inserts {
            true => state.insert(*key, *key),
            false => state.remove(key),
        };
        states.push(state);
    }
    states
}

/// Cuts two threads at every store: what neither of them touched is there, and all that they were
/// told; what was under way is there or not, and the tree is sound.
#[test]
fn two_threads_cut_anywhere() {
    for (seed, keys) in (0..8).zip(KEYS.into_iter().cycle()) {
        let (machine, tree) = create(60, keys);
        let base: Model = (0..60).map(|n| (n * 10, n)).collect();
        for (key, value) in &base {
            assert_eq!(tree.insert(*key, *value).unwrap(), None);
        }
        let zones = Arc::clone(&tree.zones);
        let (told, calls) = (Told::new(&machine), [0, 1].map(|thread| calls(seed, thread)));
        machine.record();
        std::thread::scope(|scope| {
            for (thread, calls) in calls.iter().enumerate() {
                let (tree, told) = (&tree, &told);
                scope.spawn(move || {
                    for (key, inserts) in calls {
                        match inserts {
                            true => drop(tree.insert(*key, *key).unwrap()),
                            false => drop(tree.delete(*key).unwrap()),
                        }
                        told.note(thread);
                    }
                });
            }
        });
        let states = calls.map(|calls| states(&calls));
        let owner = |key: &u64| (key % 10).checked_sub(1).map(|thread| thread as usize);
        let explorer = Explorer::new("two threads", seed).most(4);
        let explored = explorer.explore(&machine.recorded().unwrap(), |found, moment| {
            let mut tree = open(found, &zones)?;
            let now = content(&tree)?;
            told.check(moment, &now, &states, owner)?;
            let untouched = now.iter().filter(|(key, _)| owner(key).is_none());
            if !untouched.eq(&base) {
                return Err(format!("of {base:?} there is {now:?}"));
            }
            check_shape(&tree.tree);
            tree.reclaim().map(drop).map_err(|e| e.to_string())
        });
        assert!(explored.unwrap().moments > 100);
    }
}
