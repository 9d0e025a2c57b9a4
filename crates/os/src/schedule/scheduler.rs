//! The state of a run, and who goes on.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use super::hash::{AddressHasher, mixed};

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
    /// Goes on because its moment has come, while every task waited.
    TimedOut,
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
    /// So often tasks of the run have come here from where this one was before, this time included.
    pub visits: u64,
}

/// Chooses who goes on. Its choices must follow from its seed and its arguments alone.
pub trait SchedulePolicy: Send {
    /// One of `runnable`, which are in the order of their numbers. `current` stands at `point`; it
    /// is none of them if it waits or has ended.
    fn next(&mut self, current: usize, runnable: &[usize], point: &Point) -> usize;

    /// A number below `n`, which is not 0.
    fn draw(&mut self, n: u64) -> u64;

    /// Points at which time leaps to the next deadline, though tasks can go on. It leaps too where
    /// none can, but then none is in the middle of what it does.
    fn leaps(&mut self) -> Vec<u64> {
        Vec::new()
    }

    /// What one point costs in time: more makes pauses and deadlines end after fewer points.
    fn tick(&self) -> Duration {
        Duration::from_micros(1)
    }
}

/// A task that waits.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// The number of the task, and the name of its thread.
    pub task: (usize, String),
    /// Where.
    pub place: &'static Location<'static>,
}

/// A wait that nothing but time has ended, while every task waited.
#[derive(Clone, Debug)]
pub struct TimedOut {
    /// Who waited.
    pub waited: Blocked,
    /// Who waited for something else then.
    pub others: Vec<Blocked>,
    /// The one of those that waited by looking again and again.
    pub looked: Option<Blocked>,
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
    /// The task that was to go on has passed no point for a minute: it waits for what no task gives
    /// it. These had not ended.
    Stuck(Vec<Blocked>),
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
    /// The threads that panicked.
    pub panicked: Vec<String>,
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
    pub timed_out: Vec<TimedOut>,
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
    tick: Duration,
    /// The earliest moment that a task waits for.
    next_moment: Option<Duration>,
    steps: u64,
    most_steps: u64,
    switches: u64,
    hash: u64,
    trace: Vec<Step>,
    longest_trace: usize,
    timed_out: Vec<TimedOut>,
    /// So often the one task that can go on has given the processor away in vain.
    looks: u32,
    /// The last one comes first.
    leaps: Vec<u64>,
    panicked: Vec<String>,
    places: PassedPlaces,
    end: Option<End>,
}

/// The places where tasks have stood, and where they came from: what many call is a place for each
/// of them so. They are found by the addresses of their descriptions.
#[derive(Default)]
struct PassedPlaces {
    all: Vec<Passed>,
    by_address: HashMap<(usize, usize), usize, BuildHasherDefault<AddressHasher>>,
    /// Where the point is that was passed last.
    last: usize,
}

struct Passed {
    place: &'static Location<'static>,
    /// Equal for equal places in all processes.
    hash: u64,
    stood: u64,
    switched: u64,
}

impl PassedPlaces {
    /// A task stands at the place, and was at `from` before; what its part of the run's hash is,
    /// and how often tasks have come so.
    fn pass(
        &mut self,
        from: &'static Location<'static>,
        place: &'static Location<'static>,
    ) -> (u64, u64) {
        let [from, to] = [from, place].map(|place| std::ptr::from_ref(place).addr());
        let number = self.by_address.entry((from, to));
        self.last = *number.or_insert_with(|| {
            let (line, column) = (u64::from(place.line()), u64::from(place.column()));
            let bytes = place.file().bytes().map(u64::from);
            let hash = bytes.chain([line, column]).fold(0, mixed);
            self.all.push(Passed { place, hash, stood: 0, switched: 0 });
            self.all.len() - 1
        });
        let passed = &mut self.all[self.last];
        passed.stood += 1;
        (passed.hash, passed.stood)
    }

    /// By place: one may have several descriptions.
    fn covered(&self) -> HashMap<&'static Location<'static>, (u64, u64)> {
        let mut covered = HashMap::new();
        for Passed { place, stood, switched, .. } in &self.all {
            let sum: &mut (u64, u64) = covered.entry(*place).or_default();
            *sum = (sum.0 + stood, sum.1 + switched);
        }
        covered
    }
}

/// A task passes a point in this time, however loaded the machine is.
const LONGEST_STEP: Duration = Duration::from_secs(60);

/// A task that gives the processor away so often, though no other one can go on, waits for time to
/// pass.
const LOOKS: u32 = 8;

/// So far time leaps at most while tasks can go on. Their calls give up when they have waited for
/// many times that.
const LONGEST_LEAP: Duration = Duration::from_secs(1);

