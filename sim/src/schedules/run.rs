//! One run: callers, a closing, an opening, and what is found at each.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use terrace::testing::schedule::{self, End, Run, SplitMix, Step, TaskScheduler};
use terrace::testing::{Call, CallSite, Fault, Faulty, FileKind, Machine, Reason, Survive};
use terrace::{CompactionProgress, Database, ErrorKind, Result, Tier};

use super::bucket;
use super::caller::Caller;
use super::ledger::{Ledger, Outcome, Seen, State, Wanted};
use super::operations::{COUNT, judge_young, resolve_all, still_prepared, unless_empty};
use super::plan::{Schedule, Step as Doing};
use super::policy::{Chooser, Planned};
use super::report::Report;
use super::rows::{
    COUNTER, MAIN, SHARED, TABLES, count_of, create_shared, key, lists_of, read_all, read_more,
    shared, shown, stamp_of, value,
};
use super::salvaged;
use super::waits;
use super::world::World;
use crate::Chance;
use crate::machines::{Kind, PATH};
use crate::violation::{Class, Violation};

/// More points than a run has that ends.
const MOST_POINTS: u64 = 3_000_000;
/// About so many points has a run.
const USUAL_POINTS: u64 = 40_000;
/// About so many points has an opening.
const OPENING_POINTS: u64 = 8_000;

/// So often threads stand still at points drawn by chance, beside callers.
const MOST_STAYS: u64 = 10;
/// At a place where few have been a thread stands still so many times of a thousand; or where a
/// lock is taken alone.
const STAYS: [(u64, bool); 5] = [(0, false), (5, false), (20, false), (20, true), (60, true)];

/// Calls that fail.
const CALLS: [Call; 10] = [
    Call::Open,
    Call::Create,
    Call::Read,
    Call::Write,
    Call::Write,
    Call::Sync,
    Call::Sync,
    Call::Resize,
    Call::Preallocate,
    Call::Punch,
];
/// Of which files.
const FILES: [FileKind; 4] =
    [FileKind::Region, FileKind::Journal, FileKind::Journal, FileKind::Extents];

/// The thread that stands for the network. It is there as long as a handle of the database.
const NETWORK: &str = "terrace-distance";

/// Jobs of a database at rest end within this time.
const LONGEST_WORK: Duration = Duration::from_secs(60);
/// After so long what they hold is looked at again.
const LOOKS_AGAIN: Duration = Duration::from_millis(100);

/// What prepared transactions hold.
const OF_PREPARED: [&str; 4] = ["row locks", "range locks", "bytes of locks", "holds"];

