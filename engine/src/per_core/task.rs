//! A closure that a shard runs, and its answer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::reads::ShardScope;
use super::request::{Replies, ShardWork};
use super::server::is_shard;
use super::state::ended;
use crate::base::error::{Error, Result};
use crate::base::operator::check_outside;
use crate::base::progress::{is_told, refused_inside};

/// A closure that was submitted to a shard. Dropping it lets the closure run all the same.
#[must_use = "what the closure returns is not known before it was waited for"]
pub struct ShardTask<T> {
    replies: Arc<Replies<Result<T>>>,
}

impl<T> ShardTask<T> {
    /// Whether the closure has ended, or will not run: [`ShardTask::wait`] returns at once then.
    pub fn is_done(&self) -> bool {
        self.replies.has(1)
    }

    /// Waits for the closure, and returns what it returned.
    ///
    /// # Errors
    ///
    /// - what the closure returned;
    /// - `Invalid`: it panicked, and the message has what it said; or this is a shard's thread, and
    ///   the closure has not ended, which could wait for this one;
    /// - `Closed`: the executor or the database was closed before it began.
    pub fn wait(self) -> Result<T> {
        refuse_to_wait(!self.is_done())?;
        let mut replies = Vec::with_capacity(1);
        self.replies.take(1, &mut replies);
        replies.pop().unwrap_or_else(|| Err(ended()))
    }
}

impl<T> std::fmt::Debug for ShardTask<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardTask").field("is_done", &self.is_done()).finish()
    }
}

/// Fails if the thread of a shard, or a merge operator, would wait for a shard.
pub(super) fn refuse_to_wait(would_wait: bool) -> Result<()> {
    if !would_wait {
        return Ok(());
    }
    check_outside()?;
    if is_told() {
        return Err(refused_inside());
    }
    if is_shard() {
        return Err(Error::invalid(
            "a closure on a shard's thread would wait for a shard, which could wait for this \
             closure; return from it, and wait on another thread",
        ));
    }
    Ok(())
}

/// A closure with the place for its answer.
struct Closure<T, F> {
    /// `None` once it began.
    f: Option<F>,
    replies: Arc<Replies<Result<T>>>,
}

/// Work for a shard that runs `f`, and the task that waits for it.
pub(super) fn work<T, F>(f: F) -> (Box<dyn ShardWork>, ShardTask<T>)
where
    T: Send + 'static,
    F: FnOnce(&ShardScope<'_>) -> Result<T> + Send + 'static,
{
    let replies = Arc::new(Replies::default());
    let task = ShardTask { replies: Arc::clone(&replies) };
    (Box::new(Closure { f: Some(f), replies }), task)
}

impl<T, F> ShardWork for Closure<T, F>
where
    T: Send,
    F: FnOnce(&ShardScope<'_>) -> Result<T> + Send,
{
    fn run(mut self: Box<Self>, shard: &ShardScope<'_>) {
        let Some(f) = self.f.take() else { return };
        let run = catch_unwind(AssertUnwindSafe(|| f(shard)));
        // Before the answer, so that the thread that waits for it sees the count.
        shard.count_closure(run.is_err());
        match run {
            Ok(returned) => self.replies.give(returned),
            Err(payload) => {
                let said = said_by(&*payload);
                let number = shard.number();
                let message = format!("a closure on shard {number} panicked: {said}");
                self.replies.give(Err(Error::invalid(message)));
                discard(payload);
            }
        }
    }
}

impl<T, F> Drop for Closure<T, F> {
    fn drop(&mut self) {
        if self.f.is_some() {
            self.replies.give(Err(ended()));
        }
    }
}

/// What a panic said.
fn said_by(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Drops what a panic carried. A panic in there is the last that is caught.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
