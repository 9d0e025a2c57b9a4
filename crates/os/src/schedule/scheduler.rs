//! The state of a run, and who goes on.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// What a task is about to do at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointKind {
    /// Reads an atomic.
    Load,
    /// Writes an atomic.
    Store,
    /// Reads and writes an atomic at once.
    Update,
    /// Takes a lock.
    Lock,
    /// Sleeps at a condition or a queue, or until a moment.
    Wait,
    /// Wakes who sleeps.
    Wake,
    /// Begins a thread.
    Spawn,
    /// Waits for the end of a thread.
    Join,
    /// Ends.
    End,
    /// Calls a file or a region.
    File,
    /// Gives the processor away: it waits for another task.
    Yield,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What comes next.
    pub kind: PointKind,
    /// Where in the source.
    pub place: &'static Location<'static>,
    /// The number of the point in the run, from 0.
    pub step: u64,
}

/// Chooses who goes on. Its choices must follow from its seed and its arguments alone.
pub trait SchedulePolicy: Send {
    /// One of `runnable`, which are in the order of their numbers. `current` stands at `point`; it
    /// is none of them if it waits or has ended.
    fn next(&mut self, current: usize, runnable: &[usize], point: &Point) -> usize;

    /// A number below `n`, which is not 0.
    fn draw(&mut self, n: u64) -> u64;
}

/// A task that waits.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// The number of the task, and the name of its thread.
    pub task: (usize, String),
    /// Where.
    pub place: &'static Location<'static>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum End {
    /// Every task has ended.
    Done,
    /// These wait for each other, and for no moment.
    Deadlock(Vec<Blocked>),
    /// More points than are allowed were passed. These tasks had not ended.
    Endless(Vec<Blocked>),
}

/// A point that was passed.
#[derive(Clone, Debug)]
pub struct Step {
    /// The task.
    pub task: usize,
    /// The point.
    pub point: Point,
}

/// What a run was.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub end: End,
    /// Whether the first task panicked.
    pub has_panicked: bool,
    /// How many points were passed.
    pub steps: u64,
    /// How often one task ran on in place of another that could have.
    pub switches: u64,
    /// Equal for equal runs.
    pub hash: u64,
    /// The last points, if they were asked for.
    pub trace: Vec<Step>,
    /// The names of the tasks' threads.
    pub names: Vec<String>,
    /// The waits that nothing but time ended, while no task could go on.
    pub timed_out: Vec<Blocked>,
    /// For each place how often a task stood there, and how often another went on from there.
    pub covered: HashMap<&'static Location<'static>, (u64, u64)>,
}

/// The tasks of one run.
pub struct TaskScheduler {
    state: Mutex<State>,
    ended: Condvar,
}

pub(super) type StateGuard<'a> = MutexGuard<'a, State>;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Baton {
    is_here: AtomicBool,
}

impl Baton {
    pub(super) fn wait(&self) {
        while !self.is_here.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Runnable,
    /// On what, and until when.
    Blocked {
        on: usize,
        until: Option<Duration>,
    },
    Ended,
}

struct TaskState {
    name: String,
    thread: Option<Thread>,
    baton: Arc<Baton>,
    status: Status,
    is_late: bool,
    place: &'static Location<'static>,
}

pub(super) struct State {
    policy: Box<dyn SchedulePolicy>,
    tasks: Vec<TaskState>,
    runnable: Vec<usize>,
    now: Duration,
    /// The earliest moment that a task waits for.
    next_moment: Option<Duration>,
    steps: u64,
    most_steps: u64,
    switches: u64,
    hasher: DefaultHasher,
    trace: Vec<Step>,
    longest_trace: usize,
    timed_out: Vec<Blocked>,
    covered: HashMap<&'static Location<'static>, (u64, u64), BuildHasherDefault<DefaultHasher>>,
    end: Option<End>,
}

/// What one point costs in time.
const TICK: Duration = Duration::from_micros(1);

impl TaskScheduler {
    /// One whose tasks `policy` orders, for at most so many points. The last `trace` of them are
    /// kept.
    pub fn new(
        policy: impl SchedulePolicy + 'static,
        most_steps: u64,
        trace: usize,
    ) -> Arc<TaskScheduler> {
        Arc::new(TaskScheduler {
            state: Mutex::new(State {
                policy: Box::new(policy),
                tasks: Vec::new(),
                runnable: Vec::new(),
                now: Duration::ZERO,
                next_moment: None,
                steps: 0,
                most_steps,
                switches: 0,
                hasher: BuildHasherDefault::<DefaultHasher>::default().build_hasher(),
                trace: Vec::new(),
                longest_trace: trace,
                timed_out: Vec::new(),
                covered: HashMap::default(),
                end: None,
            }),
            ended: Condvar::new(),
        })
    }

