use std::result::Result;

use super::*;
use crate::base::error::ErrorKind;
use crate::pm::alloc::Slices;
use terrace_testkit::{Explored, Explorer, Machine, Violation};

const SEGMENT: u64 = 1024;
const OBJECT: u32 = 128;
/// A link to an object lies here.
const LINK: u64 = 0;
const CONTENT: [u8; 128] = [7; 128];

fn open(machine: &Machine, segments: u64) -> (Arc<Region>, ObjectPool) {
    let region = Region::of_machine(machine, LINE + segments * SEGMENT).unwrap();
    let slices = Slices::open(&region, LINE, SEGMENT, segments).unwrap();
    let slices: Arc<dyn Segments> = Arc::new(slices);
    let pool = ObjectPool::open(&region, &slices, 1, OBJECT);
    (region, pool)
}

fn counts(region: &Region) -> (u64, u64) {
    let counts = region.counts();
    (counts.total(|c| &c.flushes), counts.total(|c| &c.fences))
}

/// The whole way of an object to its use, one fence before the link.
fn allocate(region: &Region, pool: &ObjectPool) -> u64 {
    let object = pool.get().unwrap();
    let content = region.write(object, &CONTENT);
    let entry = pool.commit(object).unwrap();
    region.persist([content, entry]).unwrap();
    region.persist([region.store_word(LINK, object)]).unwrap();
    object
}

fn release(region: &Region, pool: &ObjectPool) {
    let object = region.word(LINK);
    region.persist([region.store_word(LINK, 0)]).unwrap();
    pool.release(object).unwrap();
}

/// Bug: an object released after a restart was given to two owners. Cause: it went to the list of
/// free ones at once, and a second time when the index of its segment was read. Fix: the index is
/// read before the object is freed.
#[test]
fn an_object_released_after_a_restart_is_given_out_once() {
    let machine = Machine::with_memory();
    let (region, pool) = open(&machine, 1);
    allocate(&region, &pool);
    let (region, pool) = open(&machine, 1);
    release(&region, &pool);
    let mut given = std::collections::BTreeSet::new();
    while let Ok(object) = pool.get() {
        assert!(given.insert(object), "object {object} is given out twice");
    }
    assert!(given.len() > 3, "{given:?}");
}

#[test]
fn an_allocation_costs_one_line_and_one_fence_and_a_release_too() {
    let machine = Machine::with_memory();
    let (region, pool) = open(&machine, 2);
    // The first one takes a segment.
    let first = pool.get().unwrap();
    region.persist([pool.commit(first).unwrap()]).unwrap();
    let before = counts(&region);
    let object = pool.get().unwrap();
    assert_eq!(counts(&region), before, "nothing is written before the commit");
    region.persist([region.write(object, &CONTENT), pool.commit(object).unwrap()]).unwrap();
    let lines = CONTENT.len() as u64 / LINE;
    assert_eq!(counts(&region), (before.0 + lines + 1, before.1 + 1));
    let before = counts(&region);
    pool.release(object).unwrap();
    assert_eq!(counts(&region), (before.0 + 1, before.1 + 1));
}

#[test]
fn objects_are_given_out_once_and_a_full_pool_says_so() {
    let machine = Machine::with_memory();
    let (region, pool) = open(&machine, 3);
    let mut objects = Vec::new();
    let full = loop {
        match pool.get() {
            Ok(object) => {
                region.persist([pool.commit(object).unwrap()]).unwrap();
                objects.push(object);
            }
            Err(full) => break full,
        }
    };
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    assert_eq!(objects.len(), 3 * 7, "seven objects and their index in a segment");
    assert!(objects.iter().all(|object| object.is_multiple_of(LINE)));
    objects.sort_unstable();
    assert!(objects.windows(2).all(|pair| pair[1] - pair[0] >= u64::from(OBJECT)));
    // Opened again, it is as full.
    let (_, pool) = open(&machine, 3);
    assert_eq!(pool.get().unwrap_err().kind(), ErrorKind::Full);
    pool.release(objects[7]).unwrap();
    assert_eq!(pool.get().unwrap(), objects[7]);
}

