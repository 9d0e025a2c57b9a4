//! In how many runs each pair of operations has overlapped, and which seed comes next for that.

use std::collections::BTreeMap;

use super::ledger::Pair;
use super::operations::Operation;

/// Counts of a campaign that begins with some seed.
#[derive(Debug)]
pub struct Overlaps {
    first: u64,
    /// By the numbers of the operations: in how many runs they have overlapped, and how many seeds
    /// were run that have more of both.
    pairs: BTreeMap<(u64, u64), (u64, u64)>,
}

impl Overlaps {
    /// Nothing was run. No seed is less than `first`.
    pub fn from(first: u64) -> Overlaps {
        let n = Operation::all().count() as u64;
        let pairs = (0..n).flat_map(|one| (one..n).map(move |other| ((one, other), (0, 0))));
        Overlaps { first, pairs: pairs.collect() }
    }

    /// A seed that has more of the two that have overlapped least.
    pub fn next_seed(&mut self) -> u64 {
        let n = Operation::all().count() as u64;
        let least = self.pairs.iter_mut().min_by_key(|(_, (overlapped, run))| overlapped + run);
        let (&(one, other), (_, run)) = least.expect("invariant: there is an operation");
        let round = self.first.next_multiple_of(n * n) + *run * n * n;
        *run += 1;
        round + one + other * n
    }

    /// These have overlapped in a run.
    pub fn add<'a>(&mut self, pairs: impl Iterator<Item = &'a Pair>) {
        let number = |name: &str| Operation::all().position(|operation| operation.name == name);
        for (one, other) in pairs {
            let (Some(one), Some(other)) = (number(one), number(other)) else { continue };
            let pair = (one.min(other) as u64, one.max(other) as u64);
            self.pairs.entry(pair).or_default().0 += 1;
        }
    }

    /// The pairs that have overlapped in fewer runs, and in how many.
    pub fn seldom(&self, runs: u64) -> Vec<(Pair, u64)> {
        let all: Vec<&str> = Operation::all().map(|operation| operation.name).collect();
        let name = |number: u64| all[number as usize];
        let seldom = self.pairs.iter().filter(|(_, (overlapped, _))| *overlapped < runs);
        seldom.map(|((one, other), (n, _))| ((name(*one), name(*other)), *n)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_its_turn_and_no_seed_comes_twice() {
        let mut overlaps = Overlaps::from(1000);
        let pairs = overlaps.seldom(1).len() as u64;
        let mut seeds: Vec<u64> = (0..3 * pairs).map(|_| overlaps.next_seed()).collect();
        let seen = seeds.iter().map(|seed| Operation::pair_of(*seed).map(|one| one.name));
        let mut seen: Vec<_> = seen.collect();
        assert!(seeds.iter().all(|seed| *seed >= 1000));
        seeds.sort_unstable();
        seeds.dedup();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((seeds.len() as u64, seen.len() as u64), (3 * pairs, pairs));
        overlaps.add([("put", "get"), ("get", "get")].iter());
        assert_eq!(overlaps.seldom(1).len() as u64, pairs - 2);
    }
}
