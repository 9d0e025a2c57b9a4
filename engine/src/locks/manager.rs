//! The lock table.
//!
//! Strict two-phase locking on full keys and on ranges of keys, shared and exclusive. A lock that
//! nothing excludes takes one mutex of a shard; one on a range takes them all. Locks on ranges lie
//! in one place, beside the shards: a lock on a key looks there while there are any. An owner that
//! has to wait stands in a queue and in the wait-for graph. The owner that gives a lock up hands
//! it over, in order of arrival.
//!
//! No owner waits behind an owner that waits for it. An owner that asks for more is let past those
//! in the queue that wait for its locks, directly or through others. Otherwise every lock that is
//! made stronger while others wait would be a deadlock. A call that waited, left and is made again
//! is let past those that came after its first try. Each edge that this adds leads to its owner, so
//! the search from there finds a cycle through it. The owner is searched from also when it gets its
//! lock at once: a thread that runs it may suspend it.
//!
//! Thread safety: every method takes `&self`. Lock order: shards by index, then the graph, then the
//! ranges or a waiter's outcome.
//!
//! Invariants:
//!
//! 1. The invariants of shards and ranges 1 to 3 and the graph's 1 to 3. The ranges change only
//!    under the mutexes of all shards: who holds one of a shard sees all that concern its keys.
//! 2. An owner is taken out of the graph's edges only after its locks left all shards. A request
//!    that finds a lock in a shard puts its edge into the graph before it lets go of the shard.
//! 3. The thread that takes a waiter out of the graph tells it, once. A waiter whose deadline
//!    passed takes itself out, or else waits for what it will be told.
//! 4. A waiter leaves the queues when it gets its lock, or by itself when it does not.
//! 5. `has_ranges` says whether a range is held, to a thread that has a shard's mutex.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::DEFAULT_WAIT;
use super::graph::{Graph, NewWaiter};
use super::ranges::RangeLocks;
use super::request::{Blockers, Shard};
use super::request::{Held, Mode, Name, Outcome, OwnerId, Request, Span, Waiter};
use crate::base::events::Events;
use crate::base::operations;
use crate::base::options::LockWaitFn;
use crate::mvcc::{IntervalSet, KeyInterval};
use crate::os::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::os::sync::{Condvar, Mutex, MutexGuard, wait};
use crate::os::{ForkGuard, RandomKeys, arrival, time};

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until it is there.
    Endless,
    /// Until then.
    Until(Instant),
    /// Not at all.
    None,
}

impl Patience {
    /// That of a writer of which nothing else is said.
    pub(crate) fn usual() -> Patience {
        Patience::Until(time::now() + DEFAULT_WAIT)
    }
}

/// How an attempt ended at once, or did not.
pub(super) enum Attempt {
    /// The owner had it already.
    Had,
    Granted(Granted),
    /// Others hold it, and the caller does not wait.
    Busy(Request, Blockers),
    /// A transaction that the calling thread runs holds it: the thread would wait for itself.
    Own(Request, OwnerId),
    /// It would have to wait, and the database was closed.
    Closed,
    Waits(Arc<Waiter>, Granted),
}

/// What an owner gets, or will get.
#[derive(Debug)]
pub(super) struct Granted {
    /// What it did not have, of a range.
    pub(super) span: Span,
    /// Whether it had the key already, shared.
    pub(super) is_stronger: bool,
    /// By how many bytes the boundaries of ranges have grown.
    pub(super) grown: isize,
}

type Shards<'a> = SmallVec<[MutexGuard<'a, Shard>; 1]>;

/// The locks of one database.
pub(crate) struct LockManager {
    shards: Box<[Mutex<Shard>]>,
    pub(super) ranges: Mutex<RangeLocks>,
    has_ranges: AtomicBool,
    pub(super) graph: Mutex<Graph>,
    hasher: RandomKeys,
    next_owner: AtomicU64,
    pub(super) fork: ForkGuard,
    /// Bytes of memory that owners have told of, and that the boundaries of ranges take.
    told: AtomicUsize,
    boundaries: AtomicUsize,
    /// The most that all locks may take.
    most: usize,
    /// Is told of waits.
    observer: Option<LockWaitFn>,
    /// Where it counts how long they take.
    events: Events,
}

/// A range takes the mutexes of all.
const SHARDS: usize = 32;

impl LockManager {
    /// A lock table with nothing locked, whose locks may take `most` bytes of memory.
    #[cfg(test)]
    pub(crate) fn new(most: usize) -> Arc<LockManager> {
        LockManager::with_observer(most, None, &Events::default())
    }

