//! The schedule of a seed, with something that happens at one point of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use terrace::testing::schedule::{Point, PointKind, SchedulePolicy, SeededPolicy, SplitMix, Stays};

use super::ledger::Ledger;

/// A task stays in one of so many points at most where it alone is preempted at given points.
const LONGEST_STAY: u64 = 20_000;

/// So many preemptions are told one by one.
const FEW: usize = 60;

/// So often time leaps in a run while tasks can go on.
const LEAPS: [u64; 4] = [0, 0, 1, 4];

/// What happens at a point of the run, by its number.
pub(super) struct Planned {
    pub at: u64,
    pub act: Box<dyn FnOnce() + Send>,
}

/// Points at which a task went on in place of one that could have.
pub(super) type Preemptions = Arc<Mutex<Vec<u64>>>;

/// A policy of one seed.
pub(super) struct Chooser {
    policy: SeededPolicy,
    planned: Option<Planned>,
    ledger: Ledger,
    stays: Stays,
    /// Points at which time leaps.
    leaps: Vec<u64>,
    tick: Duration,
    made: Preemptions,
    /// At no other point a task is preempted.
    only: Option<BTreeSet<u64>>,
    stayed: u64,
}

impl Chooser {
    /// For runs of about `len` points.
    pub(super) fn new(
        (seed, len): (u64, u64),
        (planned, ledger): (Option<Planned>, Ledger),
        (stays, tick): (&Stays, Duration),
        only: Option<BTreeSet<u64>>,
    ) -> Chooser {
        let (policy, stays) = (SeededPolicy::new(seed, len), stays.clone());
        let mut chance = SplitMix::new(seed ^ 0x0001_EA95);
        let leaps = (0..chance.pick(&LEAPS)).map(|_| chance.below(len)).collect();
        let made = Preemptions::default();
        Chooser { policy, planned, ledger, stays, leaps, tick, made, only, stayed: 0 }
    }

    /// Where the preemptions of the run are noted.
    pub(super) fn made(&self) -> Preemptions {
        Arc::clone(&self.made)
    }
}

impl SchedulePolicy for Chooser {
    fn next(&mut self, current: usize, runnable: &[usize], point: &Point) -> usize {
        if let Some(planned) = self.planned.take_if(|planned| planned.at <= point.step) {
            (planned.act)();
        }
        if runnable == [current] {
            return current;
        }
        let policy = &mut self.policy;
        let choose = |moving: &[usize]| policy.next(current, moving, point);
        let next = self.stays.choose(current, runnable, point, choose);
        if next == current || !runnable.contains(&current) {
            self.stayed = 0;
            return next;
        }
        let may = |only: &BTreeSet<u64>| only.contains(&point.step);
        let is_free = point.kind == PointKind::Yield || self.stayed > LONGEST_STAY;
        if !is_free && self.only.as_ref().is_some_and(|only| !may(only)) {
            self.stayed += 1;
            return current;
        }
        self.stayed = 0;
        if point.kind != PointKind::Yield {
            if self.only.as_ref().is_some_and(|only| only.len() <= FEW) {
                let place = point.place;
                let what = format!("thread {current} stops at {place}, thread {next} goes on");
                self.ledger.note(what);
            }
            self.made.lock().unwrap_or_else(PoisonError::into_inner).push(point.step);
        }
        next
    }

    fn draw(&mut self, n: u64) -> u64 {
        self.policy.draw(n)
    }

    fn leaps(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.leaps)
    }

    fn tick(&self) -> Duration {
        self.tick
    }
}
