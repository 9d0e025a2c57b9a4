//! Epochs: a call that reads bytes it does not own pins the current epoch; whatever is taken out
//! of sight is given back only when every pin from before is gone.
//!
//! All databases of a process share the epochs: a pin holds back space in each of them. So none is
//! held between API calls, and none across I/O that may take long: a job or a backup reads what is
//! in memory a part at a time, and keeps what it still needs by a [`Hold`], which is of its own
//! database.
//!
//! Thread safety: all functions may be called from any thread, at any time, nested. A mutex is
//! held for a push or a pop. A thread of the parent may hold it at a fork, so a forked child has a
//! queue of its own, and never runs what its parent deferred.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::LocalKey;

use crate::os::ForkGuard;
use crate::os::sync::atomic::{AtomicUsize, Ordering};
use crate::os::sync::locks::{Mutex, MutexGuard};

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

/// Whether deferred work may wait for this thread: it has an epoch pinned, or runs such work.
pub(crate) fn is_waited_for() -> bool {
    is_pinned() || IS_RUNNING.get()
}

/// What waits for readers.
type Work = Box<dyn FnOnce() + Send>;

type Panic = Box<dyn std::any::Any + Send>;

/// Says that this thread is about to wait for a medium. Tests fail if it has an epoch pinned: that
/// would hold back space in every database of the process.
#[inline(always)]
pub(crate) fn about_to_wait() {
    #[cfg(any(test, feature = "testing"))]
    assert!(!is_pinned(), "no epoch is pinned while a thread waits for a medium");
}

/// Work of a database, or of the process.
struct DueWork {
    state: Mutex<DueState>,
    /// How many threads run what is due, each between its jobs. It changes under the mutex.
    runners: AtomicUsize,
}

struct DueState {
    /// No reader and no hold needs it to wait. The oldest first.
    due: VecDeque<Work>,
    /// A hold keeps it back: each with the number of the last hold before it.
    kept_back: VecDeque<(u64, Work)>,
    /// The numbers of the holds there are.
    holds: BTreeSet<u64>,
    last_hold: u64,
}

/// With more forks in a row than this, a child has the queue of an ancestor again.
const GENERATIONS: usize = 16;

/// Work of no database, and of databases that are closed, by the generation of the process.
static DUE: [DueWork; GENERATIONS] = [const { DueWork::new() }; GENERATIONS];

thread_local! {
    /// Whether this thread runs what is due.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread drops what was retired, in the middle of a call of the collector.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The deferred work of one database. Its own background runs it, so no database waits for the
/// work of another one. Once none runs it any more, any other database does.
pub(crate) struct DeferQueue {
    process: ForkGuard,
    work: DueWork,
}

impl Default for DeferQueue {
    fn default() -> DeferQueue {
        DeferQueue { process: ForkGuard::new(), work: DueWork::new() }
    }
}

impl DeferQueue {
    /// How many holds there are.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn holds(&self) -> u64 {
        self.work.state.lock().holds.len() as u64
    }

    /// Has `f` run once every guard and every hold that exists now is gone, by the background.
    pub(crate) fn defer(self: &Arc<Self>, f: impl FnOnce() + Send + 'static) {
        if self.process.is_forked() {
            // What the parent has is not this process's to free, and a thread of the parent may
            // have held the mutex at the fork.
            return std::mem::forget(f);
        }
        let after = self.work.state.lock().last_hold;
        let of = Some((Arc::clone(self), after));
        Deferred { work: Box::new(f), process: self.process, of }.begin();
    }

    /// Keeps all work of this database that is deferred from now on from running. So what a view of
    /// later has stays where it is: zones, pages, entries of level 0. Unlike a guard it may be held
    /// across I/O: it holds nothing of other databases.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        Hold { queue: Arc::clone(self), number: self.work.hold() }
    }

    /// Pushes deferred work forward, and runs what is due of this database and of none. With no
    /// guards held anywhere, a few calls run everything deferred before.
    pub(crate) fn drive(&self) {
        for _ in 0..4 {
            crossbeam_epoch::pin().flush();
            self.work.run_all(self.process);
            DueWork::of(self.process).run_all(self.process);
        }
    }

    /// Runs all that was deferred before, if no guard is held anywhere: so that where one thread
    /// does everything, in steps, the same steps do the same things.
    #[cfg(any(test, feature = "testing", feature = "bench"))]
    pub(crate) fn drive_all(self: &Arc<Self>) {
        all_have_left(|| self.drive());
        self.drive();
    }
}