    /// The same; `observer` is told of waits.
    pub(crate) fn with_observer(
        most: usize,
        observer: Option<LockWaitFn>,
        events: &Events,
    ) -> Arc<LockManager> {
        LockManager::with_shards(SHARDS, most, observer, events)
    }

    pub(super) fn with_shards(
        shards: usize,
        most: usize,
        observer: Option<LockWaitFn>,
        events: &Events,
    ) -> Arc<LockManager> {
        Arc::new(LockManager {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            ranges: Mutex::default(),
            has_ranges: AtomicBool::new(false),
            graph: Mutex::default(),
            hasher: RandomKeys::new(),
            next_owner: AtomicU64::new(1),
            fork: ForkGuard::new(),
            told: AtomicUsize::new(0),
            boundaries: AtomicUsize::new(0),
            most,
            observer,
            events: events.clone(),
        })
    }

    pub(super) fn new_owner(&self) -> OwnerId {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    /// Bytes of memory that locks take, give or take a few kilobytes an owner.
    pub(crate) fn memory(&self) -> usize {
        self.told.load(Ordering::Relaxed) + self.boundaries.load(Ordering::Relaxed)
    }

    /// The most that they may take.
    pub(super) fn most_memory(&self) -> usize {
        self.most
    }

    /// An owner has told of `before` bytes, and tells of `now`.
    pub(super) fn changed(&self, before: usize, now: usize) {
        if before != now {
            self.told.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Whether an owner has what it asks for.
    pub(super) fn has(&self, request: &Request) -> bool {
        let shards = self.shards_of(&request.span);
        self.mode_of_key(&shards, request).is_some_and(|mode| mode >= request.mode)
            || self.missing(request).is_none()
    }

    /// How the owner of a request for a key has that key by itself.
    fn mode_of_key(&self, shards: &Shards<'_>, request: &Request) -> Option<Mode> {
        let Span::Point(name) = &request.span else { return None };
        shards.iter().find_map(|shard| shard.mode_of(name, request.owner))
    }

    /// What its owner lacks of a request, by the ranges that it has. The caller holds a shard.
    fn missing(&self, request: &Request) -> Option<Span> {
        if !self.has_ranges.load(Ordering::Relaxed) {
            return Some(request.span.clone());
        }
        let missing = self.ranges.lock().missing(request)?;
        Some(match &request.span {
            Span::Point(name) => Span::Point(name.clone()),
            Span::Range(_) => Span::Range(missing),
        })
    }

    /// The owners of locks that exclude a request; `shards` has those that it belongs to.
    fn holders_against(&self, shards: &Shards<'_>, request: &Request, into: &mut Blockers) {
        for shard in shards {
            shard.holders_against(request, into);
        }
        if self.has_ranges.load(Ordering::Relaxed) {
            self.ranges.lock().holders_against(request, into);
        }
    }

    /// Gives a lock to its owner; `shards` has those that it belongs to. By how many bytes the
    /// boundaries of ranges have grown.
    fn grant(&self, shards: &mut Shards<'_>, request: &Request) -> isize {
        debug_assert!(
            {
                let mut holders = Blockers::new();
                self.holders_against(shards, request, &mut holders);
                holders.is_empty()
            },
            "what is granted excludes nothing that is held (invariant 2 of shards)"
        );
        match &request.span {
            Span::Point(name) => {
                for shard in shards {
                    shard.grant(name, request.owner, request.mode);
                }
                0
            }
            Span::Range(names) => {
                let grant = |held: &mut RangeLocks| held.grant(names, request.owner, request.mode);
                self.change_ranges(grant)
            }
        }
    }

    /// Changes the ranges that are held. The caller has all shards.
    fn change_ranges<T>(&self, f: impl FnOnce(&mut RangeLocks) -> T) -> T {
        let mut held = self.ranges.lock();
        let done = f(&mut held);
        self.has_ranges.store(!held.is_empty(), Ordering::Relaxed);
        self.boundaries.store(held.bytes(), Ordering::Relaxed);
        done
    }

    /// Gives a key to the owner of a request, unless an owner has it, by itself or in a range, or
    /// one waits in its shard; whether it did.
    fn grant_free_key(&self, shards: &mut Shards<'_>, request: &Request) -> bool {
        let (Span::Point(name), [shard]) = (&request.span, shards.as_mut_slice()) else {
            return false;
        };
        let is_in_range =
            self.has_ranges.load(Ordering::Relaxed) && !self.ranges.lock().holders(name).is_empty();
        !is_in_range && shard.grant_free(name, request.owner, request.mode)
    }

    fn shard_of(&self, name: &Name) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(name) as usize % self.shards.len()]
    }

    /// The shards that a lock belongs to, locked.
    pub(super) fn shards_of(&self, span: &Span) -> Shards<'_> {
        match span {
            Span::Point(name) => [self.shard_of(name).lock()].into_iter().collect(),
            Span::Range(_) => self.all_shards(),
        }
    }

