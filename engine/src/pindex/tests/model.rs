//! Random operations against a sorted map.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::support::{
    Chance, KEYS, Keys, Map, Model, Zones, check_shape, content, create, create_as, is_of, open,
};
use crate::base::error::ErrorKind;
use crate::mvcc::{defer, drive_until};
use crate::pindex::node::Shape;
use terrace_testkit::Survive;

/// Few keys, so that they come again; values that often repeat their neighbours', and zeros.
fn act(tree: &Map, model: &mut Model, chance: &mut Chance, keys: u64, deletes: u64) {
    let (key, value) = (chance.below(keys) * 3, chance.below(3));
    match chance.below(10) {
        n if n < deletes => assert_eq!(tree.delete(key).unwrap(), model.remove(&key)),
        _ => assert_eq!(tree.insert(key, value).unwrap(), model.insert(key, value)),
    }
    let key = chance.below(keys * 3);
    assert_eq!(tree.get(key).unwrap(), model.get(&key).copied());
}

#[test]
fn it_agrees_with_a_sorted_map_through_restarts() {
    for seed in 0..6 {
        let mut chance = Chance(seed);
        let (mut machine, mut tree) = create(600, KEYS[seed as usize % 2]);
        let (zones, mut model) = (Arc::clone(&tree.zones), Model::new());
        for round in 0..8 {
            let deletes = [1, 3, 7, 5][round % 4];
            for _ in 0..900 {
                act(&tree, &mut model, &mut chance, 900, deletes);
            }
            assert_eq!(content(&tree).unwrap(), model);
            check_shape(&tree.tree);
            let (from, to) = (chance.below(2700), chance.below(2700));
            if from <= to {
                let want: Vec<_> = model.range(from..=to).map(|(k, v)| (*k, *v)).collect();
                assert_eq!(tree.range(from..=to).unwrap(), want);
                let found = tree.range_back(from..=to).unwrap();
                assert!(found.into_iter().rev().eq(want));
            }
            machine = machine.crash(Survive::Seeded(chance.next()));
            tree = open(&machine, &zones).unwrap();
            assert_eq!(content(&tree).unwrap(), model);
            check_shape(&tree.tree);
            assert_eq!(tree.reclaim().unwrap(), 0);
        }
        assert!(tree.height() >= 1);
    }
}

#[test]
fn a_full_region_refuses_and_keeps_what_it_has() {
    for keys in KEYS {
        let (machine, tree) = create(15, keys);
        let mut model = Model::new();
        let mut chance = Chance(3);
        let full = loop {
            let key = chance.below(1 << 30);
            match tree.insert(key, 1) {
                Ok(_) => drop(model.insert(key, 1)),
                Err(full) => break full,
            }
        };
        assert_eq!(full.kind(), ErrorKind::Full, "{full}");
        assert!(model.len() > 60, "{}", model.len());
        assert_eq!(content(&tree).unwrap(), model);
        let tree = open(&machine.crash(Survive::Nothing), &tree.zones).unwrap();
        assert_eq!(content(&tree).unwrap(), model);
        let (first, _) = model.pop_first().unwrap();
        assert_eq!(tree.delete(first).unwrap(), Some(1));
        assert_eq!(content(&tree).unwrap(), model);
    }
}

#[test]
fn emptied_leaves_go_and_their_memory_is_used_again() {
    for keys in KEYS {
        let (_machine, mut tree) = create(100, keys);
        let mut most = 0;
        for round in 0..20u64 {
            for key in 0..400 {
                tree.insert(round * 400 + key, key).unwrap();
            }
            most = most.max(tree.nodes().len());
            for key in 0..400 {
                assert_eq!(tree.delete(round * 400 + key).unwrap(), Some(key));
            }
            // Bounds are free when no epoch of before is left, in this test or another one.
            let ran = Arc::new(AtomicBool::new(false));
            let runs = Arc::clone(&ran);
            defer(move || runs.store(true, Ordering::Relaxed));
            assert!(drive_until(|| ran.load(Ordering::Relaxed)));
        }
        assert!(most <= 90, "{most} nodes");
        assert!(tree.unlinks() > 400);
        assert_eq!(tree.reclaim().unwrap(), 0);
        assert_eq!(content(&tree).unwrap(), Model::new());
        assert!(tree.nodes().len() <= 6, "{} nodes of an empty tree", tree.nodes().len());
        check_shape(&tree.tree);
    }
}

/// An opening takes no longer for a larger tree: of the memory it looks at the fixed part, the
/// header of each segment, the head, and the entries of both in their pools, and at no node.
#[test]
fn an_opening_reads_no_node() {
    let opening = |numbers: u64| {
        // As many segments, whatever is in them.
        let zones = Zones::new(Keys::Short);
        let (machine, tree) = create_as(Shape { segment: 600 << 10, segments: 2 }, &zones);
        (0..numbers).for_each(|n| assert_eq!(tree.insert(n, n).unwrap(), None));
        let nodes = tree.nodes();
        drop(tree);
        let copy = machine.kill();
        let read = copy.watch_reads();
        let tree = open(&copy, &zones).unwrap();
        let lines = read();
        let of_node = lines.iter().find(|line| is_of(&nodes, **line));
        assert_eq!(of_node, None, "it is read of an index of {numbers} numbers");
        assert_eq!(tree.get(numbers - 1).unwrap(), Some(numbers - 1));
        let more = read();
        assert!(more.iter().any(|line| is_of(&nodes, *line)), "then nodes are: {more:x?}");
        (lines.len(), nodes.len())
    };
    let (small, large) = (opening(1), opening(12_000));
    assert!(small.1 == 1 && large.1 > 900, "{small:?} and {large:?}");
    assert_eq!(small.0, large.0, "lines that were read");
}
