//! What a thread does with the scheduler whose task it is.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::scheduler::{Baton, PointKind, TaskScheduler};

/// A task, to be adopted by its thread.
pub struct TaskHandle {
    scheduler: Arc<TaskScheduler>,
    number: usize,
    baton: Arc<Baton>,
}

impl TaskHandle {
    /// Its number in the run.
    pub fn number(&self) -> usize {
        self.number
    }
}

/// The task of a thread. Its drop is the last of the thread's local values, since the thread makes
/// it first: what others do when they are dropped is part of the task.
struct Task(TaskHandle);

thread_local! {
    static IS_TASK: Cell<bool> = const { Cell::new(false) };
    /// How many callers ask for no switch.
    static UNSWITCHED: Cell<u32> = const { Cell::new(0) };
    static NUMBER: Cell<usize> = const { Cell::new(0) };
    static RUN: Cell<usize> = const { Cell::new(0) };
    static TASK: RefCell<Option<Task>> = const { RefCell::new(None) };
}

impl Drop for Task {
    fn drop(&mut self) {
        IS_TASK.set(false);
        let (scheduler, me) = (&self.0.scheduler, self.0.number);
        let mut state = scheduler.state();
        let point = state.pass(me, PointKind::End, Location::caller());
        state.end_task(me);
        state.wake(ended_key(me), usize::MAX);
        let next = state.next(me, &point);
        scheduler.leave(state, next);
    }
}

/// What those wait for who join a task: no address of a value.
fn ended_key(task: usize) -> usize {
    usize::MAX - task
}

/// Whether this thread is a task.
#[inline]
pub fn is_task() -> bool {
    IS_TASK.get()
}

/// The number of this task in its run.
pub fn number() -> usize {
    NUMBER.get()
}

/// What stands for the run of this task, and for no other one of the process.
pub fn run() -> usize {
    RUN.get()
}

/// A new task of `scheduler`, which runs when its thread has adopted it.
pub fn register(scheduler: &Arc<TaskScheduler>, name: String) -> TaskHandle {
    let baton = Arc::new(Baton::default());
    let number = scheduler.state().add_task(name, Arc::clone(&baton));
    TaskHandle { scheduler: Arc::clone(scheduler), number, baton }
}

/// The task `number` of this run has no thread.
pub fn register_failed(number: usize) {
    with_task(|task| task.scheduler.state().end_task(number));
}

/// This thread becomes the task, and waits for its turn.
pub fn adopt(task: TaskHandle) {
    task.scheduler.state().set_thread(task.number, std::thread::current());
    task.baton.wait();
    NUMBER.set(task.number);
    RUN.set(Arc::as_ptr(&task.scheduler).addr());
    TASK.set(Some(Task(task)));
    IS_TASK.set(true);
}

/// Runs the body of a task. If it panics, the run fails, even where no thread joins the task.
pub fn noting_panics<T>(f: impl FnOnce() -> T) -> T {
    struct NotesPanic;
    impl Drop for NotesPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                with_task(|task| task.scheduler.state().panics(task.number));
            }
        }
    }
    let _notes = NotesPanic;
    f()
}

fn with_task<T>(f: impl FnOnce(&TaskHandle) -> T) -> Option<T> {
    let with = |task: &RefCell<Option<Task>>| task.borrow().as_ref().map(|task| f(&task.0));
    TASK.try_with(with).ok().flatten()
}

/// Where the policy may choose another task to go on; nothing for a thread that is no task.
#[inline]
#[track_caller]
pub fn point(kind: PointKind) {
    if is_task() {
        pass(kind, Location::caller());
    }
}

#[cold]
fn pass(kind: PointKind, place: &'static Location<'static>) {
    if UNSWITCHED.get() > 0 {
        return;
    }
    with_task(|task| {
        let mut state = task.scheduler.state();
        let point = state.pass(task.number, kind, place);
        match state.next(task.number, &point) {
            Some(next) if next == task.number => return,
            next => task.scheduler.leave(state, next),
        }
        task.baton.wait();
    });
}

/// Waits until this task is woken by [`wake`] with the same `on`, or until the moment; whether that
/// has come first.
#[track_caller]
pub fn block(on: usize, until: Option<Duration>) -> bool {
    let place = Location::caller();
    let is_late = with_task(|task| {
        let mut state = task.scheduler.state();
        let point = state.pass(task.number, PointKind::Wait, place);
        state.block(task.number, on, until);
        let next = state.next(task.number, &point);
        task.scheduler.leave(state, next);
        task.baton.wait();
        task.scheduler.state().is_late(task.number)
    });
    is_late.unwrap_or(false)
}

/// Wakes at most so many that wait for `on`; how many there were.
pub fn wake(on: usize, most: usize) -> usize {
    with_task(|task| task.scheduler.state().wake(on, most)).unwrap_or(0)
}

/// Waits until the task has ended.
#[track_caller]
pub fn wait_ended(number: usize) {
    point(PointKind::Join);
    let has_ended = || with_task(|task| task.scheduler.state().has_ended(number));
    while has_ended() == Some(false) {
        block(ended_key(number), None);
    }
}

/// The threads of this run that have not ended, but for this one.
pub fn others() -> Vec<String> {
    with_task(|task| task.scheduler.state().others(task.number)).unwrap_or_default()
}

/// How long the run has lasted, by its own clock.
pub fn now() -> Duration {
    with_task(|task| task.scheduler.state().now()).unwrap_or_default()
}

/// A number below `n` that the policy draws; nothing for a thread that is no task.
pub fn draw(n: u64) -> Option<u64> {
    with_task(|task| task.scheduler.state().draw(n))
}

/// Runs `f`, in which no access is a point; a wait still is. For what a run does only if no earlier
/// run of the process has done it, and under locks of the simulated machine.
pub fn without_switch<T>(f: impl FnOnce() -> T) -> T {
    struct Unswitched(u32);
    impl Drop for Unswitched {
        fn drop(&mut self) {
            UNSWITCHED.set(self.0);
        }
    }
    let _unswitched = Unswitched(UNSWITCHED.replace(UNSWITCHED.get() + 1));
    f()
}

/// A task in the run of this one.
pub fn spawn_task(name: String) -> Option<TaskHandle> {
    with_task(|task| register(&task.scheduler, name))
}