fn take(cut: &Cut) -> Option<(Machine, Ledger)> {
    cut.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// What is wrong, and what led there.
#[derive(Debug)]
pub struct Failure {
    pub violations: Vec<Violation>,
    /// What callers did.
    pub steps: Vec<String>,
    /// The last points.
    pub trace: Vec<Step>,
    pub names: Box<[String]>,
    pub hash: u64,
    /// Its threads are still there: no other run of the process says anything.
    pub is_stuck: bool,
    /// The points of each life at which threads were preempted.
    pub preemptions: Box<[Vec<u64>]>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Step { task, point } in &self.trace {
            writeln!(f, "{:>24} {:?} at {}", self.names[*task], point.kind, point.place)?;
        }
        let threads = self.names.iter().enumerate();
        let threads: Vec<String> = threads.map(|(n, name)| format!("{n} {name}")).collect();
        writeln!(f, "threads: {}", threads.join(", "))?;
        for (number, step) in (1..).zip(&self.steps) {
            writeln!(f, "{number:4}. {step}")?;
        }
        self.violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

/// What callers have done in a run.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Told {
    fn add(&self, more: BTreeMap<&'static str, u64>) {
        let mut done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (operation, n) in more {
            *done.entry(operation).or_default() += n;
        }
    }
}

/// A cut of power: what it left, and the ledger as it was.
type Cut = Arc<Mutex<Option<(Machine, Ledger)>>>;

impl Schedule {
    fn world(&self, machine: &Machine, ledger: &Ledger) -> World {
        World::new(machine, ledger, (self.seed, self.callers.len(), self.kind), self.bug)
    }

    /// A cut of power at some point of the run, in so many of a hundred.
    fn cut(&self, chance: &mut Chance, percent: u64, world: &World, cut: &Cut) -> Option<Planned> {
        chance.percent(percent).then(|| {
            let at = 2000 + chance.below(USUAL_POINTS);
            let survive = Survive::Seeded(chance.next());
            let (machine, ledger, cut) =
                (world.machine.clone(), world.ledger.clone(), Arc::clone(cut));
            let act = move || {
                ledger.note("power is cut");
                let left = (machine.crash(survive), ledger.copy());
                *cut.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
            };
            Planned { at, act: Box::new(act) }
        })
    }

    /// A call of a file fails from some point of the run on, once or for good, or files get no
    /// space any more, or no descriptor.
    fn failure(&self, chance: &mut Chance, world: &World) -> Planned {
        let at = 2000 + chance.below(USUAL_POINTS / 2);
        let (machine, ledger) = (world.machine.clone(), world.ledger.clone());
        // A shared database waits until its disk works again, for its checkpoints.
        let may_last = !world.is_shared;
        let act: Box<dyn FnOnce() + Send> = if chance.percent(25) && may_last {
            Box::new(move || {
                ledger.note("the disk is full");
                machine.set_capacity(Some(0));
            })
        } else {
            let site = CallSite { call: *chance.pick(&CALLS), file: *chance.pick(&FILES) };
            let outcome = *chance.pick(site.call.outcomes());
            let (nth, for_good) = (1 + chance.below(4), chance.percent(30) && may_last);
            let takes_descriptor = matches!(site.call, Call::Open | Call::Create);
            let reason = match chance.below(100) {
                0..50 if takes_descriptor => Reason::NoDescriptor,
                0..30 => Reason::NoSpace,
                _ => Reason::Io,
            };
            let fault = Fault { of: Faulty::Site(site), nth, outcome, reason, for_good };
            Box::new(move || {
                ledger.note(format!("{fault:?} from now on"));
                machine.fail(fault);
            })
        };
        Planned { at, act }
    }

    /// Runs it.
    pub fn run(&self) -> std::result::Result<Report, Failure> {
        schedule::settle();
        let (mut chance, mut made) = (Chance::new(self.seed), Vec::new());
        let (ledger, cut, told) = (Ledger::default(), Cut::default(), Told::default());
        let world = self.world(&self.kind.machine(), &ledger);
        bucket::plan_faults(&world.machine, self.seed);
        let mut drawn = SplitMix::new(self.seed);
        if (self.seed / 2).is_multiple_of(2) {
            world.stays.at_points(MOST_STAYS, USUAL_POINTS, &mut drawn);
        }
        if self.kind != Kind::Shared {
            world.stays.at_places(drawn.pick(&STAYS), self.seed);
        }
        let planned = match chance.below(100) {
            _ if !self.events => None,
            0..15 => Some(self.failure(&mut chance, &world)),
            _ => self.cut(&mut chance, 60, &world, &cut),
        };
        let first = {
            let (schedule, world, told) = (self.clone(), world.clone(), told.clone());
            move || schedule.live(&world, &told)
        };
        let mut report = self.under(&world, planned, first, &mut made)?;
        report.done = told.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        report.pairs = ledger.pairs().into_iter().map(|pair| (pair, 1)).collect();
        let mut left = take(&cut);
        report.failures += u64::from(!world.machine.failed_calls().is_empty());
        report.cuts += u64::from(left.is_some());
        if left.is_none() && (world.has_failed() || world.has_stopped()) {
            // The process is killed or the power is cut, and nothing fails any more.
            let machine = match (self.seed / 2).is_multiple_of(2) {
                true => world.machine.kill(),
                false => world.machine.crash(Survive::Seeded(self.seed)),
            };
            machine.mend();
            left = Some((machine, ledger.copy()));
        }
        for life in 1.. {
            let Some((machine, ledger)) = left else { break };
            let at = ledger.now();
            let (world, cut) = (self.world(&machine, &ledger), Cut::default());
            let salvaged = salvaged::found(&world);
            schedule::settle();
            bucket::plan_faults(&world.machine, self.seed ^ life);
            let percent = if life < 3 && self.events { 30 } else { 0 };
            let planned = self.cut(&mut chance, percent, &world, &cut);
            let planned =
                planned.map(|planned| Planned { at: planned.at % OPENING_POINTS, ..planned });
            let first = {
                let (schedule, world) = (self.clone(), world.clone());
                move || schedule.live_on(&world, at, salvaged.as_ref())
            };
            report.add(self.under(&world, planned, first, &mut made)?);
            left = take(&cut);
            report.cuts += u64::from(left.is_some());
        }
        Ok(report)
    }

    /// Runs `first`, and all that it begins: one life more.
    fn under(
        &self,
        world: &World,
        planned: Option<Planned>,
        first: impl FnOnce() + Send + 'static,
        made: &mut Vec<Vec<u64>>,
    ) -> std::result::Result<Report, Failure> {
        let (life, ledger) = (made.len(), &world.ledger);
        let of_life = |all: &Vec<Vec<u64>>| all.get(life).into_iter().flatten().copied().collect();
        let only = self.preemptions.as_ref().map(of_life);
        let order = (self.order ^ (life as u64) << 62, USUAL_POINTS);
        let chooser =
            Chooser::new(order, (planned, ledger.clone()), (&world.stays, world.tick), only);
        let noted = chooser.made();
        let run = TaskScheduler::new(chooser, MOST_POINTS, self.trace).run(first);
        made.push(noted.lock().unwrap_or_else(PoisonError::into_inner).clone());
        self.conclude(ledger, run, made)
    }

    fn conclude(
        &self,
        ledger: &Ledger,
        run: Run,
        made: &[Vec<u64>],
    ) -> std::result::Result<Report, Failure> {
        match &run.end {
            End::Done => {}
            other => ledger.violate(Class::NoEnd.violation(format!("{other:?}"))),
        }
        for timed_out in &run.timed_out {
            if let Some(what) = waits::judge(timed_out) {
                ledger.violate(Class::NoEnd.violation(what));
            }
        }
        for name in &run.panicked {
            ledger.violate(Class::Panic.violation(format!("{name} panicked")));
        }
        let (violations, steps) = ledger.take();
        if !violations.is_empty() {
            let is_stuck = !matches!(run.end, End::Done);
            let Run { trace, names, hash, .. } = run;
            let (names, preemptions) = (names.into(), made.into());
            return Err(Failure { violations, steps, trace, names, hash, is_stuck, preemptions });
        }
        let Run { steps: points, switches, hash, covered, .. } = run;
        Ok(Report { points, switches, hash, covered, ..Report::default() })
    }

    /// The life of a database: made, used by all callers at once, closed, opened again.
    fn live(&self, world: &World, told: &Told) {
        let run = || -> Result<()> {
            let db = world.options().create(PATH)?;
            let cold = if world.has_bucket() { Tier::Object } else { Tier::Ssd };
            for name in SHARED {
                create_shared(&db, &world.ledger, (name, cold))?;
            }
            world.has_opened(db);
            self.call(world, told);
            let (life, db) = world.newest();
            if world.ledger.is_taken_over()
                || (world.has_failed() || world.has_stopped()) && !world.mend(&db)
            {
                // What is left is opened by another process.
                return Ok(());
            }
            match db.existing_table(MAIN) {
                Err(error) if error.kind() == ErrorKind::Closed && world.is_closing(life) => {}
                other => {
                    drop(other?);
                    // What is prepared keeps its locks, and hides those that a call has kept.
                    if self.seed % 4 < 2 {
                        resolve_all(&db, &world.ledger)?;
                    }
                    at_rest(world, &db, (false, "the caller"))?;
                }
            }
            db.close()?;
            no_thread_is_left(world);
            let db = world.options().open_existing(PATH)?;
            still_prepared(&db, &world.ledger, "after the next opening")?;
            resolve_all(&db, &world.ledger)?;
            at_rest(world, &db, (false, "the next opening"))?;
            db.close()?;
            no_thread_is_left(world);
            Ok(())
        };
        if let Err(error) = run()
            && !world.excuses(&error)
            && !world.stopped_late(&error)
        {
            world.ledger.violate(Class::WrongError.violation(error));
        }
        world.ledger.judge_takeover();
        world.forget();
        nothing_is_late(world);
    }

    fn call(&self, world: &World, told: &Told) {
        let call = |(number, steps): (usize, &Vec<Doing>)| {
            let (mut caller, steps) = (Caller::new(number, world.clone()), steps.clone());
            schedule::spawn(&format!("caller {number}"), move || {
                for step in &steps {
                    if caller.is_over() {
                        break;
                    }
                    caller.perform(step);
                }
                caller.done
            })
        };
        let busy = self.callers.iter().enumerate().filter(|(_, steps)| !steps.is_empty());
        let threads: Vec<_> = busy.map(call).collect();
        for thread in threads {
            // The run tells of a panic.
            if let Ok(of_caller) = thread.join() {
                told.add(of_caller);
            }
        }
    }

    /// What a cut or failed calls have left is opened, read, used and closed. A salvage may have
    /// found the same before.
    fn live_on(&self, world: &World, cut: u64, salvaged: Option<&State>) {
        let ledger = &world.ledger;
        let run = || -> Result<()> {
            if world.is_shared && self.seed.is_multiple_of(2) {
                taken_over(world, cut)?;
            }
            let options = world.options();
            let opened = match ledger.is_empty() {
                true => options.open(PATH),
                false => options.open_existing(PATH),
            };
            let db = match opened {
                Err(error) if error.kind() == ErrorKind::Fenced && ledger.is_taken_over() => {
                    return Ok(());
                }
                opened => opened?,
            };
            if ledger.taken_over_at().is_some_and(|at| at < cut) {
                let what = "a writer opens that another one has taken over";
                ledger.violate(Class::TwoWriters.violation(what));
            }
            let state = read_all(&db, self.callers.len(), ledger)?;
            if let Some(salvaged) = salvaged {
                let mut opened = state.clone();
                opened.extend(read_more(&db)?);
                salvaged::compare(ledger, ("salvaged", salvaged), ("opened", &opened));
            }
            ledger.judge(&state, Seen::AfterCut(cut), "the opening after a cut");
            counts(&db, world, Some(cut))?;
            judge_lists(&db, world, (true, "after a cut"))?;
            for number in 0..self.callers.len() {
                judge_young(&db, ledger, number)?;
            }
            still_prepared(&db, ledger, "after a cut")?;
            resolve_all(&db, ledger)?;
            is_sound(&db, world, "after a cut")?;
            bucket::judge(&db, &world.machine, (ledger, "after a cut"))?;
            for name in TABLES {
                let table = match shared(&db, name)? {
                    Some(table) => table,
                    None => create_shared(&db, ledger, (name, Tier::Ssd))?,
                };
                let place = (name, key(0, 0));
                let wanted = Wanted::new(0, format!("put {} after a cut", shown(&place)));
                let stamp = ledger.call(wanted, |stamp| BTreeMap::from([(place, Some(stamp))]));
                table.put(key(0, 0), value(stamp, 100))?;
                ledger.ended(stamp, Outcome::Acknowledged);
            }
            db.close()?;
            no_thread_is_left(world);
            if (self.seed / 4).is_multiple_of(2) {
                reopened(world)?;
            }
            Ok(())
        };
        if let Err(error) = run()
            && !world.excuses(&error)
        {
            ledger.violate(Class::Refused.violation(format!("after a cut: {error}")));
        }
        nothing_is_late(world);
    }
}

/// What the closing after a cut has left is there.
fn reopened(world: &World) -> Result<()> {
    let (ledger, who) = (&world.ledger, "the second opening after a cut");
    let db = world.options().open_existing(PATH)?;
    let from = ledger.now();
    let state = read_all(&db, world.callers, ledger)?;
    // Where other nodes may show more, the ledger keeps what the cut has taken.
    let seen = match ledger.has_lagged() {
        true => Seen::AfterCut(ledger.now()),
        false => Seen::Read(from, ledger.now()),
    };
    ledger.judge(&state, seen, who);
    judge_lists(&db, world, (false, who))?;
    is_sound(&db, world, who)?;
    db.close()?;
    no_thread_is_left(world);
    Ok(())
}

/// The machine is lost, and another one takes over what the store has.
fn taken_over(world: &World, cut: u64) -> Result<()> {
    let ledger = &world.ledger;
    // It has a copy of the store.
    let lost = world.machine.kill();
    let Some(url) = lost.store_url() else { return Ok(()) };
    let options = world.options_on(&Machine::with_files());
    let opened = options.open_shared(&url, "/taken over");
    let Some(db) = unless_empty(ledger, cut, opened)? else { return Ok(()) };
    let state = read_all(&db, world.callers, ledger)?;
    ledger.judge(&state, Seen::Taken(cut), "a takeover after a cut");
    is_sound(&db, world, "of a takeover after a cut")?;
    db.close()
}

/// Holds all rows of a database that no caller uses against the ledger, and what it holds at rest.
fn at_rest(world: &World, db: &Database, (is_cut, who): (bool, &str)) -> Result<()> {
    let ledger = &world.ledger;
    let from = ledger.now();
    let state = read_all(db, world.callers, ledger)?;
    let to = ledger.now();
    ledger.judge(&state, Seen::Read(from, to), who);
    counts(db, world, None)?;
    judge_lists(db, world, (is_cut, who))?;
    for number in 0..world.callers {
        judge_young(db, ledger, number)?;
    }
    is_sound(db, world, who)?;
    for name in TABLES {
        compaction_ends(db, ledger, (name, who))?;
    }
    bucket::judge(db, &world.machine, (ledger, who))?;
    holds_nothing(db, ledger, who);
    Ok(())
}

/// Compacts a whole table while no other call is under way. That has to end.
fn compaction_ends(db: &Database, ledger: &Ledger, (name, who): (&str, &str)) -> Result<()> {
    let (table, since) = (db.table(name)?, schedule::now());
    let is_late = |_: &CompactionProgress| match schedule::now() - since > LONGEST_WORK {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    if !db.compact_range_with(&table, .., is_late)?.is_finished {
        let what = format!("a compaction of {name} goes on for {LONGEST_WORK:?} {who}");
        ledger.violate(Class::NoEnd.violation(what));
    }
    Ok(())
}

/// What calls and jobs have pinned, reserved, locked or counted is given back, once jobs under way
/// have ended. What is prepared keeps its locks.
fn holds_nothing(db: &Database, ledger: &Ledger, who: &str) {
    let since = schedule::now();
    let has_prepared = !ledger.prepared().is_empty();
    loop {
        let mut held = db.held();
        held.retain(|(kind, _)| !(has_prepared && OF_PREPARED.contains(kind)));
        if held.is_empty() {
            return;
        }
        if schedule::now() - since > LONGEST_WORK {
            return ledger.violate(Class::Leaked.violation(format!("at rest: {held:?} {who}")));
        }
        schedule::pause(LOOKS_AGAIN);
    }
}

/// Whether the counter of all callers is as many as have counted, after a cut at a moment too.
fn counts(db: &Database, world: &World, cut: Option<u64>) -> Result<()> {
    let ledger = &world.ledger;
    let Some(table) = shared(db, MAIN)? else { return Ok(()) };
    let counter = table.get(COUNTER)?;
    let count = counter.as_ref().map_or(0, |value| count_of(value)) as usize;
    let (least, most) = match (cut, &counter) {
        (None, _) => {
            let (certain, open) = ledger.count(COUNT);
            (certain, certain + open)
        }
        (Some(cut), Some(counter)) => ledger.counts_of(COUNT, stamp_of(COUNTER, counter), cut),
        (Some(_), None) => return Ok(()),
    };
    if !(least..=most).contains(&count) {
        let what = format!("{count} are counted, of {least} to {most}");
        ledger.violate(Class::Isolation.violation(what));
    }
    Ok(())
}

fn judge_lists(db: &Database, world: &World, when: (bool, &str)) -> Result<()> {
    let called = world.ledger.now();
    let Some(lists) = lists_of(db)? else { return Ok(()) };
    world.ledger.judge_histories((lists, called), world.isolation, when);
    Ok(())
}

/// What could not be read is right where a call has failed.
pub(super) fn is_sound(db: &Database, world: &World, who: &str) -> Result<()> {
    let report = db.verify()?;
    let has_failed = report.damages.is_empty() && world.has_failed();
    if !report.is_sound() && !has_failed {
        world.ledger.violate(Class::Damaged.violation(format!("{report:?} by {who}")));
    }
    Ok(())
}

/// No call has changed a file after the database was closed.
fn nothing_is_late(world: &World) {
    // What waits for an epoch may hold the network.
    schedule::settle();
    let late = world.machine.late_changes();
    if late > 0 {
        let what = format!("{late} changes of files after a closing");
        world.ledger.violate(Class::WrongError.violation(what));
    }
}

/// A database that is closed has no thread.
fn no_thread_is_left(world: &World) {
    let mut left = schedule::others();
    left.retain(|name| name != NETWORK);
    if !left.is_empty() {
        let what = format!("threads after a closing: {left:?}");
        world.ledger.violate(Class::Leaked.violation(what));
    }
}
