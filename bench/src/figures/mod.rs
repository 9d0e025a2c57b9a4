//! One file a figure.

pub(crate) mod alloc;
pub(crate) mod bare;
pub(crate) mod commit;
pub(crate) mod ods;
mod ods_threads;
pub(crate) mod sync;
pub(crate) mod ycsb;
