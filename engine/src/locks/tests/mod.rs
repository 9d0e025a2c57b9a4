//! The lock table alone, without a database around it.

mod graph;
mod model;
mod rules;
