//! The C interface of Terrace. `include/terrace.h` is made out of this source by
//! `cargo xtask header`, comments included; `cbindgen.toml` has the text at its head.
//!
//! Each exported function takes nullable references where C passes pointers to handles, so its body
//! is safe code. Bytes, text and arrays come through `pointers.rs`, which has the unsafe code with
//! `value.rs`, `operator.rs` and `callback.rs`. Each function runs its body under `guard.rs`: no
//! panic leaves it, and an error becomes a status and an object.

#![allow(clippy::too_many_arguments, reason = "C passes a length beside each pointer")]

mod guard;
mod pointers;

/// The version of the interface. The build script and the package read it too.
pub mod abi;

pub mod version;

pub mod error;

pub mod value;

pub mod range;

pub mod options;

pub mod database;

pub mod table;

pub mod atomic;

pub mod operator;

pub mod batch;

pub mod pending;

pub mod snapshot;

pub mod transaction;

pub mod transaction_rows;

pub mod cursor;

pub mod prepared;

pub mod bulk_load;

pub mod statistics;

pub mod report;

pub mod monitor;

pub mod backup;

pub mod dump;

pub mod callback;

pub mod follower;

pub mod list;

pub use pointers::{Buffer, Data, Slice, Slices, StatisticsOut, Text, Values};
