//! The lock table alone, without a database around it.

#[cfg(feature = "shuttle")]
mod model;
#[cfg(not(feature = "shuttle"))]
mod rules;
