//! Where the answers of shards lie until they are waited for.
//!
//! Thread safety: any thread gives and one waits. The mutex is held for a few instructions, and no
//! other lock is taken under it.

use crate::os::sync::locks::{Condvar, Mutex};

/// Answers, in the order in which they came.
pub(super) struct Replies<T> {
    state: Mutex<Given<T>>,
    enough: Condvar,
}

struct Given<T> {
    replies: Vec<T>,
    /// With so many the thread that waits goes on.
    wanted: usize,
}

impl<T> Default for Replies<T> {
    fn default() -> Replies<T> {
        let state = Given { replies: Vec::new(), wanted: usize::MAX };
        Replies { state: Mutex::new(state), enough: Condvar::new() }
    }
}

impl<T> Replies<T> {
    /// Gives one. It wakes the thread that waits, if that wants no more.
    pub(super) fn give(&self, reply: T) {
        let mut state = self.state.lock();
        state.replies.push(reply);
        if state.replies.len() >= state.wanted {
            self.enough.notify_one();
        }
    }

    /// Whether `count` are here.
    pub(super) fn has(&self, count: usize) -> bool {
        self.state.lock().replies.len() >= count
    }

    /// Waits until `count` are here, and moves them to `into`.
    pub(super) fn take(&self, count: usize, into: &mut Vec<T>) {
        let mut state = self.state.lock();
        state.wanted = count;
        while state.replies.len() < count {
            self.enough.wait(&mut state);
        }
        state.wanted = usize::MAX;
        into.append(&mut state.replies);
    }
}
