//! Whole databases under the deterministic scheduler: what holds, that a seed is one run, and that
//! planted bugs are found.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use terrace::testing::Failpoint;
use terrace::testing::schedule::{self, End, Point, SchedulePolicy, SeededPolicy, TaskScheduler};
use terrace::{Database, ErrorKind, Result, Snapshot, Table};
use terrace_sim::machines::{Kind, PATH};
use terrace_sim::schedules::{PLANTED, Schedule, shrink};
use terrace_sim::violation::Class;

/// The tests of a process share its epochs: one has a database at work at a time.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn schedules_of_the_whole_database_find_nothing() {
    let _alone = alone();
    for seed in 0..60 {
        if let Err(failure) = Schedule::of(seed).run() {
            panic!("seed {seed}\n{failure}");
        }
    }
}

/// Bug: a batch was told that its table was dropped, where two truncations came one after the
/// other. Cause: it waited for the first one to end, and looked at the table when the second one
/// had marked it and not replaced it yet. Fix: it looks while no change of tables is under way.
#[test]
fn a_batch_beside_two_truncations_follows_its_table() {
    let _alone = alone();
    if let Err(failure) = Schedule::of(400_944).run() {
        panic!("{failure}");
    }
}

#[test]
fn a_seed_is_one_run_alone_and_after_others_in_any_process() {
    let _alone = alone();
    let hash = |seed: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-sim"));
        let output = command
            .args(["--schedules", "--json", "--seed", &seed.to_string(), "--seeds", "1"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        printed["hash"].as_str().unwrap().to_string()
    };
    for seed in 0..24 {
        let here = Schedule::of(seed).run().unwrap().hash;
        assert_eq!(hash(seed), format!("{here:016x}"), "seed {seed}");
    }
}

/// Each is found by the seed that found it first; by one of those after it, where the engine has
/// other points since. Without the bug that seed finds nothing.
#[test]
fn planted_bugs_are_found() {
    let _alone = alone();
    for planted in PLANTED {
        let Some(first) = planted.seed else { continue };
        let found = (first..first + 2000).find_map(|seed| {
            let failure = planted.run(seed)?;
            assert!(!failure.is_stuck, "{:?}, seed {seed}\n{failure}", planted.bug);
            Some(seed)
        });
        let Some(seed) = found else { panic!("{:?} is not found", planted.bug) };
        if let Err(failure) = planted.schedule(seed, None).run() {
            panic!("seed {seed} without {:?}\n{failure}", planted.bug);
        }
    }
}

/// A schedule that was made smaller fails as before, also when it was read from a file.
#[test]
fn a_failure_is_made_smaller_and_repeats_itself() {
    let _alone = alone();
    let planted = PLANTED.iter().find(|planted| planted.bug == Failpoint::SkipConflictCheck);
    let planted = planted.unwrap();
    let seed = (0..).find(|seed| planted.run(*seed).is_some()).unwrap();
    let schedule = planted.schedule(seed, Some(planted.bug));
    let is_it = |what: &String| Class::of(what) == Some(Class::Isolation);
    let mut fails = |tried: &Schedule| {
        let failure = tried.run().err()?;
        failure.violations.iter().any(is_it).then(|| failure.preemptions.to_vec())
    };
    // It ends by itself, long before that.
    let until = Instant::now() + Duration::from_mins(10);
    let small = shrink(&schedule, until, &mut fails);
    assert!(small.operations() < schedule.operations() / 2, "{small:?}");
    let read = Schedule { bug: schedule.bug, ..Schedule::read(&small.written()).unwrap() };
    let [one, other] = [&small, &read].map(|schedule| schedule.run().unwrap_err());
    assert_eq!((one.hash, one.violations), (other.hash, other.violations));
}

/// So many points pass while a task is stopped. The others may wait for it in a loop.
const STOPPED_FOR: u64 = 30_000;

/// One task goes on to one of its points, then the others go on, then it does.
struct StopAt {
    /// The task has begun what it is stopped in.
    has_begun: Arc<AtomicBool>,
    stops_at: u64,
    task: Option<usize>,
    passed: u64,
    stopped_for: u64,
    others: SeededPolicy,
}

impl StopAt {
    fn new(has_begun: &Arc<AtomicBool>, stops_at: u64) -> StopAt {
        let (has_begun, others) = (Arc::clone(has_begun), SeededPolicy::new(stops_at, 40_000));
        StopAt { has_begun, stops_at, task: None, passed: 0, stopped_for: 0, others }
    }
}

impl SchedulePolicy for StopAt {
    fn next(&mut self, current: usize, runnable: &[usize], point: &Point) -> usize {
        if self.task.is_none() && self.has_begun.load(Ordering::Relaxed) {
            self.task = Some(current);
        }
        let Some(task) = self.task else { return self.others.next(current, runnable, point) };
        self.passed += u64::from(current == task);
        let others: Vec<usize> = runnable.iter().copied().filter(|other| *other != task).collect();
        let is_stopped = self.passed >= self.stops_at && self.stopped_for < STOPPED_FOR;
        if others.is_empty() || runnable.contains(&task) && !is_stopped {
            return task;
        }
        self.stopped_for += u64::from(is_stopped);
        self.others.next(current, &others, point)
    }

    fn draw(&mut self, n: u64) -> u64 {
        self.others.draw(n)
    }
}

type Read = fn(&Database, &Table, &Snapshot) -> Result<bool>;

/// What is done beside a read, and the error that the read may fail with then.
type Beside = (fn(Database), ErrorKind);

const CLOSING: Beside = (|db| db.close().unwrap(), ErrorKind::Closed);
const TRUNCATION: Beside = (|db| db.truncate_table("t").unwrap(), ErrorKind::Invalid);
const GROWTH: Beside = (|db| assert!(db.grow_pm(5 << 20).is_ok()), ErrorKind::Closed);

/// Whether the row is there, or the read fails as it may, for a read that is stopped at its point
/// of this number meanwhile. The second is whether the read has as many points.
fn is_right_beside((act, may_fail): Beside, kind: Kind, read: Read, stops_at: u64) -> (bool, bool) {
    schedule::settle();
    let [has_begun, has_ended, is_right] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let begun_by = Arc::clone(&has_begun);
    let (ended_by, told) = (Arc::clone(&has_ended), Arc::clone(&is_right));
    let was_stopped = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&was_stopped);
    let first = move || {
        let db = terrace_sim::tiny().machine(&kind.machine()).create(PATH).unwrap();
        let table = db.table("t").unwrap();
        table.put("k", "v").unwrap();
        let snapshot = db.snapshot().unwrap();
        let begins = Arc::clone(&begun_by);
        let read_from = db.clone();
        let reader = schedule::spawn("reader", move || {
            begins.store(true, Ordering::Relaxed);
            let found = read(&read_from, &table, &snapshot);
            ended_by.store(true, Ordering::Relaxed);
            let may_fail = |error: &terrace::Error| error.kind() == may_fail;
            told.store(found.as_ref().map_or_else(may_fail, |there| *there), Ordering::Relaxed);
        });
        while !begun_by.load(Ordering::Relaxed) {
            schedule::yield_now();
        }
        stopped.store(!has_ended.load(Ordering::Relaxed), Ordering::Relaxed);
        act(db);
        reader.join().unwrap();
    };
    let run = TaskScheduler::new(StopAt::new(&has_begun, stops_at), 3_000_000, 0).run(first);
    assert!(
        matches!(run.end, End::Done) && run.panicked.is_empty(),
        "{kind:?} {stops_at}: {:?}",
        run.end
    );
    (is_right.load(Ordering::Relaxed), was_stopped.load(Ordering::Relaxed))
}

