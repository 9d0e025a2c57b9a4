//! Commits that are awaited: a thread waits for them, and wakes the tasks that await them.
//!
//! A commit is published by threads that wait for it (`commit/publisher.rs`). A task must not block
//! its executor's thread, so this thread waits in its place. The first poll that finds its commit
//! not yet done starts it.
//!
//! Thread safety: any thread registers and withdraws, one waits and wakes. The mutex is held for a
//! few instructions, and never while a task is woken, a lock is given back or a commit is waited
//! for.
//!
//! Invariants:
//!
//! 1. An entry stays until its commit is done, its database is poisoned, or its future is dropped.
//! 2. A poll registers first and looks at its commit then. The thread lets a commit become done
//!    first, and takes the entries then. So one of the two sees the other.
//! 3. The thread ends after the closing has asked it to, once no entry is left.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::Shared;
use crate::locks::Locker;
use crate::options::Durability;
use crate::record::Lsn;

/// The place of an entry: commits in their order, and of one commit each future.
pub(super) type Place = (Lsn, u64);

#[derive(Debug)]
struct Entry {
    durability: Durability,
    waker: Option<Waker>,
    /// The row locks of a commit whose future was dropped: given back once the commit is done.
    locks: Option<Locker>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Place, Entry>,
    next: u64,
    thread: Option<JoinHandle<()>>,
    is_stopped: bool,
}

/// The commits of one database that are awaited.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    state: Mutex<State>,
    changed: Condvar,
}

impl Awaited {
    /// Has `waker` woken when the commit `lsn` is done; in place of an earlier one, if the future
    /// was polled before. `None` where no thread can be had: the caller waits by itself.
    pub(super) fn register(
        &self,
        shared: &Arc<Shared>,
        (lsn, durability): (Lsn, Durability),
        before: Option<Place>,
        waker: &Waker,
    ) -> Option<Place> {
        // Executors may run code of their own when a waker is cloned or dropped.
        let waker = Some(waker.clone());
        let mut state = self.state.lock();
        if let Some(place) = before
            && let Some(entry) = state.entries.get_mut(&place)
        {
            debug_assert_eq!(place.0, lsn, "a future stands in the queue for one commit");
            let old = std::mem::replace(&mut entry.waker, waker);
            drop(state);
            drop(old);
            return Some(place);
        }
        if state.is_stopped {
            return None;
        }
        if state.thread.is_none() {
            let shared = Arc::clone(shared);
            let named = std::thread::Builder::new().name("terrace-commits".into());
            state.thread = Some(named.spawn(move || shared.awaited.run(&shared)).ok()?);
        }
        let place = (lsn, state.next);
        state.next += 1;
        let before = state.entries.insert(place, Entry { durability, waker, locks: None });
        debug_assert!(before.is_none(), "each future has a place of its own (invariant 1)");
        drop(state);
        self.changed.notify_one();
        Some(place)
    }

    /// A future goes. Locks of its commit are kept until the commit is done.
    pub(super) fn withdraw(&self, place: Place, locks: &mut Option<Locker>) {
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(&place) else { return };
        let waker = entry.waker.take();
        debug_assert!(entry.locks.is_none(), "a future leaves its place once (invariant 1)");
        match locks.take() {
            Some(locks) => entry.locks = Some(locks),
            None => drop(state.entries.remove(&place)),
        }
        drop(state);
        // Executors may run code of their own here.
        drop(waker);
    }

    /// Ends the thread, if there is one: the database is closed, and all commits are done.
    pub(crate) fn stop(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            state.thread.take()
        };
        self.changed.notify_one();
        // A waker may close the database, on the thread itself.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            thread.join().unwrap_or(());
        }
    }

    fn run(&self, shared: &Shared) {
        while let Some((lsn, durability)) = self.first() {
            // After a failure each future learns by itself what became of its commit.
            drop(shared.committer.wait_for(lsn, durability));
            for entry in self.take_done(shared) {
                // Locks first: what the task does next may need them.
                drop(entry.locks);
                // A panic of an executor's code is not ours to pass on.
                entry.waker.into_iter().for_each(|waker| {
                    catch_unwind(AssertUnwindSafe(|| waker.wake())).unwrap_or(());
                });
            }
        }
    }

    /// The first commit that is awaited; `None` when the thread is to end (invariant 3).
    fn first(&self) -> Option<(Lsn, Durability)> {
        let mut state = self.state.lock();
        loop {
            if let Some(((lsn, _), entry)) = state.entries.first_key_value() {
                return Some((*lsn, entry.durability));
            }
            if state.is_stopped {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Takes out those whose commits are done, or never will be (invariant 1).
    fn take_done(&self, shared: &Shared) -> Vec<Entry> {
        let is_poisoned = shared.poison.is_set();
        let mut state = self.state.lock();
        let is_done =
            |lsn: Lsn, entry: &Entry| is_poisoned || shared.is_done(lsn, entry.durability);
        let done: Vec<Place> = state
            .entries
            .iter()
            .filter(|((lsn, _), entry)| is_done(*lsn, entry))
            .map(|(place, _)| *place)
            .collect();
        done.iter().filter_map(|place| state.entries.remove(place)).collect()
    }
}

impl Shared {
    /// Whether a commit is visible, and as durable as was asked for.
    pub(super) fn is_done(&self, lsn: Lsn, durability: Durability) -> bool {
        self.committer.is_done(lsn, durability)
    }
}
