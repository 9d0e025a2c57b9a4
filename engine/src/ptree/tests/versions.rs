//! Trees of versions: against a sorted map, and what a power cut may leave of them while the
//! memory of their records is used again.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::format::Shape;
use super::super::versions::{VERSIONS, VersionTree};
use super::bytes::key;
use super::support::Chance;
use crate::memtable::{Records, encode_record, set_seq};
use crate::mvcc::pin;
use crate::options::Failpoint;
use crate::pm::Region;
use crate::record::{Kind, LSN_MAX, Lsn};
use terrace_testkit::{Explorer, Machine, Survive};

/// Versions in order, with the offsets of their records.
type Model = BTreeMap<(Vec<u8>, Reverse<Lsn>), u64>;

const SHAPE: Shape = Shape { kind: VERSIONS, segment: 4 << 10, segments: 60 };

/// Records, in memory that is not cut.
struct Zones {
    region: Arc<Region>,
    tail: u64,
}

impl Zones {
    fn new() -> Zones {
        let region = Region::of_machine(&Machine::with_memory(), 1 << 20).unwrap();
        Zones { region, tail: 64 }
    }

    fn put(&mut self, key: &[u8], seq: Lsn) -> u64 {
        let (at, mut bytes) = (self.tail, Vec::new());
        encode_record(&mut bytes, 1, Kind::Put, key, b"");
        set_seq(&mut bytes, seq);
        drop(self.region.write(at, &bytes));
        self.tail += bytes.len() as u64;
        at
    }

    /// Puts another record where one was.
    fn reuse(&self, at: u64) {
        let (key, _) = self.region.locate(at);
        let mut bytes = Vec::new();
        encode_record(&mut bytes, 1, Kind::Put, &vec![b'~'; key.len()], b"");
        set_seq(&mut bytes, 1 << 40);
        drop(self.region.write(at, &bytes));
    }

    fn create(&self) -> (Machine, VersionTree) {
        let machine = Machine::with_memory();
        let region = Region::of_machine(&machine, SHAPE.region_len()).unwrap();
        let tree = VersionTree::format(&region, SHAPE, &self.region).unwrap();
        (machine, tree)
    }

    fn open(&self, machine: &Machine, failpoint: Option<Failpoint>) -> VersionTree {
        let mut region = Region::of_machine(machine, 0).unwrap();
        Arc::get_mut(&mut region).unwrap().set_failpoint(failpoint);
        VersionTree::open(&region, &self.region).unwrap()
    }

