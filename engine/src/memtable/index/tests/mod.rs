//! Tests of the whole index: alone, under threads, and under a model checker.

mod model;
mod slab;
mod sorted_map;
mod stress;
