//! What runs were that found nothing.

use std::collections::{BTreeMap, HashMap};
use std::panic::Location;

use super::ledger::Pair;
use super::operations::Operation;

/// What runs were that found nothing.
#[derive(Debug, Default)]
pub struct Report {
    pub cuts: u64,
    /// In how many a call failed.
    pub failures: u64,
    pub points: u64,
    pub switches: u64,
    /// Equal for equal runs in an equal order.
    pub hash: u64,
    pub done: BTreeMap<&'static str, u64>,
    /// In how many runs two operations have overlapped.
    pub pairs: BTreeMap<Pair, u64>,
    /// For each place how often a task stood there, and how often another went on from there.
    pub covered: HashMap<&'static Location<'static>, (u64, u64)>,
}

impl Report {
    /// What many runs must have and these have not: cuts, failed calls, or an operation that has
    /// ended well.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let counts = [("a cut", self.cuts), ("a call that fails", self.failures)];
        let done = |operation: &Operation| {
            (operation.name, self.done.get(operation.name).copied().unwrap_or(0))
        };
        let all = counts.into_iter().chain(Operation::all().map(done));
        all.filter(|(_, n)| *n == 0).map(|(what, _)| what).collect()
    }

    /// Adds what a later run was.
    pub fn add(&mut self, later: Report) {
        self.cuts += later.cuts;
        self.failures += later.failures;
        self.points += later.points;
        self.switches += later.switches;
        self.hash = self.hash.rotate_left(1) ^ later.hash;
        for (operation, n) in later.done {
            *self.done.entry(operation).or_default() += n;
        }
        for (pair, n) in later.pairs {
            *self.pairs.entry(pair).or_default() += n;
        }
        for (place, (stood, switched)) in later.covered {
            let sum = self.covered.entry(place).or_default();
            *sum = (sum.0 + stood, sum.1 + switched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: a thousand schedules without a cut, a failed call or some operation found nothing, and
    /// that was a success. Cause: what they had done was printed alone. Fix: they fail.
    #[test]
    fn schedules_that_look_for_nothing_are_no_success() {
        let done = Operation::all().map(|operation| (operation.name, 1)).collect();
        let mut report = Report { cuts: 1, failures: 1, done, ..Report::default() };
        assert!(report.missing().is_empty());
        report.done.insert("put", 0);
        report.done.remove("pop");
        report.failures = 0;
        assert_eq!(report.missing(), ["a call that fails", "put", "pop"]);
    }
}