impl std::fmt::Debug for DeferQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeferQueue").finish_non_exhaustive()
    }
}

/// See [`DeferQueue::hold`].
#[derive(Debug)]
pub(crate) struct Hold {
    queue: Arc<DeferQueue>,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let DeferQueue { process, work } = &*self.queue;
        if process.is_forked() {
            return;
        }
        work.end_hold(self.number, *process);
    }
}

/// As long as it lives, its owner calls [`DeferQueue::drive`] time and again.
#[derive(Debug)]
pub(crate) struct Runner(Arc<DeferQueue>);

impl Runner {
    pub(crate) fn new(queue: &Arc<DeferQueue>) -> Runner {
        for work in [&queue.work, DueWork::of(queue.process)] {
            let _state = work.state.lock();
            work.runners.fetch_add(1, Ordering::SeqCst);
        }
        Runner(Arc::clone(queue))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let DeferQueue { process, work } = &*self.0;
        if process.is_forked() {
            return;
        }
        for work in [work, DueWork::of(*process)] {
            let state = work.state.lock();
            let runners = work.runners.fetch_sub(1, Ordering::SeqCst);
            debug_assert!(runners > 0, "a runner is counted in before it is counted out");
            drop(state);
        }
        work.leave_if_alone(work.state.lock(), *process);
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
        let state = DueState {
            due: VecDeque::new(),
            kept_back: VecDeque::new(),
            holds: BTreeSet::new(),
            last_hold: 0,
        };
        DueWork { state: Mutex::new(state), runners: AtomicUsize::new(0) }
    }

    /// That of no database.
    fn of(process: ForkGuard) -> &'static DueWork {
        &DUE[process.generation() as usize % GENERATIONS]
    }

    /// Takes in work whose guards are gone.
    fn take_in(&self, (after, work): (u64, Work), process: ForkGuard) {
        let mut state = self.state.lock();
        if state.holds.first().is_some_and(|oldest| *oldest <= after) {
            return state.kept_back.push_back((after, work));
        }
        state.due.push_back(work);
        self.leave_if_alone(state, process);
    }

    /// Leaves what is due to other databases, if none runs this one's.
    fn leave_if_alone(&self, mut state: MutexGuard<'_, DueState>, process: ForkGuard) {
        let all = DueWork::of(process);
        if self.runners.load(Ordering::Relaxed) == 0 && !std::ptr::eq(self, all) {
            let due = std::mem::take(&mut state.due);
            drop(state);
            all.state.lock().due.extend(due);
        }
    }

    /// See [`DeferQueue::hold`]: the number of a new hold.
    fn hold(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_hold += 1;
        let number = state.last_hold;
        state.holds.insert(number);
        number
    }

    fn end_hold(&self, number: u64, process: ForkGuard) {
        let mut state = self.state.lock();
        let was_oldest = state.holds.first() == Some(&number);
        state.holds.remove(&number);
        // Only the oldest hold has kept back what no other one does.
        if was_oldest {
            let oldest = state.holds.first().copied().unwrap_or(u64::MAX);
            let all = std::mem::take(&mut state.kept_back);
            let (free, kept) = all.into_iter().partition(|(after, _)| *after < oldest);
            state.kept_back = kept;
            state.due.extend(VecDeque::into_iter(free).map(|(_, work)| work));
        }
        self.leave_if_alone(state, process);
    }

    /// Runs work until none is left, unless this thread does so already: what work defers is not
    /// run inside it. A panic of one goes on when the others have run.
    fn run_all(&self, process: ForkGuard) {
        if IS_RUNNING.get() {
            return;
        }
        let _running = Flagged::set(&IS_RUNNING);
        let mut panicked = None;
        while self.run_some(process, &mut panicked) {}
        if let Some(panic) = panicked {
            std::panic::resume_unwind(panic);
        }
    }

    /// Runs what is due; whether there was any. What one frees another may still read, on a thread
    /// that took it out before: what is deferred meanwhile waits. A database's work may take long,
    /// so it has a hold for that, and pins for itself what it walks through.
    fn run_some(&self, process: ForkGuard, panicked: &mut Option<Panic>) -> bool {
        if self.state.lock().due.is_empty() {
            return false;
        }
        let has_holds = !std::ptr::eq(self, DueWork::of(process));
        let held = has_holds.then(|| self.hold());
        let mut any = false;
        loop {
            let _guard = (!has_holds).then(pin);
            let Some(work) = self.state.lock().due.pop_front() else { break };
            let run = std::panic::AssertUnwindSafe(work);
            *panicked = std::panic::catch_unwind(run).err().or(panicked.take());
            any = true;
        }
        if let Some(held) = held {
            self.end_hold(held, process);
        }
        any
    }
}

