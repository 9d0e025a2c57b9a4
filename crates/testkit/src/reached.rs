//! What a simulated machine reaches over a network: an object store. It has a power of its own, so
//! a cut of the machine's power leaves it as it is.
//!
//! A request is a call of the machine like one of a file: it is counted by its [`CallSite`], it may
//! fail as a test plans, and a recording has an event for it. A machine that comes up after an end
//! reaches a copy of the store as it was at that moment. Requests that were late then arrive there.
//!
//! Lock order: the state of the files, then the store. So a store calls its [`Uplink`] with none of
//! its own locks held.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::faults::{Call, CallSite, FileKind, Outcome, Reason};
use super::power::Power;
use super::trace::Site;
use super::{SimFiles, State};

/// A store that machines reach.
pub trait Reached: fmt::Debug + Send + Sync {
    /// The same store as the machine reaches it that comes up after this moment.
    fn after_end(&self) -> Arc<dyn Reached>;

    /// Has every request be told to a machine before it is served.
    fn attach(&self, uplink: Uplink);

    /// Where it is.
    fn url(&self) -> String;

    /// A hash of all that it has.
    fn digest(&self) -> u128;
}

/// A machine's end of its way to a store.
#[derive(Clone, Debug, Default)]
pub struct Uplink {
    state: Weak<Mutex<State>>,
    power: Weak<Power>,
}

/// How a request fails.
#[derive(Clone, Copy, Debug)]
pub struct RequestFault {
    /// What becomes of the request.
    pub outcome: Outcome,
    /// The store says that it has too much to do, and does nothing.
    pub is_busy: bool,
}

impl SimFiles {
    /// Has the machine reach a store from now on.
    pub(super) fn reach(&self, store: Arc<dyn Reached>) {
        store.attach(Uplink::of(self));
        self.state.lock().reaches = Some(store);
    }
}

impl Uplink {
    pub(super) fn of(files: &SimFiles) -> Uplink {
        Uplink { state: Arc::downgrade(&files.state), power: Arc::downgrade(&files.power) }
    }

    /// Counts a request that is about to leave, and says how it fails, if it does. The caller holds
    /// no lock of the store.
    pub fn before(&self, call: Call, file: FileKind) -> Option<RequestFault> {
        let (state, power) = (self.state.upgrade()?, self.power.upgrade()?);
        let site = CallSite { call, file };
        power.before_change(|| Site { file: site.request(), line: 0 });
        if call.changes_objects() {
            power.before_step();
        }
        let failure = state.lock().begin_call(call, file)?;
        power.note_failure();
        let is_busy = failure.reason == Reason::Busy;
        Some(RequestFault { outcome: failure.outcome, is_busy })
    }

    /// Says that a request was served: the store may be another one now. The caller holds no lock
    /// of the store.
    pub fn after(&self) {
        if let Some(state) = self.state.upgrade() {
            state.lock().changes += 1;
        }
    }
}
