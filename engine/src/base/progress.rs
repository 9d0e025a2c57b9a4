//! How far long work is: told to the function of [`Options::on_progress`], or of [`with_progress`],
//! which may cancel it.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{Error, ErrorKind, Result};
use super::events::Events;
use super::options::Options;
use crate::os::sync::locks::Mutex;
use crate::os::time;

/// How far work has come that may take long; see [`Options::on_progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Progress {
    /// What is being done: `open`, `verify`, `backup`, `restore`, `salvage`, `digest` or `close`.
    pub operation: &'static str,
    /// What is done. It never falls, and is `total` in the last call. Where another process writes,
    /// an opening may be made again: it counts from 0 then.
    pub done: u64,
    /// What is to be done, as far as it is known: it may rise. 0 as long as nothing is known.
    pub total: u64,
    /// What both count: `bytes`, `rows` of a digest, or `steps` of a closing.
    pub unit: &'static str,
    /// The number of the database.
    #[cfg_attr(feature = "serde", serde(skip))]
    of: usize,
}

pub(crate) type ProgressFn = Arc<dyn Fn(&Progress) -> ControlFlow<()> + Send + Sync>;

/// The function is called once in such a time at most, but for the first and the last call.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) const OPEN: &str = "open";

/// The closing of a database: what it has begun it ends.
pub(crate) const CLOSE: &str = "close";

/// Digests of all tables.
pub(crate) const DIGEST: &str = "digest";

thread_local! {
    /// The function that this thread's calls tell, in place of that of the options.
    static OF_CALLS: RefCell<Option<ProgressFn>> = const { RefCell::new(None) };
}

/// What [`OF_CALLS`] was, which it becomes again.
struct OuterFn(Option<ProgressFn>);

impl Drop for OuterFn {
    fn drop(&mut self) {
        OF_CALLS.replace(self.0.take());
    }
}

/// Runs `call`, whose long work tells `tell` how far it is, in place of the function of
/// [`Options::on_progress`]. It covers what this thread begins in `call`. Of one such function
/// inside of another, the inner one is told.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// use std::ops::ControlFlow;
///
/// let give_up = |_: &terrace::Progress| ControlFlow::Break(());
/// let error = terrace::with_progress(give_up, || db.verify()).unwrap_err();
/// assert_eq!(error.kind(), terrace::ErrorKind::Cancelled);
/// assert!(db.verify()?.is_sound());
/// # Ok(())
/// # }
/// ```
pub fn with_progress<T>(
    tell: impl Fn(&Progress) -> ControlFlow<()> + Send + Sync + 'static,
    call: impl FnOnce() -> T,
) -> T {
    let _outer = OuterFn(OF_CALLS.replace(Some(Arc::new(tell))));
    call()
}

thread_local! {
    /// Whether this thread runs a function that is told of progress.
    static IS_TOLD: Cell<bool> = const { Cell::new(false) };
    /// Of what it is told, and of what the function is told that has called this one.
    static TOLD_OF: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl Progress {
    /// Runs `f` as a function that is told of this: calls of the database in it fail. It is not
    /// told of work that it begins itself.
    #[doc(hidden)]
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> std::thread::Result<T> {
        let before = IS_TOLD.replace(true);
        TOLD_OF.with_borrow_mut(|told| told.push(self.of));
        let outer = OuterFn(OF_CALLS.take());
        let done = catch_unwind(AssertUnwindSafe(f));
        drop(outer);
        TOLD_OF.with_borrow_mut(Vec::pop);
        IS_TOLD.set(before);
        done
    }
}

/// Whether this thread runs a function that work waits for, of whichever database.
#[inline]
pub(crate) fn is_told() -> bool {
    IS_TOLD.get()
}

/// Whether work of the database with these events waits for a function that this thread runs.
#[inline]
pub(crate) fn is_told_of(events: &Events) -> bool {
    is_told() && TOLD_OF.with_borrow(|told| told.contains(&events.id()))
}

/// Fails inside of a function that work of the database with these events waits for.
#[inline]
pub(crate) fn check_outside(events: &Events) -> Result<()> {
    match is_told_of(events) {
        false => Ok(()),
        true => Err(refused_inside()),
    }
}

/// The error of a call inside of such a function.
pub(crate) fn refused_inside() -> Error {
    Error::invalid(
        "a function that is told of progress has called the database: the call might wait for the \
         work that waits for the function; call once it has returned, or on another thread",
    )
}

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
        let f = OF_CALLS.with_borrow(Clone::clone).or_else(|| options.on_progress.clone());
        let f = f.filter(|_| options.making.is_none() && is_own);
        let unit = match operation {
            CLOSE => "steps",
            DIGEST => "rows",
            _ => "bytes",
        };
        let of = options.events.id();
        let progress = Progress { operation, done: 0, total: 0, unit, of };
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
        if state.has_nothing_to_do() {
            return Ok(());
        }
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
        if state.has_nothing_to_do() {
            return Ok(());
        }
        state.progress.done = state.progress.total;
        told.tell(state)
    }
}

impl Teller {
    fn tell(&self, state: &mut State) -> Result<()> {
        state.check()?;
        state.last = Some(time::now());
        // A panic of the function is not ours to pass on.
        let answer = state.progress.run(|| (self.f)(&state.progress));
        let breaks = answer.is_ok_and(|answer| answer.is_break());
        state.is_cancelled = breaks && state.progress.operation != CLOSE;
        state.check()
    }
}

impl State {
    /// An opening that creates a database has nothing to read. It tells nothing, and cannot be
    /// cancelled.
    fn has_nothing_to_do(&self) -> bool {
        self.progress.operation == OPEN && self.progress.total == 0
    }

    fn check(&self) -> Result<()> {
        let Progress { operation, done, total, unit, .. } = self.progress;
        match self.is_cancelled {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::Cancelled,
                format!("{operation} was cancelled at {done} of {total} {unit}"),
            )),
        }
    }
}
