//! What the test suite uses beyond the public interface: the simulated machine and planted bugs.
//!
//! Only with the feature `testing`; no part of the stable interface.

pub use crate::options::Planted;
pub use crate::os::sim::{Machine, Survive};
