//! Tasks that stand still for a while. A slip in the middle of a call shows where its thread stops
//! there, and others do whole calls meanwhile. By chance alone that is rare.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chance::SplitMix;
use super::scheduler::{Point, PointKind};

/// A task that could go on stands still for so many points in a row at most: others may wait for it
/// in a loop.
const LONGEST: u64 = 20_000;

/// For so many points of the others a task stands still.
const LENGTHS: [u64; 4] = [300, 3000, LONGEST, LONGEST];

/// So often a task of a run stands still at most that was not told to.
const MOST: u64 = 40;

/// Which tasks of a run stand still, and when.
///
/// Thread safety: clones are the same. The mutex is no point of the scheduler.
#[derive(Clone, Default)]
pub struct Stays(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    /// By task. Empty while none stands still, or will.
    of_tasks: Vec<Stay>,
    /// At these points of the run the task that passes stands still: the last one comes first.
    at: Vec<u64>,
    places: Option<AtPlaces>,
    /// A task that goes on alone while it can, and for how many points at most.
    alone: Option<(usize, u64)>,
    /// Those that can go on, and do not stand still.
    moving: Vec<usize>,
}

/// Of one task.
#[derive(Clone, Copy, Default)]
struct Stay {
    /// It passes so many points more, and stands still then.
    after: u64,
    /// For so many points of the others. 0 for never.
    points: u64,
}

/// Stays that are drawn by the place. Places of what a run seldom does are a small part of its
/// points, and a large one of its places. So a place counts the first time, the second, the fourth
/// and so on.
struct AtPlaces {
    chance: SplitMix,
    /// So many of a thousand times.
    share: u64,
    /// Where a lock is taken alone.
    at_locks: bool,
    left: u64,
}

impl AtPlaces {
    fn stay(&mut self, point: &Point) -> Option<Stay> {
        if !point.visits.is_power_of_two() || self.left == 0 {
            return None;
        }
        // Between a look and the lock that it should have had, a thread takes that lock.
        let counts = point.kind == PointKind::Lock || !self.at_locks;
        if !counts || self.chance.below(1000) >= self.share {
            return None;
        }
        self.left -= 1;
        Some(Stay { after: 0, points: self.chance.pick(&LENGTHS) })
    }
}

impl All {
    fn set(&mut self, task: usize, stay: Stay) {
        if self.of_tasks.len() <= task {
            self.of_tasks.resize(task + 1, Stay::default());
        }
        self.of_tasks[task] = stay;
        if self.of_tasks.iter().all(|stay| stay.points == 0) {
            self.of_tasks.clear();
        }
    }

    fn may_begin(&mut self, current: usize, point: &Point) {
        if self.at.pop_if(|at| *at <= point.step).is_some() {
            self.set(current, Stay { after: 0, points: LENGTHS[1] });
        }
        if let Some(stay) = self.places.as_mut().and_then(|places| places.stay(point)) {
            self.set(current, stay);
        }
    }

    /// Counts a point that `current` has passed.
    fn count(&mut self, current: usize) {
        for (task, stay) in self.of_tasks.iter_mut().enumerate() {
            match (task == current, stay.after) {
                (true, 1..) => stay.after -= 1,
                (false, 0) => stay.points = stay.points.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Those of `runnable` that do not stand still, or all of them.
    fn moving<'a>(&'a mut self, current: usize, runnable: &'a [usize]) -> &'a [usize] {
        self.moving.clear();
        if let Some((task, points)) = self.alone.as_mut()
            && *points > 0
            && runnable.contains(task)
        {
            *points -= 1;
            self.moving.push(*task);
            return &self.moving;
        }
        if self.of_tasks.is_empty() {
            return runnable;
        }
        self.count(current);
        let stands = |task: usize| {
            self.of_tasks.get(task).is_some_and(|stay| stay.after == 0 && stay.points > 0)
        };
        self.moving.extend(runnable.iter().copied().filter(|task| !stands(*task)));
        if self.moving.is_empty() { runnable } else { &self.moving }
    }
}

impl Stays {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Any task may stand still too, at so many points of a run of about `len` points.
    pub fn at_points(&self, n: u64, len: u64, chance: &mut SplitMix) {
        let mut at: Vec<u64> = (0..n).map(|_| chance.below(len)).collect();
        at.sort_unstable_by(|one, other| other.cmp(one));
        self.all().at = at;
    }

    /// Any task may stand still too where few have been before, in so many of a thousand cases;
    /// or where a lock is taken alone.
    pub fn at_places(&self, (share, at_locks): (u64, bool), seed: u64) {
        let places = AtPlaces { chance: SplitMix::new(seed), share, at_locks, left: MOST };
        self.all().places = (share > 0).then_some(places);
    }

    /// The others stand still while this task can go on.
    pub fn go_alone(&self, task: usize) {
        self.all().alone = Some((task, LONGEST));
    }

    /// They go on.
    pub fn go_together(&self) {
        self.all().alone = None;
    }

    /// The task begins a call, in which it may stand still: at one of the first points more often
    /// than at a late one.
    pub fn begin(&self, task: usize, chance: &mut SplitMix) {
        let after = 1 << chance.below(11);
        let stay = Stay { after: after + chance.below(after), points: chance.pick(&LENGTHS) };
        self.all().set(task, stay);
    }

    /// Its call has ended.
    pub fn end(&self, task: usize) {
        self.all().set(task, Stay::default());
    }

    /// Has `choose` choose among those of `runnable` that do not stand still, or among all of them.
    pub fn choose<T>(
        &self,
        current: usize,
        runnable: &[usize],
        point: &Point,
        choose: impl FnOnce(&[usize]) -> T,
    ) -> T {
        let mut all = self.all();
        all.may_begin(current, point);
        choose(all.moving(current, runnable))
    }
}
