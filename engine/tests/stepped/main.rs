//! Tests that count what single jobs of the background do.
//!
//! All databases of a process share its epochs. A reader of one database delays the release of
//! zones in every other. So each test here says whether others may run beside it: `together` or
//! `alone`.

#[path = "../common/mod.rs"]
mod common;

mod allocator;
mod bulk_load;
mod containers;
mod costs;
mod deleted;
mod disk;
mod estimates;
mod every_container;
mod index;
mod large_values;
mod objects;
mod old_versions;
mod power;
mod prepared;
mod range_deletes;
mod reading;
mod region;
mod regressions;
mod ring_rules;
mod salvage;
mod shared;
mod snapshots;
mod spill;
mod steps;
mod ttl;
