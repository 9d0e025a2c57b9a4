//! Compaction: choosing what to merge is a pure function of a version, doing it another file.

mod drain;
mod execute;
mod pick;
mod ranges;

pub(crate) use drain::{choose_column, drain};
pub(crate) use execute::{MergeContext, merge_to_level, run};
pub(crate) use pick::{Choice, Shape, pick};
