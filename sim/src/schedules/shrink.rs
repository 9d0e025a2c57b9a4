//! Makes a schedule that fails smaller: fewer events, callers, operations and preemptions.

use std::time::Instant;

use super::plan::Schedule;

/// So many orders of the threads are tried for a schedule with fewer operations: with those that
/// were removed the points went at which it failed.
const ORDERS: u64 = 24;

/// What tells whether a schedule fails as the first one did, and then at which points threads were
/// preempted.
pub type Fails<'a> = &'a mut dyn FnMut(&Schedule) -> Option<Vec<Vec<u64>>>;

/// The smallest schedule found by then that fails.
pub fn shrink(schedule: &Schedule, until: Instant, fails: Fails<'_>) -> Schedule {
    let mut shrinking = Shrinking { smallest: schedule.clone(), until, fails };
    shrinking.without_events();
    shrinking.with_fewer_operations();
    shrinking.with_fewer_preemptions();
    shrinking.smallest
}

struct Shrinking<'a> {
    smallest: Schedule,
    until: Instant,
    fails: Fails<'a>,
}

impl Shrinking<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Takes it if it fails, in some order.
    fn take(&mut self, smaller: &Schedule) -> bool {
        for order in [smaller.order].into_iter().chain(0..ORDERS) {
            if self.is_over() {
                return false;
            }
            let tried = Schedule { order, ..smaller.clone() };
            if (self.fails)(&tried).is_some() {
                self.smallest = tried;
                return true;
            }
        }
        false
    }

    fn without_events(&mut self) {
        let smaller = Schedule { events: false, ..self.smallest.clone() };
        self.take(&smaller);
    }

    fn with_fewer_operations(&mut self) {
        for caller in 0..self.smallest.callers.len() {
            let mut smaller = self.smallest.clone();
            smaller.callers[caller].clear();
            if self.take(&smaller) {
                continue;
            }
            let mut len = self.smallest.callers[caller].len() / 2;
            while len > 0 {
                let mut at = 0;
                while at < self.smallest.callers[caller].len() {
                    let mut smaller = self.smallest.clone();
                    let end = (at + len).min(smaller.callers[caller].len());
                    smaller.callers[caller].drain(at..end);
                    if !self.take(&smaller) {
                        at += len;
                    }
                }
                len /= 2;
            }
        }
    }

    /// Those of each life are halved, then quartered, and so on.
    fn with_fewer_preemptions(&mut self) {
        let Some(made) = (self.fails)(&self.smallest) else { return };
        self.smallest.preemptions = Some(made);
        let lives = self.smallest.preemptions.as_ref().map_or(0, Vec::len);
        for life in 0..lives {
            let of = |schedule: &Schedule| {
                schedule.preemptions.as_ref().and_then(|all| all.get(life)).map_or(0, Vec::len)
            };
            let mut len = of(&self.smallest);
            while len > 0 {
                let mut at = 0;
                while at < of(&self.smallest) {
                    if self.is_over() {
                        return;
                    }
                    let mut smaller = self.smallest.clone();
                    let points = smaller.preemptions.iter_mut().flatten().nth(life);
                    points.into_iter().for_each(|points| {
                        let end = (at + len).min(points.len());
                        points.drain(at..end);
                    });
                    if (self.fails)(&smaller).is_some() {
                        self.smallest = smaller;
                    } else {
                        at += len;
                    }
                }
                len /= 2;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_failure_does_not_need_goes() {
        let schedule = Schedule::of(3);
        let wanted = schedule.callers[1][2].clone();
        // It needs one operation, an order of its own, and two preemptions.
        let mut fails = |tried: &Schedule| {
            let has = tried.callers.iter().flatten().any(|step| *step == wanted);
            let made = tried.preemptions.clone().unwrap_or_else(|| vec![(0..100).collect()]);
            let is_preempted = [40, 71].iter().all(|at| made[0].contains(at));
            let is_ordered = tried.order % 7 == 3;
            (has && is_preempted && is_ordered).then_some(made)
        };
        let until = Instant::now() + Duration::from_mins(1);
        let small = shrink(&schedule, until, &mut fails);
        assert_eq!((small.operations(), small.events), (1, false));
        assert_eq!(small.preemptions, Some(vec![vec![40, 71]]));
        let again = Schedule::read(&small.written()).unwrap();
        assert_eq!((&again.callers, again.order), (&small.callers, small.order));
        assert!(Schedule::read(&small.written().replace(&wanted.operation, "x")).is_err());
    }
}
