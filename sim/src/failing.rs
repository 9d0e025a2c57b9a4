//! Lives in which calls fail: an operation of the engine is under way when some call of some file
//! fails, and work goes on. Every image that a cut leaves from then on is opened and held against
//! the account. Then the process is killed or the power is cut, the opening meets faults itself,
//! and the next life begins with what is found.

mod creation;

use std::collections::BTreeMap;

use terrace::ErrorKind;
use terrace::testing::{Call, CallSite, Fault, Faulty, FileKind, Machine, Reason, Survive};

use crate::chance::Chance;
use crate::content::{Content, Effect, read_all};
use crate::coverage::{Before, Coverage};
use crate::cuts::{Account, End, PATH, Rig, copy, options, reopen};
use crate::disturbed::{Disturbed, has_failed};
use crate::run::{Prepared, Run, caught, same};
use crate::scenario::Scenario;
use crate::violation::{Class, Violation};
use crate::workload::{Action, Taste};

/// How many lives follow on the first one.
const LIVES: u64 = 3;

/// How often each call was made.
type Calls = BTreeMap<CallSite, u64>;

/// One run of several lives.
pub(crate) struct Failing<'a> {
    pub(crate) run: &'a Run,
    pub(crate) coverage: &'a mut Coverage,
    chance: Chance,
    /// A call of a backup set is to fail: there has to be one.
    wants_backups: bool,
}

