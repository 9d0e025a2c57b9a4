//! The explorer on what the literature gets right and wrong: a sorted array of (key, value) slots
//! in persistent memory, ended by a null value, in which an entry whose value repeats the one
//! before it is not there (FAST, Hwang et al., 2018).

use super::*;
use crate::memory::SimPm;
use crate::pages::Pages;

const SLOTS: u64 = 14;
const AT: u64 = 32;

fn at(slot: u64) -> u64 {
    AT + slot * 16
}

struct Array<'a>(&'a SimPm);

impl Array<'_> {
    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.0.read(at, 8).try_into().unwrap())
    }

    fn slot(&self, slot: u64) -> (u64, u64) {
        (self.word(at(slot)), self.word(at(slot) + 8))
    }

    fn set(&self, slot: u64, (key, value): (u64, u64)) {
        self.0.store(at(slot) + 8, &value.to_le_bytes());
        self.0.store(at(slot), &key.to_le_bytes());
    }

    fn persist(&self, slot: u64) {
        self.0.flush(at(slot), 16);
        self.0.fence();
    }

    fn len(&self) -> u64 {
        (0..SLOTS).take_while(|slot| self.slot(*slot).1 != 0).count() as u64
    }

    /// What a reader sees.
    fn read(&self) -> Vec<(u64, u64)> {
        let mut before = u64::MAX;
        let seen = (0..self.len()).map(|slot| self.slot(slot)).filter(|(_, value)| {
            let hidden = *value == before;
            before = *value;
            !hidden
        });
        seen.collect()
    }

    fn insert(&self, key: u64, value: u64) {
        let len = self.len();
        let mut slot = len;
        while slot > 0 && self.slot(slot - 1).0 > key {
            self.set(slot, self.slot(slot - 1));
            if at(slot).is_multiple_of(64) {
                self.persist(slot);
            }
            slot -= 1;
        }
        let before = if slot == 0 { u64::MAX } else { self.slot(slot - 1).1 };
        self.0.store(at(slot) + 8, &before.to_le_bytes());
        self.0.store(at(slot), &key.to_le_bytes());
        self.0.store(at(slot) + 8, &value.to_le_bytes());
        self.persist(slot);
    }

    /// Deletes by shifting to the left, and flushes each line when its first slot was shifted
    /// (as published), or its last.
    fn delete(&self, key: u64, when_first: bool) {
        let len = self.len();
        let slot = (0..len).find(|slot| self.slot(*slot).0 == key).unwrap();
        let before = if slot == 0 { u64::MAX } else { self.slot(slot - 1).1 };
        self.0.store(at(slot) + 8, &before.to_le_bytes());
        for slot in slot..len {
            let (key, value) = self.slot(slot + 1);
            self.0.store(at(slot), &key.to_le_bytes());
            self.0.store(at(slot) + 8, &value.to_le_bytes());
            let flush = if when_first { at(slot) } else { at(slot + 1) };
            if flush.is_multiple_of(64) {
                self.persist(slot);
            }
        }
        self.persist(len - 1);
    }
}

fn filled(keys: u64) -> Machine {
    let machine = Machine::with_memory();
    let pm = machine.make_memory(512).unwrap();
    (1..=keys).for_each(|key| Array(&pm).insert(key * 10, key * 100));
    machine
}

fn content(machine: &Machine) -> Vec<(u64, u64)> {
    Array(machine.memory().unwrap().get().unwrap()).read()
}

