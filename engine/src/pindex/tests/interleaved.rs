//! The tree under the scheduler: the types of production, on three threads, in many schedules.
//! `cargo test -p terrace --lib pindex::tests::interleaved`
//!
//! The scheduler switches at every access to a lock and to a word of a node; allocation and epochs
//! are one step each.

use std::sync::Arc;

use crate::os::schedule::explore;
use crate::os::thread;

use super::support::{KEYS, Keys, Map, Model, check_shape, content, create};

/// Runs `test` in many schedules, for all sorts of keys.
fn explore_keys(test: impl Fn(Keys) + Clone + Send + 'static) {
    for keys in KEYS {
        let test = test.clone();
        explore(move || test(keys));
    }
}

/// An index of these numbers, which ascend: a leaf for each seven, and the last has up to 14.
fn loaded(keys: Keys, numbers: impl Iterator<Item = u64>) -> Arc<Map> {
    let (_, tree) = create(15, keys);
    numbers.for_each(|n| assert_eq!(tree.insert(n, n).unwrap(), None));
    Arc::new(tree)
}

/// Strictly ascending both ways, with all that stays.
fn check(tree: &Map, stable: impl Iterator<Item = u64> + Clone) {
    let numbers = |rows: Vec<(u64, u64)>| rows.into_iter().map(|(n, _)| n).collect();
    let forward: Vec<u64> = numbers(tree.range(0..=1000).unwrap());
    let backward: Vec<u64> = numbers(tree.range_back(0..=1000).unwrap());
    assert!(forward.is_sorted_by(|a, b| a < b), "{forward:?}");
    assert!(backward.is_sorted_by(|a, b| a > b), "{backward:?}");
    for key in stable {
        assert!(forward.contains(&key) && backward.contains(&key), "{key} is missing");
    }
}

/// What is left, when no thread works on it.
fn end(tree: &Map, keys: impl Iterator<Item = u64>) {
    let model: Model = keys.map(|key| (key, key)).collect();
    assert_eq!(content(tree).unwrap(), model);
    check_shape(&tree.tree);
}

#[test]
fn two_split_a_leaf_and_one_reads_it() {
    explore_keys(|keys| {
        let stable = (1..=10).map(|n| n * 10);
        let tree = loaded(keys, stable.clone());
        let own = [[15, 16, 17], [95, 96, 14]];
        let writers = own.map(|own: [u64; 3]| {
            let tree = Arc::clone(&tree);
            thread::spawn("model", move || {
                for key in own {
                    assert_eq!(tree.insert(key, key).unwrap(), None);
                    assert_eq!(tree.get(key).unwrap(), Some(key));
                }
            })
        });
        check(&tree, stable.clone());
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        end(&tree, stable.chain(own.concat()));
    });
}

#[test]
fn a_leaf_goes_while_a_key_comes_to_it() {
    explore_keys(|keys| {
        let tree = loaded(keys, (1..=20).map(|n| n * 10));
        // The second leaf has one key left.
        (9..=20).for_each(|n| assert_eq!(tree.delete(n * 10).unwrap(), Some(n * 10)));
        let goes = {
            let tree = Arc::clone(&tree);
            thread::spawn("model", move || assert_eq!(tree.delete(80).unwrap(), Some(80)))
        };
        let comes = {
            let tree = Arc::clone(&tree);
            thread::spawn("model", move || {
                assert_eq!(tree.insert(155, 155).unwrap(), None);
                assert_eq!(tree.get(155).unwrap(), Some(155));
            })
        };
        check(&tree, (1..=7).map(|n| n * 10));
        goes.join().unwrap();
        comes.join().unwrap();
        end(&tree, (1..=7).map(|n| n * 10).chain([155]));
    });
}

#[test]
fn neighbours_go_at_the_same_time() {
    explore_keys(|keys| {
        let tree = loaded(keys, (1..=30).map(|n| n * 10));
        // Of the second leaf and of the third one key is left, of the fourth none.
        for n in (8..=30).filter(|n| ![8, 15].contains(n)) {
            assert_eq!(tree.delete(n * 10).unwrap(), Some(n * 10));
        }
        let going = [80, 150].map(|last| {
            let tree = Arc::clone(&tree);
            thread::spawn("model", move || {
                assert_eq!(tree.delete(last).unwrap(), Some(last));
            })
        });
        check(&tree, (1..=7).map(|n| n * 10));
        going.into_iter().for_each(|thread| thread.join().unwrap());
        end(&tree, (1..=7).map(|n| n * 10));
    });
}

#[test]
fn a_record_is_relocated_while_it_is_read() {
    explore_keys(|keys| {
        let tree = loaded(keys, [1, 2].into_iter());
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn("model", move || {
                assert_eq!(tree.insert(1, 11).unwrap(), Some(1));
                assert_eq!(tree.insert(3, 3).unwrap(), None);
            })
        };
        let found = tree.get(1).unwrap();
        assert!(found == Some(1) || found == Some(11), "{found:?}");
        assert_eq!(tree.get(2).unwrap(), Some(2));
        writer.join().unwrap();
        assert_eq!(content(&tree).unwrap(), Model::from([(1, 11), (2, 2), (3, 3)]));
        check_shape(&tree.tree);
    });
}
