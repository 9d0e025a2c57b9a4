//! Compaction: choosing what to merge is a pure function of a version, doing it another file.

mod execute;
mod pick;

pub(crate) use execute::{MergeContext, Outputs, merge_to_level, run};
pub(crate) use pick::{Choice, Shape, pick};
