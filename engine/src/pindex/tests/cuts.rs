//! Power cuts before every store, flush and fence of every operation.

use std::sync::Arc;

use super::support::{
    self, Chance, KEYS, Keys, Map, Model, Zones, check_shape, content, create, open,
};
use terrace_testkit::{Explored, Explorer, Machine, Survive, Violation};

/// One operation on a tree and its model.
type Act<'a> = &'a dyn Fn(&Map, &mut Model);

fn explore(
    name: &str,
    machine: (&Machine, &Arc<Zones>),
    model: &Model,
    act: Act<'_>,
) -> Result<Explored, Box<Violation>> {
    // A leaf's operations have few images, a split many, most of which differ in unread bytes.
    let few = if ["split", "unlink"].contains(&name) { 30 } else { 256 };
    let most = if std::env::var_os("TERRACE_LONG").is_some() { 4096 } else { few };
    support::explore((name, most), machine, model, act, go_on)
}

/// Works on: deletions next to each other, inserts, another cut.
fn go_on(machine: &Machine, tree: &mut Map, mut model: Model) -> Result<(), String> {
    let leaked = tree.reclaim().map_err(|e| e.to_string())?;
    if leaked > 4 {
        return Err(format!("{leaked} nodes and bounds leaked"));
    }
    let keys: Vec<u64> = model.keys().copied().collect();
    let some = keys.iter().step_by(keys.len() / 12 + 1).chain(keys.last());
    for key in some {
        for key in [*key, *key + 1] {
            let deleted = tree.delete(key).map_err(|e| e.to_string())?;
            if deleted != model.remove(&key) {
                return Err(format!("deleting {key} gave {deleted:?}"));
            }
        }
    }
    for key in keys.iter().take(3).map(|key| key + 1).chain([40, 400]) {
        tree.insert(key, 0).map_err(|e| e.to_string())?;
        model.insert(key, 0);
    }
    for survive in [Survive::Nothing, Survive::Everything] {
        let tree = open(&machine.crash(survive), &tree.zones)?;
        if content(&tree)? != model {
            return Err(format!(
                "what was done after the cut is lost in a second one: {survive:?}"
            ));
        }
        check_shape(&tree.tree);
    }
    Ok(())
}

fn insert(key: u64, value: u64) -> impl Fn(&Map, &mut Model) {
    move |tree, model| {
        assert_eq!(tree.insert(key, value).unwrap(), model.insert(key, value));
    }
}

fn delete(key: u64) -> impl Fn(&Map, &mut Model) {
    move |tree, model| assert_eq!(tree.delete(key).unwrap(), model.remove(&key))
}

/// An index of so many nodes at most, with these numbers in this order.
fn filled(
    nodes: u64,
    keys: Keys,
    numbers: impl Iterator<Item = u64>,
) -> (Machine, Arc<Zones>, Model) {
    let (machine, tree) = create(nodes, keys);
    let mut model = Model::new();
    for n in numbers {
        insert(n, n % 2)(&tree, &mut model);
    }
    (machine, tree.zones, model)
}

#[test]
fn one_leaf_at_every_place() {
    for keys in KEYS {
        let mut explored = Explored::default();
        for n in [0, 1, 2, 5, 9, 12] {
            let (machine, zones, model) = filled(15, keys, (1..=n).map(|key| key * 10));
            for place in 0..=n {
                let act = insert(place * 10 + 5, 1);
                explored.absorb(&explore("insert", (&machine, &zones), &model, &act).unwrap());
                if place > 0 {
                    let act = delete(place * 10);
                    explored.absorb(&explore("delete", (&machine, &zones), &model, &act).unwrap());
                    let act = insert(place * 10, 7);
                    explored.absorb(&explore("update", (&machine, &zones), &model, &act).unwrap());
                }
            }
        }
        assert!(explored.checked > 500 && explored.sampled == 0, "{explored:?}");
    }
}

