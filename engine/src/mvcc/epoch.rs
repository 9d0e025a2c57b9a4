//! Epochs: a call that reads bytes it does not own pins the current epoch; whatever is taken out
//! of sight is given back only when every pin from before is gone.
//!
//! No epoch is held between API calls, so an idle iterator or snapshot pins nothing.
//!
//! Thread safety: all functions may be called from any thread, at any time, nested. The mutex is
//! held for a push or a pop. A thread of the parent may hold it at a fork, so a forked child has a
//! queue of its own, and never runs what its parent deferred.

use std::cell::Cell;
use std::collections::VecDeque;
use std::thread::LocalKey;

use crate::os::ForkGuard;
use crate::os::sync::atomic::{AtomicUsize, Ordering};
use crate::os::sync::locks::Mutex;

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

/// What is due in a process.
struct DueWork {
    /// The oldest first.
    works: Mutex<VecDeque<Work>>,
    /// How many databases run what is due, each between its jobs.
    runners: AtomicUsize,
}

/// With more forks in a row than this, a child has the queue of an ancestor again.
const GENERATIONS: usize = 16;

/// By the generation of the process.
static DUE: [DueWork; GENERATIONS] = [const { DueWork::new() }; GENERATIONS];

thread_local! {
    /// Whether this thread runs what is due.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread drops what was retired, in the middle of a call of the collector.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// As long as it lives, its owner calls [`drive`] time and again.
#[derive(Debug)]
pub(crate) struct Runner(ForkGuard);

impl Runner {
    pub(crate) fn new() -> Runner {
        let process = ForkGuard::new();
        DueWork::of(process).runners.fetch_add(1, Ordering::SeqCst);
        Runner(process)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let runners = DueWork::of(self.0).runners.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(runners > 0, "a runner is counted in before it is counted out");
    }
}

/// Sets a flag of this thread until it is dropped, also by a panic.
struct Flagged(&'static LocalKey<Cell<bool>>, bool);

impl Flagged {
    fn set(flag: &'static LocalKey<Cell<bool>>) -> Flagged {
        Flagged(flag, flag.replace(true))
    }
}

impl Drop for Flagged {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

impl DueWork {
    const fn new() -> DueWork {
        DueWork { works: Mutex::new(VecDeque::new()), runners: AtomicUsize::new(0) }
    }

    fn of(process: ForkGuard) -> &'static DueWork {
        &DUE[process.generation() as usize % GENERATIONS]
    }

    /// The next work. Who takes it has pinned before: as long as the queue has it, or a guard from
    /// then lives, what is deferred after it does not run.
    fn pop(&self, _pinned: &EpochGuard) -> Option<Work> {
        self.works.lock().pop_front()
    }

    /// Runs work until none is left, unless this thread does so already: what work defers is not
    /// run inside it. A panic of one goes on when the others have run.
    fn run_all(&self) {
        if IS_RUNNING.get() {
            return;
        }
        let _running = Flagged::set(&IS_RUNNING);
        let mut panicked = None;
        loop {
            // What one frees another may still read, on a thread that took it out before.
            let guard = pin();
            let Some(work) = self.pop(&guard) else { break };
            let run = std::panic::AssertUnwindSafe(work);
            panicked = std::panic::catch_unwind(run).err().or(panicked);
        }
        if let Some(panic) = panicked {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Hands work over that was deferred by `process`.
fn hand_over(work: Work, process: ForkGuard) {
    if process.is_forked() {
        // What the parent has is not this process's to free.
        std::mem::forget(work);
    } else {
        DueWork::of(process).works.lock().push_back(work);
    }
}

/// Has `f` run once every guard that exists now is gone, by a thread that calls [`drive`]: by the
/// background of a database, as a rule. The thread that notices that the guards are gone may be a
/// reader, so it only hands the work over. What `f` defers in turn is deferred by the thread that
/// runs it, so nothing stays with a thread that rests. A panic of `f` goes to that thread, which
/// may be another database's: what belongs to a database is deferred by `Shared::defer`.
pub(crate) fn defer(f: impl FnOnce() + Send + 'static) {
    let work: Work = Box::new(f);
    let process = ForkGuard::new();
    if IS_INSIDE.get() {
        return hand_over(Box::new(move || defer(work)), process);
    }
    let guard = crossbeam_epoch::pin();
    guard.defer(move || hand_over(work, process));
    flush(guard);
}

/// Drops `value` once every guard that exists now is gone, on whichever thread notices: for memory
/// that is taken again soon, such as cached blocks. What its drop retires or defers in turn is
/// handed over.
pub(crate) fn retire<T: Send + 'static>(value: T) {
    let process = ForkGuard::new();
    if IS_INSIDE.get() {
        return hand_over(Box::new(move || retire(value)), process);
    }
    let guard = crossbeam_epoch::pin();
    guard.defer(move || {
        if process.is_forked() {
            return std::mem::forget(value);
        }
        let _inside = Flagged::set(&IS_INSIDE);
        drop(value);
    });
    flush(guard);
}

/// Gives what this thread has deferred to all threads. What stayed with it would wait for its next
/// calls.
fn flush(guard: EpochGuard) {
    guard.flush();
    drop(guard);
    let due = DueWork::of(ForkGuard::new());
    if due.runners.load(Ordering::Relaxed) == 0 {
        due.run_all();
    }
}

fn run_due() {
    DueWork::of(ForkGuard::new()).run_all();
}

/// Runs all that was deferred before, if no guard is held anywhere: so that where one thread does
/// everything, in steps, the same steps do the same things.
#[cfg(any(test, feature = "testing", feature = "bench"))]
pub(crate) fn drive_all() {
    use crate::os::sync::atomic::AtomicBool;
    use std::sync::Arc;

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
    let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while !is_true() {
        if std::time::Instant::now() > until {
            return false;
        }
        drive();
        crate::os::thread::yield_now();
    }
    true
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
        let due = DueWork::new();
        *due.works.lock() = VecDeque::from([first, Box::new(|| panic!("planned")), last]);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| due.run_all()));
        assert_eq!(*ran.unwrap_err().downcast_ref::<&str>().unwrap(), "planned");
        assert_eq!(done.load(Ordering::SeqCst), 2);
        let inside = std::panic::catch_unwind(|| {
            let _inside = Flagged::set(&IS_INSIDE);
            panic!("planned");
        });
        assert!(inside.is_err() && !IS_INSIDE.get() && !IS_RUNNING.get());
    }

    /// Bug: a chain of deferred work overflowed the stack. Cause: without a background, work that
    /// defers ran what was due, inside itself. Fix: the outer loop runs it.
    #[test]
    fn what_work_defers_is_not_run_inside_it() {
        fn chain(due: &Arc<DueWork>, left: u32, inside: &Arc<AtomicU64>) {
            let (next, counter) = (Arc::clone(due), Arc::clone(inside));
            due.works.lock().push_back(Box::new(move || {
                assert_eq!(counter.fetch_add(1, Ordering::SeqCst), 0, "one runs at a time");
                if left > 0 {
                    chain(&next, left - 1, &counter);
                }
                counter.fetch_sub(1, Ordering::SeqCst);
            }));
            due.run_all();
        }
        let (due, inside) = (Arc::new(DueWork::new()), Arc::default());
        chain(&due, 1000, &inside);
        assert!(due.works.lock().is_empty());
    }

    /// Bug: a forked child hung, or freed what is its parent's. Cause: what the parent had deferred
    /// came due in the child, which locked a mutex that a thread of the parent held at the fork.
    #[test]
    fn a_forked_child_leaves_what_its_parent_deferred() {
        let done = Arc::new(AtomicU64::new(0));
        let (here, parent) = (ForkGuard::new(), ForkGuard::of_parent());
        assert!(
            !std::ptr::eq(DueWork::of(here), DueWork::of(parent)),
            "each has a queue of its own"
        );
        let held = (DueWork::of(here).works.lock(), DueWork::of(parent).works.lock());
        hand_over(Box::new(count(&done)), parent);
        assert!(held.1.is_empty());
        drop(held);
        drive();
        assert_eq!((done.load(Ordering::SeqCst), Arc::strong_count(&done)), (0, 2));
    }
}
