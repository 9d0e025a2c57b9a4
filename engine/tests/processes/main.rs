//! Tests that start processes of their own: they are killed, they fork, they share a directory.
//!
//! A child is this binary again, with the name of one test as its filter. The tests stay together
//! so that no child has to load more than it needs.

#[path = "../common/mod.rs"]
mod common;

mod bank;
mod directory;
mod histories;
mod kill;
mod lock_file;
mod lost_machine;
mod memory;
mod readers;