/// Work that waits for guards, of a process. Of a database: with its queue, and the number of the
/// last hold before.
struct Deferred {
    work: Work,
    process: ForkGuard,
    of: Option<(Arc<DeferQueue>, u64)>,
}

impl Deferred {
    /// Has it handed over when every guard that exists now is gone. The thread that notices may be
    /// a reader, so it does no more than that. What the work defers in turn is deferred by the
    /// thread that runs it, so nothing stays with a thread that rests.
    fn begin(self) {
        if IS_INSIDE.get() {
            return hand_over(Box::new(move || self.begin()), ForkGuard::new());
        }
        let guard = crossbeam_epoch::pin();
        guard.defer(move || self.hand_over());
        flush(guard);
    }

    fn hand_over(self) {
        let Deferred { work, process, of } = self;
        match of {
            Some((queue, after)) if !process.is_forked() => {
                queue.work.take_in((after, work), process);
            }
            of => {
                std::mem::forget(of);
                hand_over(work, process);
            }
        }
    }
}

/// Hands work of no database over that was deferred by `process`.
fn hand_over(work: Work, process: ForkGuard) {
    if process.is_forked() {
        // What the parent has is not this process's to free.
        std::mem::forget(work);
    } else {
        DueWork::of(process).take_in((0, work), process);
    }
}

/// Has `f`, which is of no database, run once every guard that exists now is gone, by the
/// background of some database. A panic of `f` goes there: what belongs to a database goes into its
/// [`DeferQueue`].
pub(crate) fn defer(f: impl FnOnce() + Send + 'static) {
    Deferred { work: Box::new(f), process: ForkGuard::new(), of: None }.begin();
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
        due.run_all(ForkGuard::new());
    }
}

fn run_due() {
    DueWork::of(ForkGuard::new()).run_all(ForkGuard::new());
}

/// Calls `drive` until work that is deferred now has run.
#[cfg(any(test, feature = "testing", feature = "bench"))]
fn all_have_left(drive: impl Fn()) {
    use crate::os::sync::atomic::AtomicBool;

    let ran = Arc::new(AtomicBool::new(false));
    let marker = Arc::clone(&ran);
    defer(move || marker.store(true, Ordering::Relaxed));
    // Another test of the process may hold a guard for long.
    for _ in 0..1000 {
        if ran.load(Ordering::Relaxed) {
            return;
        }
        drive();
    }
}

/// As [`DeferQueue::drive_all`], of what is of no database.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn drive_all() {
    all_have_left(drive);
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