/// Explores `act` on an array of `keys` entries: before or after it, nothing in between.
fn explore(
    keys: u64,
    explorer: &Explorer,
    act: impl Fn(&Array<'_>),
) -> Result<Explored, Box<Violation>> {
    let machine = filled(keys);
    let before = content(&machine);
    machine.record();
    act(&Array(machine.memory().unwrap().get().unwrap()));
    machine.mark();
    let after = content(&machine);
    explorer.explore(&machine.recorded().unwrap(), |found, moment| {
        let content = content(found);
        if content == after || content == before && moment.acknowledged == 0 {
            return Ok(());
        }
        Err(format!("found {content:?}"))
    })
}

#[test]
fn the_right_insert_passes_and_every_prefix_was_seen() {
    let explored = explore(12, &Explorer::new("insert", 1), |a| a.insert(5, 1)).unwrap();
    // 13 slots of two stores, with the one that hides; three flushes of full lines and a last one.
    assert_eq!(explored.moments, 27 + 2 * 4 + 1);
    assert_eq!((explored.sampled, explored.sites.len()), (0, 7), "{explored:?}");
    // Every store adds a state, and the start is one.
    assert_eq!(explored.checked, 27 + 1 + 1, "the last state, acknowledged, counts again");
}

#[test]
fn the_published_delete_loses_an_entry_and_is_replayed_from_its_report() {
    let explorer = Explorer::new("delete", 1);
    let found = explore(13, &explorer, |a| a.delete(10, true)).unwrap_err();
    assert!(found.to_string().contains("seed 1: power cut at event"), "{found}");
    let again = explorer.replay(&found.replay);
    let replayed = explore(13, &again, |a| a.delete(10, true)).unwrap_err();
    assert_eq!(replayed.to_string(), found.to_string());
}

#[test]
fn a_delete_that_flushes_full_lines_passes() {
    for keys in 1..=13 {
        for key in 1..=keys {
            explore(keys, &Explorer::new("delete", 1), |a| a.delete(key * 10, false)).unwrap();
        }
    }
}

/// Why a deletion in `ptree` stores a zero, and does not repeat the value before, as the source of
/// the one-direction-shift tree does.
#[test]
fn an_entry_deleted_by_repetition_comes_back_with_the_deletion_before_it() {
    let machine = filled(3);
    let array = Array(machine.memory().unwrap().get().unwrap());
    let delete = |slot: u64, before: u64| {
        array.0.store(at(slot) + 8, &before.to_le_bytes());
        array.persist(slot);
    };
    delete(1, array.slot(0).1);
    assert_eq!(content(&machine), [(10, 100), (30, 300)]);
    delete(0, u64::MAX);
    assert_eq!(content(&machine), [(20, 100), (30, 300)], "20 was deleted first");
}

#[test]
fn a_shift_relies_on_the_order_within_a_line() {
    let arm = Explorer::new("insert", 1).arm();
    let found = explore(3, &arm, |a| a.insert(5, 1)).unwrap_err();
    assert!(found.lines.iter().all(|line| line.contains("word")), "{found}");
}

#[test]
fn large_choices_are_sampled_with_their_corners() {
    let machine = Machine::with_memory();
    let pm = machine.make_memory(64 * 40).unwrap();
    machine.record();
    for line in 0..40u64 {
        pm.store(line * 64, &[1; 64]);
    }
    let trace = machine.recorded().unwrap();
    let (mut corners, mut inner) = (HashSet::new(), 0);
    let explorer = Explorer::new("fill", 7).most(300);
    let explored = explorer
        .explore(&trace, |found, moment| {
            let bytes = found.memory().unwrap().get().unwrap().read(0, 64 * 40);
            let full = bytes.chunks(64).filter(|line| line.iter().all(|b| *b == 1)).count();
            if bytes.chunks(64).all(|line| line[0] == line[63]) {
                corners.insert((full, moment.finished));
            } else {
                inner += 1;
            }
            Ok(())
        })
        .unwrap();
    assert!(explored.sampled > 30 && inner > 1000, "{explored:?}");
    for corner in [1, 39, 40] {
        assert!(corners.contains(&(corner, true)), "{corner} whole lines at the end");
    }
}

/// Bug: each choice there is was made, a number for every word at stake, before a few of them were
/// picked. Memory grew with the square of the words, and a run of the simulator was killed for it.
/// Fix: choices are picked first, and made then.
#[test]
fn choices_cost_what_is_picked_of_them() {
    let lens = vec![1; 1 << 16];
    let explorer = Explorer::new("stream", 1).most(6);
    let mut lines = Lines::durable(Pages::zeros(8 * lens.len()));
    lines.store(std::thread::current().id(), 0, &vec![1; 8 * lens.len()], true);
    let chains = lines.chains(false);
    assert_eq!(chains.len(), lens.len());
    let Combinations { of, sampled } = explorer.combinations(&chains, 1);
    assert!(sampled);
    assert_eq!(of.len(), 6);
    assert_eq!((&of[0], &of[1]), (&vec![0; lens.len()], &lens), "all old, all new");
    let one_line = |n: &Vec<usize>| [1, lens.len() - 1].contains(&n.iter().sum());
    assert!(of[2..].iter().all(one_line), "one ahead, or one behind");
}

#[test]
fn no_image_is_made_after_the_time_that_was_set() {
    let now = Instant::now();
    let explored = explore(12, &Explorer::new("insert", 1).until(now), |a| a.insert(5, 1)).unwrap();
    assert_eq!((explored.images, explored.checked), (0, 0), "{explored:?}");
    let later = now + std::time::Duration::from_secs(3600);
    let in_time = explore(12, &Explorer::new("insert", 1).until(later), |a| a.insert(5, 1));
    assert!(in_time.unwrap().images > 20);
}
