//! Power cuts before every store, flush and fence of every operation on a tree of byte strings.

use super::super::{BytesTree, Policy};
use super::bytes::{Model, create, key, open};
use super::support::{self, Chance, POLICIES, check_shape, content};
use crate::os::sim::{Explored, Explorer, Machine, Survive, Violation};

type Act<'a> = &'a dyn Fn(&BytesTree, &mut Model);

fn explore(
    name: &str,
    machine: (&Machine, Policy),
    model: &Model,
    act: Act<'_>,
) -> Result<Explored, Box<Violation>> {
    let most = if std::env::var_os("TERRACE_LONG").is_some() { 2048 } else { 10 };
    support::explore((name, most), machine, model, act, go_on)
}

/// Works on, so that memory that was freed is used again, and ends once more.
fn go_on(
    machine: &Machine,
    tree: &mut BytesTree,
    mut model: Model,
    policy: Policy,
) -> Result<(), String> {
    let leaked = tree.reclaim().map_err(|e| e.to_string())?;
    if leaked > 4 {
        return Err(format!("{leaked} objects leaked"));
    }
    let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    for key in keys.iter().step_by(keys.len() / 8 + 1).chain(keys.last()) {
        if tree.delete(key).map_err(|e| e.to_string())? != model.remove(key) {
            return Err(format!("deleting {key:?} gave another value"));
        }
    }
    for key in keys.iter().take(3) {
        let key = [key.as_slice(), b"\0 again"].concat();
        tree.insert(&key, "x").map_err(|e| e.to_string())?;
        model.insert(key, b"x".to_vec());
    }
    for survive in [Survive::Nothing, Survive::Everything] {
        let tree = open(&machine.crash(survive), policy)?;
        if content(&tree)? != model {
            return Err(format!("what was done after the cut is lost in a second: {survive:?}"));
        }
        check_shape(&tree.tree);
    }
    Ok(())
}

fn insert(n: u64, len: usize) -> impl Fn(&BytesTree, &mut Model) {
    move |tree, model| {
        let value = vec![n as u8; len];
        assert_eq!(tree.insert(key(n), &value).unwrap(), model.insert(key(n), value));
    }
}

fn delete(n: u64) -> impl Fn(&BytesTree, &mut Model) {
    move |tree, model| assert_eq!(tree.delete(key(n)).unwrap(), model.remove(&key(n)))
}

/// A tree of the keys of these numbers.
fn filled(policy: Policy, keys: impl Iterator<Item = u64>) -> (Machine, Model) {
    let (machine, tree) = create(24, policy);
    let mut model = Model::new();
    keys.for_each(|n| insert(n, n as usize % 70)(&tree, &mut model));
    (machine, model)
}

#[test]
fn one_leaf() {
    for policy in POLICIES {
        let mut explored = Explored::default();
        let (machine, model) = filled(policy, 0..9);
        for n in [0, 3, 4, 8, 9, 11, 17] {
            // Those that are there are replaced, by one word.
            let act = insert(n, 90);
            explored.absorb(&explore("insert", (&machine, policy), &model, &act).unwrap());
            if n < 9 {
                let act = delete(n);
                explored.absorb(&explore("delete", (&machine, policy), &model, &act).unwrap());
            }
        }
        assert!(explored.checked > 150, "{explored:?}");
    }
}

#[test]
fn splits() {
    for policy in POLICIES {
        let mut chance = Chance(5);
        let (machine, tree) = create(40, policy);
        let (mut model, mut seen) = (Model::new(), [0; 2]);
        while seen.iter().any(|seen| *seen < 2) {
            // Alike in the first bytes, so that bounds lie in entries, or not.
            let n = chance.below(10_000) / 5 * 5 + chance.below(2);
            let (before, old, stats) = (machine.kill(), model.clone(), tree.stats());
            insert(n, 3)(&tree, &mut model);
            let after = tree.stats();
            let higher = usize::from(after.height > stats.height);
            if after.splits > stats.splits && seen[higher] < 2 {
                seen[higher] += 1;
                explore("split", (&before, policy), &old, &insert(n, 3)).unwrap();
            }
        }
    }
}

