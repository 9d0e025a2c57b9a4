//! Latencies of one case in one round.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Lets the workers work for as long.
pub(crate) fn let_work(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        // May return early: a store can have woken this thread for reasons of its own.
        std::thread::park_timeout(left);
    }
}

/// A histogram of nanoseconds, three significant digits, up to a minute.
#[derive(Clone, Debug)]
pub(crate) struct Latency(Histogram<u64>);

impl Latency {
    /// An empty one.
    pub(crate) fn new() -> Latency {
        Latency(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are sound"))
    }

    /// Adds an operation.
    pub(crate) fn record(&mut self, took: Duration) {
        self.0.saturating_record(took.as_nanos() as u64);
    }

    /// Adds all of another one.
    pub(crate) fn add(&mut self, other: &Latency) {
        self.0.add(&other.0).expect("the bounds are the same");
    }

    /// The value that a share of operations does not exceed, in microseconds.
    pub(crate) fn micros(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }
}
