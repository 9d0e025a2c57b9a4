//! The whole database under a deterministic scheduler: callers and all background threads of a
//! database on a simulated machine, one of which runs at a time. One seed is one run: what is done,
//! who goes on at each point, where power is cut, and which call fails.

mod bucket;
mod caller;
mod judge;
mod ledger;
mod operations;
mod overlaps;
mod plan;
mod planted;
mod policy;
mod report;
mod rows;
mod run;
mod salvaged;
mod shrink;
mod tasks;
mod waits;
mod world;

pub use overlaps::Overlaps;
pub use plan::{Schedule, Step};
pub use planted::{PLANTED, Planted};
pub use report::Report;
pub use run::Failure;
pub use shrink::{Fails, shrink};
