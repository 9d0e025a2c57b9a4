//! One part of the lock table: the locks on its keys, every lock on a range, and the waiters.
//!
//! Thread safety: none of its own; the manager holds each in a mutex.
//!
//! Invariants:
//!
//! 1. A key has its locks in the one shard of its name. A range has its lock in every shard.
//! 2. No two locks held in a shard exclude each other.
//! 3. A waiter stands in the shards where its lock will be, in the order of arrival.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::request::{Held, Mode, Name, OwnerId, Request, Span, Waiter};

/// Owners that block a request, each once.
pub(super) type Blockers = SmallVec<[OwnerId; 4]>;

type Holders = SmallVec<[(OwnerId, Mode); 1]>;

/// Adds an owner that is not there yet.
pub(super) fn add(blockers: &mut Blockers, owner: OwnerId) {
    if !blockers.contains(&owner) {
        blockers.push(owner);
    }
}

/// One part of the lock table.
#[derive(Debug, Default)]
pub(super) struct Shard {
    points: HashMap<Name, Holders>,
    ranges: Vec<Request>,
    waiting: Vec<Arc<Waiter>>,
}

impl Shard {
    /// Bytes that a key takes here, beside what its name has elsewhere.
    pub(super) const POINT: usize = size_of::<(Name, Holders)>() + 1;

    /// Whether the owner has the lock already, or a stronger one on the same key.
    pub(super) fn covers(&self, request: &Request) -> bool {
        if self.ranges.iter().any(|held| held.covers(request)) {
            return true;
        }
        let Span::Point(name) = &request.span else { return false };
        let held = self.points.get(name).map_or(&[][..], |holders| holders);
        held.iter().any(|&(owner, mode)| owner == request.owner && mode >= request.mode)
    }

    /// The owners of locks that exclude `request`.
    pub(super) fn holders_against(&self, request: &Request, into: &mut Blockers) {
        let excludes = |name: &Name, holders: &Holders, into: &mut Blockers| {
            for &(owner, mode) in holders {
                if request.conflicts_with_point(name, owner, mode) {
                    add(into, owner);
                }
            }
        };
        match &request.span {
            Span::Point(name) => {
                if let Some(holders) = self.points.get(name) {
                    excludes(name, holders, into);
                }
            }
            Span::Range(_) => {
                self.points.iter().for_each(|(name, holders)| excludes(name, holders, into));
            }
        }
        for held in self.ranges.iter().filter(|held| held.conflicts(request)) {
            add(into, held.owner);
        }
    }

    /// Whether `owner` holds something here that excludes `request`.
    pub(super) fn excludes(&self, owner: OwnerId, request: &Request) -> bool {
        let mut holders = Blockers::new();
        self.holders_against(request, &mut holders);
        holders.contains(&owner)
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

    /// Gives the lock to its owner.
    pub(super) fn grant(&mut self, request: &Request) {
        debug_assert!(
            {
                let mut holders = Blockers::new();
                self.holders_against(request, &mut holders);
                holders.is_empty()
            },
            "what is granted excludes nothing that is held (invariant 2)"
        );
        let Span::Point(name) = &request.span else {
            self.ranges.push(request.clone());
            return;
        };
        let holders = self.points.entry(name.clone()).or_default();
        match holders.iter_mut().find(|(owner, _)| *owner == request.owner) {
            Some((_, mode)) => *mode = request.mode.max(*mode),
            None => holders.push((request.owner, request.mode)),
        }
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

    /// The locks of `owner` on ranges.
    pub(super) fn ranges_of(&self, owner: OwnerId) -> impl Iterator<Item = Held> {
        self.ranges.iter().filter(move |held| held.owner == owner).filter_map(Request::held)
    }

    /// Takes back all locks of `owner` on ranges.
    pub(super) fn release_ranges(&mut self, owner: OwnerId) {
        self.ranges.retain(|held| held.owner != owner);
    }

    /// How many locks are held here: on keys, on ranges.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.points.values().map(|holders| holders.len()).sum(), self.ranges.len())
    }
}