impl Failing<'_> {
    pub(crate) fn of<'a>(run: &'a Run, coverage: &'a mut Coverage) -> Failing<'a> {
        let chance = Chance::new(run.seed ^ 0xFA17);
        Failing { run, coverage, chance, wants_backups: false }
    }

    /// Runs it.
    pub(crate) fn run(&mut self, prepared: &mut Prepared) -> Result<(), Violation> {
        self.coverage.faults.seeds += 1;
        self.create().map_err(|what| self.named("the creation", &what))?;
        let calls = self.calls_of(prepared);
        let mut rig = self.run.rig(prepared);
        self.run.scenario.prepare(&mut rig);
        rig.disturb();
        self.plan(&rig.machine, &calls);
        let scenario = self.run.scenario;
        self.live(&mut rig, |this, rig| {
            scenario.act(rig);
            this.work_on(rig);
        })?;
        for _ in 0..LIVES {
            if self.run.is_over() {
                break;
            }
            if self.chance.percent(30) {
                self.restore(&rig).map_err(|what| self.named("a restore", &what))?;
            }
            self.end_and_come_up(&mut rig)?;
            self.plan(&rig.machine, &calls);
            if self.chance.percent(30) {
                self.plan(&rig.machine, &calls);
            }
            self.live(&mut rig, Failing::work_on)?;
        }
        Ok(())
    }

    fn named(&self, life: &str, what: &str) -> Violation {
        let Run { seed, kind, scenario, .. } = self.run;
        format!(
            "{life}: {what}\n  {scenario:?} on {kind:?}; again: cargo run --release -p terrace-sim \
             -- --faults --seed {seed}"
        )
    }

    /// With what was done and told in the life that it is found after.
    fn told(rig: &Rig, what: &str) -> Violation {
        let told = rig.disturbed().map_or(String::new(), Disturbed::told);
        let failed = rig.machine.failed_calls();
        let failed: Vec<String> = failed.iter().map(|(site, n)| format!("{site} ({n})")).collect();
        format!("{what}\n  calls that failed: {}\n  in turn:\n    {told}", failed.join(", "))
    }

    /// The calls of the operation under test, and of backups after it, when none fails.
    fn calls_of(&self, prepared: &mut Prepared) -> Calls {
        let mut rig = self.run.rig(prepared);
        self.run.scenario.prepare(&mut rig);
        let before = rig.machine.calls();
        self.run.scenario.act(&mut rig);
        rig.open_again();
        rig.back_up();
        rig.back_up();
        rig.delete_backup();
        let mut calls = rig.machine.calls();
        calls.retain(|site, n| {
            *n -= before.get(site).unwrap_or(&0);
            *n > 0
        });
        for site in creation::UNDOING {
            calls.entry(site).or_insert(1);
        }
        calls
    }

    /// Plans a fault of one of `calls`.
    fn plan(&mut self, machine: &Machine, calls: &Calls) {
        let (of_sets, others): (Vec<CallSite>, Vec<CallSite>) =
            calls.keys().copied().partition(|site| is_of_set(site.file));
        let chance = &mut self.chance;
        // A set has as many calls as a database, and is less.
        let in_set = others.is_empty() || !of_sets.is_empty() && chance.percent(20);
        let (requests, of_files): (Vec<CallSite>, Vec<CallSite>) =
            others.iter().copied().partition(|site| site.call.is_request());
        // There are few requests beside many calls of files.
        let in_store = !requests.is_empty() && (of_files.is_empty() || chance.percent(50));
        let sites = match (in_set, in_store) {
            (true, _) => of_sets,
            (_, true) => requests,
            _ => of_files,
        };
        if sites.is_empty() {
            return;
        }
        self.wants_backups |= in_set;
        let site = *chance.pick(&sites);
        let takes_space = !matches!(site.call, Call::Open | Call::Read | Call::List | Call::Remove);
        let reason = match chance.percent(30) {
            true if site.call.is_request() => Reason::Busy,
            true if takes_space => Reason::NoSpace,
            _ => Reason::Io,
        };
        machine.fail(Fault {
            of: Faulty::Site(site),
            nth: 1 + chance.below(calls[&site]),
            outcome: *chance.pick(site.call.outcomes()),
            reason,
            for_good: chance.percent(30),
        });
    }

    /// Does `act` while it is recorded, and opens every image that a cut leaves after a failure.
    fn live(
        &mut self,
        rig: &mut Rig,
        act: impl FnOnce(&mut Self, &mut Rig),
    ) -> Result<(), Violation> {
        let before = Before::of(&rig.db);
        rig.record();
        act(self, rig);
        let recording = rig.recorded();
        before.count(&rig.db, &rig.written, self.coverage);
        self.coverage.faults.count(&rig.machine);
        if let Some(disturbed) = rig.disturbed() {
            self.coverage.faults.errors += disturbed.errors;
            disturbed.verdict().map_err(|what| Self::told(rig, &self.named("a call", &what)))?;
        }
        let (run, mut second) = (self.run, 0);
        let explorer = run.explorer().after_failure();
        let explored = explorer.explore(&recording.trace, |found, moment| {
            caught(|| {
                found.mend();
                run.check(found, &recording.account(moment), moment, &mut second)
            })
        });
        self.coverage.second_cuts += second;
        let named = |violation: Box<terrace::testing::Violation>| {
            Self::told(rig, &self.named("a cut", &violation.to_string()))
        };
        let explored = explored.map_err(named)?;
        self.coverage.faults.explored(&explored);
        self.coverage.faults.openings += explored.checked + second;
        Ok(())
    }

    /// Whatever else a database does.
    fn work_on(&mut self, rig: &mut Rig) {
        let value = *self.chance.pick(&[300, 6000, 25_000]);
        let taste =
            Taste { relaxed: 50, tables: 8, steps: 30, value, keys: 120, ranges: 2, syncs: 0 };
        let mends_at = self.chance.below(30);
        rig.open_again();
        if std::mem::take(&mut self.wants_backups) {
            rig.back_up();
            rig.act(&taste);
            rig.back_up();
            rig.delete_backup();
        }
        for n in 0..4 + self.chance.below(16) {
            if !rig.goes_on() {
                break;
            }
            if n == mends_at {
                rig.mend();
            }
            match self.chance.below(20) {
                0 => rig.grow(256 << 10),
                1 => rig.back_up(),
                2 => rig.delete_backup(),
                3 => rig.perform(&Action::Table(self.prepared(rig))),
                4 => rig.steps(30),
                5 => rig.read(),
                6 | 7 if rig.has_store() => rig.compact("a"),
                8 if rig.has_store() => rig.collect_objects(),
                9 if rig.has_store() => rig.change_tier("a"),
                _ => rig.act(&taste),
            }
        }
    }

    /// Prepares a transaction, or gives one its verdict.
    fn prepared(&mut self, rig: &Rig) -> Effect {
        let n = 10 + self.chance.below(3);
        let is_open = rig.content.1.contains(&crate::content::prepared_name(n));
        match (is_open, self.chance.percent(50)) {
            (false, _) => Effect::Prepare(n),
            (true, true) => Effect::Commit(n),
            (true, false) => Effect::RollBack(n),
        }
    }

    /// The process is killed, or the power is cut; the database comes up again, perhaps after
    /// openings that fail.
    fn end_and_come_up(&mut self, rig: &mut Rig) -> Result<(), Violation> {
        let mut end = self.end(rig);
        let mut machine = after(&rig.machine, end);
        let account = rig.account();
        let unfaulted = copy(&machine);
        let checked = reopen(&unfaulted, self.run.failpoint, &account, end);
        drop(checked.map_err(|what| Self::told(rig, &self.named("an opening", &what)))?);
        let calls = unfaulted.calls();
        for _ in 0..self.chance.below(4) {
            self.plan(&machine, &calls);
            let opened = options(&machine, self.run.failpoint).open(PATH);
            self.coverage.faults.count(&machine);
            let Err(error) = opened else {
                // It went well after all, and what it found is durable from here on.
                machine = machine.kill();
                continue;
            };
            let is_right = matches!(error.kind(), ErrorKind::Full | ErrorKind::Unavailable);
            if !is_right || !has_failed(&machine) {
                let what = Class::WrongError.violation(&error);
                return Err(self.named("an opening with faults", &what));
            }
            self.coverage.faults.failed_openings += 1;
            let next = self.end(rig);
            machine = after(&machine, next);
            if matches!(next, End::Cut(_)) {
                end = next;
            }
        }
        let up = self.come_up(&machine, &account, end);
        let (db, content) = up.map_err(|what| Self::told(rig, &what))?;
        self.coverage.faults.lives += 1;
        self.coverage.faults.openings += 3;
        rig.live_on((machine, db, content), end);
        Ok(())
    }

    fn end(&mut self, rig: &mut Rig) -> End {
        if self.chance.percent(60) { End::Kill } else { End::Cut(rig.survive()) }
    }

    /// An opening without faults; what it finds is durable.
    fn come_up(
        &self,
        machine: &Machine,
        account: &Account,
        end: End,
    ) -> Result<(terrace::Database, Content), Violation> {
        machine.mend();
        let named = |what: Violation| self.named("an opening after others", &what);
        let (db, content) = reopen(machine, self.run.failpoint, account, end).map_err(named)?;
        for cut in [Survive::Seeded(self.run.seed), Survive::Nothing] {
            let cut = machine.crash(cut);
            let opened = options(&cut, self.run.failpoint).open(PATH);
            let found = opened.and_then(|db| read_all(&db));
            let found =
                found.map_err(|e| self.named("a cut after it", &Class::Refused.violation(e)))?;
            same(&found, &content).map_err(|what| self.named("a cut after it", &what))?;
        }
        Ok((db, content))
    }
}

fn is_of_set(file: FileKind) -> bool {
    use FileKind::{Manifest, NewManifest, SetDirectory, SetExtents};
    matches!(file, Manifest | NewManifest | SetDirectory | SetExtents)
}

/// The machine as it comes up after an end.
fn after(machine: &Machine, end: End) -> Machine {
    match end {
        End::Cut(survive) => machine.crash(survive),
        End::Kill => machine.kill(),
    }
}

/// A scenario whose operation can be disturbed.
pub(crate) fn disturbed(scenario: Scenario) -> Scenario {
    match scenario {
        Scenario::Recovery | Scenario::Joining => Scenario::Mixed,
        scenario => scenario,
    }
}
