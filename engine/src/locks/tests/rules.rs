//! The lock table, step by step.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::locks::{LockManager, Locker, Mode, Patience};
use crate::read::KeyRange;
use Mode::{Exclusive, Shared};

fn key(locker: &mut Locker, key: &str, mode: Mode, patience: Patience) -> Result<bool> {
    locker.lock_key(1, key.as_bytes(), mode, patience, &|| "t".to_string())
}

fn range(locker: &mut Locker, keys: std::ops::Range<&str>, mode: Mode) -> Result<()> {
    let range = KeyRange::from_bounds(&keys);
    locker.lock_range(1, &range, mode, Patience::None, &|| "t".to_string())
}

fn busy<T: std::fmt::Debug>(result: Result<T>) -> bool {
    result.is_err_and(|e| e.kind() == ErrorKind::Timeout)
}

/// Returns once `locker` waits.
fn until_waiting(manager: &LockManager, id: u64) {
    while manager.waits_for(id).is_none() {
        thread::yield_now();
    }
}

#[test]
fn keys_ranges_and_modes_exclude_each_other_as_they_should() {
    let manager = LockManager::new();
    let (mut a, mut b) = (Locker::new(&manager), Locker::new(&manager));
    assert!(key(&mut a, "k", Shared, Patience::None).unwrap());
    assert!(key(&mut b, "k", Shared, Patience::None).unwrap(), "shared with shared");
    assert!(busy(key(&mut b, "k", Exclusive, Patience::None)));
    assert!(!key(&mut a, "k", Shared, Patience::None).unwrap(), "had already");
    b.release();
    assert!(key(&mut a, "k", Exclusive, Patience::None).unwrap(), "made stronger");
    assert!(busy(key(&mut b, "k", Shared, Patience::None)));
    assert!(busy(range(&mut b, "a".."z", Shared)), "a range over a locked key");
    range(&mut b, "a".."k", Exclusive).unwrap();
    range(&mut b, "l".."z", Exclusive).unwrap();
    assert!(busy(key(&mut a, "gap", Exclusive, Patience::None)), "a key that is not there");
    assert!(busy(range(&mut a, "c".."d", Shared)));
    range(&mut a, "k".."l", Shared).unwrap();
    let mut other = Locker::new(&manager);
    let elsewhere = || "other".to_string();
    assert!(other.lock_key(2, b"gap", Exclusive, Patience::None, &elsewhere).unwrap());
    drop((a, b, other));
    assert_eq!(manager.held(), (0, 0));
}

#[test]
fn locks_are_handed_over_in_order_of_arrival() {
    let manager = LockManager::new();
    let mut first = Locker::new(&manager);
    key(&mut first, "k", Exclusive, Patience::None).unwrap();
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let mut locker = Locker::new(&manager);
            let (id, order) = (locker.id(), Arc::clone(&order));
            let thread = thread::spawn(move || {
                key(&mut locker, "k", Exclusive, Patience::Endless).unwrap();
                order.lock().push(n);
            });
            until_waiting(&manager, id);
            thread
        })
        .collect();
    drop(first);
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*order.lock(), [0, 1, 2, 3]);
}

/// `a` holds k1 and more, `b` holds k2; each wants the other's.
fn deadlock(weight_of_a: usize, weight_of_b: usize) -> (Result<bool>, Result<bool>) {
    let manager = LockManager::new();
    let (mut a, mut b) = (Locker::new(&manager), Locker::new(&manager));
    key(&mut a, "k1", Exclusive, Patience::None).unwrap();
    key(&mut b, "k2", Exclusive, Patience::None).unwrap();
    (0..weight_of_a).for_each(|n| drop(key(&mut a, &format!("a{n}"), Exclusive, Patience::None)));
    (0..weight_of_b).for_each(|n| drop(key(&mut b, &format!("b{n}"), Exclusive, Patience::None)));
    let id = a.id();
    let first = thread::spawn(move || key(&mut a, "k2", Exclusive, Patience::Endless));
    until_waiting(&manager, id);
    let second = key(&mut b, "k1", Exclusive, Patience::Endless);
    drop(b);
    let first = first.join().unwrap();
    assert_eq!(manager.held(), (0, 0));
    (first, second)
}

#[test]
fn the_one_with_fewest_locks_ends_a_deadlock_and_is_told_who_and_what() {
    let told = |e: Error| {
        assert_eq!(e.kind(), ErrorKind::Deadlock);
        let text = e.to_string();
        for part in ["transaction 1", "transaction 2", "\"k1\"", "\"k2\"", "table \"t\""] {
            assert!(text.contains(part), "{part} in {text}");
        }
    };
    let (a, b) = deadlock(3, 0);
    assert!(a.unwrap());
    told(b.unwrap_err());
    let (a, b) = deadlock(0, 3);
    assert!(b.unwrap());
    told(a.unwrap_err());
}

#[test]
fn a_deadline_ends_a_wait_and_lets_those_behind_through() {
    // A slow machine looks later than the deadline. Then it is a later one.
    let is_seen = [200, 2000, 20_000].map(Duration::from_millis).into_iter().any(waits_until);
    assert!(is_seen, "a reader overtakes a writer that waits");
}

/// Whether the writer was seen while it waited, until so long from now.
fn waits_until(deadline: Duration) -> bool {
    let manager = LockManager::new();
    let mut reader = Locker::new(&manager);
    key(&mut reader, "k", Shared, Patience::None).unwrap();
    let mut writer = Locker::new(&manager);
    let id = writer.id();
    let writing = thread::spawn(move || {
        let soon = Instant::now() + deadline;
        let late = key(&mut writer, "k", Exclusive, Patience::Until(soon));
        (late, writer)
    });
    while manager.waits_for(id).is_none() && !writing.is_finished() {
        thread::yield_now();
    }
    let mut behind = Locker::new(&manager);
    let is_behind = busy(key(&mut behind, "k", Shared, Patience::None));
    if is_behind {
        assert!(key(&mut behind, "k", Shared, Patience::Endless).unwrap(), "let through at last");
    }
    let (late, writer) = writing.join().unwrap();
    let late = late.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    assert!(late.to_string().contains("transaction 1"), "{late}");
    drop((reader, writer, behind));
    assert_eq!(manager.held(), (0, 0));
    is_behind
}

#[test]
fn a_holder_passes_those_who_wait_for_it() {
    let manager = LockManager::new();
    let mut holder = Locker::new(&manager);
    key(&mut holder, "a", Exclusive, Patience::None).unwrap();
    let mut scan = Locker::new(&manager);
    let id = scan.id();
    let scanning = thread::spawn(move || {
        let range = KeyRange::from_bounds(&("a".."z"));
        scan.lock_range(1, &range, Shared, Patience::Endless, &|| "t".to_string())
    });
    until_waiting(&manager, id);
    // In other shards than "a", too.
    for other in ["b", "c", "d", "e", "f", "g", "h"] {
        assert!(key(&mut holder, other, Exclusive, Patience::None).unwrap());
    }
    let mut newcomer = Locker::new(&manager);
    assert!(busy(key(&mut newcomer, "m", Exclusive, Patience::None)), "it waits its turn");
    drop(holder);
    scanning.join().unwrap().unwrap();
}
