//! The tree under the scheduler: the types of production, on three threads, in many schedules.
//! `cargo test -p terrace --lib ptree::tests::interleaved`
//!
//! The scheduler switches at every access to a lock and to a word of a node; allocation and epochs
//! are one step each.

use std::sync::Arc;

use crate::os::schedule::explore;
use crate::os::thread;

use super::super::{BytesTree, OdsTree, Policy};
use super::bytes;
use super::support::{Model, POLICIES, check_shape, content, create};

/// Runs `test` in many schedules, for each policy.
fn explore_policies(test: impl Fn(Policy) + Clone + Send + 'static) {
    for policy in POLICIES {
        let test = test.clone();
        explore(move || test(policy));
    }
}

/// A tree of these keys, a leaf for each ten.
fn loaded(policy: Policy, keys: impl Iterator<Item = u64>) -> Arc<OdsTree> {
    let (_, mut tree) = create(15, policy);
    tree.bulk_load(keys.map(|key| (key, key))).unwrap();
    Arc::new(tree)
}

/// Strictly ascending both ways, with all that stays.
fn check(tree: &OdsTree, stable: impl Iterator<Item = u64> + Clone) {
    let forward: Vec<u64> = tree.range(..).map(|entry| entry.unwrap().0).collect();
    let backward: Vec<u64> = tree.range(..).rev().map(|entry| entry.unwrap().0).collect();
    assert!(forward.is_sorted_by(|a, b| a < b), "{forward:?}");
    assert!(backward.is_sorted_by(|a, b| a > b), "{backward:?}");
    for key in stable {
        assert!(forward.contains(&key) && backward.contains(&key), "{key} is missing");
    }
}

/// What is left, when no thread works on it.
fn end(tree: &OdsTree, keys: impl Iterator<Item = u64>) {
    let model: Model = keys.map(|key| (key, key)).collect();
    assert_eq!(content(tree).unwrap(), model);
    check_shape(&tree.tree);
}

#[test]
fn two_split_a_leaf_and_one_reads_it() {
    explore_policies(|policy| {
        let stable = (1..=10).map(|n| n * 10);
        let tree = loaded(policy, stable.clone());
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
    explore_policies(|policy| {
        let tree = loaded(policy, (1..=20).map(|n| n * 10));
        // The second leaf has one key left.
        (12..=20).for_each(|n| assert_eq!(tree.delete(n * 10).unwrap(), Some(n * 10)));
        let goes = {
            let tree = Arc::clone(&tree);
            thread::spawn("model", move || assert_eq!(tree.delete(110).unwrap(), Some(110)))
        };
        let comes = {
            let tree = Arc::clone(&tree);
            thread::spawn("model", move || {
                assert_eq!(tree.insert(155, 155).unwrap(), None);
                assert_eq!(tree.get(155).unwrap(), Some(155));
            })
        };
        check(&tree, (1..=10).map(|n| n * 10));
        goes.join().unwrap();
        comes.join().unwrap();
        end(&tree, (1..=10).map(|n| n * 10).chain([155]));
    });
}

#[test]
fn neighbours_go_at_the_same_time() {
    explore_policies(|policy| {
        let tree = loaded(policy, (1..=30).map(|n| n * 10));
        let last_of = |leaf: u64| leaf * 100 + 10;
        for n in (11..=30).filter(|n| n % 10 != 1) {
            assert_eq!(tree.delete(n * 10).unwrap(), Some(n * 10));
        }
        let going = [1, 2].map(|leaf| {
            let tree = Arc::clone(&tree);
            thread::spawn("model", move || {
                assert_eq!(tree.delete(last_of(leaf)).unwrap(), Some(last_of(leaf)));
            })
        });
        check(&tree, (1..=10).map(|n| n * 10));
        going.into_iter().for_each(|thread| thread.join().unwrap());
        end(&tree, (1..=10).map(|n| n * 10));
    });
}

#[test]
fn an_entry_is_replaced_while_it_is_read() {
    explore_policies(|policy| {
        let (_, tree) = bytes::create(30, policy);
        let tree: Arc<BytesTree> = Arc::new(tree);
        tree.insert("all alike 1", "old").unwrap();
        tree.insert("all alike 2", "stays").unwrap();
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn("model", move || {
                assert_eq!(tree.insert("all alike 1", "new").unwrap(), Some(b"old".to_vec()));
                assert_eq!(tree.insert("all alike 3", "later").unwrap(), None);
            })
        };
        let found = tree.get("all alike 1").unwrap();
        assert!(found == Some(b"old".to_vec()) || found == Some(b"new".to_vec()), "{found:?}");
        assert_eq!(tree.get("all alike 2").unwrap(), Some(b"stays".to_vec()));
        writer.join().unwrap();
        assert_eq!(content(&*tree).unwrap().len(), 3);
        check_shape(&tree.tree);
    });
}
