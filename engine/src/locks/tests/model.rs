//! The lock table under the scheduler: the types of production in many schedules.
//! `cargo test -p terrace --lib locks::tests::model`
//!
//! The scheduler finds every waiter that no thread wakes (a deadlock). Counters beside the lock
//! table check from outside what is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Instant;

use crate::os::schedule::explore;
use crate::os::sync::atomic::AtomicBool;
use crate::os::thread;

use crate::base::error::{ErrorKind, Result};
use crate::base::events::Events;
use crate::locks::{LockManager, Locker, Mode, Patience};
use crate::read::KeyRange;

/// The owners inside each of four keys: readers as positive, a writer as -1.
#[derive(Default)]
struct Inside([AtomicI32; 4]);

impl Inside {
    fn enter(&self, key: usize, mode: Mode) {
        match mode {
            Mode::Shared => {
                let before = self.0[key].fetch_add(1, Ordering::SeqCst);
                assert!(before >= 0, "a reader beside a writer of key {key}");
            }
            Mode::Exclusive => {
                let before = self.0[key].swap(-1, Ordering::SeqCst);
                assert_eq!(before, 0, "a writer beside others of key {key}");
            }
        }
    }

    fn leave(&self, key: usize, mode: Mode) {
        match mode {
            Mode::Shared => drop(self.0[key].fetch_sub(1, Ordering::SeqCst)),
            Mode::Exclusive => self.0[key].store(0, Ordering::SeqCst),
        }
    }
}

#[derive(Clone, Copy)]
enum Take {
    Key(usize, Mode, bool),
    /// Every key.
    All(Mode),
}

use Mode::{Exclusive, Shared};

fn take(locker: &mut Locker, take: Take) -> Result<()> {
    let name = || "t".to_string();
    match take {
        Take::Key(key, mode, patient) => {
            let patience =
                if patient { Patience::Endless } else { Patience::Until(Instant::now()) };
            locker.lock_key(1, &[key as u8], mode, patience, &name).map(drop)
        }
        Take::All(mode) => {
            let all = KeyRange::from_bounds(&(..));
            locker.lock_range(1, &all, mode, Patience::Endless, &name).map(drop)
        }
    }
}

/// Takes locks one after the other and gives them back; the victim of a deadlock tries again.
fn run(manager: &Arc<LockManager>, inside: &Inside, takes: &[Take], deadlocks: &AtomicUsize) {
    loop {
        let mut locker = Locker::new(manager);
        let mut entered: Vec<(usize, Mode)> = Vec::new();
        let mut failed = None;
        for one in takes {
            match take(&mut locker, *one) {
                Ok(()) => {
                    let (keys, mode) = match *one {
                        Take::Key(key, mode, _) => (key..key + 1, mode),
                        Take::All(mode) => (0..4, mode),
                    };
                    for key in keys {
                        if let Some(at) = entered.iter().position(|(k, _)| *k == key) {
                            inside.leave(key, entered.swap_remove(at).1);
                        }
                        inside.enter(key, mode);
                        entered.push((key, mode));
                    }
                }
                Err(e) if e.kind() == ErrorKind::Timeout => {}
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Deadlock);
                    failed = Some(e);
                    break;
                }
            }
        }
        entered.drain(..).for_each(|(key, mode)| inside.leave(key, mode));
        drop(locker);
        if failed.is_none() {
            return;
        }
        deadlocks.fetch_add(1, Ordering::SeqCst);
    }
}

