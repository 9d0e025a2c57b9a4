//! What a database does, as its users see it: each file is a part of the interface or of what can
//! go wrong. Tests run side by side in one process.
//!
//! A test that counts background jobs is in `stepped`. A test that starts processes is in
//! `processes`.

#[path = "../common/mod.rs"]
mod common;

mod anomalies;
mod awaited;
mod backup;
mod backup_identity;
mod basics;
mod bytes;
mod calls;
mod cancelled;
mod closing;
mod concurrent;
mod corpora;
mod events;
mod failed_writes;
mod faults;
mod fixtures;
mod flips;
mod full_disk;
mod growth;
mod history;
mod in_memory;
mod large_commits;
mod lock_memory;
mod merge_operators;
mod metamorphic;
mod model;
mod modes;
mod pacing;
mod per_core;
mod progress;
mod refusals;
mod self_waits;
mod shared_threads;
mod slow_operations;
mod transactions;
mod txn_calls;
mod typed;
mod under_load;
mod unknown_outcome;
mod views;
