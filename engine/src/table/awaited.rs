//! Commits that are awaited: threads wait for them, and wake the tasks that await them.
//!
//! A commit is published by threads that wait for it (`commit/publisher.rs`). A task must not block
//! its executor's thread, so a thread waits in its place. Each durability has a queue and a thread
//! of its own: a commit that waits for the shared store, or for a sync, holds up none that asked
//! for less. The first poll that finds its commit not yet done starts the thread.
//!
//! Thread safety: any thread registers, withdraws and leaves locks, one of each queue waits and
//! wakes. The mutex of a queue is held for an instant, and while its thread is started, once. It is
//! never held while a task is woken, a lock is given back or a commit is waited for.
//!
//! Invariants:
//!
//! 1. An entry stays until its commit is done, its database is poisoned, or its future is dropped.
//! 2. A poll registers first and looks at its commit then. The thread lets a commit become done
//!    first, and takes the entries then. So one of the two sees the other.
//! 3. A thread ends after the closing has asked it to, once no entry of its queue is left.
//! 4. Commits of one durability are done in their order: no entry of a queue waits longer than the
//!    first.
//! 5. A thread that waits for the shared store waits for the first entry. It reads how often it was
//!    to look again, and takes the first entry then. One that becomes the first has it look again.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use crate::base::options::Durability;
use crate::base::record::Lsn;
use crate::commit::{Committer, Feed};
use crate::locks::Locker;
use crate::os::sync::locks::{Condvar, Mutex};
use crate::os::thread::JoinHandle;

/// The place of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    durability: Durability,
    at: Key,
}

/// Commits in their order, and of one commit each future.
type Key = (Lsn, u64);

#[derive(Debug)]
struct Entry {
    waker: Option<Waker>,
    /// Row locks that are given back once the commit is done.
    locks: Option<Arc<KeptLocks>>,
}

/// Row locks that a queue keeps. Who gives them back first does it; another one waits for that.
#[derive(Debug)]
pub(super) struct KeptLocks(Mutex<Option<Locker>>);

impl KeptLocks {
    /// Gives them back, if that was not done.
    pub(super) fn give_back(&self) {
        let mut locks = self.0.lock();
        drop(locks.take());
    }
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Key, Entry>,
    next: u64,
    thread: Option<JoinHandle<()>>,
    is_stopped: bool,
}

/// Those of one durability.
#[derive(Debug, Default)]
struct AwaitedQueue {
    state: Mutex<State>,
    changed: Condvar,
}

/// The commits of one database that are awaited.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// By durability.
    queues: [AwaitedQueue; 3],
}

/// Starts the thread of a queue, which is to [`run`](Awaited::run).
pub(super) type Start<'a> = &'a dyn Fn(Durability) -> io::Result<JoinHandle<()>>;

impl Awaited {
    fn queue(&self, durability: Durability) -> &AwaitedQueue {
        &self.queues[durability as usize]
    }

