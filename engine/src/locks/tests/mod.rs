//! The lock table alone, without a database around it.

mod graph;
mod memory;
mod model;
mod rules;
