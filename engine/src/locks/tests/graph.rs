//! The graph of waits beside a list that says who can ever go on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::rules::{draws, key, until_waiting};
use crate::locks::graph::{Been, Graph};
use crate::locks::manager::Attempt;
use crate::locks::ranges::VISITED;
use crate::locks::request::{Request, Span, Waiter, name};
use crate::locks::{LockManager, Locker, Mode, OwnerId, Patience, RunsHere};

/// Owners, what they wait for, and whose call keeps them.
#[derive(Clone, Debug, Default)]
struct Listed {
    waits: Vec<(OwnerId, Vec<OwnerId>)>,
    /// An owner cannot end before a call of the other one has.
    kept: Vec<(OwnerId, OwnerId)>,
}

impl Listed {
    /// The waiters that get nowhere, though every owner that can end does.
    fn stuck(&self) -> BTreeSet<OwnerId> {
        let mut waits: BTreeSet<_> = self.waits.iter().map(|(owner, _)| *owner).collect();
        let mut kept = self.kept.clone();
        loop {
            kept.retain(|(_, caller)| waits.contains(caller));
            let ends =
                |owner: &OwnerId| !waits.contains(owner) && kept.iter().all(|(of, _)| of != owner);
            let goes_on = self
                .waits
                .iter()
                .find(|(waiter, blockers)| waits.contains(waiter) && blockers.iter().all(ends));
            let Some((waiter, _)) = goes_on else { return waits };
            waits.remove(waiter);
        }
    }

    fn remove(&mut self, owner: OwnerId, suspended: &mut Vec<(OwnerId, OwnerId)>) {
        self.waits.retain(|(waiter, _)| *waiter != owner);
        suspended.retain(|(_, by)| *by != owner);
    }
}

fn waiter(owner: OwnerId) -> Arc<Waiter> {
    let request = Request { owner, mode: Mode::Exclusive, span: Span::Point(name(1, b"k")) };
    let (since, table) = (Instant::now(), "t".to_string());
    Arc::new(Waiter {
        request,
        cost: owner % 3,
        since,
        table,
        outcome: Default::default(),
        woken: Default::default(),
    })
}

/// Waits, suspensions and calls that are waited for, in every mixture: a cycle is found when one is
/// there, and no other time.
#[test]
fn what_ends_a_wait_is_a_deadlock_and_every_deadlock_is_ended() {
    const OWNERS: u64 = 6;
    let (mut broken, mut free) = (0, 0);
    for seed in 1..=20_000 {
        let mut draw = draws(seed);
        let (mut graph, mut listed) = (Graph::default(), Listed::default());
        let (mut suspended, mut held_up) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let (owner, other, third) = (draw() % OWNERS, draw() % OWNERS, draw() % OWNERS);
            let waits = listed.waits.iter().any(|(waiter, _)| *waiter == owner);
            let kept = |of| suspended.iter().chain(&held_up).any(|&(kept, _)| kept == of);
            if !waits && other != owner && third != owner && !draw().is_multiple_of(3) {
                let mut blockers = vec![other];
                blockers.extend((third != other).then_some(third));
                let runs = draw() % OWNERS;
                let is_run = runs != owner && !kept(runs) && !blockers.contains(&runs);
                let suspends: Vec<OwnerId> = is_run.then_some(runs).into_iter().collect();
                graph.insert(&waiter(owner), blockers.iter().copied().collect(), &suspends);
                listed.waits.push((owner, blockers));
                suspended.extend(suspends.into_iter().map(|runs| (runs, owner)));
            } else if owner != other && !kept(owner) {
                graph.hold_up(&[owner], other);
                held_up.push((owner, other));
            } else {
                continue;
            }
            loop {
                listed.kept = suspended.iter().chain(&held_up).copied().collect();
                let stuck = listed.stuck();
                let found = graph.break_cycle(owner);
                assert_eq!(found.is_some(), !stuck.is_empty(), "seed {seed}: {listed:?}");
                let Some((victim, text)) = found else { break };
                let victim = victim.request.owner;
                assert!(stuck.contains(&victim), "seed {seed}: {victim} of {listed:?}: {text}");
                assert!(text.contains(&format!("transaction {victim} waits for key")), "{text}");
                listed.remove(victim, &mut suspended);
                broken += 1;
            }
            free += u32::from(!listed.kept.is_empty() && listed.waits.len() > 1);
        }
    }
    assert!(broken > 10_000 && free > 10_000, "both cases come: {broken}, {free}");
}

