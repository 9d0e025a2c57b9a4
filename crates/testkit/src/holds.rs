//! Reads, writes or syncs that a test holds up, so that it sees what goes on meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Call;

/// A call goes on after so long, whatever the test does: it then fails instead of waiting for ever.
const LONGEST: Duration = Duration::from_secs(60);

/// Which calls are held up, and how many there are.
#[derive(Debug, Default)]
pub(super) struct Holds {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What they do, and how the names of their files end.
    calls: Option<(Call, String)>,
    held: usize,
}

impl State {
    fn holds(&self, call: Call, path: &Path) -> bool {
        let name = path.to_string_lossy();
        self.calls.as_ref().is_some_and(|(held, ending)| *held == call && name.ends_with(ending))
    }
}

impl Holds {
    /// Holds up all such calls on files whose names end so.
    pub(super) fn hold(self: &Arc<Self>, call: Call, ending: &str) -> HeldCalls {
        self.state.lock().calls = Some((call, ending.to_string()));
        HeldCalls { holds: Arc::clone(self) }
    }

    /// Called before a call on a file, with no lock of the machine held.
    pub(super) fn pass(&self, call: Call, path: &Path) {
        let mut state = self.state.lock();
        if !state.holds(call, path) {
            return;
        }
        state.held += 1;
        self.changed.notify_all();
        let until = Instant::now() + LONGEST;
        while state.holds(call, path) && !self.changed.wait_until(&mut state, until).timed_out() {}
        state.held -= 1;
    }
}

/// Reads, writes or syncs of some files wait until this is dropped.
#[derive(Debug)]
pub struct HeldCalls {
    holds: Arc<Holds>,
}

impl HeldCalls {
    /// Waits until one is held up, for a minute at most; whether it is.
    pub fn wait(&self) -> bool {
        let mut state = self.holds.state.lock();
        let until = Instant::now() + LONGEST;
        while state.held == 0 && !self.holds.changed.wait_until(&mut state, until).timed_out() {}
        state.held > 0
    }

    /// Whether one is held up now.
    pub fn is_holding(&self) -> bool {
        self.holds.state.lock().held > 0
    }
}

impl Drop for HeldCalls {
    fn drop(&mut self) {
        self.holds.state.lock().calls = None;
        self.holds.changed.notify_all();
    }
}