/// Bug: a read that was stopped told that no row was there, where the database was closed
/// meanwhile. Cause: it found the database open and loaded the table's view after that, and the
/// closing had emptied the view to give its memory back. Fix: a read loads the view first, and then
/// looks whether the database is open.
#[test]
fn a_read_beside_a_closing_is_right_wherever_it_stops() {
    let _alone = alone();
    let reads: [(&str, Read); 4] = [
        ("get", |_, table, _| Ok(table.get("k")?.is_some())),
        ("get of a snapshot", |_, table, snapshot| Ok(snapshot.get(table, "k")?.is_some())),
        ("get of several", |_, table, _| Ok(table.multi_get(["k"])?[0].is_some())),
        ("range", |_, table, _| Ok(table.iter().collect::<Result<Vec<_>>>()?.len() == 1)),
    ];
    are_right_beside(CLOSING, &reads);
}

/// Bug: a read of a snapshot that was stopped told that no row was there, where the table was
/// truncated meanwhile. Cause: it found the table to be there and loaded the table's view after
/// that, and the truncation had emptied the view. Fix: a read loads the view first, and then looks
/// whether the table is there.
#[test]
fn a_snapshot_beside_a_truncation_is_right_wherever_it_stops() {
    let _alone = alone();
    let reads: [(&str, Read); 3] = [
        ("get", |_, table, snapshot| Ok(snapshot.get(table, "k")?.is_some())),
        ("get of several", |_, table, snapshot| Ok(snapshot.multi_get(table, ["k"])?[0].is_some())),
        ("range", |_, table, snapshot| {
            Ok(snapshot.range(table, ..).collect::<Result<Vec<_>>>()?.len() == 1)
        }),
    ];
    are_right_beside(TRUNCATION, &reads);
}

/// Bug: the statistics of a database whose region grew meanwhile failed, or told of some four
/// billion zones in use. Cause: they took the zones that are free now from the zones that there
/// were before the growth. Fix: they ask for the free ones first, as the scheduler does.
#[test]
fn statistics_beside_a_growth_are_right_wherever_they_stop() {
    let _alone = alone();
    let reads: [(&str, Read); 1] =
        [("stats", |db, _, _| Ok(db.stats()).map(|now| now.pm.zones_used <= now.pm.zones))];
    are_right_beside(GROWTH, &reads);
}

/// Each read is right, at whichever of its points it is stopped.
fn are_right_beside(beside: Beside, reads: &[(&str, Read)]) {
    for kind in [Kind::Files, Kind::Memory, Kind::Index] {
        for &(name, read) in reads {
            let mut stops_at = 1;
            loop {
                let (is_right, was_stopped) = is_right_beside(beside, kind, read, stops_at);
                assert!(is_right, "{name} on {kind:?}, stopped at its point {stops_at}");
                if !was_stopped {
                    break;
                }
                stops_at += 1;
            }
            assert!(stops_at > 5, "{name} on {kind:?} has {stops_at} points");
        }
    }
}
