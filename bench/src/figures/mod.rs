//! One file a figure.

pub(crate) mod alloc;
pub(crate) mod bare;
#[cfg(feature = "c")]
pub(crate) mod c;
pub(crate) mod commit;
pub(crate) mod containers;
pub(crate) mod defaults;
pub(crate) mod durability;
pub(crate) mod growth;
pub(crate) mod instructions;
pub(crate) mod level0;
pub(crate) mod memory_limit;
pub(crate) mod memtable;
pub(crate) mod object;
pub(crate) mod ods;
mod ods_threads;
pub(crate) mod pm_budget;
pub(crate) mod queue;
pub(crate) mod read_path;
pub(crate) mod restart;
pub(crate) mod rows;
pub(crate) mod scaling;
pub(crate) mod scan;
pub(crate) mod scheduler;
pub(crate) mod shared;
pub(crate) mod space;
pub(crate) mod stalls;
pub(crate) mod sync;
pub(crate) mod tpcc;
pub(crate) mod txn;
pub(crate) mod write_amp;
pub(crate) mod ycsb;