    /// Runs `first` as the first task until every task has ended, or none can go on: the threads of
    /// such a run stay as they are until the process ends.
    ///
    /// # Panics
    ///
    /// When the first thread cannot be spawned.
    pub fn run(self: &Arc<Self>, first: impl FnOnce() + Send + 'static) -> Run {
        let task = super::register(self, "caller".into());
        let run = move || {
            super::adopt(task);
            first();
        };
        let spawned = std::thread::Builder::new().name("caller".into()).spawn(run);
        let thread = spawned.expect("invariant: a test has a thread for its first task");
        {
            let mut state = self.state();
            state.set_thread(0, thread.thread().clone());
            state.pass_to(0);
        }
        let mut state = self.state();
        while state.end.is_none() {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let end = state.end.clone().unwrap_or(End::Done);
        let mut run = state.report(end);
        drop(state);
        if matches!(run.end, End::Done) {
            run.has_panicked = thread.join().is_err();
        }
        run
    }

    pub(super) fn state(&self) -> StateGuard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task `next` goes on; without one, the run has ended.
    pub(super) fn leave(&self, mut state: StateGuard<'_>, next: Option<usize>) {
        let Some(next) = next else {
            state.end.get_or_insert(End::Done);
            return self.ended.notify_all();
        };
        state.pass_to(next);
    }
}

impl State {
    pub(super) fn add_task(&mut self, name: String, baton: Arc<Baton>) -> usize {
        let number = self.tasks.len();
        let place = Location::caller();
        let status = Status::Runnable;
        self.tasks.push(TaskState { name, thread: None, baton, status, is_late: false, place });
        self.runnable.push(number);
        number
    }

