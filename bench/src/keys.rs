//! Which record an operation is about: the distributions of YCSB.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::random::{Random, Zipfian};

/// How operations choose among the records that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Distribution {
    /// A few are popular (constant 0.99), wherever they lie.
    Zipfian,
    /// Each as often as any other.
    Uniform,
    /// The newest are popular.
    Latest,
    /// Each of a tenth of the key range as often as any other: 90 % of it are distinct.
    Distinct90,
    /// Each of a hundredth of the key range as often as any other: 99 % of it are distinct.
    Distinct99,
}

/// Pieces that the part of the key range which is drawn from lies in, evenly spread: so what a
/// store merges has keys from end to end, and between them ranges that only one input has.
const PIECES: u64 = 16;

impl Distribution {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Distribution::Zipfian => "zipfian",
            Distribution::Uniform => "uniform",
            Distribution::Latest => "latest",
            Distribution::Distinct90 => "90 % distinct",
            Distribution::Distinct99 => "99 % distinct",
        }
    }

    /// One of how many parts of the key range it draws from, if not from all.
    fn part(self) -> Option<u64> {
        match self {
            Distribution::Distinct90 => Some(10),
            Distribution::Distinct99 => Some(100),
            _ => None,
        }
    }
}

/// Whether the key of record `n` lies in the first `part`-th of one of the pieces.
fn is_in(n: u64, part: u64) -> bool {
    let piece = u64::MAX / PIECES;
    (u64::from_be_bytes(key(n)) % piece) < piece / part
}

/// Draws records by their number.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    distribution: Distribution,
    zipfian: Zipfian,
    /// Those that are drawn, if not all of them are.
    drawn: Vec<u64>,
}

impl Records {
    /// Over the `loaded` ones, and with `Latest` those that come after. Linear in `loaded`.
    pub(crate) fn new(distribution: Distribution, loaded: u64) -> Records {
        let part = distribution.part();
        let drawn = part.map(|part| (0..loaded).filter(|n| is_in(*n, part)).collect());
        let drawn = drawn.unwrap_or_default();
        Records { distribution, zipfian: Zipfian::new(loaded), drawn }
    }

    /// How many were loaded.
    pub(crate) fn loaded(&self) -> u64 {
        self.zipfian.items()
    }

    /// Draws one of the `there` that are there by now.
    pub(crate) fn draw(&self, random: &mut Random, there: u64) -> u64 {
        match self.distribution {
            Distribution::Uniform => random.below(self.loaded()),
            Distribution::Latest => there - 1 - self.zipfian.draw(random),
            Distribution::Distinct90 | Distribution::Distinct99 => {
                self.drawn[random.below(self.drawn.len() as u64) as usize]
            }
            // Scrambled, as YCSB does: popular ones lie anywhere.
            Distribution::Zipfian => {
                Random::new(self.zipfian.draw(random) ^ 0x5bd1).next() % self.loaded()
            }
        }
    }
}

/// The key of the n-th record: scattered over the key space, as hashed keys are.
pub(crate) fn key(n: u64) -> [u8; 8] {
    Random::new(n).next().to_be_bytes()
}

/// Values that do not compress, without the price of making each.
#[derive(Debug)]
pub(crate) struct Values {
    bytes: Vec<u8>,
    len: usize,
}

impl Values {
    /// Values of `len` bytes.
    pub(crate) fn new(len: usize) -> Values {
        let mut random = Random::new(len as u64);
        let words = (0..((1 << 20) + len) / 8 + 1).flat_map(|_| random.next().to_le_bytes());
        Values { bytes: words.collect(), len }
    }

    /// One of a million.
    pub(crate) fn draw(&self, random: &mut Random) -> &[u8] {
        let at = random.below(1 << 20) as usize;
        &self.bytes[at..at + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADED: u64 = 1000;
    const DRAWS: u32 = 400_000;

    fn counts(distribution: Distribution, there: u64) -> Vec<u32> {
        let (records, mut random) = (Records::new(distribution, LOADED), Random::new(11));
        let mut counts = vec![0; there as usize];
        for _ in 0..DRAWS {
            counts[records.draw(&mut random, there) as usize] += 1;
        }
        counts
    }

    /// The share of rank `n`, from 1, of a zipfian distribution.
    fn share(n: u64) -> f64 {
        let weight = |n: u64| (n as f64).powf(-0.99);
        weight(n) / (1..=LOADED).map(weight).sum::<f64>()
    }

    #[test]
    fn uniform_draws_pass_a_chi_squared_test() {
        let expected = f64::from(DRAWS) / LOADED as f64;
        let counts = counts(Distribution::Uniform, LOADED);
        let square = |n: &u32| (f64::from(*n) - expected).powi(2) / expected;
        let sum: f64 = counts.iter().map(square).sum();
        // 999 degrees of freedom: mean 999, standard deviation 44.7; five of them.
        assert!((sum - 999.0).abs() < 5.0 * 44.7, "chi squared is {sum:.0}");
    }

    #[test]
    fn distinct_ranges_are_left_alone() {
        for (distribution, part) in
            [(Distribution::Distinct90, 10), (Distribution::Distinct99, 100)]
        {
            let loaded = 100_000;
            let (records, mut random) = (Records::new(distribution, loaded), Random::new(3));
            let mut drawn: Vec<u64> =
                (0..200_000).map(|_| records.draw(&mut random, loaded)).collect();
            drawn.sort_unstable();
            drawn.dedup();
            let expected = loaded as f64 / f64::from(part);
            let got = drawn.len() as f64;
            assert!((got / expected - 1.0).abs() < 0.1, "{got} records for {expected}");
            // One piece of the key range after the other, and nothing in between.
            let mut keys: Vec<u64> = drawn.iter().map(|n| u64::from_be_bytes(key(*n))).collect();
            keys.sort_unstable();
            let gap = u64::MAX / PIECES / 2;
            let gaps = keys.windows(2).filter(|pair| pair[1] - pair[0] > gap).count();
            assert_eq!(gaps as u64, PIECES - 1, "{distribution:?}");
        }
    }

    #[test]
    fn latest_draws_fall_with_age_as_the_formula_says() {
        let counts = counts(Distribution::Latest, LOADED + 50);
        assert!(counts[..50].iter().all(|n| *n == 0), "only so many back as were loaded");
        for age in [1, 2] {
            let got = f64::from(counts[counts.len() - age as usize]) / f64::from(DRAWS);
            let expected = share(age);
            assert!((got / expected - 1.0).abs() < 0.05, "age {age}: {got} for {expected}");
        }
    }

    #[test]
    fn zipfian_draws_are_as_skewed_as_the_formula_says_and_scattered() {
        let mut counts = counts(Distribution::Zipfian, LOADED);
        let popular: Vec<usize> = (0..counts.len()).filter(|n| counts[*n] > DRAWS / 100).collect();
        let near = popular.windows(2).filter(|pair| pair[1] - pair[0] == 1).count();
        assert!(popular.len() > 5 && near < popular.len() / 2, "popular: {popular:?}");
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // Two ranks may fall on one record, so a count can only be above its rank's.
        let first = f64::from(counts[0]) / f64::from(DRAWS);
        assert!((first / share(1) - 1.0).abs() < 0.15, "{first} for {}", share(1));
        let tenth: u32 = counts[..100].iter().sum();
        let expected: f64 = (1..=100).map(share).sum();
        let got = f64::from(tenth) / f64::from(DRAWS);
        assert!((got / expected - 1.0).abs() < 0.10, "the first tenth: {got} for {expected}");
    }
}