    fn all_shards(&self) -> Shards<'_> {
        self.shards.iter().map(Mutex::lock).collect()
    }

    /// Takes the lock, or stands in the queue for it.
    pub(super) fn attempt(
        &self,
        mut request: Request,
        patience: Patience,
        cost: u64,
        mark: Option<&AtomicBool>,
        table: &dyn Fn() -> String,
    ) -> Attempt {
        let mut shards = self.shards_of(&request.span);
        if self.grant_free_key(&mut shards, &request) {
            return Attempt::Granted(Granted { span: request.span, is_stronger: false, grown: 0 });
        }
        let own = self.mode_of_key(&shards, &request);
        if own.is_some_and(|mode| mode >= request.mode) {
            return Attempt::Had;
        }
        let Some(missing) = self.missing(&request) else { return Attempt::Had };
        request.span = missing;
        let (mut blockers, mut queued) = (Blockers::new(), Blockers::new());
        self.holders_against(&shards, &request, &mut blockers);
        for shard in &shards {
            shard.waiters_against(&request, &mut queued);
        }
        let is_stronger = own.is_some();
        let granted = |request: Request, grown| Granted { span: request.span, is_stronger, grown };
        if blockers.is_empty() && queued.is_empty() {
            let grown = self.grant(&mut shards, &request);
            return Attempt::Granted(granted(request, grown));
        }
        let suspends = on_this_thread(self, request.owner);
        let since = arrival();
        let mut graph = self.graph.lock();
        let new = NewWaiter { since, owner: request.owner, suspends: &suspends };
        let may_reach = graph.divide(&new, &mut queued, &mut blockers);
        let is_ended = mark.is_some_and(|mark| mark.load(Ordering::Acquire));
        if (patience == Patience::None || is_ended) && !blockers.is_empty() {
            return Attempt::Busy(request, blockers);
        }
        if let Some(&own) = blockers.iter().find(|blocker| suspends.contains(blocker)) {
            return Attempt::Own(request, own);
        }
        if !blockers.is_empty() && graph.is_closed() {
            return Attempt::Closed;
        }
        // The owner gets the lock or waits for it: releasing its locks takes it out of the graph.
        queued.iter().for_each(|&waiting| graph.let_past(waiting, request.owner));
        let (owner, may_close) = (request.owner, may_reach || !queued.is_empty());
        if blockers.is_empty() {
            let grown = self.grant(&mut shards, &request);
            // The thread that runs it may wait in another one, which those let past may hold up.
            end_deadlocks(&mut graph, owner);
            return Attempt::Granted(granted(request, grown));
        }
        let (outcome, woken) = (Mutex::default(), Condvar::default());
        let waiter = Arc::new(Waiter { request, cost, since, table: table(), outcome, woken });
        graph.insert(&waiter, blockers, &suspends);
        shards.iter_mut().for_each(|shard| shard.enqueue(&waiter));
        if may_close {
            end_deadlocks(&mut graph, owner);
        }
        let granted = granted(waiter.request.clone(), 0);
        Attempt::Waits(waiter, granted)
    }

    /// Waits for what becomes of a waiter. Unless it was granted, it has left the queues.
    pub(super) fn wait(&self, waiter: &Arc<Waiter>, deadline: Option<Instant>) -> Outcome {
        if let Some(tell) = &self.observer {
            let owner = waiter.request.owner;
            // The observer may take locks of its own.
            let blockers = self.graph.lock().blockers(owner);
            // If a panic left this call, nobody would end the waiter.
            catch_unwind(AssertUnwindSafe(|| tell(owner, &blockers))).unwrap_or(());
        }
        let _waits = self.events.times().lock_waiters.begin();
        let outcome = operations::wait(
            |spent| &mut spent.locks,
            || self.events.times().lock_waits.time(|| self.outcome(waiter, deadline)),
        );
        if !matches!(outcome, Outcome::Granted { .. }) {
            self.withdraw(waiter);
        }
        outcome
    }

    fn outcome(&self, waiter: &Arc<Waiter>, mut deadline: Option<Instant>) -> Outcome {
        let mut outcome = waiter.outcome.lock();
        loop {
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            let (guard, late) = wait(&waiter.woken, outcome, deadline);
            outcome = guard;
            if late && outcome.is_none() {
                drop(outcome);
                if let Some((_, blockers)) = self.graph.lock().remove(waiter.request.owner) {
                    return Outcome::Late(blockers.to_vec());
                }
                // Another thread has decided, and is about to tell (invariant 3).
                deadline = None;
                outcome = waiter.outcome.lock();
            }
        }
    }

    /// Takes a waiter that did not get its lock out of the queues; those that stood behind it
    /// alone get theirs.
    fn withdraw(&self, waiter: &Arc<Waiter>) {
        let owner = waiter.request.owner;
        let mut shards = self.all_shards();
        for shard in &mut shards {
            shard.dequeue(waiter);
        }
        let still = |request: &Request| {
            let mut holders = Blockers::new();
            self.holders_against(&shards, request, &mut holders);
            holders.contains(&owner)
        };
        let free = self.graph.lock().forget_unless(owner, still);
        for waiter in free {
            self.hand_over(&mut shards, &waiter);
        }
    }

    /// Takes back locks of `owner`, which are all it has, and hands them to the waiting owners.
    pub(super) fn release(&self, owner: OwnerId, points: &[Name], ranges: &IntervalSet) {
        let mut waited_for = self.release_keys(owner, points);
        if !ranges.is_empty() {
            let shards = self.all_shards();
            self.change_ranges(|held| ranges.iter().for_each(|names| held.release(&names, owner)));
            waited_for |= shards.iter().any(|shard| shard.has_waiters());
        }
        if !waited_for {
            // An owner that waits for a lock stands in its shard (shard invariant 3).
            return;
        }
        let free = self.graph.lock().forget(owner);
        for waiter in free {
            self.hand_over(&mut self.shards_of(&waiter.request.span), &waiter);
        }
    }

    /// Takes back locks of `owner` on keys, and hands them to no other owner; whether owners wait
    /// in their shards.
    pub(super) fn release_keys(&self, owner: OwnerId, points: &[Name]) -> bool {
        let mut waited_for = false;
        for name in points {
            let mut shard = self.shard_of(name).lock();
            shard.release(name, owner);
            waited_for |= shard.has_waiters();
        }
        waited_for
    }

    /// Takes back all locks on keys from one to another, which are those of `owner`: it has their
    /// range as the only one. Costs a walk over all keys that are locked.
    pub(super) fn release_all_keys(&self, owner: OwnerId, first: &Name, last: &Name) {
        self.shards.iter().for_each(|shard| shard.lock().release_all(owner, first, last));
    }

    /// How an owner holds a key by itself.
    pub(super) fn mode_of(&self, owner: OwnerId, name: &Name) -> Option<Mode> {
        self.shard_of(name).lock().mode_of(name, owner)
    }

    /// How an owner holds names that are in its ranges.
    pub(super) fn held_by(&self, owner: OwnerId, names: KeyInterval) -> Vec<Held> {
        let held = self.ranges.lock().held_by(owner, names);
        held.into_iter().map(|(names, mode)| Held::range(&names, mode)).collect()
    }

    /// Gives a waiter its lock, and tells it; `shards` has those in which it waits.
    pub(super) fn hand_over(&self, shards: &mut Shards<'_>, waiter: &Arc<Waiter>) {
        let request = &waiter.request;
        for shard in shards.iter_mut() {
            if shard.dequeue(waiter)
                && let Span::Point(name) = &request.span
            {
                shard.grant(name, request.owner, request.mode);
            }
        }
        let grown = match &request.span {
            Span::Range(_) => self.grant(shards, request),
            Span::Point(_) => 0,
        };
        waiter.tell(Outcome::Granted { grown });
    }

    /// Ends the wait of an owner, if it waits.
    pub(crate) fn kill(&self, owner: OwnerId) {
        let waiting = self.graph.lock().remove(owner);
        if let Some((waiter, _)) = waiting {
            waiter.tell(Outcome::Killed);
        }
    }

    /// Raises the mark of an owner, which has its next waits end as they begin, and ends the wait
    /// that it is in as its deadline would.
    pub(crate) fn end_wait(&self, owner: OwnerId, mark: &AtomicBool) {
        let mut graph = self.graph.lock();
        // Under the lock that waits begin with: one that begins later sees it.
        mark.store(true, Ordering::Release);
        if let Some((waiter, by)) = graph.remove(owner) {
            waiter.tell(Outcome::Late(by.to_vec()));
        }
    }

    /// Ends all waits, and those that begin later: the database is closed. Locks that are free are
    /// given out all the same.
    pub(crate) fn close(&self) {
        let waiting = self.graph.lock().close();
        waiting.iter().for_each(|waiter| waiter.tell(Outcome::Closed));
    }

    /// The calling thread waits for a call of `owner` that another thread makes: the transactions
    /// that it runs cannot end before. Ends the deadlocks that closes.
    pub(crate) fn wait_for_call(&self, owner: OwnerId) -> WaitsForCall<'_> {
        let held_up = on_this_thread(self, owner);
        if !held_up.is_empty() {
            let mut graph = self.graph.lock();
            graph.hold_up(&held_up, owner);
            held_up.iter().for_each(|&owner| end_deadlocks(&mut graph, owner));
        }
        WaitsForCall { graph: &self.graph, held_up }
    }

    /// What an owner waits for, in words.
    pub(crate) fn waits_for(&self, owner: OwnerId) -> Option<String> {
        let graph = self.graph.lock();
        let waiter = graph.waiter(owner)?;
        Some(format!("{} of table {:?}", waiter.request, waiter.table))
    }

    /// How many locks are held: on keys, on ranges.
    pub(crate) fn held(&self) -> (usize, usize) {
        let shards = self.all_shards();
        (shards.iter().map(|shard| shard.held()).sum(), self.ranges.lock().held())
    }
}