    /// Has `waker` woken when the commit `lsn` is done; in place of an earlier one, if the future
    /// was polled before. `None` where no thread can be had: the caller waits by itself.
    pub(super) fn register(
        &self,
        (committer, start): (&Committer, Start<'_>),
        (lsn, durability): (Lsn, Durability),
        before: Option<Place>,
        waker: &Waker,
    ) -> Option<Place> {
        // Executors may run code of their own when a waker is cloned or dropped.
        let waker = Some(waker.clone());
        let mut state = self.queue(durability).state.lock();
        if let Some(place) = before
            && let Some(entry) = state.entries.get_mut(&place.at)
        {
            debug_assert_eq!(place.at.0, lsn, "a future stands in the queue for one commit");
            let old = std::mem::replace(&mut entry.waker, waker);
            drop(state);
            drop(old);
            return Some(place);
        }
        drop(state);
        let entry = Entry { waker, locks: None };
        let at = self.add((committer, start), (lsn, durability), entry).ok()?;
        Some(Place { durability, at })
    }

    /// Adds an entry to its queue.
    fn add(
        &self,
        (committer, start): (&Committer, Start<'_>),
        (lsn, durability): (Lsn, Durability),
        entry: Entry,
    ) -> Result<Key, Entry> {
        let queue = self.queue(durability);
        let mut state = queue.state.lock();
        if state.is_stopped {
            return Err(entry);
        }
        if state.thread.is_none() {
            let Ok(thread) = start(durability) else { return Err(entry) };
            state.thread = Some(thread);
        }
        let at = (lsn, state.next);
        state.next += 1;
        let before = state.entries.insert(at, entry);
        debug_assert!(before.is_none(), "each future has a place of its own (invariant 1)");
        let is_first = state.entries.first_key_value().is_some_and(|(first, _)| *first == at);
        drop(state);
        queue.changed.notify_one();
        if is_first && durability == Durability::Remote {
            // The thread may wait for a later commit (invariant 5).
            committer.feed().into_iter().for_each(Feed::look_again);
        }
        Ok(at)
    }

    /// A future goes.
    pub(super) fn withdraw(&self, Place { durability, at }: Place) {
        let gone = self.queue(durability).state.lock().entries.remove(&at);
        debug_assert!(
            gone.as_ref().is_none_or(|gone| gone.locks.is_none()),
            "a future leaves its place once (invariant 1)"
        );
        // Executors may run code of their own here.
        drop(gone);
    }

    /// Keeps locks of a commit until it is as durable as this machine makes it: it is visible then,
    /// and no lock waits for a store.
    ///
    /// # Errors
    ///
    /// The locks, where no thread can be had for them.
    pub(super) fn keep(
        &self,
        waiting: (&Committer, Start<'_>),
        commit: (Lsn, Durability),
        locks: Locker,
    ) -> Result<Arc<KeptLocks>, Arc<KeptLocks>> {
        let kept = Arc::new(KeptLocks(Mutex::new(Some(locks))));
        let entry = Entry { waker: None, locks: Some(Arc::clone(&kept)) };
        let added = self.add(waiting, commit, entry);
        added.map_or_else(|_| Err(Arc::clone(&kept)), |_| Ok(Arc::clone(&kept)))
    }

    /// Ends the threads, if there are any: the database is closed, and all commits are done.
    pub(crate) fn stop(&self) {
        let stopped = self.queues.iter().filter_map(|queue| {
            let mut state = queue.state.lock();
            state.is_stopped = true;
            queue.changed.notify_one();
            state.thread.take()
        });
        let threads: Vec<JoinHandle<()>> = stopped.collect();
        // A waker may close the database, on one of the threads itself.
        let own = std::thread::current().id();
        let others = threads.into_iter().filter(|thread| thread.thread().id() != own);
        others.for_each(|thread| thread.join().unwrap_or(()));
    }

    /// Wakes those who await a commit of this durability, until the queue is stopped.
    pub(super) fn run(&self, committer: &Committer, durability: Durability) {
        let queue = self.queue(durability);
        let looks = || committer.feed().map_or(0, Feed::looks);
        while let (looks, Some(lsn)) = (looks(), queue.first()) {
            // After a failure each future learns by itself what became of its commit.
            let done = committer.wait_on_this_machine(lsn, durability);
            drop(done.and_then(|()| committer.wait_for_store(lsn, durability, Some(looks))));
            let done = queue.take_done(committer, durability);
            // Locks first, of all: what a task does next may need those of another commit.
            done.iter().filter_map(|entry| entry.locks.as_ref()).for_each(|kept| kept.give_back());
            for entry in done {
                // A panic of an executor's code is not ours to pass on.
                entry.waker.into_iter().for_each(|waker| {
                    catch_unwind(AssertUnwindSafe(|| waker.wake())).unwrap_or(());
                });
            }
        }
    }
}

impl AwaitedQueue {
    /// The first commit that is awaited; `None` when the thread is to end (invariant 3).
    fn first(&self) -> Option<Lsn> {
        let mut state = self.state.lock();
        loop {
            if let Some(((lsn, _), _)) = state.entries.first_key_value() {
                return Some(*lsn);
            }
            if state.is_stopped {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Takes out those whose commits are done, or never will be (invariant 1).
    fn take_done(&self, committer: &Committer, durability: Durability) -> Vec<Entry> {
        let mut state = self.state.lock();
        let mut done = Vec::new();
        // The rest is not done either (invariant 4).
        while let Some(first) = state.entries.first_entry()
            && committer.is_decided(first.key().0, durability)
        {
            done.push(first.remove());
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Context, Poll, Wake};
    use std::time::Duration;

    use super::*;
    use crate::base::options::Options;
    use crate::storage::object_testing::{ObjectServer, StoreFault};
    use crate::table::WriteBatch;
    use crate::{LockWait, TxnOptions};

    /// Tells that it was woken.
    struct Tell(Sender<()>);

    impl Wake for Tell {
        fn wake(self: Arc<Tell>) {
            self.0.send(()).unwrap_or(());
        }
    }

    /// Bug: a task was not woken, though the shared store had its commit, until the store had a
    /// later one too. Cause: the thread already waited for the later one, which was awaited first.
    /// Fix: it waits for the first of those that are awaited.
    #[test]
    fn a_task_waits_for_no_later_commit_in_whichever_order_they_are_awaited() {
        for order in [[0, 1], [1, 0]] {
            let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
            let options = Options::new().pm_size(4 << 20).object_store(server.url()).share(true);
            let db = options.open(dir.path().join("db")).unwrap();
            let table = db.table("t").unwrap();
            server.always(Some(StoreFault::Refuse));
            let mut commits = [0u8, 1].map(|n| {
                let mut batch = WriteBatch::new();
                batch.put(&table, [n], "v");
                db.enqueue(batch, Durability::Remote).unwrap()
            });
            let (told, wait) = channel();
            let waker = |n: usize| {
                let told = if n == 0 { told.clone() } else { channel().0 };
                Waker::from(Arc::new(Tell(told)))
            };
            for n in order {
                let polled = Pin::new(&mut commits[n]).poll(&mut Context::from_waker(&waker(n)));
                assert!(polled.is_pending(), "the store is away");
                // On this machine it is done: the thread waits for the store alone.
                while !table.shared.committer.is_done(commits[n].number(), Durability::Durable) {
                    std::thread::yield_now();
                }
            }
            let feed = table.shared.committer.feed().unwrap();
            feed.acknowledge(commits[0].number());
            wait.recv_timeout(Duration::from_mins(1)).unwrap();
            let waker = Waker::noop();
            let mut polled =
                |n: usize| Pin::new(&mut commits[n]).poll(&mut Context::from_waker(waker));
            assert!(matches!(polled(0), Poll::Ready(Ok(()))) && polled(1).is_pending());
            server.always(None);
        }
    }

    /// Bug: a commit with the durability `Remote` was waited for, and the next call that waits for
    /// no lock did not get its rows. Cause: their locks lay in the queue of commits that wait for
    /// the device, whose thread had not come to them. Fix: who knows the commit to be done gives
    /// its locks back.
    #[test]
    fn the_rows_of_a_commit_that_was_waited_for_are_free_before_the_queue_has_come_to_it() {
        let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
        let options = Options::new().pm_size(4 << 20).object_store(server.url()).share(true);
        let db = options.open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        let no_wait = || {
            let options = TxnOptions::new().durability(Durability::Remote);
            db.begin_with(options.lock_wait(LockWait::NoWait)).unwrap()
        };
        let queue = table.shared.awaited.queue(Durability::Durable);
        for n in 0..20u8 {
            let txn = no_wait();
            txn.put(&table, "k", [n]).unwrap();
            let mut commit = txn.enqueue().unwrap();
            let polled = Pin::new(&mut commit).poll(&mut Context::from_waker(Waker::noop()));
            // Its thread comes to no entry as long as this is held.
            let _held = queue.state.lock();
            if polled.is_pending() {
                commit.wait().unwrap();
            }
            no_wait().put(&table, "k", [n]).unwrap();
        }
    }
}
