//! What locks take of memory: what is counted, and when more is refused.

use std::sync::Arc;

use super::rules::{key, range};
use crate::base::error::ErrorKind;
use crate::locks::ranges::RangeLocks;
use crate::locks::request::{Request, Span};
use crate::locks::{LockManager, Locker, Mode, Patience};
use crate::mvcc::KeyInterval;
use Mode::{Exclusive, Shared};

/// Bug: ranges took memory that no limit counted. Cause: two bounds were counted for each range. A
/// part has a bound and a list of all that hold it, and ranges of one owner that touch were counted
/// as one, also where their modes differ. Fix: the bounds are counted where they are.
#[test]
fn all_bounds_of_ranges_and_their_holders_are_counted() {
    const OWNERS: usize = 100;
    let manager = LockManager::new(usize::MAX);
    let mut owners: Vec<Locker> = (0..OWNERS).map(|_| Locker::new(&manager)).collect();
    for (n, owner) in owners.iter_mut().enumerate() {
        range(owner, &format!("a{n:03}")[..]..&format!("b{:03}", OWNERS - n), Shared).unwrap();
    }
    // Each lies in those before it: their parts have one to a hundred holders, twice.
    let holders = OWNERS * OWNERS * size_of::<(u64, Mode)>();
    assert!(manager.memory() > holders, "{} bytes", manager.memory());
    drop(owners);
    assert_eq!(manager.memory(), 0);

    let mut owner = Locker::new(&manager);
    for n in 0..500 {
        let mode = if n % 2 == 0 { Shared } else { Exclusive };
        range(&mut owner, &format!("{n:03}")[..]..&format!("{:03}", n + 1), mode).unwrap();
    }
    assert_eq!(owner.held(), 1, "they touch");
    assert!(owner.memory() > 500 * 50, "{} bytes", owner.memory());
    assert!(manager.memory().abs_diff(owner.memory()) < 16 << 10);
    drop(owner);
    assert_eq!(manager.memory(), 0);
}

/// Bug: an owner whose ranges took all of its memory could not lock all that lies between them, and
/// so have one range for many. Cause: the room of a range was asked for besides that of the ranges
/// that it takes the place of. Fix: a range that has all keys of an own one needs no room.
#[test]
fn a_range_in_the_place_of_others_needs_no_room() {
    let manager = LockManager::new(usize::MAX);
    let mut owner = Locker::with_limit(&manager, 20_000);
    let mut lock = |n: u32, end: &str| {
        range(&mut owner, &format!("b{n:04}")[..]..&format!("b{n:04}{end}"), Exclusive)
    };
    let full = (0..).find(|&n| lock(n, "x").is_err()).unwrap();
    assert!(full > 10);
    let of_another = range(&mut owner, "c".."d", Exclusive);
    assert_eq!(of_another.unwrap_err().kind(), ErrorKind::TooLarge, "it is beside them");
    range(&mut owner, "a".."c", Exclusive).unwrap();
    assert!(owner.held() == 1 && owner.memory() < 1_000, "{} bytes", owner.memory());
    range(&mut owner, "b0003".."b5", Exclusive).unwrap();
}

/// Bug: locks took many times the memory that is for them. Cause: a shared range in the place of
/// own ones was let past the limit, and took more in the boundaries of other owners than it gave
/// back. Fix: it passes where that is less.
#[test]
fn a_range_over_those_of_others_needs_room() {
    let count = 100;
    let lock = |owner: &mut Locker, n: usize| {
        range(owner, &format!("{n:05}")[..]..&format!("{n:05}x"), Shared).unwrap();
    };
    let ranges_of = |manager: &Arc<LockManager>| {
        let mut owners: Vec<_> = (0..count).map(|_| Locker::new(manager)).collect();
        for (at, owner) in owners.iter_mut().enumerate() {
            (0..count).for_each(|n| lock(owner, n * count + at));
        }
        owners
    };
    let measured = LockManager::new(usize::MAX);
    let _held = ranges_of(&measured);
    // Room for the last one, of which not all is told, and for none more.
    let most = measured.memory() + 200;
    let manager = LockManager::new(most);
    let mut owners = ranges_of(&manager);
    for owner in &mut owners {
        let all = range(owner, "0".."1", Shared);
        assert_eq!(all.unwrap_err().kind(), ErrorKind::TooLarge);
        assert!(manager.memory() <= most, "{} bytes of {most}", manager.memory());
    }
    // Without others between its own ones it needs no room.
    let mut last = owners.pop().unwrap();
    drop(owners);
    range(&mut last, "0".."1", Shared).unwrap();
    assert_eq!(last.held(), 1);
}

