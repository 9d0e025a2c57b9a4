//! Answers that the store in memory holds back, and the rounds in which it sends them.
//!
//! A test that asks for rounds has no clock. Answers are held until a caller waits for one; then
//! all of them come. So the number of rounds is how often a caller waits one wait after the other,
//! and what comes in one round was under way together.

use std::fmt;

use super::MemoryServer;
use super::faults::RequestKind;

/// An answer that is held.
pub(super) struct HeldAnswer {
    pub(super) kind: RequestKind,
    /// Whether it is of the fence, which does not count.
    pub(super) is_fence: bool,
    pub(super) send: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for HeldAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldAnswer({:?})", self.kind)
    }
}

/// How callers waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreRounds {
    /// StoreRounds of answers: how often a caller waited, one wait after the other.
    pub waits: u64,
    /// The most reads that were answered in one of them.
    pub gets: usize,
    /// The most writes.
    pub puts: usize,
}

impl StoreRounds {
    fn add(&mut self, held: &[HeldAnswer]) {
        let of = |kind| held.iter().filter(|held| held.kind == kind && !held.is_fence).count();
        self.waits += 1;
        self.gets = self.gets.max(of(RequestKind::Get));
        self.puts = self.puts.max(of(RequestKind::Put));
    }
}

impl MemoryServer {
    /// From now on answers come in rounds.
    pub(crate) fn begin_rounds(&self) {
        self.0.lock().rounds = Some(StoreRounds::default());
    }

    /// From now on answers come at once. What is held comes now.
    pub(crate) fn end_rounds(&self) -> StoreRounds {
        let rounds = self.0.lock().rounds.take();
        self.release();
        rounds.unwrap_or_default()
    }

    /// Sends the answers that are held.
    pub(crate) fn release(&self) {
        let held = std::mem::take(&mut self.0.lock().held);
        held.into_iter().for_each(|held| (held.send)());
    }

    /// How many answers are held.
    pub(crate) fn held(&self) -> usize {
        self.0.lock().held.len()
    }

    /// A caller is about to wait: ends a round.
    pub(super) fn awaited(&self) {
        let mut server = self.0.lock();
        let Some(mut rounds) = server.rounds else { return };
        if server.held.is_empty() {
            return;
        }
        rounds.add(&server.held);
        server.rounds = Some(rounds);
        drop(server);
        self.release();
    }
}
