//! What survives a power cut, and what chooses it.

use terrace_os::schedule::SplitMix;

/// What survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survive {
    /// Only what was synced.
    Nothing,
    /// Everything that was written.
    Everything,
    /// A pseudo-random choice that depends on nothing but this seed and the operations so far.
    Seeded(u64),
}

/// Chooses for [`Survive`].
#[derive(Debug)]
pub enum Fate {
    /// As [`Survive::Nothing`].
    Nothing,
    /// As [`Survive::Everything`].
    Everything,
    /// Of each sector or line any of its states, drawn from this seed.
    Random(SplitMix),
}

impl Fate {
    /// That of one cut.
    pub fn new(survive: Survive) -> Fate {
        match survive {
            Survive::Nothing => Fate::Nothing,
            Survive::Everything => Fate::Everything,
            Survive::Seeded(seed) => Fate::Random(SplitMix::new(seed)),
        }
    }

    /// Which of `states` states survives: 0 is the durable one, the last the newest.
    pub fn choose(&mut self, states: usize) -> usize {
        debug_assert!(states > 0, "the durable state is always there");
        match self {
            Fate::Nothing => 0,
            Fate::Everything => states - 1,
            Fate::Random(numbers) => numbers.below(states as u64) as usize,
        }
    }
}
