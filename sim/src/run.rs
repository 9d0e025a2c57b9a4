//! One seed, one run: a database is prepared, one operation of it is recorded, and every image
//! that a power cut in it can leave is opened and held against what was acknowledged.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use terrace::testing::{Explorer, Failpoint, Machine, Moment, Survive, Trace};

use crate::chance::Chance;
use crate::content::{Content, read_all};
use crate::coverage::{Before, Coverage, count_journal};
use crate::cuts::{Account, End, Kind, PATH, Rig, Violation, copy, options, reopen};
use crate::failing::{self, Failing};
use crate::scenario::{self, SCENARIOS, Scenario};
use crate::stop;
use crate::violation::{Class, of_panic};

/// What the oracles say first that read before any cut, cut after an opening, and cut in one.
pub const BEFORE_CUTS: &str = "before any cut";
const AFTER_OPENING: &str = "a cut after the opening";
const SECOND_CUT: &str = "after a second cut";

/// How much of what is possible a run tries.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Moments that power is cut at: twice as many with a persistent index, three times as many of
    /// openings and closings.
    pub moments: usize,
    /// Combinations of surviving stores at each.
    pub most: usize,
    /// No moment is begun after this.
    pub until: Option<Instant>,
}

impl Limits {
    /// Everything affordable.
    pub const WIDE: Limits = Limits { moments: usize::MAX, most: 4096, until: None };
    /// What a seed of the short suite tries.
    pub const SHORT: Limits = Limits { moments: 9, most: 2, until: None };
}

/// What takes long to prepare, done once for all runs: by the scenario that begins with it, or
/// `None` for many.
#[derive(Default)]
pub struct Prepared(BTreeMap<(Option<Scenario>, Kind), Rig>);

impl Prepared {
    fn get(&mut self, of: Option<Scenario>, kind: Kind, prepare: fn(Kind) -> Rig) -> &Rig {
        self.0.entry((of, kind)).or_insert_with(|| prepare(kind))
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    pub seed: u64,
    pub kind: Kind,
    pub scenario: Scenario,
    /// Rows lie on disk when it begins.
    pub has_levels: bool,
    pub limits: Limits,
    pub failpoint: Option<Failpoint>,
    /// The bug is in what comes after a cut alone.
    pub is_afterwards: bool,
    pub replay: Option<String>,
    /// Calls fail, and several lives follow on each other.
    pub faults: bool,
}

impl Run {
    fn new((seed, kind, scenario): (u64, Kind, Scenario), limits: Limits, faults: bool) -> Run {
        let has_levels =
            scenario.may_begin_with_levels() && Chance::new(seed ^ 0x1E_7E15).percent(50);
        let (failpoint, replay, is_afterwards) = (None, None, false);
        Run { seed, kind, scenario, has_levels, limits, failpoint, is_afterwards, replay, faults }
    }

    /// The run that a seed stands for: two of three on persistent memory. In every second round of
    /// the scenarios level 0 is another one: a persistent index, a matrix, a triangle, or one by
    /// the name of the table.
    pub fn of(seed: u64, limits: Limits) -> Run {
        let count = SCENARIOS.len() as u64;
        let kind = match (seed % 3, seed / 3 / count % 4) {
            (2, 0) => Kind::Files,
            (2, 2) => Kind::Objects,
            (2, _) => Kind::Triangle,
            (1, 1) => Kind::Index,
            (1, 3) => Kind::FullIndex,
            (0, 1) => Kind::Matrix,
            (0, 3) => Kind::Mixed,
            _ => Kind::Memory,
        };
        let mut scenario = SCENARIOS[(seed / 3 % count) as usize];
        let kind = if scenario == Scenario::Cold { Kind::Objects } else { kind };
        // A long journal has many edits, and a long list many openings, each like the other: a few
        // seeds of them are enough.
        let is_long = matches!(scenario, Scenario::Checkpoint | Scenario::Joining);
        if is_long && !(seed / 3 / count).is_multiple_of(8) {
            scenario = Scenario::Commits;
        }
        Run::new((seed, kind, scenario), limits, false)
    }

    /// The run with calls that fail that a seed stands for: half of them on a machine whose region
    /// is a file.
    pub fn failing(seed: u64, limits: Limits) -> Run {
        let count = SCENARIOS.len() as u64;
        let files = [Kind::Files, Kind::Triangle, Kind::Objects][(seed / 4 % 3) as usize];
        let memory = match seed / 4 % 4 {
            0 | 2 => Kind::Memory,
            1 => Kind::Matrix,
            _ => Kind::Mixed,
        };
        let index = [Kind::Index, Kind::FullIndex][(seed / 4 % 2) as usize];
        let kind = [Kind::Files, memory, files, index][(seed % 4) as usize];
        let scenario = failing::disturbed(SCENARIOS[(seed / 4 % count) as usize]);
        let kind = if scenario == Scenario::Cold { Kind::Objects } else { kind };
        Run::new((seed, kind, scenario), limits, true)
    }

