//! Threads on one tree.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::{OdsTree, Options, Policy};
use super::support::{
    Chance, Model, POLICIES, Told, check_shape, content, create_on, everywhere, open,
};
use crate::options::Mode;
use terrace_testkit::Explorer;

const THREADS: u64 = 4;

/// Random operations on the keys that are this thread's, looks at the others'.
fn work(tree: &OdsTree, thread: u64, operations: u64, keys: u64) -> Model {
    let (mut chance, mut model) = (Chance(thread), Model::new());
    for n in 0..operations {
        let key = chance.below(keys) * THREADS + thread;
        let value = key << 32 | n;
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

#[test]
fn every_thread_finds_what_it_wrote_and_ranges_ascend() {
    let operations = if std::env::var_os("TERRACE_LONG").is_some() { 400_000 } else { 12_000 };
    for policy in POLICIES {
        let dir = tempfile::tempdir().unwrap();
        let mode = Mode::Emulated { delay: Duration::ZERO };
        let options = Options::new().mode(mode).size(1 << 20).policy(policy);
        let mut tree = options.create(dir.path().join("tree")).unwrap();
        let done = AtomicBool::new(false);
        let mut model: Model = std::thread::scope(|scope| {
            let (tree, done) = (&tree, &done);
            let reader = scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for backward in [false, true] {
                        let range = tree.range(100..1500);
                        let keys: Vec<u64> = match backward {
                            false => range.map(|entry| entry.unwrap().0).collect(),
                            true => range.rev().map(|entry| entry.unwrap().0).collect(),
                        };
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
        assert!(tree.stats().unlinks > 0, "{:?}", tree.stats());
        drop(tree);
        let tree = options.open(dir.path().join("tree")).unwrap();
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
    for (seed, (on, policy)) in (0..8).zip(everywhere().cycle()) {
        let (machine, tree) = create_on(on(), 60, policy);
        let base: Model = (0..60).map(|n| (n * 10, n)).collect();
        for (key, value) in &base {
            assert_eq!(tree.insert(*key, *value).unwrap(), None);
        }
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
            let mut tree = open(found, policy)?;
            let now = content(&tree)?;
            told.check::<OdsTree>(moment, &now, &states, owner)?;
            let untouched = now.iter().filter(|(key, _)| owner(key).is_none());
            if !untouched.eq(&base) {
                return Err(format!("of {base:?} there is {now:?}"));
            }
            check_shape(&tree.tree);
            tree.reclaim().map(drop).map_err(|e| e.to_string())
        });
        let least = if machine.memory().is_some() { 100 } else { 40 };
        assert!(explored.unwrap().moments > least);
    }
}

#[test]
fn a_tree_in_a_file_is_durable_and_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tree");
    let options = Options::new().size(Options::MIN_SIZE);
    let tree = options.create(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let tree = &tree;
            scope.spawn(move || {
                for n in 0..60 {
                    tree.insert(n * 2 + thread, n).unwrap();
                }
            });
        }
    });
    assert!(tree.stats().syncs >= 120, "{:?}", tree.stats());
    let refused = options.open(&path).unwrap_err();
    assert!(refused.to_string().contains("open elsewhere"), "{refused}");
    drop(tree);
    let tree = options.policy(Policy::OneDirection).open(&path).unwrap();
    assert_eq!(content(&tree).unwrap().len(), 120);
    for refused in [
        Options::new().create(&path).unwrap_err(),
        Options::new().size(1).create(dir.path().join("small")).unwrap_err(),
        Options::new().open(dir.path().join("missing")).unwrap_err(),
    ] {
        assert_eq!(refused.kind(), crate::error::ErrorKind::Invalid, "{refused}");
    }
    drop(tree);
    std::fs::write(&path, [7; 8192]).unwrap();
    let refused = Options::new().open(&path).unwrap_err();
    assert!(refused.to_string().contains("no Terrace tree"), "{refused}");
}
