//! How much waits to be shipped, and since when: marks of what was handed over up to an LSN.

use std::collections::VecDeque;
use std::time::Instant;

use super::{ShipStep, Shipper, State};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::Lsn;
use crate::commit::{Feed, HandedOver};
use crate::engine::Engine;

/// So many marks are kept. One more moves the last.
const MOST_MARKS: usize = 64;

/// Marks for LSNs that the log lacks.
#[derive(Debug, Default)]
pub(super) struct WaitingMarks(VecDeque<(Lsn, HandedOver)>);

impl WaitingMarks {
    /// Takes note of what was handed over, and of what the log has of it, which lacks LSNs from
    /// `next` on.
    pub(super) fn look(&mut self, next: Lsn, step: ShipStep<'_>) {
        if let Some(handed) = step.feed.look() {
            let last = step.engine.shared.committer.last_ticket();
            let is_full = self.0.len() >= MOST_MARKS;
            match self.0.back_mut().filter(|_| is_full) {
                Some((lsn, mark)) => (*lsn, mark.bytes) = (last, handed.bytes),
                None => self.0.push_back((last, handed)),
            }
        }
        self.forget_below(next, step.feed);
    }

    /// The log has what comes before `next`.
    pub(super) fn forget_below(&mut self, next: Lsn, feed: &Feed) {
        while let Some((_, mark)) = self.0.pop_front_if(|(lsn, _)| *lsn < next) {
            feed.release(mark.bytes);
        }
    }

    /// When the oldest of it was handed over, as far as it was seen.
    pub(super) fn since(&self) -> Option<Instant> {
        self.0.front().map(|(_, mark)| mark.since)
    }
}

impl Shipper {
    /// Notes what a step came to, and what is still lost.
    pub(super) fn note(&self, state: &State, feed: &Feed, did: &Result<bool>) {
        let failed = did.as_ref().err().map(ToString::to_string);
        let failed = failed.or_else(|| self.checkpoints.note());
        let notes: Vec<String> = state.note(feed).into_iter().chain(failed).collect();
        *self.counts.failure.lock() = (!notes.is_empty()).then(|| notes.join("; "));
        self.note_waiting(state);
    }

    /// Notes the age of the oldest commit that the log lacks.
    pub(super) fn note_waiting(&self, state: &State) {
        *self.counts.waiting_since.lock() = state.waiting.since();
    }
}

impl State {
    /// What was let go, until a checkpoint has it.
    pub(super) fn note(&self, feed: &Feed) -> Option<String> {
        let first = self.next;
        let is_lost = feed.has_lost() || self.needs_checkpoint && self.forgotten >= first;
        is_lost.then(|| format!("a checkpoint is to take the place of commits from {first} on"))
    }
}

/// Tells of what failed, and is tried again.
pub(super) fn count_failure(engine: &Engine, error: &Error) {
    if !matches!(error.kind(), ErrorKind::Closed | ErrorKind::Fenced) {
        engine.ctx.count_failure(error);
    }
}
