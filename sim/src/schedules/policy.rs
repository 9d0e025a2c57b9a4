//! The schedule of a seed, with something that happens at one point of it.

use terrace::testing::schedule::{Point, SchedulePolicy, SeededPolicy};

/// What happens at a point of the run, by its number.
pub(super) struct Planned {
    pub at: u64,
    pub act: Box<dyn FnOnce() + Send>,
}

/// A policy of one seed.
pub(super) struct Chooser {
    policy: SeededPolicy,
    planned: Option<Planned>,
}

impl Chooser {
    /// For runs of about `len` points.
    pub(super) fn new(seed: u64, len: u64, planned: Option<Planned>) -> Chooser {
        Chooser { policy: SeededPolicy::new(seed, len), planned }
    }
}

impl SchedulePolicy for Chooser {
    fn next(&mut self, current: usize, runnable: &[usize], point: &Point) -> usize {
        if let Some(planned) = self.planned.take_if(|planned| planned.at <= point.step) {
            (planned.act)();
        }
        self.policy.next(current, runnable, point)
    }

    fn draw(&mut self, n: u64) -> u64 {
        self.policy.draw(n)
    }
}
