//! Another machine that becomes the writer of a shared store, as the ledger knows it.

use terrace::Durability;

use super::{Ledger, Seen, State, Write};
use crate::violation::Class;

/// Another machine becomes the writer of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Takeover {
    /// It was by this moment.
    by: Option<u64>,
    /// What it had then.
    state: State,
}

impl Ledger {
    /// Another machine is about to become the writer, unless one is already.
    pub(in crate::schedules) fn begin_takeover(&self) -> bool {
        let mut book = self.book();
        let is_first = book.takeover.is_none();
        book.takeover.get_or_insert_default();
        is_first
    }

    /// There is nothing to take over yet.
    pub(in crate::schedules) fn end_takeover(&self) {
        self.book().takeover = None;
    }

    /// It is the writer, by the moment that is returned.
    pub(in crate::schedules) fn has_taken_over(&self) -> u64 {
        let mut book = self.book();
        book.now += 1;
        let now = book.now;
        book.takeover.get_or_insert_default().by = Some(now);
        now
    }

    /// What it has.
    pub(in crate::schedules) fn has_found(&self, state: State) {
        self.book().takeover.get_or_insert_default().state = state;
    }

    /// Whether another machine is the writer, or is about to be.
    pub(in crate::schedules) fn is_taken_over(&self) -> bool {
        self.book().takeover.is_some()
    }

    /// By which moment it was.
    pub(in crate::schedules) fn taken_over_at(&self) -> Option<u64> {
        self.book().takeover.as_ref()?.by
    }

    /// Whatever the writer before has acknowledged as remote was there when it was taken over.
    pub(in crate::schedules) fn judge_takeover(&self) {
        let Some(Takeover { by: Some(by), state }) = self.book().takeover.clone() else { return };
        self.judge(&state, Seen::Taken(self.now()), "a new writer, at the end");
        let late = {
            let book = self.book();
            let is_late = |write: &&Write| {
                let is_remote = write.durability == Durability::Remote;
                is_remote && write.called > by && write.acknowledged().is_some()
            };
            book.writes.iter().find(is_late).map(ToString::to_string)
        };
        if let Some(late) = late {
            let what = format!("{late} was acknowledged after the takeover at {by}");
            self.violate(Class::TwoWriters.violation(what));
        }
    }
}
