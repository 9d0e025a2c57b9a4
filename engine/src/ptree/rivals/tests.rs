//! Rivals are held against what is right, not against less than they are.

use std::collections::BTreeMap;
use std::result::Result;

use super::*;
use crate::os::sim::{Explored, Explorer, Machine, Violation};
use crate::pm::{PAGE, Region};
use crate::ptree::tests::support::Chance;

const SEGMENT: u64 = 16 * 1024;

type Tree = Box<dyn PersistentTree>;

#[derive(Clone, Copy, Debug)]
enum Kind {
    FastFair(DeleteOrder),
    Wb,
}

impl Kind {
    fn ground(self, machine: &Machine) -> Ground {
        let region = Region::of_machine(machine, PAGE + SEGMENT).unwrap();
        let node = match self {
            Kind::FastFair(_) => FastFair::NODE,
            Kind::Wb => WbTree::NODE,
        };
        Ground::of(&region, SEGMENT, 1, node).unwrap()
    }

    fn create(self, machine: &Machine) -> Tree {
        match self {
            Kind::FastFair(order) => {
                Box::new(FastFair::create(self.ground(machine), order).unwrap())
            }
            Kind::Wb => Box::new(WbTree::create(self.ground(machine)).unwrap()),
        }
    }

    fn open(self, machine: &Machine) -> Tree {
        match self {
            Kind::FastFair(_) => Box::new(FastFair::open(self.ground(machine)).unwrap()),
            Kind::Wb => Box::new(WbTree::open(self.ground(machine)).unwrap()),
        }
    }
}

const SAFE: [Kind; 2] = [Kind::FastFair(DeleteOrder::Safe), Kind::Wb];

#[test]
fn rivals_agree_with_a_sorted_map() {
    for kind in SAFE {
        let machine = Machine::with_memory();
        let mut tree = kind.create(&machine);
        let (mut model, mut chance) = (BTreeMap::new(), Chance(1));
        for round in 0..1200 {
            let key = 1 + chance.below(400);
            if chance.below(5) < 2 || model.contains_key(&key) {
                assert_eq!(tree.delete(key).unwrap(), model.remove(&key).is_some());
            } else {
                let value = 1_000_000 + chance.below(1 << 60);
                model.insert(key, value);
                tree.insert(key, value).unwrap();
            }
            let key = 1 + chance.below(400);
            assert_eq!(tree.get(key).unwrap(), model.get(&key).copied(), "round {round}");
        }
        assert!(tree.content().into_iter().eq(model));
    }
}

/// Cuts one operation everywhere.
fn explore(
    keys: u64,
    kind: Kind,
    act: impl Fn(&mut dyn PersistentTree),
) -> Result<Explored, Box<Violation>> {
    let machine = Machine::with_memory();
    let mut tree = kind.create(&machine);
    (1..=keys).for_each(|key| tree.insert(key * 10, key * 10 + (1 << 40)).unwrap());
    let before = tree.content();
    machine.record();
    act(&mut *tree);
    machine.mark();
    let after = tree.content();
    let explorer = Explorer::new(format!("{kind:?}"), 1).most(100);
    explorer.explore(&machine.recorded().unwrap(), |found, moment| {
        let mut tree = kind.open(found);
        let mut now = tree.content();
        if now != after && (now != before || moment.acknowledged > 0) {
            return Err(format!("found {now:?}"));
        }
        for key in [3, 33, 77] {
            tree.insert(key, key + (1 << 50)).map_err(|e| e.to_string())?;
            now.push((key, key + (1 << 50)));
        }
        if let Some(gone) = now.iter().position(|(key, _)| *key == 20) {
            tree.delete(20).map_err(|e| e.to_string())?;
            now.remove(gone);
        }
        now.sort_unstable();
        if tree.content() == now { Ok(()) } else { Err("what came after is wrong".into()) }
    })
}

#[test]
fn rivals_survive_cuts_everywhere() {
    for kind in SAFE {
        for keys in [1, 5, 12, 13, 20, 28, 97, 104] {
            for key in [5, keys * 5 + 6, keys * 10 + 5] {
                explore(keys, kind, |tree| tree.insert(key, 1 << 41).unwrap()).unwrap();
            }
            for key in [10, keys.div_ceil(2) * 10, keys * 10] {
                explore(keys, kind, |tree| assert!(tree.delete(key).unwrap())).unwrap();
            }
        }
    }
}

#[test]
fn the_published_order_of_flushes_loses_entries() {
    let published = Kind::FastFair(DeleteOrder::Published);
    let found = explore(13, published, |tree| assert!(tree.delete(10).unwrap())).unwrap_err();
    assert!(found.what.starts_with("found"), "{found}");
}