impl TaskScheduler {
    /// One whose tasks `policy` orders, for at most so many points. The last `trace` of them are
    /// kept.
    pub fn new(
        mut policy: impl SchedulePolicy + 'static,
        most_steps: u64,
        trace: usize,
    ) -> Arc<TaskScheduler> {
        let mut leaps = policy.leaps();
        leaps.sort_unstable_by(|one, other| other.cmp(one));
        Arc::new(TaskScheduler {
            state: Mutex::new(State {
                tasks: Vec::new(),
                runnable: Vec::new(),
                now: Duration::ZERO,
                tick: policy.tick(),
                policy: Box::new(policy),
                next_moment: None,
                steps: 0,
                most_steps,
                switches: 0,
                hash: 0,
                trace: Vec::new(),
                longest_trace: trace,
                timed_out: Vec::new(),
                looks: 0,
                leaps,
                panicked: Vec::new(),
                places: PassedPlaces::default(),
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
            super::noting_panics(first);
        };
        let spawned = std::thread::Builder::new().name("caller".into()).spawn(run);
        let thread = spawned.expect("invariant: a test has a thread for its first task");
        {
            let mut state = self.state();
            state.set_thread(0, thread.thread().clone());
            self.leave(state, Some(0));
        }
        let mut state = self.state();
        while state.end.is_none() {
            let seen = state.steps;
            let waited = self.ended.wait_timeout(state, LONGEST_STEP);
            let (again, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            if waited.timed_out() && state.steps == seen && state.end.is_none() {
                let left = state.left();
                state.end = Some(End::Stuck(left));
            }
        }
        let end = state.end.clone().unwrap_or(End::Done);
        let run = state.report(end);
        drop(state);
        if matches!(run.end, End::Done) {
            // Its panic is noted.
            let _panicked = thread.join();
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
        let thread = state.pass_to(next);
        // It takes the mutex next.
        drop(state);
        thread.inspect(Thread::unpark);
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
        self.hash = mixed(self.hash, drawn);
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
        let (part, visits) = self.places.pass(self.tasks[me].place, place);
        let point = Point { kind, place, step: self.steps, visits };
        self.steps += 1;
        self.now += self.tick;
        self.tasks[me].place = place;
        self.hash = mixed(self.hash, part.wrapping_add((me as u64) << 8 | kind as u64));
        self.keep(Step { task: me, point });
        if self.leaps.pop_if(|at| *at <= point.step).is_some() {
            let near = self.next_moment.filter(|moment| *moment < self.now + LONGEST_LEAP);
            self.now = near.map_or(self.now, |moment| moment.max(self.now));
        }
        if self.next_moment.is_some_and(|moment| moment <= self.now) {
            self.wake_late();
        }
        point
    }

    /// Keeps a step for the trace, if one is asked for.
    fn keep(&mut self, step: Step) {
        if self.longest_trace > 0 {
            if self.trace.len() >= self.longest_trace.saturating_mul(2) {
                self.trace.drain(..self.longest_trace);
            }
            self.trace.push(step);
        }
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
        if self.runnable != [me] {
            self.looks = 0;
        } else if point.kind == PointKind::Yield {
            self.looks += 1;
        }
        let looks = self.looks == LOOKS;
        if self.runnable.is_empty() || looks {
            self.looks = 0;
            self.leap(looks.then_some(me));
        }
        if self.runnable.is_empty() {
            let left = self.left();
            if !left.is_empty() {
                self.end = Some(End::Deadlock(left));
            }
            return None;
        }
        let next = self.policy.next(me, &self.runnable, point);
        let has_switched = next != me && self.runnable.contains(&me);
        self.switches += u64::from(has_switched);
        self.places.all[self.places.last].switched += u64::from(has_switched);
        Some(next)
    }

    /// Time leaps to the earliest deadline. One task may look again and again meanwhile.
    fn leap(&mut self, looks: Option<usize>) {
        let mut woken = Vec::new();
        // A task that was woken in time leaves its moment behind.
        while woken.is_empty() {
            let Some(moment) = self.next_moment else { return };
            self.now = self.now.max(moment);
            woken = self.wake_late();
        }
        for task in woken {
            let waited = self.blocked(task);
            let (kind, place) = (PointKind::TimedOut, waited.place);
            self.keep(Step { task, point: Point { kind, place, step: self.steps, visits: 0 } });
            let others = self.left().into_iter().filter(|other| other.task.0 != task);
            let (others, looked) = (others.collect(), looks.map(|task| self.blocked(task)));
            self.timed_out.push(TimedOut { waited, others, looked });
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

    /// It is the task's turn. Its thread, if it has one yet, is to be woken.
    #[must_use]
    fn pass_to(&self, task: usize) -> Option<Thread> {
        let task = &self.tasks[task];
        task.baton.is_here.store(true, Ordering::Release);
        task.thread.clone()
    }

    fn blocked(&self, task: usize) -> Blocked {
        let state = &self.tasks[task];
        Blocked { task: (task, state.name.clone()), place: state.place }
    }

    /// The thread of a task panics.
    pub(super) fn panics(&mut self, me: usize) {
        self.panicked.push(self.tasks[me].name.clone());
    }

    /// The names of those that have not ended, but for `me`.
    pub(super) fn others(&self, me: usize) -> Vec<String> {
        let left = self.left().into_iter().filter(|left| left.task.0 != me);
        left.map(|left| left.task.1).collect()
    }

    fn left(&self) -> Vec<Blocked> {
        let left = (0..self.tasks.len()).filter(|&task| !self.has_ended(task));
        left.map(|task| self.blocked(task)).collect()
    }

    fn report(&mut self, end: End) -> Run {
        let from = self.trace.len().saturating_sub(self.longest_trace);
        Run {
            end,
            panicked: std::mem::take(&mut self.panicked),
            steps: self.steps,
            switches: self.switches,
            hash: self.hash,
            trace: self.trace.split_off(from),
            names: self.tasks.iter().map(|task| task.name.clone()).collect(),
            timed_out: std::mem::take(&mut self.timed_out),
            covered: self.places.covered(),
        }
    }
}