    /// Whether no time is left.
    pub(crate) fn is_over(&self) -> bool {
        stop::is_asked_for() || self.limits.until.is_some_and(|until| Instant::now() >= until)
    }

    pub(crate) fn explorer(&self) -> Explorer {
        let name = format!("{:?} on {:?}", self.scenario, self.kind).to_lowercase();
        let explorer = Explorer::new(name, self.seed);
        // Each step of an opening or a closing is a place of its own, and happens once; a
        // persistent index has as many places again as the rest.
        let times = match (self.scenario, self.kind) {
            (Scenario::Closing | Scenario::Opening, _) => 3,
            (_, Kind::Index | Kind::FullIndex | Kind::Matrix | Kind::Mixed) => 2,
            _ => 1,
        };
        let moments = self.limits.moments.saturating_mul(times);
        let explorer = explorer.most(self.limits.most).moments(moments).stop_if(stop::is_asked_for);
        let explorer = match self.limits.until {
            Some(until) => explorer.until(until),
            None => explorer,
        };
        match &self.replay {
            Some(replay) => explorer.replay(replay),
            None => explorer,
        }
    }

    /// Runs it; whether all was well is in the coverage. A panic is a violation like others: it
    /// ends this run, and what was counted so far stays.
    pub fn run(&self, prepared: &mut Prepared, coverage: &mut Coverage) {
        coverage.seeds += 1;
        let run = || match self.scenario {
            _ if self.faults => Failing::of(self, coverage).run(prepared),
            Scenario::Recovery | Scenario::Joining => self.recovery(prepared, coverage),
            _ => self.operation(prepared, coverage),
        };
        let done = catch_unwind(AssertUnwindSafe(run));
        let place = format!("seed {}, {:?}", self.seed, self.scenario);
        if let Err(what) = done.unwrap_or_else(|panic| Err(of_panic(&*panic, &place))) {
            coverage.violations.push(what);
        }
    }

    /// The trace of it alone, to compare runs.
    pub fn trace(&self, prepared: &mut Prepared) -> Trace {
        let mut rig = self.rig(prepared);
        self.scenario.prepare(&mut rig);
        rig.record();
        self.scenario.act(&mut rig);
        rig.recorded().trace
    }

    pub(crate) fn rig(&self, prepared: &mut Prepared) -> Rig {
        let bug = self.failpoint.filter(|_| !self.is_afterwards);
        let (of, prepare): (_, fn(Kind) -> Rig) = match self.scenario {
            Scenario::Checkpoint => (Some(self.scenario), scenario::long_journal),
            Scenario::Joining => (Some(self.scenario), scenario::many_openings),
            _ if self.has_levels => (None, scenario::with_levels),
            _ => return Rig::new(self.kind, self.seed, bug),
        };
        scenario::again(prepared.get(of, self.kind, prepare), self.kind, self.seed, bug)
    }

    fn operation(&self, prepared: &mut Prepared, coverage: &mut Coverage) -> Result<(), Violation> {
        let mut rig = self.rig(prepared);
        self.scenario.prepare(&mut rig);
        let before = Before::of(&rig.db);
        rig.record();
        self.scenario.act(&mut rig);
        let recording = rig.recorded();
        let mut counted = Coverage::default();
        before.count(&rig.db, &rig.written, &mut counted);
        self.scenario.operations().iter().for_each(|(name, n)| counted.count(name, *n));
        if self.scenario == Scenario::Closing {
            rig.open();
        }
        let found = read_all(&rig.db).map_err(|e| Class::Refused.violation(e))?;
        if let Some(what) = found.differs_from(&rig.content) {
            return Err(Class::Changed.violation(format!("{BEFORE_CUTS}: {what}")));
        }
        drop(rig);
        let mut second = 0;
        let result = self.explorer().explore(&recording.trace, |found, moment| {
            caught(|| self.check(found, &recording.account(moment), moment, &mut second))
        });
        coverage.second_cuts += second;
        self.conclude(result, (&recording.trace, counted), coverage)
    }