/// Pushes deferred work forward, and runs what is due of no database. Called by who needs the
/// memory.
pub(crate) fn drive() {
    for _ in 0..4 {
        crossbeam_epoch::pin().flush();
        run_due();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU64;

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
        let _runner = Runner::new(&Arc::default());
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

    /// Has `queue` run what it can.
    fn drive_some(queue: &DeferQueue) {
        (0..1000).for_each(|_| queue.drive());
    }

    /// Bug: a backup held back space in every database of the process until it had written all that
    /// lay in memory. Cause: it had an epoch pinned meanwhile. Fix: it has a hold of its own
    /// database.
    #[test]
    fn a_hold_keeps_later_work_of_its_own_database() {
        let queues = [Arc::new(DeferQueue::default()), Arc::new(DeferQueue::default())];
        let _runners = queues.each_ref().map(Runner::new);
        let [own, other] = &queues;
        let ran: [Arc<AtomicU64>; 4] = Default::default();
        let count_of = |n: usize| ran[n].load(Ordering::SeqCst);
        own.defer(count(&ran[0]));
        let first = own.hold();
        own.defer(count(&ran[1]));
        let second = own.hold();
        own.defer(count(&ran[2]));
        other.defer(count(&ran[3]));
        assert!(drive_until(|| {
            own.drive();
            other.drive();
            count_of(0) + count_of(3) == 2
        }));
        drive_some(own);
        assert_eq!((count_of(1), count_of(2)), (0, 0), "the first hold is from before them");
        drop(first);
        drive_some(own);
        assert_eq!((count_of(1), count_of(2)), (1, 0), "the second one is from before the last");
        drop(second);
        drive_some(own);
        assert_eq!(count_of(2), 1);
    }

    /// Bug: work of a database that took long, as the removal of all records of a table does, held
    /// back space in every database of the process. Cause: an epoch was pinned while it ran. Fix: a
    /// hold of its own database keeps back what is deferred meanwhile.
    #[test]
    fn work_of_a_database_pins_no_epoch_and_runs_before_what_is_deferred_meanwhile() {
        let queue = Arc::new(DeferQueue::default());
        let _runner = Runner::new(&queue);
        let (begun, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (pinned, done) = (Arc::new(AtomicU64::new(9)), Arc::new(AtomicU64::new(0)));
        let (into, waits) = (Arc::clone(&pinned), (Arc::clone(&begun), Arc::clone(&go)));
        queue.defer(move || {
            into.store(u64::from(is_pinned()), Ordering::SeqCst);
            waits.0.wait();
            waits.1.wait();
        });
        std::thread::scope(|scope| {
            let runs = scope.spawn(|| {
                assert!(drive_until(|| {
                    queue.drive();
                    pinned.load(Ordering::SeqCst) < 9
                }));
            });
            begun.wait();
            queue.defer(count(&done));
            drive_some(&queue);
            assert_eq!(done.load(Ordering::SeqCst), 0, "what runs may still read what it frees");
            go.wait();
            runs.join().unwrap();
        });
        assert_eq!(pinned.load(Ordering::SeqCst), 0, "no epoch is pinned");
        assert!(drive_until(|| {
            queue.drive();
            done.load(Ordering::SeqCst) == 1
        }));
    }

    /// Bug: the background of one database ran the deferred work of another one, and waited for the
    /// disk of that. Cause: the process had one queue. Fix: each database has its own.
    #[test]
    fn the_work_of_a_database_is_left_to_it_as_long_as_it_runs_any() {
        let queues = [Arc::new(DeferQueue::default()), Arc::new(DeferQueue::default())];
        let [mut own, _other] = queues.each_ref().map(|queue| Some(Runner::new(queue)));
        let done = Arc::new(AtomicU64::new(0));
        queues[0].defer(count(&done));
        drive_some(&queues[1]);
        assert_eq!(done.load(Ordering::SeqCst), 0, "it is left to its own background");
        drop(own.take());
        assert!(drive_until(|| {
            queues[1].drive();
            done.load(Ordering::SeqCst) == 1
        }));
    }

    /// Bug: a panic in deferred work lost the rest of it, and left a flag of the thread set. Cause:
    /// the collector ran it in the middle of a list.
    #[test]
    fn a_panic_in_deferred_work_loses_none_of_the_rest() {
        let done = Arc::new(AtomicU64::new(0));
        let (first, last): (Work, Work) = (Box::new(count(&done)), Box::new(count(&done)));
        let due = DueWork::new();
        due.state.lock().due = VecDeque::from([first, Box::new(|| panic!("planned")), last]);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            due.run_all(ForkGuard::new())
        }));
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
            due.state.lock().due.push_back(Box::new(move || {
                assert_eq!(counter.fetch_add(1, Ordering::SeqCst), 0, "one runs at a time");
                if left > 0 {
                    chain(&next, left - 1, &counter);
                }
                counter.fetch_sub(1, Ordering::SeqCst);
            }));
            due.run_all(ForkGuard::new());
        }
        let (due, inside) = (Arc::new(DueWork::new()), Arc::default());
        chain(&due, 1000, &inside);
        assert!(due.state.lock().due.is_empty());
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
        let held = (DueWork::of(here).state.lock(), DueWork::of(parent).state.lock());
        hand_over(Box::new(count(&done)), parent);
        assert!(held.1.due.is_empty());
        drop(held);
        drive();
        assert_eq!((done.load(Ordering::SeqCst), Arc::strong_count(&done)), (0, 2));
    }
}