    fn content(&self, tree: &VersionTree) -> Result<Model, String> {
        let _guard = pin();
        let mut walks = [Vec::new(), Vec::new()];
        for (backward, walk) in walks.iter_mut().enumerate() {
            let mut cursor = tree.cursor();
            match backward {
                0 => cursor.seek(b"", LSN_MAX).unwrap(),
                _ => cursor.seek_before(None).unwrap(),
            }
            while let Some((seq, at)) = cursor.version() {
                walk.push(((self.region.locate(at).0.to_vec(), Reverse(seq)), at));
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
}

#[test]
fn versions_agree_with_a_sorted_map_through_restarts() {
    for seed in 0..4 {
        let (mut chance, mut zones) = (Chance(seed), Zones::new());
        let (mut machine, mut tree) = zones.create();
        let (mut model, mut seq) = (Model::new(), 0);
        for _ in 0..4 {
            for _ in 0..400 {
                let _guard = pin();
                let key = key(chance.below(120));
                let some = model.range((key.clone(), Reverse(LSN_MAX))..).next();
                let some = some.map(|(version, at)| (version.clone(), *at));
                match (chance.below(6), some) {
                    (0, Some(((key, Reverse(seq)), at))) => {
                        assert_eq!(tree.remove(&key, seq).unwrap(), Some(at));
                        assert_eq!(tree.remove(&key, seq).unwrap(), None);
                        model.remove(&(key, Reverse(seq)));
                    }
                    (1, Some(((key, Reverse(seq)), at))) => {
                        let to = zones.put(&key, seq);
                        assert!(!tree.relocate(&key, seq, to, at).unwrap(), "it is not there");
                        assert!(tree.relocate(&key, seq, at, to).unwrap());
                        model.insert((key, Reverse(seq)), to);
                    }
                    _ => {
                        seq += 1;
                        let at = zones.put(&key, seq);
                        assert!(tree.insert(&key, seq, at).unwrap());
                        assert!(!tree.insert(&key, seq, at).unwrap(), "twice is once");
                        model.insert((key, Reverse(seq)), at);
                    }
                }
                let (key, at_most) = (self::key(chance.below(120)), chance.below(seq + 2));
                let found = tree.get(&key, at_most).unwrap();
                let want = model.range((key.clone(), Reverse(at_most))..).next();
                let want = want.filter(|((found, _), _)| *found == key);
                assert_eq!(found, want.map(|((_, Reverse(seq)), at)| (*seq, *at)));
            }
            tree.set_merged(seq).unwrap();
            assert_eq!(zones.content(&tree).unwrap(), model);
            machine = machine.crash(Survive::Seeded(chance.next()));
            tree = zones.open(&machine, None);
            assert_eq!((zones.content(&tree).unwrap(), tree.merged()), (model.clone(), seq));
            assert_eq!(tree.reclaim().unwrap(), 0);
        }
        assert!(tree.stats().height >= 1);
    }
}

/// A merge cut anywhere: what was there is there; below the boundary nothing is missing; done again
/// it is done.
#[test]
fn a_merge_that_is_cut_is_done_again() {
    let mut zones = Zones::new();
    let (machine, tree) = zones.create();
    let mut put = |n: u64, seq| (key(n), seq, zones.put(&key(n), seq));
    let before: Vec<_> = (1..=12).map(|seq| put(seq % 5, seq)).collect();
    // Versions of keys that are there, and others; more than fit the leaf.
    let new: Vec<_> = (13..=20).map(|seq| put(seq % 7, seq)).collect();
    let insert = |tree: &VersionTree, versions: &[(Vec<u8>, Lsn, u64)]| {
        let _guard = pin();
        for (key, seq, at) in versions {
            tree.insert(key, *seq, *at).unwrap();
        }
    };
    let model_of = |versions: &[(Vec<u8>, Lsn, u64)]| -> Model {
        versions.iter().map(|(key, seq, at)| ((key.clone(), Reverse(*seq)), *at)).collect()
    };
    insert(&tree, &before);
    tree.set_merged(12).unwrap();
    let (old, mut all) = (model_of(&before), model_of(&before));
    all.extend(model_of(&new));
    machine.record();
    insert(&tree, &new);
    tree.set_merged(20).unwrap();
    machine.mark();
    let explorer = Explorer::new("merge", 1).most(12);
    let explored = explorer.explore(&machine.recorded().unwrap(), |found, moment| {
        let mut tree = zones.open(found, None);
        let now = zones.content(&tree)?;
        let whole = tree.merged() == 20;
        if !whole && (tree.merged() != 12 || moment.acknowledged > 0) {
            return Err(format!("merged up to {}", tree.merged()));
        }
        if whole && now != all || old.iter().any(|version| now.get(version.0) != Some(version.1)) {
            return Err(format!("merged up to {}, and found {now:?}", tree.merged()));
        }
        tree.reclaim().map_err(|e| e.to_string())?;
        insert(&tree, &new);
        match zones.content(&tree)? == all {
            true => Ok(()),
            false => Err("done again it is not done".into()),
        }
    });
    assert!(explored.unwrap().checked > 100);
}

/// Takes versions out, moves some, and has their memory used again as soon as that is done; cut
/// anywhere, the tree leads to no such memory.
fn forget(failpoint: Option<Failpoint>) -> Result<(), String> {
    let mut zones = Zones::new();
    let (machine, tree) = zones.create();
    let versions: Vec<_> = (1..=30u64).map(|n| (key(n), n, zones.put(&key(n), n))).collect();
    let guard = pin();
    versions.iter().for_each(|(key, seq, at)| assert!(tree.insert(key, *seq, *at).unwrap()));
    let tree = zones.open(&machine, failpoint);
    zones.content(&tree)?;
    machine.record();
    let mut gone = Vec::new();
    for (n, (key, seq, at)) in versions.iter().enumerate().take(12) {
        if n % 3 == 0 {
            let to = zones.put(key, *seq);
            assert!(tree.relocate(key, *seq, *at, to).unwrap());
        } else {
            assert_eq!(tree.remove(key, *seq).unwrap(), Some(*at));
        }
        gone.push(*at);
        machine.mark();
    }
    drop(guard);
    let trace = machine.recorded().unwrap();
    let explored = Explorer::new("forget", 1).most(16).explore(&trace, |found, moment| {
        let tree = zones.open(found, None);
        let now = zones.content(&tree)?;
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
        let tree = zones.open(&machine.crash(survive), None);
        assert_eq!(zones.content(&tree)?.len(), 30 - 8);
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
