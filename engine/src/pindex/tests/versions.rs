//! Trees of versions: against a sorted map, and what a power cut may leave of them while the
//! memory of their records is used again.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::support::{Chance, Keys, Map, Zones, create_as, key, open, open_with};
use crate::base::options::Failpoint;
use crate::base::record::{LSN_MAX, Lsn};
use crate::memtable::Records;
use crate::mvcc::pin;
use crate::pindex::node::Shape;
use terrace_testkit::{Explorer, Survive};

/// Versions in order, with the offsets of their records.
type Model = BTreeMap<(Vec<u8>, Reverse<Lsn>), u64>;

const SHAPE: Shape = Shape { segment: 4 << 10, segments: 60 };

/// All versions, the same in both directions.
fn content(map: &Map) -> Result<Model, String> {
    let _guard = pin();
    let mut walks = [Vec::new(), Vec::new()];
    for (backward, walk) in walks.iter_mut().enumerate() {
        let mut cursor = map.tree.cursor();
        match backward {
            0 => cursor.seek(b"", LSN_MAX).unwrap(),
            _ => cursor.seek_before(None).unwrap(),
        }
        while let Some((seq, at)) = cursor.version() {
            walk.push(((map.zones.region.locate(at).0.to_vec(), Reverse(seq)), at));
            if backward == 0 { cursor.next().unwrap() } else { cursor.prev().unwrap() }
        }
    }
    let [forward, mut backward] = walks;
    backward.reverse();
    if forward != backward || !forward.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(format!("forward {forward:?}, backward {backward:?}"));
    }
    Ok(forward.into_iter().collect())
}

#[test]
fn versions_agree_with_a_sorted_map_through_restarts() {
    for seed in 0..4 {
        let (mut chance, zones) = (Chance(seed), Zones::new(Keys::Short));
        let (mut machine, mut map) = create_as(SHAPE, &zones);
        let (mut model, mut seq) = (Model::new(), 0);
        for _ in 0..4 {
            for _ in 0..400 {
                let _guard = pin();
                let key = key(chance.below(120));
                let some = model.range((key.clone(), Reverse(LSN_MAX))..).next();
                let some = some.map(|(version, at)| (version.clone(), *at));
                match (chance.below(6), some) {
                    (0, Some(((key, Reverse(seq)), at))) => {
                        assert_eq!(map.tree.remove(&key, seq).unwrap(), Some(at));
                        assert_eq!(map.tree.remove(&key, seq).unwrap(), None);
                        model.remove(&(key, Reverse(seq)));
                    }
                    (1, Some(((key, Reverse(seq)), at))) => {
                        let to = zones.put(&key, seq, b"");
                        assert!(!map.tree.relocate(&key, seq, to, at).unwrap(), "it is not there");
                        assert!(map.tree.relocate(&key, seq, at, to).unwrap());
                        model.insert((key, Reverse(seq)), to);
                    }
                    _ => {
                        seq += 1;
                        let at = zones.put(&key, seq, b"");
                        assert!(map.tree.insert(&key, seq, at).unwrap());
                        assert!(!map.tree.insert(&key, seq, at).unwrap(), "twice is once");
                        model.insert((key, Reverse(seq)), at);
                    }
                }
                let (key, at_most) = (self::key(chance.below(120)), chance.below(seq + 2));
                let found = map.tree.get(&key, at_most).unwrap();
                let want = model.range((key.clone(), Reverse(at_most))..).next();
                let want = want.filter(|((found, _), _)| *found == key);
                assert_eq!(found, want.map(|((_, Reverse(seq)), at)| (*seq, *at)));
            }
            map.forest.raise_merged(seq).unwrap();
            assert_eq!(content(&map).unwrap(), model);
            machine = machine.crash(Survive::Seeded(chance.next()));
            map = open(&machine, &zones).unwrap();
            assert_eq!((content(&map).unwrap(), map.forest.merged()), (model.clone(), seq));
            assert_eq!(map.reclaim().unwrap(), 0);
        }
        assert!(map.height() >= 1);
    }
}

