//! Chance. In a run of the scheduler the policy draws it.

#[cfg(any(test, feature = "testing"))]
use std::hash::{BuildHasher, DefaultHasher, RandomState};
use std::io;

#[cfg(any(test, feature = "testing"))]
use super::schedule;

/// Fills `bytes` with what no caller can foresee.
///
/// # Errors
///
/// When the system has no chance to give.
pub fn draw_random(bytes: &mut [u8; 16]) -> io::Result<()> {
    #[cfg(any(test, feature = "testing"))]
    if schedule::is_task() {
        bytes.fill_with(|| schedule::draw(256).unwrap_or(0) as u8);
        return Ok(());
    }
    super::calls::draw_random(bytes)
}

/// A map without order.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomKeys>;

/// A set without order.
pub type HashSet<K> = std::collections::HashSet<K, RandomKeys>;

/// How keys are hashed: by chance, so that no caller can choose keys that collide.
#[cfg(not(any(test, feature = "testing")))]
pub use std::hash::RandomState as RandomKeys;

/// The same; in a run of the scheduler each run hashes alike.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Debug)]
pub struct RandomKeys(Option<RandomState>);

#[cfg(any(test, feature = "testing"))]
impl RandomKeys {
    /// Keys that are drawn.
    pub fn new() -> RandomKeys {
        RandomKeys((!schedule::is_task()).then(RandomState::new))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Default for RandomKeys {
    fn default() -> RandomKeys {
        RandomKeys::new()
    }
}

#[cfg(any(test, feature = "testing"))]
impl BuildHasher for RandomKeys {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.0.as_ref().map_or_else(DefaultHasher::new, RandomState::build_hasher)
    }
}