/// A thread waits for another one's call.
pub(crate) struct WaitsForCall<'a> {
    graph: &'a Mutex<Graph>,
    held_up: SmallVec<[OwnerId; 2]>,
}

impl Drop for WaitsForCall<'_> {
    fn drop(&mut self) {
        if !self.held_up.is_empty() {
            self.graph.lock().let_go_on(&self.held_up);
        }
    }
}

/// Ends the deadlocks that new edges to or from `owner` have closed.
fn end_deadlocks(graph: &mut Graph, owner: OwnerId) {
    while let Some((victim, cycle)) = graph.break_cycle(owner) {
        victim.tell(Outcome::Deadlock(cycle));
    }
}

// The transactions that a thread runs: those whose [`Database::run`](crate::Database::run) is on
// its stack. Such a transaction ends after its closure has returned. So a call that waits inside
// of the closure, on the same thread, must not wait for it.
//
// A handle that a thread has from [`Database::begin`](crate::Database::begin) is not listed. It
// may move to another thread, which ends the transaction while this one waits: nothing tells the
// two cases apart.
//
// Thread safety: each thread has a list of its own. A guard stays on its thread.

/// A transaction, by the address of its lock manager and its number. The guard's transaction keeps
/// the manager alive.
type Running = (usize, OwnerId);

