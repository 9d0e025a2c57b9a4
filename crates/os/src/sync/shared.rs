//! Values that are made once, and pointers that are swapped. In tests each call is a point of a
//! scheduler.

#[cfg(not(any(test, feature = "testing")))]
pub use arc_swap::ArcSwap;
#[cfg(not(any(test, feature = "testing")))]
pub use std::sync::OnceLock;

#[cfg(any(test, feature = "testing"))]
pub use super::scheduled::shared::{ArcSwap, OnceLock};
