//! What a shard is asked for. Each request is answered once: by the shard, or with `Closed` when it
//! is dropped before it began.

use std::sync::Arc;

use super::reads::ShardScope;
use super::replies::Replies;
use super::shard_gets::ShardGets;
use super::state::ended;
use crate::error::Result;
use crate::mvcc::Registered;

/// So many requests wait for a shard at most.
pub(super) const QUEUE: usize = 1024;

/// One request.
pub(super) enum ShardRequest {
    Gets(GetsRequest),
    Work(Box<dyn ShardWork>),
    /// The executor was closed: this is the last one.
    Stop,
}

/// A closure with the place for its answer. Dropped before it ran, it answers `Closed`.
pub(super) trait ShardWork: Send {
    /// Runs it, and answers.
    fn run(self: Box<Self>, shard: &ShardScope<'_>);
}

/// What a shard answered to look-ups. The look-ups come back with what was found.
pub(super) struct GetsReply {
    pub(super) shard: usize,
    pub(super) gets: Box<ShardGets>,
    pub(super) outcome: Result<()>,
}

/// Look-ups in one shard.
pub(super) struct GetsRequest {
    shard: usize,
    /// `None` once it was answered.
    gets: Option<Box<ShardGets>>,
    replies: Arc<Replies<GetsReply>>,
    snapshot: Option<Arc<Registered>>,
}

impl GetsRequest {
    /// Look-ups in `shard`, as of a snapshot if there is one.
    pub(super) fn new(
        shard: usize,
        gets: Box<ShardGets>,
        replies: &Arc<Replies<GetsReply>>,
        snapshot: Option<Arc<Registered>>,
    ) -> GetsRequest {
        GetsRequest { shard, gets: Some(gets), replies: Arc::clone(replies), snapshot }
    }

    /// Does them by `look_up`, and answers.
    pub(super) fn answer(
        mut self,
        look_up: impl FnOnce(&mut ShardGets, Option<&Registered>) -> Result<()>,
    ) {
        let snapshot = self.snapshot.take();
        let Some(mut gets) = self.gets.take() else { return };
        let outcome = look_up(&mut gets, snapshot.as_deref());
        // The snapshot goes first: once the answer is there, the executor holds nothing for it.
        drop(snapshot);
        self.replies.give(GetsReply { shard: self.shard, gets, outcome });
    }
}

impl Drop for GetsRequest {
    fn drop(&mut self) {
        if let Some(gets) = self.gets.take() {
            let outcome = Err(ended());
            self.replies.give(GetsReply { shard: self.shard, gets, outcome });
        }
    }
}
