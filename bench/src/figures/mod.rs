//! One file a figure.

pub(crate) mod bare;
pub(crate) mod commit;
pub(crate) mod level0;
pub(crate) mod memtable;
pub(crate) mod pm_budget;
pub(crate) mod restart;
pub(crate) mod sync;
pub(crate) mod ycsb;