    pub(super) fn set_thread(&mut self, task: usize, thread: Thread) {
        self.tasks[task].thread = Some(thread);
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn draw(&mut self, n: u64) -> u64 {
        let drawn = self.policy.draw(n);
        self.hasher.write_u64(drawn);
        drawn
    }

    pub(super) fn has_ended(&self, task: usize) -> bool {
        self.tasks[task].status == Status::Ended
    }

    /// `me` passes a point, which is returned.
    pub(super) fn pass(
        &mut self,
        me: usize,
        kind: PointKind,
        place: &'static Location<'static>,
    ) -> Point {
        let point = Point { kind, place, step: self.steps };
        self.steps += 1;
        self.now += TICK;
        self.tasks[me].place = place;
        for part in [me as u64, kind as u64, u64::from(place.line()), u64::from(place.column())] {
            self.hasher.write_u64(part);
        }
        self.hasher.write(place.file().as_bytes());
        if self.longest_trace > 0 {
            if self.trace.len() >= 2 * self.longest_trace {
                self.trace.drain(..self.longest_trace);
            }
            self.trace.push(Step { task: me, point });
        }
        if self.next_moment.is_some_and(|moment| moment <= self.now) {
            self.wake_late();
        }
        point
    }

    /// Who goes on from `point`, at which `me` stands. None if all have ended, or none can go on,
    /// which ends the run.
    pub(super) fn next(&mut self, me: usize, point: &Point) -> Option<usize> {
        if self.end.is_some() {
            return None;
        }
        if self.steps > self.most_steps {
            let left = self.left();
            self.end = Some(End::Endless(left));
            return None;
        }
        let waits = point.kind == PointKind::Yield && self.runnable == [me];
        if self.runnable.is_empty() || waits {
            self.leap(waits);
        }
        if self.runnable.is_empty() {
            let left = self.left();
            if !left.is_empty() {
                self.end = Some(End::Deadlock(left));
            }
            return None;
        }
        let next = self.policy.next(me, &self.runnable, point);
        let could_stay = self.runnable.contains(&me);
        let has_switched = could_stay && next != me;
        self.switches += u64::from(has_switched);
        let covered = self.covered.entry(point.place).or_default();
        covered.0 += 1;
        covered.1 += u64::from(has_switched);
        Some(next)
    }

    /// Time leaps to the earliest deadline.
    fn leap(&mut self, is_polled: bool) {
        let mut woken = Vec::new();
        // A task that was woken in time leaves its moment behind.
        while woken.is_empty() {
            let Some(moment) = self.next_moment else { return };
            self.now = self.now.max(moment);
            woken = self.wake_late();
        }
        if !is_polled {
            for task in woken {
                let blocked = self.blocked(task);
                self.timed_out.push(blocked);
            }
        }
    }

    /// Makes those runnable whose deadline has passed.
    fn wake_late(&mut self) -> Vec<usize> {
        let mut woken = Vec::new();
        let mut next = None::<Duration>;
        for (number, task) in self.tasks.iter_mut().enumerate() {
            let Status::Blocked { until: Some(until), .. } = task.status else { continue };
            if until <= self.now {
                task.status = Status::Runnable;
                task.is_late = true;
                woken.push(number);
            } else {
                next = Some(next.map_or(until, |next| next.min(until)));
            }
        }
        self.next_moment = next;
        for &task in &woken {
            self.add_runnable(task);
        }
        woken
    }

    fn add_runnable(&mut self, task: usize) {
        if let Err(at) = self.runnable.binary_search(&task) {
            self.runnable.insert(at, task);
        }
    }

    /// `me` waits for `on`.
    pub(super) fn block(&mut self, me: usize, on: usize, until: Option<Duration>) {
        let task = &mut self.tasks[me];
        task.status = Status::Blocked { on, until };
        task.is_late = false;
        if let Some(until) = until {
            self.next_moment = Some(self.next_moment.map_or(until, |next| next.min(until)));
        }
        self.runnable.retain(|&task| task != me);
    }

    /// Whether the last wait of `me` was ended by its deadline.
    pub(super) fn is_late(&self, me: usize) -> bool {
        self.tasks[me].is_late
    }

    /// Wakes so many that wait for `on`, chosen by the policy; how many there were.
    pub(super) fn wake(&mut self, on: usize, most: usize) -> usize {
        let waits =
            |task: &TaskState| matches!(task.status, Status::Blocked { on: at, .. } if at == on);
        let mut waiting: Vec<usize> =
            (0..self.tasks.len()).filter(|&task| waits(&self.tasks[task])).collect();
        let mut woken = 0;
        while woken < most && !waiting.is_empty() {
            let at =
                if waiting.len() > most { self.draw(waiting.len() as u64) as usize } else { 0 };
            let task = waiting.remove(at);
            self.tasks[task].status = Status::Runnable;
            self.add_runnable(task);
            woken += 1;
        }
        woken
    }

    pub(super) fn end_task(&mut self, me: usize) {
        self.tasks[me].status = Status::Ended;
        self.runnable.retain(|&task| task != me);
    }

    pub(super) fn pass_to(&self, task: usize) {
        let task = &self.tasks[task];
        task.baton.is_here.store(true, Ordering::Release);
        if let Some(thread) = &task.thread {
            thread.unpark();
        }
    }

    fn blocked(&self, task: usize) -> Blocked {
        let state = &self.tasks[task];
        Blocked { task: (task, state.name.clone()), place: state.place }
    }

    fn left(&self) -> Vec<Blocked> {
        let left = (0..self.tasks.len()).filter(|&task| !self.has_ended(task));
        left.map(|task| self.blocked(task)).collect()
    }

    fn report(&mut self, end: End) -> Run {
        let from = self.trace.len().saturating_sub(self.longest_trace);
        Run {
            end,
            has_panicked: false,
            steps: self.steps,
            switches: self.switches,
            hash: self.hasher.finish(),
            trace: self.trace.split_off(from),
            names: self.tasks.iter().map(|task| task.name.clone()).collect(),
            timed_out: std::mem::take(&mut self.timed_out),
            covered: self.covered.drain().collect(),
        }
    }
}
