//! What the test suite uses beyond the public interface: the simulated machine, planted bugs, and
//! a signal of what the engine is doing, for tests that kill it there.
//!
//! Only with the feature `testing`; no part of the stable interface.

use std::cell::Cell;
use std::sync::OnceLock;

pub use crate::base::options::{Failpoint, IndexRoom};
pub use crate::mvcc::HandClock;
/// ```
/// use terrace::testing::{Explorer, Machine};
/// # use terrace::Options;
/// let machine = Machine::with_memory();
/// let options = Options::new().pm_size(2 << 20).stepped();
/// let table = options.clone().machine(&machine).create("/db")?.table("t")?;
/// machine.record();
/// table.put("key", "value")?;
/// machine.mark();
/// let trace = machine.recorded().ok_or("nothing was recorded")?;
/// let explored = Explorer::new("put", 1).most(8).explore(&trace, |found, moment| {
///     let db = options.clone().machine(found).open("/db").map_err(|e| e.to_string())?;
///     let table = db.table("t").map_err(|e| e.to_string())?;
///     match table.get("key").map_err(|e| e.to_string())? {
///         Some(value) if &value[..] == b"value" => Ok(()),
///         None if moment.acknowledged == 0 => Ok(()),
///         other => Err(format!("found {other:?}")),
///     }
/// })?;
/// assert!(explored.images > 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use terrace_testkit::Explorer;
pub use terrace_testkit::{
    Call, CallSite, Explored, Fault, Faulty, FileKind, HeldCalls, Machine, Moment, Outcome,
    ReadFaults, Reason, Site, Survive, Trace, Violation,
};

/// The scheduler that runs a whole database one thread at a time.
pub mod schedule {
    pub use crate::os::schedule::{
        Blocked, End, Point, PointKind, Run, SchedulePolicy, SeededPolicy, SplitMix, Stays, Step,
        TaskScheduler, TimedOut, draw, is_task, now, number, others,
    };
    pub use crate::os::thread::{JoinHandle, spawn, yield_now};
    pub use crate::os::time::pause;
    pub use crate::os::{allowed_cores, pin_thread};

    /// Runs what earlier runs have deferred, so that it is no part of the next one.
    pub fn settle() {
        crate::mvcc::drive_all();
    }
}

/// Earlier openings that a list of incarnations has when an opening joins them.
pub const LONG_LIST: usize = crate::base::limits::LONG_LIST;

thread_local! {
    static IN_TURNSTILE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in the sequencer, where nothing is allocated. An allocator may ask.
pub fn is_in_sequencer() -> bool {
    IN_TURNSTILE.get()
}

pub(crate) fn set_in_sequencer(is_in: bool) {
    IN_TURNSTILE.set(is_in);
}

/// What a thread of the engine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Publishing a run of commits.
    Commit,
    /// Moving a column of level 0 to level 1.
    Drain,
    /// Appending an edit to the journal.
    JournalEdit,
}

/// Told when a thread enters (`true`) and leaves a phase.
pub type Watch = fn(Phase, bool);

static WATCH: OnceLock<Watch> = OnceLock::new();

/// Has `watch` told of every phase in this process from now on. The first watch stays.
pub fn watch_phases(watch: Watch) {
    WATCH.get_or_init(|| watch);
}

/// A phase that lasts as long as this lives.
pub(crate) struct InPhase(Phase);

impl InPhase {
    pub(crate) fn enter(phase: Phase) -> InPhase {
        if let Some(watch) = WATCH.get() {
            watch(phase, true);
        }
        InPhase(phase)
    }
}

impl Drop for InPhase {
    fn drop(&mut self) {
        if let Some(watch) = WATCH.get() {
            watch(self.0, false);
        }
    }
}
