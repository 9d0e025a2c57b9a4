//! Tries to break every persist point of Terrace: the whole engine on a simulated machine, its
//! background stepped, stopped at every store, flush, fence, write, sync and rename of the
//! operation under test. One seed is one run.
//!
//! The rig that it is built on serves the engine's own tests too.

#![allow(missing_docs, reason = "a tool; the names of what it does say what they do")]
#![allow(clippy::unwrap_used, reason = "what a run cannot do ends it, and that is a finding")]

pub mod account;
mod afterwards;
pub mod backups;
pub mod chance;
pub mod content;
pub mod coverage;
pub mod cuts;
pub mod disturbed;
pub mod elsewhere;
pub mod expiry;
pub mod failing;
pub mod failpoint;
pub mod growth;
pub mod histories;
pub mod isolation;
pub mod machines;
pub mod objects;
pub mod run;
pub mod scenario;
pub mod schedules;
pub mod stop;
mod transact;
pub mod violation;
pub mod workload;
pub mod writers;

pub use chance::Chance;
use terrace::{Level0Container, Options};

/// A database so small that freezes, merges, drains and compactions happen at once.
///
/// `TERRACE_LEVEL0=matrix` or `=triangle` has every table keep its level 0 in row tables, and
/// `=mixed` those that the rig creates by their names. So whatever runs on such a database can be
/// run with these containers too.
pub fn tiny() -> Options {
    let options = Options::new().pm_size(2 << 20).cache_size(1 << 20).level1_size(64 << 10);
    match std::env::var("TERRACE_LEVEL0").as_deref() {
        Ok("matrix") => options.level0_of_all(Level0Container::Matrix),
        Ok("triangle") => options.level0_of_all(Level0Container::Triangle),
        Ok("mixed") | Err(_) => options,
        Ok(other) => panic!("TERRACE_LEVEL0 is matrix, triangle or mixed, not {other:?}"),
    }
}

/// Whether tables of all rigs have containers of level 0 by their names.
pub fn mixes_level0() -> bool {
    std::env::var("TERRACE_LEVEL0").as_deref() == Ok("mixed")
}
