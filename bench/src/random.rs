//! Seeded random numbers: splitmix64, so that a figure can be repeated anywhere.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, evenly enough for `n` far below 2⁶⁴.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The zipfian distribution of YCSB (constant 0.99), by the method of Gray et al., "Quickly
/// Generating Billion-Record Synthetic Databases" (1994): rank 0 is drawn most.
#[derive(Clone, Debug)]
pub(crate) struct Zipfian {
    items: u64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

const THETA: f64 = 0.99;

impl Zipfian {
    /// Over ranks below `items`. Linear in `items`.
    pub(crate) fn new(items: u64) -> Zipfian {
        let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-THETA)).sum::<f64>();
        let (zeta_n, n) = (zeta(items), items as f64);
        let eta = (1.0 - (2.0 / n).powf(1.0 - THETA)) / (1.0 - zeta(2) / zeta_n);
        Zipfian { items, alpha: 1.0 / (1.0 - THETA), zeta: zeta_n, eta }
    }

    /// How many ranks there are.
    pub(crate) fn items(&self) -> u64 {
        self.items
    }

    /// Draws a rank.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let u = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipfian_ranks_come_as_often_as_the_formula_says() {
        let (zipfian, mut random, draws) = (Zipfian::new(1000), Random::new(7), 400_000);
        let mut counts = [0u32; 1000];
        for _ in 0..draws {
            counts[zipfian.draw(&mut random) as usize] += 1;
        }
        for rank in [0usize, 1] {
            let expected = ((rank + 1) as f64).powf(-THETA) / zipfian.zeta * f64::from(draws);
            let got = f64::from(counts[rank]);
            assert!((got / expected - 1.0).abs() < 0.05, "rank {rank}: {got} for {expected}");
        }
        let head: u32 = counts[..100].iter().sum();
        let sum = |n: u32| (1..=n).map(|i| f64::from(i).powf(-THETA)).sum::<f64>();
        let expected = sum(100) / zipfian.zeta;
        let got = f64::from(head) / f64::from(draws);
        assert!((got / expected - 1.0).abs() < 0.05, "the first tenth: {got} for {expected}");
    }
}
