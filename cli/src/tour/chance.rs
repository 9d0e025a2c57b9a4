//! Chance that a seed repeats.

/// The SplitMix64 generator: small, and good enough to choose records and moments.
pub(crate) struct Chance(u64);

impl Chance {
    /// The sequence that `seed` stands for.
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }
}
