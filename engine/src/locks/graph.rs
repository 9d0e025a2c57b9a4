//! The graph of waits. An edge leads from an owner that waits to an owner that has to give up its
//! locks first. A cycle is a deadlock. A search from the owner that is about to wait, or is let
//! past others, finds it: no other step adds an edge. Where nothing waits for that owner there is
//! none, and nothing is searched.
//!
//! A thread that waits inside of [`Database::run`](crate::Database::run) cannot end the transaction
//! that it runs: the waiter *suspends* it. A transaction holds others up too if their thread waits
//! for a call of it, which another thread makes. Both wait for the end of a call, and not for that
//! of its owner: a waiter's call ends with its wait, also where something else keeps its owner. So
//! the search tells the end of an owner from the end of its call.
//!
//! Thread safety: none of its own. The manager holds the graph in a mutex, and takes it only when
//! an owner has to wait or may be waited for.
//!
//! Invariants:
//!
//! 1. An owner waits for one lock at a time. A waiter in the graph is not decided; the caller that
//!    takes it out says what became of it.
//! 2. The edges of a waiter are all owners that can ever stand in its way: those that held or
//!    asked for what excludes it when it came, and those that were let past it later.
//! 3. No cycle is left when the manager lets go of the graph.
//! 4. A suspended owner stands in `suspended` for as long as its waiter is in the graph, or in
//!    `held_up` for as long as its thread waits for the call.
//! 5. A closed graph has no waiter.

use std::cmp::Reverse;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use super::ranges::count_visit;
use super::request::{Blockers, add};
use super::request::{OwnerId, Request, Waiter};
use crate::os::HashMap;

#[derive(Debug)]
struct Wait {
    waiter: Arc<Waiter>,
    blockers: Blockers,
}

/// What others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// The owner gives everything back.
    OfOwner(OwnerId),
    /// The call of the owner that may wait ends.
    OfCall(OwnerId),
}

/// Where searches for one end have been, and whether a way leads from there to the end.
pub(super) type Been = HashMap<Ending, bool>;

/// A request that comes to a queue.
pub(super) struct NewWaiter<'a> {
    pub(super) since: Instant,
    pub(super) owner: OwnerId,
    /// The transactions that the calling thread runs, but for this one.
    pub(super) suspends: &'a [OwnerId],
}

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    waiting: HashMap<OwnerId, Wait>,
    /// Owners that cannot end before a waiter has its lock, with the waiter.
    suspended: HashMap<OwnerId, OwnerId>,
    /// Owners that cannot end before a call of another one, which may wait, has ended.
    held_up: HashMap<OwnerId, OwnerId>,
    is_closed: bool,
}

impl Graph {
    /// Has an owner wait for `blockers`; `suspends` cannot end meanwhile.
    pub(super) fn insert(
        &mut self,
        waiter: &Arc<Waiter>,
        blockers: Blockers,
        suspends: &[OwnerId],
    ) {
        debug_assert!(!self.is_closed, "nothing waits in a closed graph (invariant 5)");
        let owner = waiter.request.owner;
        let wait = Wait { waiter: Arc::clone(waiter), blockers };
        let before = self.waiting.insert(owner, wait);
        debug_assert!(before.is_none(), "an owner waits for one lock at a time (invariant 1)");
        self.suspended.extend(suspends.iter().map(|&suspended| (suspended, owner)));
    }

    /// Owners cannot end before a call of `caller` has, and can again.
    pub(super) fn hold_up(&mut self, owners: &[OwnerId], caller: OwnerId) {
        self.held_up.extend(owners.iter().map(|&owner| (owner, caller)));
    }

    pub(super) fn let_go_on(&mut self, owners: &[OwnerId]) {
        self.held_up.retain(|owner, _| !owners.contains(owner));
    }

    /// Takes a waiter out, with those it waited for; `None` if it is decided already.
    pub(super) fn remove(&mut self, owner: OwnerId) -> Option<(Arc<Waiter>, Blockers)> {
        let wait = self.waiting.remove(&owner)?;
        self.suspended.retain(|_, waiter| *waiter != owner);
        Some((wait.waiter, wait.blockers))
    }

    /// Takes all waiters out, and lets no other one in.
    pub(super) fn close(&mut self) -> Vec<Arc<Waiter>> {
        self.is_closed = true;
        self.suspended.clear();
        self.waiting.drain().map(|(_, wait)| wait.waiter).collect()
    }

    /// Whether it lets no waiter in.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What an owner waits for.
    pub(super) fn waiter(&self, owner: OwnerId) -> Option<&Arc<Waiter>> {
        self.waiting.get(&owner).map(|wait| &wait.waiter)
    }

    /// Those that an owner waits for.
    pub(super) fn blockers(&self, owner: OwnerId) -> Blockers {
        self.waiting.get(&owner).map(|wait| wait.blockers.clone()).unwrap_or_default()
    }

    /// `owner` has given back everything: the owners that waited for it alone are taken out.
    pub(super) fn forget(&mut self, owner: OwnerId) -> Vec<Arc<Waiter>> {
        self.forget_unless(owner, |_| false)
    }

    /// `owner` no longer waits: owners that waited for it alone are taken out, but for those of
    /// which `still` says that it holds what they ask for.
    pub(super) fn forget_unless(
        &mut self,
        owner: OwnerId,
        mut still: impl FnMut(&Request) -> bool,
    ) -> Vec<Arc<Waiter>> {
        let mut free = Vec::new();
        for (&waiting, wait) in &mut self.waiting {
            let Some(at) = wait.blockers.iter().position(|&b| b == owner) else { continue };
            if still(&wait.waiter.request) {
                continue;
            }
            wait.blockers.swap_remove(at);
            if wait.blockers.is_empty() {
                free.push(waiting);
            }
        }
        free.into_iter().filter_map(|owner| self.remove(owner)).map(|(waiter, _)| waiter).collect()
    }

