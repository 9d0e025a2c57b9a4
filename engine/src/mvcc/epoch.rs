//! Epochs: a call that reads bytes it does not own pins the current epoch; whatever is taken out
//! of sight is given back only when every pin from before is gone.
//!
//! No epoch is held between API calls, so an idle iterator or snapshot pins nothing.
//!
//! Thread safety: all functions may be called from any thread, at any time, nested. The mutex is
//! held for a push or a pop.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// A pinned epoch, which what was found under it borrows from.
pub(crate) type EpochGuard = crossbeam_epoch::Guard;

/// Pins the current epoch: while the guard lives, nothing that this thread can see is freed or
/// written over. Costs one store and one fence.
pub(crate) fn pin() -> EpochGuard {
    crossbeam_epoch::pin()
}

/// Whether this thread has an epoch pinned.
pub(crate) fn is_pinned() -> bool {
    crossbeam_epoch::is_pinned()
}

/// Work whose guards are gone.
type Work = Box<dyn FnOnce() + Send>;

/// Work that is due, the oldest first.
static DUE: Mutex<VecDeque<Work>> = Mutex::new(VecDeque::new());

/// How many databases of this process run what is due, each between its jobs.
static RUNNERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread drops what was retired, in the middle of a call of the collector.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// As long as it lives, its owner calls [`drive`] time and again.
#[derive(Debug)]
pub(crate) struct Runner(());

impl Runner {
    pub(crate) fn new() -> Runner {
        RUNNERS.fetch_add(1, Ordering::SeqCst);
        Runner(())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let runners = RUNNERS.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(runners > 0, "a runner is counted in before it is counted out");
    }
}

/// Sets a flag of this thread until it is dropped, also by a panic.
struct Dropping(bool);

impl Dropping {
    fn enter() -> Dropping {
        Dropping(IS_INSIDE.replace(true))
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        IS_INSIDE.set(self.0);
    }
}

fn hand_over(work: Work) {
    DUE.lock().push_back(work);
}

/// Has `f` run once every guard that exists now is gone, by a thread that calls [`drive`]: by the
/// background of a database, as a rule. The thread that notices that the guards are gone may be a
/// reader, so it only hands the work over. What `f` defers in turn is deferred by the thread that
/// runs it, so nothing stays with a thread that rests.
pub(crate) fn defer(f: impl FnOnce() + Send + 'static) {
    let work: Work = Box::new(f);
    if IS_INSIDE.get() {
        return hand_over(Box::new(move || defer(work)));
    }
    let guard = crossbeam_epoch::pin();
    guard.defer(move || hand_over(work));
    flush(guard);
}

/// Drops `value` once every guard that exists now is gone, on whichever thread notices: for memory
/// that is taken again soon, such as cached blocks. What its drop retires or defers in turn is
/// handed over.
pub(crate) fn retire<T: Send + 'static>(value: T) {
    if IS_INSIDE.get() {
        return hand_over(Box::new(move || retire(value)));
    }
    let guard = crossbeam_epoch::pin();
    guard.defer(move || {
        let _inside = Dropping::enter();
        drop(value);
    });
    flush(guard);
}

/// Gives what this thread has deferred to all threads. What stayed with it would wait for its next
/// calls.
fn flush(guard: EpochGuard) {
    guard.flush();
    drop(guard);
    if RUNNERS.load(Ordering::Relaxed) == 0 {
        run_due();
    }
}

fn run_due() {
    run_all(&DUE);
}

/// Runs work until none is left. A panic of one goes on when the others have run.
fn run_all(due: &Mutex<VecDeque<Work>>) {
    let mut panicked = None;
    loop {
        let next = due.lock().pop_front();
        let Some(work) = next else { break };
        // What one frees another may still read, on a thread that took it out before.
        let _guard = pin();
        let run = std::panic::AssertUnwindSafe(work);
        panicked = std::panic::catch_unwind(run).err().or(panicked);
    }
    if let Some(panic) = panicked {
        std::panic::resume_unwind(panic);
    }
}

