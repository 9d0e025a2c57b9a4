//! Power cuts before every store, flush and fence of every operation on a tree of byte strings.

use super::super::{BytesTree, Policy};
use super::bytes::{Model, create, create_on, key, open};
use super::support::{self, Chance, MACHINES, POLICIES, Told, check_shape, content, everywhere};
use terrace_testkit::{Explored, Explorer, Machine, Survive, Violation};

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
fn filled(machine: Machine, policy: Policy, keys: impl Iterator<Item = u64>) -> (Machine, Model) {
    let (machine, tree) = create_on(machine, 24, policy);
    let mut model = Model::new();
    keys.for_each(|n| insert(n, n as usize % 70)(&tree, &mut model));
    (machine, model)
}

#[test]
fn one_leaf() {
    for (on, policy) in everywhere() {
        let mut explored = Explored::default();
        let (machine, model) = filled(on(), policy, 0..9);
        for n in [0, 3, 4, 8, 9, 11, 17] {
            // Those that are there are replaced, by one word.
            let act = insert(n, 90);
            explored.absorb(&explore("insert", (&machine, policy), &model, &act).unwrap());
            if n < 9 {
                let act = delete(n);
                explored.absorb(&explore("delete", (&machine, policy), &model, &act).unwrap());
            }
        }
        let least = if machine.memory().is_some() { 150 } else { 40 };
        assert!(explored.checked > least, "{explored:?}");
    }
}

#[test]
fn splits() {
    for (on, policy) in everywhere() {
        let mut chance = Chance(5);
        let (machine, tree) = create_on(on(), 40, policy);
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
    for (on, policy) in everywhere() {
        let alike = |n: u64| n * 5 + 1;
        let (machine, mut model) = filled(on(), policy, (100..200).map(alike));
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
    for (on, moments) in MACHINES.into_iter().zip([100, 4]) {
        let (machine, tree) = create_on(on(), 30, policy);
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
        assert!(explored.unwrap().moments > moments);
    }
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

/// The keys that a thread deletes, or gives themselves for values: how they end says whose they
/// are.
fn calls(thread: usize) -> Vec<(Vec<u8>, bool)> {
    let mut chance = Chance(thread as u64);
    let mut key = || [key(chance.below(40)), vec![b'+', thread as u8]].concat();
    (0..14).map(|n| (key(), n % 3 < 2)).collect()
}

/// What the keys of a thread hold before and after each of its calls.
fn states(thread: usize) -> Vec<Model> {
    let mut states = vec![Model::new()];
    for (key, inserts) in calls(thread) {
        let mut state = states[states.len() - 1].clone();
        match inserts {
            true => state.insert(key.clone(), key),
            false => state.remove(&key),
        };
        states.push(state);
    }
    states
}

#[test]
fn two_threads_cut_anywhere() {
    for (on, policy) in everywhere() {
        let (machine, tree) = create_on(on(), 30, policy);
        let mut base = Model::new();
        (0..40).for_each(|n| insert(n, 4)(&tree, &mut base));
        let told = Told::new(&machine);
        machine.record();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (tree, told) = (&tree, &told);
                scope.spawn(move || {
                    for (key, inserts) in calls(thread) {
                        match inserts {
                            true => drop(tree.insert(&key, &key).unwrap()),
                            false => drop(tree.delete(&key).unwrap()),
                        }
                        told.note(thread);
                    }
                });
            }
        });
        let states = [0, 1].map(states);
        let owner = |key: &Vec<u8>| match key[..] {
            [.., b'+', thread @ 0..2] => Some(usize::from(thread)),
            _ => None,
        };
        let explorer = Explorer::new("two threads", 1).most(3);
        let explored = explorer.explore(&machine.recorded().unwrap(), |found, moment| {
            let mut tree = open(found, policy)?;
            let now = content(&tree)?;
            told.check::<BytesTree>(moment, &now, &states, owner)?;
            let untouched = now.iter().filter(|(key, _)| owner(key).is_none());
            if !untouched.eq(&base) {
                return Err(format!("of {base:?} there is {now:?}"));
            }
            check_shape(&tree.tree);
            tree.reclaim().map(drop).map_err(|e| e.to_string())
        });
        assert!(explored.unwrap().moments > 50);
    }
}