/// Bug: the memory of all locks passed its limit many times. Cause: a range was counted without
/// its part in the boundaries of other owners where room was left, where its owner held little, and
/// where keys became a range. Fix: each asks for what all locks take more with it.
#[test]
fn no_range_passes_the_limit_by_its_part_in_the_boundaries_of_others() {
    // One that holds less than `little` is not refused for what others hold.
    let (most, little) = (1 << 20, 8 << 10);
    let manager = LockManager::new(most);
    let mut holders: Vec<_> = (0..10).map(|_| Locker::new(&manager)).collect();
    let name = |n: usize| format!("{n:06}");
    for n in 0..3_000 {
        range(&mut holders[n % 10], &name(n)[..]..&format!("{}x", name(n))[..], Shared).unwrap();
    }
    let mut sharers: Vec<_> = (0..100).map(|_| Locker::new(&manager)).collect();
    let mut refused = 0;
    for (at, sharer) in sharers.iter_mut().enumerate() {
        if at % 2 == 0 {
            refused += usize::from(range(sharer, "0".."1", Shared).is_err());
        } else {
            let mut lock = |n: usize| key(sharer, &name(30 * n), Shared, Patience::None).is_err();
            refused += (0..100).filter(|&n| lock(n)).count();
            sharer.escalate();
        }
        let memory = manager.memory();
        assert!(memory < most + 100 * little, "{memory} bytes of {most}, owner {at}");
    }
    assert!(refused > 0, "some had no room");
}

#[test]
fn the_growth_of_boundaries_is_known_before() {
    let (mut held, mut random) = (RangeLocks::default(), 1u64);
    let mut below = |most: u8| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 56) as u8 % most
    };
    for _ in 0..2_000 {
        let (start, end) = (vec![below(40)], vec![below(40)]);
        let (end, owner) = (Some(end).filter(|end| *end > start), 1 + u64::from(below(4)));
        let request = Request {
            owner,
            mode: Shared,
            span: Span::Range(KeyInterval { start: start.clone(), end: end.clone() }),
        };
        let (growth, names) = (held.growth(&request), KeyInterval { start, end });
        assert_eq!(growth, held.grant(&names, owner, Shared), "{names:?} of {owner}");
        if below(3) == 0 {
            held.release(&names, owner);
        }
    }
}

/// Bug: a transaction was refused a lock since the locks of all took too much memory, though its
/// own could have become few. Cause: locks on keys became ranges by what one owner may take alone.
/// Fix: by what the others leave of it. An owner of a few locks is not refused.
#[test]
fn where_others_take_the_memory_keys_become_ranges_sooner() {
    const MOST: usize = 200_000;
    let manager = LockManager::new(MOST);
    let mut between = Locker::new(&manager);
    let mut others: Vec<Locker> = (0..10).map(|_| Locker::new(&manager)).collect();
    // Locks of others between them keep the keys of these from being joined.
    'full: for n in 0.. {
        for (at, other) in others.iter_mut().enumerate() {
            let name = format!("{at}{n:05}");
            between
                .lock_key_beyond_limit(
                    1,
                    format!("{name}x").as_bytes(),
                    Exclusive,
                    Patience::None,
                    &|| "t".to_string(),
                )
                .unwrap();
            if let Err(refused) = key(other, &name, Exclusive, Patience::None) {
                assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
                assert!(refused.to_string().contains(&MOST.to_string()), "{refused}");
                break 'full;
            }
        }
    }
    let (mut beside, mut small) = (Locker::new(&manager), Locker::new(&manager));
    for n in 0..10_000 {
        key(&mut beside, &format!("x{n:05}"), Exclusive, Patience::None).unwrap();
    }
    assert!(beside.memory() < MOST / 10 && beside.has_escalated());
    key(&mut small, "y", Exclusive, Patience::None).unwrap();
    assert!(beside.has_key(1, b"x00000", Exclusive) && !beside.has_key(1, b"y", Shared));
}
