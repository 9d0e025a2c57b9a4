//! Compaction: choosing what to merge is a pure function of a version, doing it another file.

mod choice;
mod claimed;
mod collect;
mod drain;
mod dump;
mod edges;
mod execute;
mod expire;
mod hidden;
mod intra_l1;
mod manual;
mod merge;
mod misplaced;
mod operands;
mod output;
mod pick;
mod placing;
mod ranges;
mod shape;
mod superseded;
mod trivial_moves;

pub(crate) use choice::{Choice, Situation, Work};
pub(crate) use claimed::{ClaimedKeys, SPARED_SUBLEVELS};
pub(crate) use drain::{DrainPlan, DrainRoom, NextDrain, drain, plan_drain, plan_keys};
pub(crate) use dump::{DumpInto, Dumped, bytes_to_dump, dump};
pub(crate) use execute::{Done, Planned, run};
pub(crate) use expire::expired;
pub(crate) use hidden::{hidden, hidden_records};
pub(crate) use manual::{NextManual, pick_manual};
pub(crate) use misplaced::{local_of, misplaced};
pub(crate) use output::CarriedOver;
pub(crate) use pick::pick;
pub(crate) use placing::place;
pub(crate) use shape::Shape;
pub(crate) use trivial_moves::trivial_moves;
