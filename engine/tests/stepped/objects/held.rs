//! A store that answers when a test says so.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use terrace::ObjectServer;

/// With no put for so long, puts wait for what is held.
const STUCK: Duration = Duration::from_secs(60);

#[derive(Default)]
struct State {
    /// Requests that came.
    came: u64,
    /// Of these, requests that pass at once.
    pass: u64,
    is_open: bool,
    /// Puts that have returned meanwhile.
    puts: u64,
    is_stuck: bool,
}

/// Holds requests to a store until it is released or dropped.
pub(super) struct Held {
    server: ObjectServer,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Held {
    /// Holds what comes from now on, behind the first `pass` requests.
    pub(super) fn behind(server: &ObjectServer, pass: u64) -> Held {
        let shared = Arc::new((Mutex::new(State { pass, ..State::default() }), Condvar::new()));
        let held = Held { server: server.clone(), shared: Arc::clone(&shared) };
        server.watch(Some(Box::new(move |_, is_served| {
            if !is_served {
                wait(&shared);
            }
        })));
        held
    }

    /// Whether a request waits for its answer.
    pub(super) fn has_some(&self) -> bool {
        let state = self.shared.0.lock();
        !state.is_open && state.came > state.pass
    }

    /// A put has returned.
    pub(super) fn has_put(&self) {
        self.shared.0.lock().puts += 1;
    }

    /// Lets requests go on. Fails where puts waited for them.
    pub(super) fn release(self) {
        let is_stuck = self.shared.0.lock().is_stuck;
        assert!(!is_stuck, "a put waits for the store");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.server.watch(None);
        self.shared.0.lock().is_open = true;
        self.shared.1.notify_all();
    }
}

/// Keeps a request until it may go on. One that no put passes by for a minute gives up, so that a
/// test which waits for it fails and does not hang.
fn wait(shared: &(Mutex<State>, Condvar)) {
    let (state, changed) = shared;
    let mut state = state.lock();
    state.came += 1;
    if state.came <= state.pass {
        return;
    }
    while !state.is_open {
        let before = state.puts;
        let is_late = changed.wait_for(&mut state, STUCK).timed_out();
        if is_late && !state.is_open && state.puts == before {
            state.is_stuck = true;
            state.is_open = true;
            changed.notify_all();
        }
    }
}
