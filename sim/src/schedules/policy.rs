//! The schedule of a seed, with something that happens at one point of it, and tasks that stand
//! still in the middle of an operation.

use std::collections::{BTreeSet, HashSet};
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace::testing::schedule::{Point, PointKind, SchedulePolicy, SeededPolicy};

use super::ledger::Ledger;
use crate::Chance;
use crate::machines::Kind;

/// A task that could go on stands still for so many points in a row at most: others may wait for it
/// in a loop.
const LONGEST_STAY: u64 = 20_000;

/// So many points of the others a task stands still.
const STALLS: [u64; 3] = [300, 3000, 20_000];

/// So many preemptions are told one by one.
const FEW: usize = 60;

/// So often threads stand still, beside callers.
const MOST_STALLS: u64 = 10;

/// A thread that is the first of its run at a place stands still there, in so many of a hundred.
/// Each run has one of these.
const FIRST: [u64; 3] = [2, 5, 15];

/// What happens at a point of the run, by its number.
pub(super) struct Planned {
    pub at: u64,
    pub act: Box<dyn FnOnce() + Send>,
}

/// Which tasks stand still, and when. A slip in the middle of a call shows where its thread stops
/// there, and others do whole calls meanwhile. By chance alone that is rare.
///
/// Clones are the same. Its mutex is no point of the scheduler.
#[derive(Clone, Default)]
pub(super) struct Stalls(Arc<Mutex<Stalled>>);

#[derive(Default)]
struct Stalled {
    /// By task. Empty while none stands still, or will.
    all: Vec<Stall>,
    /// At these points of the run the task that passes stands still: the last one comes first.
    at: Vec<u64>,
    /// Places that a task has stood at, and what the choice follows from: at the first time it may
    /// stand still there. `None` where it does not. Places of what a run seldom does are a small
    /// part of its points, and a large one of its places.
    places: Option<(HashSet<&'static Location<'static>>, u64, Chance)>,
    /// A task that goes on alone while it can, and for how many points at most.
    alone: Option<(usize, u64)>,
}

/// Of one task.
#[derive(Clone, Copy, Default)]
struct Stall {
    /// It passes so many points more, and stands still then.
    after: u64,
    /// For so many points of the others. 0 for never.
    points: u64,
}

impl Stalls {
    fn stalled(&self) -> MutexGuard<'_, Stalled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Any thread may stand still too, at some points of a run of about `len` points.
    pub(super) fn draw(&self, len: u64, chance: &mut Chance) {
        let mut at: Vec<u64> = (0..MOST_STALLS).map(|_| chance.below(len)).collect();
        at.sort_unstable_by(|one, other| other.cmp(one));
        self.stalled().at = at;
    }

    /// In some runs any thread may stand still too, where none has been before.
    pub(super) fn draw_places(&self, kind: Kind, seed: u64) {
        if kind != Kind::Shared && seed / 7 % 3 == 2 {
            let mut chance = Chance::new(seed ^ 0x0091_ACE5);
            let percent = *chance.pick(&FIRST);
            self.stalled().places = Some((HashSet::new(), percent, chance));
        }
    }

    /// The others stand still while this task can go on.
    pub(super) fn go_alone(&self, task: usize) {
        self.stalled().alone = Some((task, LONGEST_STAY));
    }

    /// They go on.
    pub(super) fn go_together(&self) {
        self.stalled().alone = None;
    }

    /// The task begins an operation, in which it may stand still: at one of the first points more
    /// often than at a late one.
    pub(super) fn begin(&self, task: usize, chance: &mut Chance) {
        let after = 1 << chance.below(11);
        let stall = Stall { after: after + chance.below(after), points: *chance.pick(&STALLS) };
        self.set(task, stall);
    }

    /// Its operation has ended.
    pub(super) fn end(&self, task: usize) {
        self.set(task, Stall::default());
    }

    fn set(&self, task: usize, stall: Stall) {
        let all = &mut self.stalled().all;
        if all.len() <= task {
            all.resize(task + 1, Stall::default());
        }
        all[task] = stall;
        if all.iter().all(|stall| stall.points == 0) {
            all.clear();
        }
    }

    /// For how many points of the others a task stands still at a place.
    fn stay_at(&self, place: &'static Location<'static>) -> Option<u64> {
        let mut stalled = self.stalled();
        let (places, percent, chance) = stalled.places.as_mut()?;
        let stays = places.insert(place) && chance.percent(*percent);
        stays.then(|| *chance.pick(&STALLS))
    }

    /// `current` has passed a point. Those of `runnable` that do not stand still, if that is a part
    /// of them.
    fn moving(&self, current: usize, runnable: &[usize], point: &Point) -> Option<Vec<usize>> {
        if self.stalled().at.pop_if(|at| *at <= point.step).is_some() {
            self.set(current, Stall { after: 0, points: STALLS[1] });
        }
        if let Some(points) = self.stay_at(point.place) {
            self.set(current, Stall { after: 0, points });
        }
        let mut stalled = self.stalled();
        if let Some((task, points)) = stalled.alone.as_mut()
            && *points > 0
            && runnable.contains(task)
        {
            *points -= 1;
            return Some(vec![*task]);
        }
        if stalled.all.is_empty() {
            return None;
        }
        for (task, stall) in stalled.all.iter_mut().enumerate() {
            match (task == current, stall.after) {
                (true, 1..) => stall.after -= 1,
                (false, 0) => stall.points = stall.points.saturating_sub(1),
                _ => {}
            }
        }
        let stands = |task: &usize| {
            stalled.all.get(*task).is_some_and(|stall| stall.after == 0 && stall.points > 0)
        };
        let moving: Vec<usize> = runnable.iter().copied().filter(|task| !stands(task)).collect();
        (!moving.is_empty() && moving.len() < runnable.len()).then_some(moving)
    }
}

/// Points at which a task went on in place of one that could have.
pub(super) type Preemptions = Arc<Mutex<Vec<u64>>>;

/// A policy of one seed.
pub(super) struct Chooser {
    policy: SeededPolicy,
    planned: Option<Planned>,
    ledger: Ledger,
    stalls: Stalls,
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
        stalls: &Stalls,
        only: Option<BTreeSet<u64>>,
    ) -> Chooser {
        let (policy, stalls) = (SeededPolicy::new(seed, len), stalls.clone());
        Chooser { policy, planned, ledger, stalls, made: Preemptions::default(), only, stayed: 0 }
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
        let moving = self.stalls.moving(current, runnable, point);
        let next = self.policy.next(current, moving.as_deref().unwrap_or(runnable), point);
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
}
