//! How far long work is: told to the function of [`Options::on_progress`], which may cancel it.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{Error, ErrorKind, Result};
use super::options::Options;
use crate::os::sync::locks::Mutex;
use crate::os::time;

/// How far work has come that may take long; see [`Options::on_progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Progress {
    /// What is being done: `open`, `verify`, `backup`, `restore`, `salvage` or `close`.
    pub operation: &'static str,
    /// What is done. It never falls, and is `total` in the last call. Where another process writes,
    /// an opening may be made again: it counts from 0 then.
    pub done: u64,
    /// What is to be done, as far as it is known: it may rise. 0 as long as nothing is known.
    pub total: u64,
    /// What both count: `bytes`, or `steps` of a closing.
    pub unit: &'static str,
}

pub(crate) type ProgressFn = Arc<dyn Fn(&Progress) -> ControlFlow<()> + Send + Sync>;

/// The function is called once in such a time at most, but for the first and the last call.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) const OPEN: &str = "open";

/// The closing of a database: what it has begun it ends.
pub(crate) const CLOSE: &str = "close";

/// Counts one piece of work. It does nothing where there is no function.
pub(crate) struct Meter(Option<Teller>);

/// Thread safety: the mutex is held while the function runs, so one thread calls it at a time.
struct Teller {
    f: ProgressFn,
    pause: Duration,
    state: Mutex<State>,
}

struct State {
    progress: Progress,
    last: Option<Instant>,
    is_cancelled: bool,
}

impl Meter {
    pub(crate) fn new(options: &Options, operation: &'static str) -> Meter {
        // A restore tells of its own work, and not of the opening within it. A node opens and
        // closes databases that its user did not ask for. A takeover has to end behind its claim.
        let is_own = !matches!(operation, OPEN | CLOSE)
            || options.follows.is_none() && options.lsn_after.is_none();
        let f = options.on_progress.clone().filter(|_| options.making.is_none() && is_own);
        let unit = if operation == CLOSE { "steps" } else { "bytes" };
        let progress = Progress { operation, done: 0, total: 0, unit };
        let state = Mutex::new(State { progress, last: None, is_cancelled: false });
        // Tests see each unit of work.
        let pause = if options.stepped { Duration::ZERO } else { PAUSE };
        Meter(f.map(|f| Teller { f, pause, state }))
    }

    /// One that tells nobody.
    pub(crate) fn silent() -> Meter {
        Meter(None)
    }

    /// So much more is to be done.
    pub(crate) fn plan(&self, more: u64) {
        if let Some(told) = &self.0 {
            told.state.lock().progress.total += more;
        }
    }

    /// So much more is done.
    ///
    /// # Errors
    ///
    /// `Cancelled`, from the call on that the function has answered so.
    pub(crate) fn did(&self, more: u64) -> Result<()> {
        let Some(told) = &self.0 else { return Ok(()) };
        let state = &mut *told.state.lock();
        let Progress { done, total, .. } = state.progress;
        // Totals may be estimates, or rise. All is done at the end alone.
        state.progress.done = done.max((done + more).min(total.saturating_sub(1)));
        match state.last.is_some_and(|last| time::since(last) < told.pause) {
            true => state.check(),
            false => told.tell(state),
        }
    }

    /// All is done, but for what makes it count.
    ///
    /// # Errors
    ///
    /// As [`Meter::did`].
    pub(crate) fn end(&self) -> Result<()> {
        let Some(told) = &self.0 else { return Ok(()) };
        let state = &mut *told.state.lock();
        state.progress.done = state.progress.total;
        told.tell(state)
    }
}

impl Teller {
    fn tell(&self, state: &mut State) -> Result<()> {
        state.check()?;
        state.last = Some(time::now());
        // A panic of the function is not ours to pass on.
        let answer = catch_unwind(AssertUnwindSafe(|| (self.f)(&state.progress)));
        let breaks = answer.is_ok_and(|answer| answer.is_break());
        state.is_cancelled = breaks && state.progress.operation != CLOSE;
        state.check()
    }
}

impl State {
    fn check(&self) -> Result<()> {
        let Progress { operation, done, total, unit } = self.progress;
        match self.is_cancelled {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::Cancelled,
                format!("{operation} was cancelled at {done} of {total} {unit}"),
            )),
        }
    }
}
