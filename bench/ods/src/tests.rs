//! The trees are held against what is right, not against less than they are.

use std::collections::{BTreeMap, HashSet};
use std::result::Result;
use std::time::Duration;

use super::*;
use terrace::Mode;
use terrace_testkit::{Explored, Explorer, Machine, Violation};

const SEGMENT: u64 = 16 * 1024;

type Tree = Box<dyn PersistentTree>;

/// splitmix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Ods(Policy),
    FastFair(DeleteOrder),
    Wb,
}

impl Kind {
    fn ground(self, machine: &Machine) -> Ground {
        let node = match self {
            Kind::Ods(_) => OdsTree::NODE,
            Kind::FastFair(_) => FastFair::NODE,
            Kind::Wb => WbTree::NODE,
        };
        Ground::of_machine(machine, (SEGMENT, 1), node).unwrap()
    }

    fn create(self, machine: &Machine) -> Tree {
        match self {
            Kind::Ods(policy) => Box::new(OdsTree::create(self.ground(machine), policy).unwrap()),
            Kind::FastFair(order) => {
                Box::new(FastFair::create(self.ground(machine), order).unwrap())
            }
            Kind::Wb => Box::new(WbTree::create(self.ground(machine)).unwrap()),
        }
    }

    fn open(self, machine: &Machine) -> Tree {
        match self {
            Kind::Ods(policy) => Box::new(OdsTree::open(self.ground(machine), policy)),
            Kind::FastFair(_) => Box::new(FastFair::open(self.ground(machine)).unwrap()),
            Kind::Wb => Box::new(WbTree::open(self.ground(machine)).unwrap()),
        }
    }
}

const SAFE: [Kind; 4] = [
    Kind::Ods(Policy::OneDirection),
    Kind::Ods(Policy::Nearest),
    Kind::FastFair(DeleteOrder::Safe),
    Kind::Wb,
];

#[test]
fn trees_agree_with_a_sorted_map() {
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
fn trees_survive_cuts_everywhere() {
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

/// Where lines are flushed and no thread waits for them.
const EMULATED: Mode = Mode::Emulated { delay: Duration::ZERO };

/// Room for a million keys.
const ROOM: u64 = 64 << 20;

fn ods(policy: Policy) -> (tempfile::TempDir, OdsTree) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tree");
    let ground = Ground::create(&path, ROOM, EMULATED, OdsTree::NODE).unwrap();
    (dir, OdsTree::create(ground, policy).unwrap())
}

/// Unique random keys of 62 bits, as the figure `ods` has them.
struct Keys {
    chance: Chance,
    used: HashSet<u64>,
}

impl Keys {
    fn new(seed: u64) -> Keys {
        Keys { chance: Chance(seed), used: HashSet::new() }
    }

    fn next(&mut self) -> u64 {
        loop {
            let key = (self.chance.next() >> 2) | 1;
            if self.used.insert(key) {
                return key;
            }
        }
    }

    fn insert(&mut self, count: usize, tree: &mut dyn PersistentTree) -> Vec<u64> {
        let keys: Vec<u64> = (0..count).map(|_| self.next()).collect();
        keys.iter().for_each(|key| tree.insert(*key, *key).unwrap());
        keys
    }
}

/// Lines that inserts and deletes of 50,000 keys flush in a tree of as many.
fn inserts_and_deletes(seed: u64, tree: &mut dyn PersistentTree) -> [u64; 2] {
    const KEYS: usize = 50_000;
    let mut keys = Keys::new(seed);
    let warm = keys.insert(KEYS, tree);
    let before = tree.lines();
    keys.insert(KEYS, tree);
    let inserted = tree.lines();
    warm.iter().for_each(|key| assert!(tree.delete(*key).unwrap()));
    [inserted - before, tree.lines() - inserted]
}

/// The counts of the figure `ods`: inserts flush as many lines as FAST&FAIR's and as the source
/// has, deletes one each, and two for each empty leaf that is unlinked: its parent's and its
/// neighbour's.
#[test]
fn lines_are_as_many_as_the_source_says() {
    for seed in 1..=3 {
        let (_dir, mut tree) = ods(Policy::OneDirection);
        let [inserts, deletes] = inserts_and_deletes(seed, &mut tree);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tree");
        let ground = Ground::create(&path, ROOM, EMULATED, FastFair::NODE).unwrap();
        let mut rival = FastFair::create(ground, DeleteOrder::Safe).unwrap();
        let [of_rival, more] = inserts_and_deletes(seed, &mut rival);
        assert_eq!(inserts, of_rival, "seed {seed}");
        assert!(inserts.abs_diff(156_600) <= 1_566, "seed {seed}: {inserts} lines");
        let unlinks = tree.unlinks();
        assert!(unlinks > 0 && more > deletes * 3 / 2, "seed {seed}: {more} for {deletes}");
        assert_eq!(deletes, 50_000 + 2 * unlinks, "seed {seed}: {unlinks} unlinks");
    }
}

/// Past the source: of one insert, one delete and three searches in five, the default policy
/// flushes at least 5 % fewer lines.
#[test]
fn the_nearest_hole_takes_fewer_lines() {
    let is_long = std::env::var_os("TERRACE_LONG").is_some();
    let (warm, operations) = if is_long { (500_000, 100_000) } else { (100_000, 20_000) };
    let lines = |policy| {
        let ((_dir, mut tree), mut keys) = (ods(policy), Keys::new(1));
        let mut live = keys.insert(warm, &mut tree);
        let before = tree.lines();
        for _ in 0..operations {
            let at = keys.chance.below(live.len() as u64) as usize;
            match keys.chance.below(5) {
                0 => live.extend(keys.insert(1, &mut tree)),
                1 => assert!(tree.delete(live.swap_remove(at)).unwrap()),
                _ => assert_eq!(tree.get(live[at]).unwrap(), Some(live[at])),
            }
        }
        tree.lines() - before
    };
    let [nearest, one_direction] = [Policy::Nearest, Policy::OneDirection].map(lines);
    assert!(nearest * 100 <= one_direction * 95, "{nearest} and {one_direction} lines");
}