/// Runs all that was deferred before, if no guard is held anywhere: so that where one thread does
/// everything, in steps, the same steps do the same things.
#[cfg(any(test, feature = "testing", feature = "bench"))]
pub(crate) fn drive_all() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    let ran = Arc::new(AtomicBool::new(false));
    let marker = Arc::clone(&ran);
    defer(move || marker.store(true, Ordering::Relaxed));
    // Another test of the process may hold a guard for long.
    for _ in 0..1000 {
        if ran.load(Ordering::Relaxed) {
            return;
        }
        crossbeam_epoch::pin().flush();
        run_due();
    }
}

/// Pushes deferred work forward until something is true that this work brings about; whether it
/// came true. Another test of the process may hold a guard, or run what was deferred here.
#[cfg(test)]
pub(crate) fn drive_until(is_true: impl Fn() -> bool) -> bool {
    for _ in 0..100_000 {
        if is_true() {
            return true;
        }
        drive();
        std::thread::yield_now();
    }
    is_true()
}

/// Pushes deferred work forward, and runs what is due. Called by the background between jobs, and
/// by who needs the memory; with no guards held anywhere, a few calls run everything deferred
/// before.
pub(crate) fn drive() {
    for _ in 0..4 {
        crossbeam_epoch::pin().flush();
        run_due();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, Barrier};

    use super::*;

    fn count(counter: &Arc<AtomicU64>) -> impl FnOnce() + Send + 'static {
        let counter = Arc::clone(counter);
        move || {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Retires something, and defers, when it is dropped.
    struct Nested(u32, Arc<AtomicU64>);

    impl Drop for Nested {
        fn drop(&mut self) {
            count(&self.1)();
            defer(count(&self.1));
            if let Some(depth) = self.0.checked_sub(1) {
                retire(Nested(depth, Arc::clone(&self.1)));
            }
        }
    }

    /// Bug: with many readers that rest, row tables and cached blocks were never given back, and
    /// writers stood. Cause: what deferred work defers stays with the thread that ran the work,
    /// which was a reader, until its next calls. Fix: a reader hands the work over.
    #[test]
    fn what_deferred_work_defers_does_not_stay_with_readers_that_rest() {
        let done = Arc::new(AtomicU64::new(0));
        let _runner = Runner::new();
        let (rest, end) = (Barrier::new(9), Barrier::new(9));
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (rest, end, done) = (&rest, &end, &done);
                scope.spawn(move || {
                    retire(Nested(3, Arc::clone(done)));
                    let nested = Arc::clone(done);
                    defer(move || {
                        count(&nested)();
                        defer(count(&nested));
                    });
                    // As often as the collector runs on a reader, and some more.
                    (0..500 * n).for_each(|_| drop(pin()));
                    rest.wait();
                    end.wait();
                });
            }
            rest.wait();
            // Each: four are dropped, each of which defers, and two are counted beside.
            assert!(drive_until(|| done.load(Ordering::SeqCst) == 8 * (4 + 4 + 2)));
            end.wait();
        });
    }

    /// Bug: a panic in deferred work lost the rest of it, and left a flag of the thread set. Cause:
    /// the collector ran it in the middle of a list.
    #[test]
    fn a_panic_in_deferred_work_loses_none_of_the_rest() {
        let done = Arc::new(AtomicU64::new(0));
        let (first, last): (Work, Work) = (Box::new(count(&done)), Box::new(count(&done)));
        let due = Mutex::new(VecDeque::from([first, Box::new(|| panic!("planned")), last]));
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run_all(&due)));
        assert_eq!(*ran.unwrap_err().downcast_ref::<&str>().unwrap(), "planned");
        assert_eq!(done.load(Ordering::SeqCst), 2);
        let inside = std::panic::catch_unwind(|| {
            let _inside = Dropping::enter();
            panic!("planned");
        });
        assert!(inside.is_err() && !IS_INSIDE.get());
    }
}