fn all(threads: &'static [&'static [Take]], deadlocks_end: bool) {
    explore(move || {
        let manager = LockManager::with_shards(2, usize::MAX, None, &Events::default());
        let (inside, deadlocks) = (Arc::new(Inside::default()), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = threads
            .iter()
            .map(|takes| {
                let (manager, inside) = (Arc::clone(&manager), Arc::clone(&inside));
                let deadlocks = Arc::clone(&deadlocks);
                thread::spawn("model", move || run(&manager, &inside, takes, &deadlocks))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(manager.held(), (0, 0), "nothing is left");
        if !deadlocks_end {
            assert_eq!(deadlocks.load(Ordering::SeqCst), 0, "no deadlock where there is none");
        }
    });
}

#[test]
fn writers_of_one_key_take_turns() {
    all(&[&[Take::Key(0, Exclusive, true)] as &[Take]; 3], false);
}

#[test]
fn crossed_writers_end_their_deadlock() {
    all(
        &[
            &[Take::Key(0, Exclusive, true), Take::Key(1, Exclusive, true)],
            &[Take::Key(1, Exclusive, true), Take::Key(2, Exclusive, true)],
            &[Take::Key(2, Exclusive, true), Take::Key(0, Exclusive, true)],
        ],
        true,
    );
}

#[test]
fn readers_that_become_writers() {
    all(
        &[
            &[Take::Key(0, Shared, true), Take::Key(0, Exclusive, true)],
            &[Take::Key(0, Shared, true), Take::Key(0, Exclusive, true)],
            &[Take::Key(0, Exclusive, true)],
        ],
        true,
    );
}

#[test]
fn one_reader_becomes_a_writer_without_a_deadlock() {
    all(
        &[
            &[Take::Key(0, Shared, true), Take::Key(0, Exclusive, true)],
            &[Take::Key(0, Exclusive, true)],
            &[Take::Key(0, Exclusive, true)],
        ],
        false,
    );
}

#[test]
fn ranges_beside_keys() {
    all(
        &[
            &[Take::All(Shared), Take::Key(3, Exclusive, true)],
            &[Take::Key(1, Exclusive, true), Take::Key(2, Exclusive, true)],
            &[Take::Key(2, Shared, true), Take::All(Exclusive)],
        ],
        true,
    );
}

#[test]
fn who_holds_a_key_passes_a_range_that_waits_for_it() {
    all(
        &[
            &[Take::Key(0, Exclusive, true), Take::Key(1, Exclusive, true)],
            &[Take::All(Exclusive)],
            &[Take::All(Shared)],
        ],
        false,
    );
}

#[test]
fn deadlines_pass_meanwhile() {
    all(
        &[
            &[Take::Key(0, Exclusive, true), Take::Key(1, Exclusive, false)],
            &[Take::Key(1, Exclusive, true), Take::Key(0, Exclusive, false)],
            &[Take::Key(0, Shared, true), Take::Key(1, Shared, true)],
        ],
        true,
    );
}

#[test]
fn the_killed_return_and_leave_nothing() {
    explore(|| {
        let manager = LockManager::with_shards(2, usize::MAX, None, &Events::default());
        let mut first = Locker::new(&manager);
        take(&mut first, Take::Key(0, Exclusive, true)).unwrap();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let mut locker = Locker::new(&manager);
                let id = locker.id();
                (
                    id,
                    thread::spawn("model", move || {
                        take(&mut locker, Take::Key(0, Exclusive, true))
                    }),
                )
            })
            .collect();
        manager.kill(waiters[0].0);
        drop(first);
        for (_, waiter) in waiters {
            let ended = waiter.join().unwrap();
            assert!(ended.is_ok() || ended.unwrap_err().kind() == ErrorKind::Closed);
        }
        assert_eq!(manager.held(), (0, 0));
    });
}

/// Bug: a wait that was ended right before it began was not ended, and lasted as long as its owner
/// was patient. Cause: only waits that had begun were ended. Fix: a mark has the next one end too.
#[test]
fn a_wait_is_ended_whenever_it_begins() {
    explore(|| {
        let manager = LockManager::with_shards(2, usize::MAX, None, &Events::default());
        let mut first = Locker::new(&manager);
        take(&mut first, Take::Key(0, Exclusive, true)).unwrap();
        let mark = Arc::new(AtomicBool::new(false));
        let mut locker = Locker::new(&manager).with_mark(&mark);
        let id = locker.id();
        let waiter = thread::spawn("model", move || {
            take(&mut locker, Take::Key(0, Exclusive, true)).map(|()| locker)
        });
        manager.end_wait(id, &mark);
        // The first owner has its lock until then, so a wait that is not ended never ends.
        let ended = waiter.join().unwrap();
        assert!(ended.is_err_and(|error| error.kind() == ErrorKind::Timeout));
        drop(first);
        assert_eq!(manager.held(), (0, 0));
    });
}
