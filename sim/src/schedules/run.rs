//! One run: callers, a closing, an opening, and what is found at each.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};

use terrace::testing::schedule::{self, End, Run, Step, TaskScheduler};
use terrace::testing::{Failpoint, HandClock, Machine, Survive};
use terrace::{Database, Options, Result};

use super::callers::{self, COUNT, COUNTER, Caller, Operation, TABLES, count_of, read_all};
use super::ledger::{Ledger, Seen};
use super::policy::{Chooser, Planned};
use crate::Chance;
use crate::machines::{Kind, PATH, table_options};
use crate::violation::{Class, Violation};

/// More points than a run has that ends.
const MOST_POINTS: u64 = 3_000_000;
/// About so many points has a run.
const USUAL_POINTS: u64 = 40_000;

/// What a seed stands for.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub seed: u64,
    pub kind: Kind,
    pub callers: usize,
    /// Of each caller.
    pub operations: u64,
    pub bug: Option<Failpoint>,
    /// How many of the last points a failure prints.
    pub trace: usize,
}

/// What runs were that found nothing.
#[derive(Debug, Default)]
pub struct Report {
    pub cuts: u64,
    pub points: u64,
    pub switches: u64,
    /// Equal for equal runs in an equal order.
    pub hash: u64,
    pub done: BTreeMap<Operation, u64>,
    /// For each place how often a task stood there, and how often another went on from there.
    pub covered: HashMap<&'static Location<'static>, (u64, u64)>,
}

impl Report {
    /// Adds what a later run was.
    pub fn add(&mut self, later: Report) {
        self.cuts += later.cuts;
        self.points += later.points;
        self.switches += later.switches;
        self.hash = self.hash.rotate_left(1) ^ later.hash;
        for (operation, n) in later.done {
            *self.done.entry(operation).or_default() += n;
        }
        for (place, (stood, switched)) in later.covered {
            let sum = self.covered.entry(place).or_default();
            *sum = (sum.0 + stood, sum.1 + switched);
        }
    }
}

