//! What survives a power cut, and who chooses it.

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

/// Chooses for [`Survive`]; splitmix64 under the seeded one.
#[derive(Debug)]
pub enum Fate {
    /// As [`Survive::Nothing`].
    Nothing,
    /// As [`Survive::Everything`].
    Everything,
    /// Of each sector or line any of its states, drawn from this seed.
    Random(u64),
}

impl Fate {
    /// That of one cut.
    pub fn new(survive: Survive) -> Fate {
        match survive {
            Survive::Nothing => Fate::Nothing,
            Survive::Everything => Fate::Everything,
            Survive::Seeded(seed) => Fate::Random(seed),
        }
    }

    /// Which of `states` states survives: 0 is the durable one, the last the newest.
    pub fn choose(&mut self, states: usize) -> usize {
        debug_assert!(states > 0, "the durable state is always there");
        match self {
            Fate::Nothing => 0,
            Fate::Everything => states - 1,
            Fate::Random(state) => {
                *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                ((z ^ (z >> 31)) % states as u64) as usize
            }
        }
    }
}
