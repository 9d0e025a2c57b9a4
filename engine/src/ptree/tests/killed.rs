//! A process that was killed leaves its last stores in the caches: the next one reads them, and a
//! power cut still takes them.
//!
//! The bug: an opening took what it read for durable. What it did next was durable, and the cut
//! took what that rested on. One example is a version that was found in the index and therefore not
//! put in again. Another is a segment whose header went while it had nodes of the next process in
//! it. The cause: only a power cut was thought of, and what is found after one is durable. The fix:
//! the fixed part, the last segment's header and the heads at the opening, a node when it is first
//! touched, are flushed before anything rests on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::keys::Fixed;
use super::super::options::FIXED;
use super::super::tree::Tree;
use super::super::{BytesTree, OdsTree, Policy};
use super::bytes;
use super::support::{self, Chance, Map, Model, POLICIES, check_shape, content};
use crate::options::Failpoint;
use crate::pm::Region;
use terrace_testkit::{Machine, Survive};

/// Ends of the second process.
const CUTS: [Survive; 3] = [Survive::Nothing, Survive::Seeded(1), Survive::Seeded(2)];

/// Kills `act` before each of its steps; `go_on` gets what it left. How many steps there are.
fn kill_everywhere<M: Map>(
    (machine, policy): (&Machine, Policy),
    act: impl Fn(&M),
    mut go_on: impl FnMut(&Machine, u64),
) -> u64 {
    for step in 1.. {
        let copy = machine.kill();
        let tree = M::open(&copy, policy).unwrap();
        content(&tree).unwrap();
        copy.kill_before(step);
        act(&tree);
        let Some(found) = copy.found() else { return step - 1 };
        go_on(&found, step);
    }
    unreachable!("acts end")
}

/// Keys in no order, enough for splits.
fn keys(seed: u64, count: u64) -> Vec<u64> {
    let mut chance = Chance(seed);
    (0..count).map(|_| chance.below(1000) * 10).collect()
}

fn put(tree: &OdsTree, keys: &[u64], value: u64) {
    for key in keys {
        tree.insert(*key, value).unwrap();
    }
}

fn open(machine: &Machine, policy: Policy, failpoint: Option<Failpoint>) -> OdsTree {
    let mut region = Region::of_machine(machine, 0).unwrap();
    Arc::get_mut(&mut region).unwrap().set_failpoint(failpoint);
    OdsTree::new(Tree::open(&region, FIXED, |_| Fixed, policy).unwrap(), None)
}

/// What the second process reads is there after a cut; in how many of all cases it is not.
fn lost_after_it_was_read(failpoint: Option<Failpoint>) -> (u64, u64) {
    let (mut lost, mut all) = (0, 0);
    for policy in POLICIES {
        let (machine, tree) = support::create(60, policy);
        put(&tree, &keys(1, 90), 1);
        let more: Vec<u64> = keys(2, 30).iter().map(|key| key + 5).collect();
        let act = |tree: &OdsTree| {
            put(tree, &more, 2);
            keys(1, 40).iter().for_each(|key| assert!(tree.delete(*key).is_ok()));
        };
        kill_everywhere((&machine, policy), act, |found, _| {
            let read = content(&open(found, policy, failpoint)).unwrap();
            for survive in CUTS {
                let tree = open(&found.crash(survive), policy, failpoint);
                lost += u64::from(content(&tree).unwrap() != read);
                all += 1;
            }
        });
    }
    (lost, all)
}

#[test]
fn what_was_read_is_there_after_a_cut() {
    let (lost, all) = lost_after_it_was_read(None);
    assert!(lost == 0 && all > 500, "{lost} of {all}");
}

/// The control.
#[test]
fn what_is_trusted_to_the_caches_is_lost() {
    let (lost, all) = lost_after_it_was_read(Some(Failpoint::TrustCaches));
    assert!(lost > all / 20, "{lost} of {all}");
}

/// The second process reads nothing, and what it puts in and takes out stays so.
#[test]
fn what_is_done_after_a_kill_rests_on_nothing_that_can_go() {
    let there = keys(1, 60);
    for policy in POLICIES {
        let (machine, tree) = support::create(60, policy);
        put(&tree, &there, 1);
        let more: Vec<u64> = keys(2, 20).iter().map(|key| key + 5).collect();
        let act = |tree: &OdsTree| put(tree, &more, 2);
        kill_everywhere((&machine, policy), act, |found, step| {
            let mut tree = open(found, policy, None);
            let mut done = BTreeMap::new();
            for key in keys(step, 12) {
                tree.insert(key + 7, 3).unwrap();
                done.insert(key + 7, Some(3));
            }
            for key in there.iter().skip(step as usize % 50).take(8) {
                tree.delete(*key).unwrap();
                done.insert(*key, None);
            }
            tree.reclaim().unwrap();
            for survive in CUTS {
                let tree = open(&found.crash(survive), policy, None);
                let now: Model = content(&tree).unwrap();
                check_shape(&tree.tree);
                for (key, value) in &done {
                    assert_eq!(now.get(key), value.as_ref(), "key {key}, step {step}");
                }
                assert!(there.iter().all(|key| now.contains_key(key) || done.contains_key(key)));
            }
        });
    }
}

/// Nodes, bounds and entries from segments, of which each size takes its own, and new ones.
#[test]
fn segments_and_entries_that_were_just_taken() {
    let policy = Policy::default();
    let (machine, tree) = bytes::create(40, policy);
    let put = |tree: &BytesTree, n: u64, len: u64| {
        tree.insert(bytes::key(n), vec![n as u8; len as usize]).unwrap();
    };
    (0..20).for_each(|n| put(&tree, n, 10));
    // Longer ones are of sizes that no segment has yet.
    let act = |tree: &BytesTree| (20..34).for_each(|n| put(tree, n, 40 * n));
    let steps = kill_everywhere((&machine, policy), act, |found, step| {
        let tree = bytes::open(found, policy).unwrap();
        let mut read = content(&tree).unwrap();
        for n in 50..54 {
            put(&tree, n, 300 + n);
            read.insert(bytes::key(n), vec![n as u8; 300 + n as usize]);
        }
        for survive in CUTS {
            let tree = bytes::open(&found.crash(survive), policy).unwrap();
            assert_eq!(content(&tree).unwrap(), read, "killed before step {step}, {survive:?}");
        }
    });
    assert!(steps > 40, "{steps}");
}
