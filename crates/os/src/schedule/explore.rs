//! Tests of one part in many schedules.

use super::policy::SeededPolicy;
use super::scheduler::{End, TaskScheduler};

/// Schedules of a test, and with `TERRACE_LONG`.
const SCHEDULES: u64 = 300;
const LONG: u64 = 3_000;

/// No schedule of such a test has more points.
const MOST_STEPS: u64 = 1_000_000;

/// Runs a test in many schedules, the same ones each time.
///
/// # Panics
///
/// When a schedule fails, of which the seed is named: a task panics, tasks wait for each other, or
/// until time ends a wait, or the test does not end.
pub fn explore(test: impl Fn() + Clone + Send + 'static) {
    let is_long = std::env::var_os("TERRACE_LONG").is_some();
    let mut len = 1000;
    for seed in 0..if is_long { LONG } else { SCHEDULES } {
        let scheduler = TaskScheduler::new(SeededPolicy::new(seed, len), MOST_STEPS, 0);
        let run = scheduler.run(test.clone());
        assert!(matches!(run.end, End::Done), "schedule {seed}: {:?}", run.end);
        assert!(run.panicked.is_empty(), "schedule {seed}: panics of {:?}", run.panicked);
        let waits = run.timed_out.iter().filter(|wait| wait.looked.is_none());
        let waits: Vec<_> = waits.collect();
        assert!(waits.is_empty(), "schedule {seed}: {waits:?}");
        len = run.steps;
    }
}