/// Bug: a transaction was rolled back to end a deadlock that was none. Cause: two threads each ran
/// one transaction and waited for a call of the other's, which waited for a third. The search took
/// the end of a call for the end of its owner, and found a cycle. Fix: it tells the two apart.
#[test]
fn calls_that_wait_for_a_third_are_no_deadlock_of_their_owners() {
    let manager = LockManager::new(usize::MAX);
    let (mut holder, mut a, mut b) =
        (Locker::new(&manager), Locker::new(&manager), Locker::new(&manager));
    for name in ["k1", "k2"] {
        key(&mut holder, name, Mode::Exclusive, Patience::None).unwrap();
    }
    let patience = Patience::Until(Instant::now() + Duration::from_mins(1));
    let [id_of_a, id_of_b] = [a.id(), b.id()];
    let waiting = [
        thread::spawn(move || key(&mut a, "k1", Mode::Exclusive, patience)),
        thread::spawn(move || key(&mut b, "k2", Mode::Exclusive, patience)),
    ];
    [id_of_a, id_of_b].into_iter().for_each(|id| until_waiting(&manager, id));
    let _runs = RunsHere::enter(&manager, id_of_a);
    let _waits = manager.wait_for_call(id_of_b);
    thread::scope(|threads| {
        threads.spawn(|| {
            let _runs = RunsHere::enter(&manager, id_of_b);
            drop(manager.wait_for_call(id_of_a));
        });
    });
    drop(holder);
    for thread in waiting {
        assert!(thread.join().unwrap().unwrap());
    }
}

/// Bug: a transaction failed at once, as if its thread waited for itself, though nothing held the
/// lock. Cause: another thread's call of the outer transaction stood in the queue, which the inner
/// one was not let past: a search for what an owner waits for did not look at the owner itself.
/// Fix: a waiter that the thread suspends ends after it, so it is let past.
#[test]
fn a_transaction_is_let_past_a_waiting_call_of_the_one_that_its_thread_runs() {
    let manager = LockManager::new(usize::MAX);
    let (mut holder, mut outer, mut inner) =
        (Locker::new(&manager), Locker::new(&manager), Locker::new(&manager));
    key(&mut holder, "k", Mode::Shared, Patience::None).unwrap();
    let patience = Patience::Until(Instant::now() + Duration::from_mins(1));
    let outer_id = outer.id();
    let waiting = thread::spawn(move || key(&mut outer, "k", Mode::Exclusive, patience));
    until_waiting(&manager, outer_id);
    let _runs = RunsHere::enter(&manager, outer_id);
    assert!(key(&mut inner, "k", Mode::Shared, Patience::None).unwrap(), "it is let past");
    drop(holder);
    drop(inner);
    assert!(waiting.join().unwrap().unwrap());
}

/// An owner that is suspended ends after those that suspend it, also without an edge of its own.
#[test]
fn a_search_from_an_owner_that_is_suspended_finds_itself() {
    let graph = Graph::default();
    let reaches = |others: &[OwnerId]| graph.reaches(1, 2, others, &mut Been::default());
    assert!(reaches(&[1]) && reaches(&[3, 1]));
    assert!(!reaches(&[3]) && !reaches(&[]));
}

/// Bug: two owners had one row exclusively. Cause: a waiter that is decided stands in its queue
/// until it is handed its lock, and a call of another owner on the thread that runs it was let
/// past. Fix: it counts as a holder from the decision on.
#[test]
fn nobody_is_let_past_a_waiter_that_is_about_to_get_its_lock() {
    let manager = LockManager::new(usize::MAX);
    let (mut holder, mut outer, mut inner) =
        (Locker::new(&manager), Locker::new(&manager), Locker::new(&manager));
    key(&mut holder, "k", Mode::Exclusive, Patience::None).unwrap();
    let patience = Patience::Until(Instant::now() + Duration::from_mins(1));
    let [holder_id, outer_id] = [holder.id(), outer.id()];
    let waiting = thread::spawn(move || (key(&mut outer, "k", Mode::Exclusive, patience), outer));
    until_waiting(&manager, outer_id);
    // As a release does, between its steps.
    manager.release_keys(holder_id, &[name(1, b"k")]);
    let free = manager.graph.lock().forget(holder_id);
    let _runs = RunsHere::enter(&manager, outer_id);
    key(&mut inner, "k", Mode::Exclusive, Patience::None).unwrap_err();
    for waiter in free {
        manager.hand_over(&mut manager.shards_of(&waiter.request.span), &waiter);
    }
    assert!(waiting.join().unwrap().0.unwrap());
    std::mem::forget(holder);
}

