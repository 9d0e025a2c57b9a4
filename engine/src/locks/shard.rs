//! One part of the lock table: the locks on its keys, and the waiters.
//!
//! Thread safety: none of its own; the manager holds each in a mutex.
//!
//! Invariants:
//!
//! 1. A key has its locks in the one shard of its name.
//! 2. No two locks held in a shard exclude each other.
//! 3. A waiter for a key stands in the shard of its name, one for a range in every shard, in the
//!    order of arrival.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use super::request::{Mode, Name, OwnerId, Request, Span, Waiter};

/// Owners that block a request, each once.
pub(super) type Blockers = SmallVec<[OwnerId; 4]>;

/// Who holds something, and how.
pub(super) type Holders = SmallVec<[(OwnerId, Mode); 1]>;

/// Adds an owner that is not there yet.
pub(super) fn add(blockers: &mut Blockers, owner: OwnerId) {
    if !blockers.contains(&owner) {
        blockers.push(owner);
    }
}

/// One part of the lock table.
#[derive(Debug, Default)]
pub(super) struct Shard {
    points: BTreeMap<Name, Holders>,
    waiting: Vec<Arc<Waiter>>,
}

impl Shard {
    /// Bytes that a key takes here, beside what its name has elsewhere.
    pub(super) const POINT: usize = size_of::<(Name, Holders)>() + 1;

    /// The owners of locks on keys that exclude `request`.
    pub(super) fn holders_against(&self, request: &Request, into: &mut Blockers) {
        let mut exclude = |holders: &Holders| {
            for &(owner, mode) in holders {
                if request.excludes(owner, mode) {
                    add(into, owner);
                }
            }
        };
        match &request.span {
            Span::Point(name) => self.points.get(name).into_iter().for_each(&mut exclude),
            Span::Range(names) => {
                let upper = names.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let inside = (Bound::Included(names.start.as_slice()), upper);
                self.points.range::<[u8], _>(inside).for_each(|(_, holders)| exclude(holders));
            }
        }
    }

    /// The owners that wait for locks that exclude `request`.
    pub(super) fn waiters_against(&self, request: &Request, into: &mut Blockers) {
        for waiter in self.waiting.iter().filter(|w| w.request.conflicts(request)) {
            add(into, waiter.request.owner);
        }
    }

    /// Adds a waiter to the queue.
    pub(super) fn enqueue(&mut self, waiter: &Arc<Waiter>) {
        self.waiting.push(Arc::clone(waiter));
    }

    /// Takes a waiter out of the queue; whether it was there.
    pub(super) fn dequeue(&mut self, waiter: &Arc<Waiter>) -> bool {
        let at = self.waiting.iter().position(|w| Arc::ptr_eq(w, waiter));
        at.map(|at| self.waiting.remove(at)).is_some()
    }

    /// Whether the queue has a waiter.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Gives the lock on a key to its owner.
    pub(super) fn grant(&mut self, name: &Name, owner: OwnerId, mode: Mode) {
        let holders = self.points.entry(name.clone()).or_default();
        match holders.iter_mut().find(|(holder, _)| *holder == owner) {
            Some((_, held)) => *held = mode.max(*held),
            None => holders.push((owner, mode)),
        }
        debug_assert!(
            holders.len() == 1 || holders.iter().all(|(_, mode)| *mode == Mode::Shared),
            "what is granted excludes nothing that is held (invariant 2)"
        );
    }

    /// Takes back the lock of `owner` on a key.
    pub(super) fn release(&mut self, name: &Name, owner: OwnerId) {
        let Some(holders) = self.points.get_mut(name) else { return };
        holders.retain(|(holder, _)| *holder != owner);
        if holders.is_empty() {
            self.points.remove(name);
        }
    }

    /// How `owner` holds a key, if it does.
    pub(super) fn mode_of(&self, name: &Name, owner: OwnerId) -> Option<Mode> {
        let held = self.points.get(name)?.iter().find(|(holder, _)| *holder == owner)?;
        Some(held.1)
    }

    /// How many locks on keys are held here.
    pub(super) fn held(&self) -> usize {
        self.points.values().map(|holders| holders.len()).sum()
    }
}