    /// Whether anything waits for an owner, or for a call of it.
    fn is_waited_for(&self, owner: OwnerId) -> bool {
        let keeps = |of: &HashMap<_, OwnerId>| of.values().any(|caller| *caller == owner);
        [&self.suspended, &self.held_up].into_iter().any(keeps)
            || self.waiting.values().any(|wait| wait.blockers.contains(&owner))
    }

    /// Whether `from` ends only after a call of `caller`, or after one of the owners `others`.
    /// `been` is of searches for the same.
    pub(super) fn reaches(
        &self,
        from: OwnerId,
        caller: OwnerId,
        others: &[OwnerId],
        been: &mut Been,
    ) -> bool {
        let ends = |ending| match ending {
            Ending::OfCall(owner) => owner == caller,
            Ending::OfOwner(owner) => others.contains(&owner),
        };
        let from = Ending::OfOwner(from);
        let known = been.get(&from).copied();
        ends(from) || known.unwrap_or_else(|| self.path(from, ends, been).is_some())
    }

    /// Leaves whom a request passes in `queued`, and adds the others to what it waits for. Whether
    /// a way may lead to its owner.
    pub(super) fn divide(
        &self,
        new: &NewWaiter<'_>,
        queued: &mut Blockers,
        blockers: &mut Blockers,
    ) -> bool {
        let may_reach = !new.suspends.is_empty() || self.is_waited_for(new.owner);
        let (holders, mut been) = (blockers.len(), Been::default());
        queued.retain(|waiting| {
            // A waiter that has left the graph may be about to get its lock: it counts as a holder.
            let passes = self.waiter(*waiting).is_some_and(|waiter| {
                new.since < waiter.since
                    || may_reach && self.reaches(*waiting, new.owner, new.suspends, &mut been)
            });
            if !passes && !blockers[..holders].contains(waiting) {
                blockers.push(*waiting);
            }
            passes
        });
        may_reach
    }

    /// Lets `past` go before a waiting owner, which waits for it from now on.
    pub(super) fn let_past(&mut self, waiting: OwnerId, past: OwnerId) {
        if let Some(wait) = self.waiting.get_mut(&waiting) {
            add(&mut wait.blockers, past);
        }
    }

    /// What has to end before `at` does.
    fn before(&self, at: Ending) -> impl Iterator<Item = Ending> {
        let (blockers, calls) = match at {
            Ending::OfOwner(owner) => {
                let others = [&self.suspended, &self.held_up].map(|of| of.get(&owner).copied());
                (&[][..], [Some(owner), others[0], others[1]])
            }
            Ending::OfCall(owner) => {
                let wait = self.waiting.get(&owner);
                (wait.map_or(&[][..], |wait| &wait.blockers), [None; 3])
            }
        };
        let owners = blockers.iter().copied().map(Ending::OfOwner);
        owners.chain(calls.into_iter().flatten().map(Ending::OfCall))
    }

    /// A way from `from` to what `is_end` says, both included, along at least one edge. It leads to
    /// each place from where that was seen first: through a deadlock's ends, not through those that
    /// stand in their queues. It goes nowhere that is in `been`, and ends where a way is known to
    /// lead on.
    fn path(
        &self,
        from: Ending,
        is_end: impl Fn(Ending) -> bool,
        been: &mut Been,
    ) -> Option<Vec<Ending>> {
        let mut came_from: HashMap<Ending, Ending> = HashMap::default();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for next in self.before(at) {
                count_visit();
                let known = been.get(&next).copied();
                if known == Some(true) || is_end(next) {
                    let mut path = vec![next, at];
                    while path.last() != Some(&from) {
                        path.push(*came_from.get(path.last()?)?);
                    }
                    path.reverse();
                    been.extend(path.iter().map(|&at| (at, true)));
                    return Some(path);
                }
                if known.is_none() && next != from && !came_from.contains_key(&next) {
                    came_from.insert(next, at);
                    open.push(next);
                }
            }
        }
        been.insert(from, false);
        been.extend(came_from.into_keys().map(|at| (at, false)));
        None
    }

    /// Looks for a cycle through `owner`, and takes out the one of its members that has done the
    /// least work (of equals, the youngest), with a description of the cycle.
    pub(super) fn break_cycle(&mut self, owner: OwnerId) -> Option<(Arc<Waiter>, String)> {
        let through = |at| self.path(at, |end| end == at, &mut Been::default());
        let cycle = through(Ending::OfCall(owner)).or_else(|| through(Ending::OfOwner(owner)))?;
        let (mut text, mut victim) = (String::new(), None);
        for step in cycle.windows(2) {
            let between = if text.is_empty() { "" } else { "; " };
            let written = match (step[0], step[1]) {
                (Ending::OfCall(waits), Ending::OfOwner(holder)) => {
                    let waiter = &self.waiting.get(&waits)?.waiter;
                    victim = victim.max(Some((Reverse(waiter.cost), waits)));
                    write!(
                        text,
                        "{between}transaction {waits} waits for {} of table {:?}, held by \
                         transaction {holder}",
                        waiter.request, waiter.table
                    )
                }
                (Ending::OfOwner(runs), Ending::OfCall(caller)) if runs != caller => write!(
                    text,
                    "{between}the thread that runs transaction {runs} waits in transaction {caller}"
                ),
                _ => Ok(()),
            };
            debug_assert!(written.is_ok(), "writing to a string cannot fail");
        }
        self.remove(victim?.1).map(|(waiter, _)| (waiter, text))
    }
}
