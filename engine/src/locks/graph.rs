//! Who waits for whom. An edge leads from somebody who waits to an owner that has to give up its
//! locks first; a cycle is a deadlock, found by a search from whoever is about to wait, because
//! only a new wait closes a cycle.
//!
//! Thread safety: none of its own; the manager holds it in a mutex, taken only when somebody has
//! to wait or somebody may be waiting.
//!
//! Invariants:
//!
//! 1. An owner waits for one lock at a time. Who is in the graph is not decided; whoever takes it
//!    out says what became of it.
//! 2. The edges of a waiter are all owners that can ever stand in its way: those that held or
//!    asked for what excludes it when it came, and those that were let past it later.
//! 3. No cycle is left when the manager lets go of the graph.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use super::request::{OwnerId, Request, Waiter};
use super::shard::{Blockers, add};

#[derive(Debug)]
struct Wait {
    waiter: Arc<Waiter>,
    blockers: Blockers,
}

/// Who waits for whom.
#[derive(Debug, Default)]
pub(super) struct Graph {
    waiting: HashMap<OwnerId, Wait>,
}

impl Graph {
    /// Has somebody wait for `blockers`.
    pub(super) fn insert(&mut self, waiter: &Arc<Waiter>, blockers: Blockers) {
        let wait = Wait { waiter: Arc::clone(waiter), blockers };
        let before = self.waiting.insert(waiter.request.owner, wait);
        debug_assert!(before.is_none(), "an owner waits for one lock at a time (invariant 1)");
    }

    /// Takes somebody out, with those it waited for; `None` if it is decided already.
    pub(super) fn remove(&mut self, owner: OwnerId) -> Option<(Arc<Waiter>, Blockers)> {
        self.waiting.remove(&owner).map(|wait| (wait.waiter, wait.blockers))
    }

    /// What somebody waits for.
    pub(super) fn waiter(&self, owner: OwnerId) -> Option<&Arc<Waiter>> {
        self.waiting.get(&owner).map(|wait| &wait.waiter)
    }

    /// `owner` has given back everything: those who waited for it alone are taken out.
    pub(super) fn forget(&mut self, owner: OwnerId) -> Vec<Arc<Waiter>> {
        self.forget_unless(owner, |_| false)
    }

    /// `owner` no longer waits: those who waited for it alone are taken out, but for those of
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

    /// Whether `from` waits for `to`, perhaps through others.
    pub(super) fn reaches(&self, from: OwnerId, to: OwnerId) -> bool {
        self.path(from, to).is_some()
    }

    /// Lets `past` go before somebody who waits (and who waits for it anyway, through others).
    pub(super) fn let_past(&mut self, waiting: OwnerId, past: OwnerId) {
        if let Some(wait) = self.waiting.get_mut(&waiting) {
            add(&mut wait.blockers, past);
        }
    }

    /// The owners on a way from `from` to `to`, both included, along at least one edge.
    fn path(&self, from: OwnerId, to: OwnerId) -> Option<Vec<OwnerId>> {
        let mut came_from: HashMap<OwnerId, OwnerId> = HashMap::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            let Some(wait) = self.waiting.get(&at) else { continue };
            for &next in &wait.blockers {
                if next == to {
                    let mut path = vec![to, at];
                    while path.last() != Some(&from) {
                        path.push(*came_from.get(path.last()?)?);
                    }
                    path.reverse();
                    return Some(path);
                }
                if next != from && !came_from.contains_key(&next) {
                    came_from.insert(next, at);
                    open.push(next);
                }
            }
        }
        None
    }

    /// Looks for a cycle through `owner`, and takes out the one of its members that holds the
    /// fewest locks (of equals, the youngest), with a description of the cycle.
    pub(super) fn break_cycle(&mut self, owner: OwnerId) -> Option<(Arc<Waiter>, String)> {
        let cycle = self.path(owner, owner)?;
        let members = &cycle[..cycle.len() - 1];
        let cost = |id: &OwnerId| self.waiting.get(id).map_or(usize::MAX, |w| w.waiter.cost);
        let victim = *members.iter().min_by_key(|id| (cost(id), std::cmp::Reverse(**id)))?;
        let mut text = String::new();
        for step in cycle.windows(2) {
            let Some(waiter) = self.waiter(step[0]) else { continue };
            let between = if text.is_empty() { "" } else { "; " };
            let written = write!(
                text,
                "{between}transaction {} waits for {} of table {:?}, held by transaction {}",
                step[0], waiter.request, waiter.table, step[1]
            );
            debug_assert!(written.is_ok(), "writing to a string cannot fail");
        }
        self.remove(victim).map(|(waiter, _)| (waiter, text))
    }
}
