//! A ticket: a group's place in the order of commits, from the turnstile to its finished slot.
//!
//! Thread safety: the thread that took it owns it.
//!
//! Invariant: a ticket that is dropped before its slot is finished poisons the database.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use super::committer::Committer;
use super::group::Few;
use super::turnstile::Place;
use crate::memtable::Memtable;
use crate::record::Lsn;

/// A ticket; its LSN is 0 before it has one, and once it was honoured.
pub(super) struct Ticket<'a> {
    pub(super) committer: &'a Committer,
    pub(super) lsn: Lsn,
    pub(super) places: Few<Place>,
    pub(super) actives: Few<Arc<Memtable>>,
    /// The epoch in which its records are indexed.
    pub(super) guard: Option<Guard>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.lsn == 0 {
            return;
        }
        // A void slot would let recovery and readers disagree, so there is none (invariant 1).
        let poison = &self.committer.poison;
        poison.set_because(format!("a thread died between ticket and finish of {}", self.lsn));
        self.committer.publisher.ring.abandon(self.lsn);
        self.committer.wake_all();
    }
}
