//! The whole database under a deterministic scheduler: callers and all background threads of a
//! database on a simulated machine, one of which runs at a time. One seed is one run: what is done,
//! who goes on at each point, and where power is cut.

mod callers;
mod ledger;
mod policy;
mod run;

pub use callers::Operation;
pub use run::{Failure, Report, Schedule};
