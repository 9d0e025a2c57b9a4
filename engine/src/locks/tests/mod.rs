//! The lock table alone, without a database around it.

mod model;
mod rules;