/// An attempt of `owner` to lock a key of the lock table alone; whether it has to wait.
fn waits(manager: &LockManager, owner: OwnerId, key: &str, mode: Mode) -> bool {
    let request = Request { owner, mode, span: Span::Point(name(1, key.as_bytes())) };
    let attempt = manager.attempt(request, Patience::Endless, 0, None, &|| "t".to_string());
    matches!(attempt, Attempt::Waits(..))
}

/// Bug: a row for which some hundreds of writers waited stood still. Cause: a writer that came
/// searched from each of those in front of it, through all edges: the cube of their number. Fix:
/// where nothing waits for the one that comes, there is nothing to find.
#[test]
fn who_comes_behind_many_and_is_not_waited_for_searches_nothing() {
    let manager = LockManager::new(usize::MAX);
    let owners: Vec<OwnerId> = (0..100).map(|_| manager.new_owner()).collect();
    VISITED.set(0);
    let waiting = owners.iter().filter(|&&owner| waits(&manager, owner, "k", Mode::Exclusive));
    assert_eq!((waiting.count(), VISITED.get()), (99, 0));
}

/// The same bug, of owners for which others wait. Fix: the searches from those in front share where
/// they have been.
#[test]
fn who_comes_behind_many_searches_each_edge_few_times() {
    const WAITERS: usize = 100;
    let manager = LockManager::new(usize::MAX);
    let waits = |owner, key, mode| waits(&manager, owner, key, mode);
    let owners: Vec<OwnerId> = (0..WAITERS + 4).map(|_| manager.new_owner()).collect();
    let ([first, second, known, other], writers) = owners.split_first_chunk().unwrap();
    assert!(!waits(*first, "k", Mode::Shared) && !waits(*second, "k", Mode::Shared));
    writers.iter().for_each(|&writer| assert!(waits(writer, "k", Mode::Exclusive)));
    let edges = WAITERS * (WAITERS + 3) / 2;
    // One for which another one waits comes behind them: no way leads to it.
    assert!(!waits(*known, "other", Mode::Exclusive) && waits(*other, "other", Mode::Shared));
    VISITED.set(0);
    assert!(waits(*known, "k", Mode::Exclusive));
    let visited = VISITED.replace(0);
    assert!(visited > edges && visited < 5 * edges, "{visited} visits of {edges} edges");
    // A holder is let past all of them: from each a way leads to it.
    assert!(waits(*first, "k", Mode::Exclusive));
    let visited = VISITED.get();
    assert!(visited > WAITERS && visited < 5 * edges, "{visited} visits of {edges} edges");
    assert_eq!(manager.graph.lock().blockers(*first).as_slice(), [*second]);
}

/// A search that went first where it had seen an edge last took a plain write for a part of the
/// deadlock behind which it stood in a queue: it failed, and the deadlock stayed.
#[test]
fn who_only_stands_in_a_queue_is_no_victim() {
    for is_swapped in [false, true] {
        let mut graph = Graph::default();
        let [a, b, queued] = [1, 2, 3].map(waiter);
        let owner = |waiter: &Arc<Waiter>| waiter.request.owner;
        // The one in the queue has done the least.
        assert!(queued.cost < a.cost && queued.cost < b.cost);
        graph.insert(&queued, [owner(&a)].into_iter().collect(), &[]);
        let mut blockers = vec![owner(&a), owner(&queued)];
        if is_swapped {
            blockers.reverse();
        }
        graph.insert(&b, blockers.into_iter().collect(), &[]);
        assert!(graph.break_cycle(owner(&b)).is_none());
        graph.insert(&a, [owner(&b)].into_iter().collect(), &[]);
        let (victim, cycle) = graph.break_cycle(owner(&a)).unwrap();
        assert!(!Arc::ptr_eq(&victim, &queued), "{cycle}");
        assert!(graph.break_cycle(owner(&a)).is_none(), "that has ended it");
    }
}
