//! Tests of the whole index: alone, under threads, and under a model checker.

#[cfg(feature = "shuttle")]
mod model;
mod slab;
#[cfg(not(feature = "shuttle"))]
mod sorted_map;
#[cfg(not(feature = "shuttle"))]
mod stress;