#[test]
fn what_nobody_reaches_is_found_by_a_scan() {
    let machine = Machine::with_memory();
    let (region, pool) = open(&machine, 2);
    let kept = allocate(&region, &pool);
    let leaked = pool.get().unwrap();
    region.persist([pool.commit(leaked).unwrap()]).unwrap();
    let (_, pool) = open(&machine, 2);
    let scan = pool.scan(|object| object == kept).unwrap();
    assert_eq!((scan.used, scan.leaked), (1, 1));
    assert!(!pool.check(leaked).unwrap() && pool.check(kept).unwrap());
    let again: Vec<u64> = (0..13).map(|_| pool.get().unwrap()).collect();
    assert!(again.contains(&leaked) && !again.contains(&kept));
}

#[test]
fn a_damaged_entry_is_reported_with_its_place() {
    let machine = Machine::with_memory();
    let (region, pool) = open(&machine, 2);
    allocate(&region, &pool);
    machine.corrupt(std::path::Path::new("region"), LINE + LINE, 1);
    let (_, pool) = open(&machine, 2);
    let error = pool.get().unwrap_err();
    assert_eq!(error.damage().map(|damage| damage.offset), Some(LINE + LINE), "{error}");
}

/// Whatever a cut leaves: a link leads to a taken object with its content, the rest can be
/// allocated, and nothing is lost.
fn sound(found: &Machine) -> Result<(), String> {
    let (region, pool) = open(found, 2);
    let linked = region.word(LINK);
    if linked != 0 {
        let taken = pool.check(linked).map_err(|e| e.to_string())?;
        if !taken || region.bytes(linked, CONTENT.len() as u64) != CONTENT {
            return Err(format!("the link leads to {linked}, taken: {taken}"));
        }
    }
    let scan = pool.scan(|object| object == linked).map_err(|e| e.to_string())?;
    if scan.leaked > 1 {
        return Err(format!("{scan:?}"));
    }
    let free = std::iter::from_fn(|| pool.get().ok()).filter(|object| *object != linked).count();
    match free as u64 + scan.used {
        14 => Ok(()),
        n => Err(format!("{n} objects of 14 are left")),
    }
}

fn explore(arm: bool, act: impl Fn(&Region, &ObjectPool)) -> Result<Explored, Box<Violation>> {
    let machine = Machine::with_memory();
    let (region, pool) = open(&machine, 2);
    machine.record();
    act(&region, &pool);
    let explorer = Explorer::new("object pool", 1);
    let explorer = if arm { explorer.arm() } else { explorer };
    explorer.explore(&machine.recorded().unwrap(), |found, _| sound(found))
}

#[test]
fn a_cut_anywhere_in_get_commit_and_release_loses_nothing() {
    for arm in [false, true] {
        let explored = explore(arm, |region, pool| {
            allocate(region, pool);
            release(region, pool);
            allocate(region, pool);
        });
        let explored = explored.unwrap();
        assert!(explored.images > 100 && explored.checked > 5, "{explored:?}");
    }
}

#[test]
fn a_link_before_the_fence_is_found() {
    let found = explore(false, |region, pool| {
        let object = pool.get().unwrap();
        let content = region.write(object, &CONTENT);
        let entry = pool.commit(object).unwrap();
        region.persist([region.store_word(LINK, object), content, entry]).unwrap();
    });
    assert!(found.unwrap_err().what.contains("the link leads to"));
}

#[test]
fn a_release_before_the_unlinking_is_found() {
    let found = explore(false, |region, pool| {
        let object = allocate(region, pool);
        pool.release(object).unwrap();
        region.persist([region.store_word(LINK, 0)]).unwrap();
    });
    assert!(found.unwrap_err().what.contains("taken: false"));
}
