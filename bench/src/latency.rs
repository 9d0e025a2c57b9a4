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

    /// How many operations there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// All that it holds: nanoseconds, and how many operations took as long.
    pub(crate) fn buckets(&self) -> Vec<(u64, u64)> {
        let recorded = self.0.iter_recorded();
        recorded.map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
    }

    /// The histogram that `buckets` came from.
    pub(crate) fn of_buckets(buckets: &[(u64, u64)]) -> Latency {
        let mut latency = Latency::new();
        buckets.iter().for_each(|(nanos, count)| latency.0.saturating_record_n(*nanos, *count));
        latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_its_buckets() {
        let mut latency = Latency::new();
        for n in 1..10_000u64 {
            latency.record(Duration::from_nanos(n * n));
        }
        let copy = Latency::of_buckets(&latency.buckets());
        assert_eq!(copy.count(), 9_999);
        for quantile in [0.1, 0.5, 0.99, 0.999, 1.0] {
            let (was, is) = (latency.micros(quantile), copy.micros(quantile));
            assert!((was - is).abs() < 1e-9, "at {quantile}: {was} became {is}");
        }
    }
}