#[test]
fn leaves_with_holes() {
    for keys in KEYS {
        for seed in 0..20 {
            let mut chance = Chance(seed);
            let (machine, zones, mut model) = filled(15, keys, (1..=13).map(|key| key * 10));
            let tree = open(&machine, &zones).unwrap();
            for _ in 0..1 + chance.below(9) {
                let key = (1 + chance.below(13)) * 10;
                assert_eq!(tree.delete(key).unwrap(), model.remove(&key));
            }
            for _ in 0..4 {
                let act = insert(chance.below(14) * 10 + 5, 1);
                explore("insert", (&machine, &zones), &model, &act).unwrap();
            }
        }
    }
}

/// The rig sees what it should: where stores to a line come in any order, shifts are not safe.
#[test]
fn shifts_need_the_order_within_a_line() {
    for keys in KEYS {
        let (machine, zones, model) = filled(15, keys, (1..=9).map(|key| key * 10));
        machine.arm();
        let act = insert(15, 1);
        let found = explore("insert", (&machine, &zones), &model, &act).unwrap_err();
        assert!(found.what.contains("lost Some") || found.what.contains("found Some"), "{found}");
    }
}

/// Splits of leaves, of the root and of inner nodes; each with what comes before.
#[test]
fn splits_at_every_level() {
    for keys in KEYS {
        let mut chance = Chance(5);
        let (machine, tree) = create(60, keys);
        let (mut model, mut seen) = (Model::new(), [0; 3]);
        let mut sampled = 0;
        while seen[2] < 2 {
            let key = chance.below(100_000);
            let (splits, height) = (tree.splits(), tree.height());
            let before = machine.kill();
            let old = model.clone();
            insert(key, 0)(&tree, &mut model);
            let (splits, height) = (tree.splits() - splits, tree.height() > height);
            let kind = if splits > 1 { 2 } else { usize::from(height) };
            if splits == 0 || kind == 0 && seen[0] > 1 {
                continue;
            }
            seen[kind] += 1;
            let explored = explore("split", (&before, &tree.zones), &old, &insert(key, 0)).unwrap();
            sampled += explored.sampled;
        }
        assert!(seen[1] > 0 && sampled > 0, "{seen:?}");
    }
}

#[test]
fn empty_leaves_on_their_way_out() {
    for keys in KEYS {
        let (machine, zones, mut model) = filled(60, keys, (1..=100).map(|key| key * 10));
        let tree = open(&machine, &zones).unwrap();
        let mut unlinked = 0;
        for key in (10..=800).step_by(10) {
            let before = machine.kill();
            let (old, unlinks) = (model.clone(), tree.unlinks());
            delete(key)(&tree, &mut model);
            if tree.unlinks() > unlinks {
                unlinked += 1;
                if unlinked % 3 != 1 {
                    continue;
                }
                explore("unlink", (&before, &tree.zones), &old, &delete(key)).unwrap();
            }
        }
        assert!(unlinked > 2, "{unlinked}");
    }
}

/// Cuts in the first touch of what an earlier cut has left.
#[test]
fn a_second_cut_while_the_first_is_cleared_up() {
    for keys in KEYS {
        let (machine, zones, mut model) = filled(60, keys, (1..=13).map(|key| key * 10));
        let tree = open(&machine, &zones).unwrap();
        let mut repairs = 0;
        for seed in 0..60 {
            let copy = machine.kill();
            let tree = open(&copy, &zones).unwrap();
            content(&tree).unwrap();
            copy.cut_before(1 + seed % 6, Survive::Seeded(seed));
            insert(seed % 14 * 10 + 5, 1)(&tree, &mut model.clone());
            let Some(found) = copy.found() else { continue };
            found.record();
            let tree = open(&found, &zones).unwrap();
            let first = content(&tree).unwrap();
            repairs += tree.repairs();
            let explorer = Explorer::new("first touch", seed);
            let explored = explorer.explore(&found.recorded().unwrap(), |again, _| {
                let mut tree = open(again, &zones)?;
                let now = content(&tree)?;
                if now != first {
                    return Err(format!("found {now:?} after {first:?}"));
                }
                go_on(again, &mut tree, now)
            });
            explored.unwrap();
        }
        assert!(repairs > 0, "some cut leaves something to clear");
        delete(10)(&tree, &mut model);
    }
}