/// One of them, and whether the thread has met a deadlock meanwhile.
type Listed = (Running, bool);

thread_local! {
    static RUNNING: RefCell<Vec<Listed>> = const { RefCell::new(Vec::new()) };
}

/// Lists a transaction for as long as it lives.
pub(crate) struct RunsHere {
    running: Running,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl RunsHere {
    /// The calling thread runs the transaction `owner`.
    pub(crate) fn enter(manager: &LockManager, owner: OwnerId) -> RunsHere {
        let running = (address(manager), owner);
        RUNNING.with_borrow_mut(|list| list.push((running, false)));
        RunsHere { running, _thread: PhantomData }
    }

    /// Whether a call of this thread was ended since, to end a deadlock: of any owner, as a plain
    /// write is one.
    pub(crate) fn has_met_deadlock(&self) -> bool {
        RUNNING.with_borrow(|list| list.contains(&(self.running, true)))
    }
}

impl Drop for RunsHere {
    fn drop(&mut self) {
        let last = RUNNING.with_borrow_mut(Vec::pop).map(|(running, _)| running);
        debug_assert_eq!(last, Some(self.running), "runs of one thread end in reverse order");
    }
}

/// The transactions of a database that the calling thread runs, but for `owner` itself.
fn on_this_thread(manager: &LockManager, owner: OwnerId) -> SmallVec<[OwnerId; 2]> {
    let here = address(manager);
    let others = |&&((of, id), _): &&Listed| of == here && id != owner;
    RUNNING.with_borrow(|list| list.iter().filter(others).map(|&((_, id), _)| id).collect())
}

/// Notes for what the calling thread runs that one of its calls is ended, to end a deadlock.
pub(super) fn note_deadlock(manager: &LockManager) {
    let here = address(manager);
    RUNNING.with_borrow_mut(|list| {
        list.iter_mut().filter(|((of, _), _)| *of == here).for_each(|(_, met)| *met = true);
    });
}

fn address(manager: &LockManager) -> usize {
    std::ptr::from_ref(manager).addr()
}
