//! The ground: errors, limits, options, records, merge operators, events, and what is counted
//! and timed.

pub(crate) mod counters;
pub(crate) mod error;
pub mod events;
pub mod limits;
pub(crate) mod memory;
pub(crate) mod name;
pub(crate) mod operations;
pub(crate) mod operator;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod record;