/// What is wrong, and what led there.
#[derive(Debug)]
pub struct Failure {
    pub violations: Vec<Violation>,
    /// What callers did.
    pub steps: Vec<String>,
    /// The last points.
    pub trace: Vec<Step>,
    pub names: Vec<String>,
    pub hash: u64,
    /// Its threads are still there: no other run of the process says anything.
    pub is_stuck: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Step { task, point } in &self.trace {
            writeln!(f, "{:>24} {:?} at {}", self.names[*task], point.kind, point.place)?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

/// A cut of power: what it left, and the ledger as it was.
type Cut = Arc<Mutex<Option<(Machine, Ledger)>>>;

impl Schedule {
    pub fn of(seed: u64) -> Schedule {
        let mut chance = Chance::new(seed ^ 0x5C4E_D01E);
        let kind =
            *chance.pick(&[Kind::Files, Kind::Memory, Kind::Files, Kind::Memory, Kind::Index]);
        let callers = 2 + chance.below(3) as usize;
        let operations = 4 + chance.below(16);
        Schedule { seed, kind, callers, operations, bug: None, trace: 0 }
    }

    fn options(&self, machine: &Machine, clock: &HandClock) -> Options {
        let options = crate::tiny().machine(machine).clock(clock);
        match self.bug {
            Some(bug) => options.failpoint(bug),
            None => options,
        }
    }

    /// Runs it.
    pub fn run(&self) -> std::result::Result<Report, Failure> {
        schedule::settle();
        let mut chance = Chance::new(self.seed);
        let (ledger, cut) = (Ledger::default(), Cut::default());
        let machine = self.kind.machine();
        let planned = chance.percent(60).then(|| {
            let at = 2000 + chance.below(USUAL_POINTS);
            let survive = Survive::Seeded(chance.next());
            let (machine, ledger, cut) = (machine.clone(), ledger.clone(), Arc::clone(&cut));
            let act = move || {
                ledger.note("power is cut");
                let left = (machine.crash(survive), ledger.copy());
                *cut.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
            };
            Planned { at, act: Box::new(act) }
        });
        let done = Arc::new(Mutex::new(BTreeMap::new()));
        let first = {
            let (schedule, ledger, done) = (*self, ledger.clone(), Arc::clone(&done));
            move || schedule.live(&machine, &ledger, &done)
        };
        let chooser = Chooser::new(self.seed, USUAL_POINTS, planned);
        let run = TaskScheduler::new(chooser, MOST_POINTS, self.trace).run(first);
        let mut report = self.conclude(&ledger, run)?;
        report.done = done.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let cut = cut.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((machine, ledger)) = cut {
            report.cuts += 1;
            let at = ledger.now();
            schedule::settle();
            let first = {
                let (schedule, ledger) = (*self, ledger.clone());
                move || schedule.live_on(&machine, &ledger, at)
            };
            let chooser = Chooser::new(self.seed ^ (1 << 63), USUAL_POINTS, None);
            let run = TaskScheduler::new(chooser, MOST_POINTS, self.trace).run(first);
            report.add(self.conclude(&ledger, run)?);
        }
        Ok(report)
    }

    fn conclude(&self, ledger: &Ledger, run: Run) -> std::result::Result<Report, Failure> {
        match &run.end {
            End::Done => {}
            other => ledger.violate(Class::NoEnd.violation(format!("{other:?}"))),
        }
        if run.has_panicked {
            ledger.violate(Class::Panic.violation("the first caller panicked"));
        }
        let (violations, steps) = ledger.take();
        if !violations.is_empty() {
            let is_stuck = !matches!(run.end, End::Done);
            let Run { trace, names, hash, .. } = run;
            return Err(Failure { violations, steps, trace, names, hash, is_stuck });
        }
        let Run { steps: points, switches, hash, covered, .. } = run;
        Ok(Report { points, switches, hash, covered, ..Report::default() })
    }

    /// The life of a database: made, used by all callers at once, closed, opened again.
    fn live(&self, machine: &Machine, ledger: &Ledger, done: &Mutex<BTreeMap<Operation, u64>>) {
        let clock = HandClock::default();
        let run = || -> Result<()> {
            let db = self.options(machine, &clock).create(PATH)?;
            for (name, apart) in TABLES.into_iter().zip([false, true]) {
                db.create_table(name, table_options(apart))?;
            }
            let mut chance = Chance::new(self.seed ^ 0xCA11);
            let closer = chance.percent(30).then(|| chance.below(self.callers as u64) as usize);
            self.call(&db, ledger, done, closer);
            if closer.is_none() {
                self.check(&db, ledger, "the caller")?;
            }
            db.close()?;
            let db = self.options(machine, &clock).open_existing(PATH)?;
            self.check(&db, ledger, "the next opening")?;
            db.close()
        };
        if let Err(error) = run() {
            ledger.violate(Class::WrongError.violation(error));
        }
    }

    fn call(
        &self,
        db: &Database,
        ledger: &Ledger,
        done: &Mutex<BTreeMap<Operation, u64>>,
        closer: Option<usize>,
    ) {
        let call = |number: usize| {
            let mut caller =
                Caller::new(number, self.callers, db.clone(), ledger.clone(), self.seed);
            let operations = self.operations;
            schedule::spawn(&format!("caller {number}"), move || {
                for n in 0..operations {
                    if caller.is_closed {
                        break;
                    }
                    if closer == Some(number) && n + 1 == operations {
                        caller.perform(Operation::Close);
                    } else {
                        caller.act();
                    }
                }
                caller.done
            })
        };
        let threads: Vec<_> = (0..self.callers).map(call).collect();
        for thread in threads {
            match thread.join() {
                Ok(of_caller) => {
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    for (operation, n) in of_caller {
                        *done.entry(operation).or_default() += n;
                    }
                }
                Err(_) => ledger.violate(Class::Panic.violation("a caller panicked")),
            }
        }
    }

    /// Holds all rows of a database that no caller uses against the ledger.
    fn check(&self, db: &Database, ledger: &Ledger, who: &str) -> Result<()> {
        let from = ledger.now();
        let state = read_all(db, self.callers)?;
        let to = ledger.now();
        ledger.judge(&state, Seen::Read(from, to), who);
        let counter = db.table(TABLES[0])?.get(COUNTER)?;
        let count = counter.map_or(0, |value| count_of(&value)) as usize;
        let (certain, open) = ledger.count(COUNT);
        if !(certain..=certain + open).contains(&count) {
            let what = format!("{certain} were counted, and {open} perhaps: {count} by {who}");
            ledger.violate(Class::Isolation.violation(what));
        }
        let report = db.verify()?;
        if !report.damages.is_empty() {
            ledger.violate(Class::Damaged.violation(format!("{report:?} by {who}")));
        }
        let held = db.locks_held();
        if held != (0, 0) {
            ledger.violate(Class::Leaked.violation(format!("locks at rest: {held:?} by {who}")));
        }
        Ok(())
    }

    /// What a cut has left is opened, read, used and closed.
    fn live_on(&self, machine: &Machine, ledger: &Ledger, cut: u64) {
        let clock = HandClock::default();
        let run = || -> Result<()> {
            let options = self.options(machine, &clock);
            let db = options.open(PATH)?;
            let state = read_all(&db, self.callers)?;
            ledger.judge(&state, Seen::AfterCut(cut), "the opening after a cut");
            if let Some(counter) = db.table(TABLES[0])?.get(COUNTER)? {
                let count = count_of(&counter) as usize;
                let stamp = callers::stamp_of(COUNTER, &counter);
                let (least, most) = ledger.counts_of(COUNT, stamp, cut);
                if !(least..=most).contains(&count) {
                    let what = format!("{count} after a cut, of {least} to {most}");
                    ledger.violate(Class::Isolation.violation(what));
                }
            }
            let report = db.verify()?;
            if !report.damages.is_empty() {
                ledger.violate(Class::Damaged.violation(format!("{report:?} after a cut")));
            }
            for name in TABLES {
                let table = db.table_with(name, table_options(name == TABLES[1]))?;
                table.put(callers::key(9, 9), b"after the cut")?;
            }
            db.close()
        };
        if let Err(error) = run() {
            ledger.violate(Class::Refused.violation(format!("after a cut: {error}")));
        }
    }
}