    /// Cuts an opening after an end, of power or of the process.
    fn recovery(&self, prepared: &mut Prepared, coverage: &mut Coverage) -> Result<(), Violation> {
        let mut rig = self.rig(prepared);
        self.scenario.prepare(&mut rig);
        let survive = Survive::Seeded(rig.chance.next());
        let killed = self.scenario.killed(&mut rig);
        let ((found, account), end) = match killed {
            Some(killed) => (killed, End::Kill),
            None => ((rig.machine.crash(survive), rig.account()), End::Cut(survive)),
        };
        drop(rig);
        let named = |what: String| format!("seed {}, before the recovery: {what}", self.seed);
        let undisturbed = reopen(&copy(&found), self.failpoint, &account, end);
        let (db, want) = undisturbed.map_err(named)?;
        drop(db);
        found.record();
        drop(
            options(&found, self.failpoint)
                .open(PATH)
                .map_err(|e| named(Class::Refused.violation(e)))?,
        );
        let Some(trace) = found.recorded() else { return Ok(()) };
        let mut counted = Coverage::default();
        counted.count("recovery", 1);
        let result = self.explorer().explore(&trace, |again, _| {
            let (_, content) = reopen(again, self.failpoint, &account, End::Cut(survive))?;
            match end {
                // Whatever is found is what an undisturbed opening finds.
                End::Cut(_) => same(&content, &want),
                // What a killed process left in a cache may be lost as long as it is not opened.
                End::Kill => Ok(()),
            }
        });
        self.conclude(result, (&trace, counted), coverage)
    }

    fn count_with_levels(&self, coverage: &mut Coverage) {
        if let Some(operation) = self.scenario.operation_with_levels().filter(|_| self.has_levels) {
            coverage.count(operation, 1);
        }
    }

    /// Counts operations that were cut.
    fn conclude(
        &self,
        result: Result<terrace::testing::Explored, Box<terrace::testing::Violation>>,
        (trace, mut counted): (&Trace, Coverage),
        coverage: &mut Coverage,
    ) -> Result<(), Violation> {
        match result {
            Ok(explored) => {
                if explored.moments > 0 {
                    count_journal(trace, &mut counted);
                    self.count_with_levels(&mut counted);
                    coverage.absorb(counted);
                }
                coverage.explored(&explored, trace, self.kind.is_files());
                Ok(())
            }
            Err(violation) => {
                let is_usual = Run::of(self.seed, self.limits).kind == self.kind;
                let objects = if is_usual { "" } else { " --objects" };
                Err(format!(
                    "{violation}\n  or: cargo run --release -p terrace-sim -- --seed {}{objects} \
                     --replay {:?}",
                    self.seed, violation.replay,
                ))
            }
        }
    }

    /// Opens an image, holds it against the account and works on it; some openings are cut once
    /// more.
    pub(crate) fn check(
        &self,
        found: &Machine,
        account: &Account,
        moment: Moment,
        second: &mut u64,
    ) -> Result<(), Violation> {
        let choice = (moment.event as u64).wrapping_add(self.seed) % 4;
        let before = (choice == 0).then(|| copy(found));
        let end = End::Cut(Survive::Nothing);
        let (db, content) = reopen(found, self.failpoint, account, end)?;
        if choice == 2 {
            let cut = found.crash(Survive::Seeded(self.seed));
            let named = |what: Violation| format!("{AFTER_OPENING}: {what}");
            let (_, again) = reopen(&cut, self.failpoint, account, end).map_err(named)?;
            same(&again, &content).map_err(named)?;
        }
        self.go_on_with(found, (db, content.clone()), moment.event as u64)?;
        let Some(before) = before else { return Ok(()) };
        let survive = Survive::Seeded(self.seed ^ moment.event as u64);
        before.cut_before(1 + (self.seed / 4 + moment.event as u64) % 6, survive);
        drop(options(&before, self.failpoint).open(PATH).map_err(|e| Class::Refused.violation(e))?);
        let Some(lost) = before.found() else { return Ok(()) };
        *second += 1;
        let named = |what: Violation| format!("{SECOND_CUT}: {what}");
        let again = reopen(&lost, self.failpoint, account, End::Cut(survive));
        let (_, content_again) = again.map_err(named)?;
        same(&content_again, &content).map_err(named)
    }
}

/// A panic is a violation.
pub(crate) fn caught(check: impl FnOnce() -> Result<(), Violation>) -> Result<(), Violation> {
    let done = catch_unwind(AssertUnwindSafe(check));
    done.unwrap_or_else(|panic| Err(of_panic(&*panic, "in a check")))
}

pub(crate) fn same(got: &Content, want: &Content) -> Result<(), Violation> {
    got.differs_from(want).map_or(Ok(()), |what| Err(Class::Changed.violation(what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: operations counted as cut of which no moment was. Cause: they were counted before the
    /// cuts, for which there may be no time. Fix: they are counted afterwards, if there was one.
    #[test]
    fn an_operation_that_was_not_cut_does_not_count() {
        let tried = |until| {
            let (mut prepared, mut coverage) = (Prepared::default(), Coverage::default());
            Run::of(0, Limits { until, ..Limits::SHORT }).run(&mut prepared, &mut coverage);
            assert!(coverage.violations.is_empty(), "{:?}", coverage.violations);
            (coverage.cuts > 0, !coverage.operations.is_empty())
        };
        assert_eq!(tried(None), (true, true));
        assert_eq!(tried(Some(Instant::now())), (false, false));
    }
}
