//! Compaction: choosing what to merge is a pure function of a version, doing it another file.

mod choice;
mod drain;
mod execute;
mod hidden;
mod merge;
mod misplaced;
mod output;
mod pick;
mod placing;
mod ranges;
mod retain;
mod shape;

pub(crate) use choice::{Choice, Situation, Work, trivial_moves};
pub(crate) use drain::{
    DrainPlan, DrainRoom, DumpInto, Dumped, NextDrain, bytes_to_dump, drain, dump, plan_drain,
    plan_keys,
};
pub(crate) use execute::{Done, Planned, run};
pub(crate) use hidden::{expired, hidden, hidden_records};
pub(crate) use misplaced::{local_of, misplaced};
pub(crate) use output::CarriedOver;
pub(crate) use pick::{NextManual, pick, pick_manual};
pub(crate) use placing::place;
pub(crate) use ranges::Fragments;
pub(crate) use shape::{ClaimedKeys, SPARED_SUBLEVELS, Shape};