#[test]
fn empty_leaves_on_their_way_out() {
    for policy in POLICIES {
        let alike = |n: u64| n * 5 + 1;
        let (machine, mut model) = filled(policy, (100..200).map(alike));
        let tree = open(&machine, policy).unwrap();
        let mut unlinked = 0;
        for n in (100..180).map(alike) {
            let (before, old, unlinks) = (machine.kill(), model.clone(), tree.stats().unlinks);
            delete(n)(&tree, &mut model);
            if tree.stats().unlinks > unlinks {
                unlinked += 1;
                if unlinked % 6 == 1 {
                    explore("unlink", (&before, policy), &old, &delete(n)).unwrap();
                }
            }
        }
        assert!(unlinked > 2, "{unlinked}");
    }
}

#[test]
fn bulk_loads() {
    let policy = Policy::Nearest;
    let (machine, tree) = create(30, policy);
    drop(tree);
    let mut tree = open(&machine, policy).unwrap();
    let model: Model = (0..60).map(|n| (key(n), vec![1; 5])).collect();
    machine.record();
    tree.bulk_load(&model).unwrap();
    machine.mark();
    let explorer = Explorer::new("bulk load", 1).most(6);
    let explored = explorer.explore(&machine.recorded().unwrap(), |found, moment| {
        let mut tree = open(found, policy)?;
        let now = content(&tree)?;
        if now != model && (!now.is_empty() || moment.acknowledged > 0) {
            return Err(format!("found {} of {}", now.len(), model.len()));
        }
        tree.reclaim().map_err(|e| e.to_string())?;
        let insert = |n| tree.insert(key(n), "1").map(drop);
        (0..50).try_for_each(insert).map_err(|e| e.to_string())
    });
    assert!(explored.unwrap().moments > 100);
}

/// What a split has moved is cleared where it was before the entries it led to can be freed. Were
/// it not, an entry in the same memory under another key would be found twice after a restart.
#[test]
fn memory_that_is_used_again_brings_no_slot_back_to_life() {
    for policy in POLICIES {
        for seed in 0..6 {
            let mut chance = Chance(seed);
            let (machine, tree) = create(40, policy);
            let mut model = Model::new();
            for _ in 0..150 {
                let n = chance.below(300);
                // All entries have one size: what is freed is used next.
                if chance.below(3) == 0 {
                    delete(n)(&tree, &mut model);
                    crate::mvcc::drive();
                } else {
                    insert(n, 20)(&tree, &mut model);
                }
            }
            for survive in [Survive::Nothing, Survive::Everything] {
                let tree = open(&machine.crash(survive), policy).unwrap();
                assert_eq!(content(&tree).unwrap(), model);
                assert_eq!(tree.stats().repairs, 0, "nothing is left to clear");
            }
        }
    }
}

#[test]
fn two_threads_cut_anywhere() {
    for policy in POLICIES {
        let (machine, tree) = create(30, policy);
        let mut base = Model::new();
        (0..40).for_each(|n| insert(n, 4)(&tree, &mut base));
        machine.record();
        std::thread::scope(|scope| {
            for thread in 1..3u64 {
                let tree = &tree;
                scope.spawn(move || {
                    let mut chance = Chance(thread);
                    for n in 0..14 {
                        let key = [key(chance.below(40)), format!("+{thread}").into_bytes()];
                        let key = key.concat();
                        match n % 3 {
                            2 => drop(tree.delete(&key).unwrap()),
                            _ => drop(tree.insert(&key, &key).unwrap()),
                        }
                    }
                });
            }
        });
        let explorer = Explorer::new("two threads", 1).most(3);
        let explored = explorer.explore(&machine.recorded().unwrap(), |found, _| {
            let mut tree = open(found, policy)?;
            let now = content(&tree)?;
            if let Some(lost) = base.iter().find(|(key, value)| now.get(*key) != Some(value)) {
                return Err(format!("{lost:?} is lost"));
            }
            let strange = now.iter().find(|(k, v)| !base.contains_key(*k) && k != v);
            if let Some(strange) = strange {
                return Err(format!("found {strange:?}"));
            }
            check_shape(&tree.tree);
            tree.reclaim().map(drop).map_err(|e| e.to_string())
        });
        assert!(explored.unwrap().moments > 100);
    }
}