/// A merge cut anywhere: what was there is there; below the boundary nothing is missing; done again
/// it is done.
#[test]
fn a_merge_that_is_cut_is_done_again() {
    let zones = Zones::new(Keys::Short);
    let (machine, map) = create_as(SHAPE, &zones);
    let put = |n: u64, seq| (key(n), seq, zones.put(&key(n), seq, b""));
    let before: Vec<_> = (1..=12).map(|seq| put(seq % 5, seq)).collect();
    // Versions of keys that are there, and others; more than fit the leaf.
    let new: Vec<_> = (13..=20).map(|seq| put(seq % 7, seq)).collect();
    let insert = |map: &Map, versions: &[(Vec<u8>, Lsn, u64)]| {
        let _guard = pin();
        for (key, seq, at) in versions {
            map.tree.insert(key, *seq, *at).unwrap();
        }
    };
    let model_of = |versions: &[(Vec<u8>, Lsn, u64)]| -> Model {
        versions.iter().map(|(key, seq, at)| ((key.clone(), Reverse(*seq)), *at)).collect()
    };
    insert(&map, &before);
    map.forest.raise_merged(12).unwrap();
    let (old, mut all) = (model_of(&before), model_of(&before));
    all.extend(model_of(&new));
    machine.record();
    insert(&map, &new);
    map.forest.raise_merged(20).unwrap();
    machine.mark();
    let explorer = Explorer::new("merge", 1).most(12);
    let explored = explorer.explore(&machine.recorded().unwrap(), |found, moment| {
        let mut map = open(found, &zones)?;
        let now = content(&map)?;
        let whole = map.forest.merged() == 20;
        if !whole && (map.forest.merged() != 12 || moment.acknowledged > 0) {
            return Err(format!("merged up to {}", map.forest.merged()));
        }
        if whole && now != all || old.iter().any(|version| now.get(version.0) != Some(version.1)) {
            return Err(format!("merged up to {}, and found {now:?}", map.forest.merged()));
        }
        map.reclaim().map_err(|e| e.to_string())?;
        insert(&map, &new);
        match content(&map)? == all {
            true => Ok(()),
            false => Err("done again it is not done".into()),
        }
    });
    assert!(explored.unwrap().checked > 100);
}

/// Takes versions out, moves some, and has their memory used again as soon as that is done; cut
/// anywhere, the tree leads to no such memory.
fn forget(failpoint: Option<Failpoint>) -> Result<(), String> {
    let zones = Zones::new(Keys::Short);
    let (machine, map) = create_as(SHAPE, &zones);
    let versions: Vec<_> = (1..=30u64).map(|n| (key(n), n, zones.put(&key(n), n, b""))).collect();
    let guard = pin();
    versions.iter().for_each(|(key, seq, at)| assert!(map.tree.insert(key, *seq, *at).unwrap()));
    let map = open_with(&machine, &zones, failpoint)?;
    content(&map)?;
    machine.record();
    let mut gone = Vec::new();
    for (n, (key, seq, at)) in versions.iter().enumerate().take(12) {
        if n % 3 == 0 {
            let to = zones.put(key, *seq, b"");
            assert!(map.tree.relocate(key, *seq, *at, to).unwrap());
        } else {
            assert_eq!(map.tree.remove(key, *seq).unwrap(), Some(*at));
        }
        gone.push(*at);
        machine.mark();
    }
    drop(guard);
    let trace = machine.recorded().unwrap();
    let explored = Explorer::new("forget", 1).most(16).explore(&trace, |found, moment| {
        let map = open(found, &zones)?;
        let now = content(&map)?;
        let released = &gone[..moment.acknowledged];
        match now.iter().find(|(_, at)| released.contains(at)) {
            Some((version, _)) => Err(format!("{version:?} is found in memory of others")),
            None => Ok(()),
        }
    });
    explored.map(|explored| assert!(explored.checked > 50)).map_err(|violation| violation.what)?;
    // And with that memory in use: nothing comes back to life.
    gone.iter().for_each(|at| zones.reuse(*at));
    for survive in [Survive::Nothing, Survive::Everything] {
        let map = open(&machine.crash(survive), &zones)?;
        assert_eq!(content(&map)?.len(), 30 - 8);
    }
    Ok(())
}

#[test]
fn what_is_forgotten_is_forgotten_before_its_memory_is_used_again() {
    forget(None).unwrap();
}

/// The control: a removal that is not durable when it returns is found out.
#[test]
fn a_removal_that_is_not_flushed_is_found_out() {
    for bug in [Failpoint::SkipFlush, Failpoint::SkipFence] {
        assert!(forget(Some(bug)).is_err(), "{bug:?}");
    }
}
