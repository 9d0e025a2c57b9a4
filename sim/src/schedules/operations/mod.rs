//! What callers do.
//!
//! A new operation is a function in the file of its kind, and a line in that file's list. It writes
//! by [`Caller::write`], which says what places change, and holds what it reads against the ledger.

mod lists;
mod lives;
mod objects;
mod prepared;
mod queue;
mod reads;
mod shared;
mod tables;
mod transactions;
mod upkeep;
mod writes;
mod young;

use terrace::Result;

use super::caller::Caller;
use crate::Chance;
use crate::machines::Kind;

pub(super) use lives::CLOSE;
pub(super) use prepared::{resolve_all, still_prepared};
pub(super) use shared::unless_empty;
pub(super) use transactions::COUNT;
pub(super) use young::{LIFE, judge_young};

/// What a caller may do.
#[derive(Debug)]
pub(super) struct Operation {
    pub name: &'static str,
    /// How often, beside the others.
    pub share: u64,
    /// Does it. The moment is that of the call.
    pub run: fn(&mut Caller, u64) -> Result<()>,
    /// On any other machine it does nothing.
    pub needs: Option<Kind>,
}

impl Operation {
    const fn new(
        name: &'static str,
        share: u64,
        run: fn(&mut Caller, u64) -> Result<()>,
    ) -> Operation {
        Operation { name, share, run, needs: None }
    }

    const fn with_bucket(
        name: &'static str,
        share: u64,
        run: fn(&mut Caller, u64) -> Result<()>,
    ) -> Operation {
        Operation { needs: Some(Kind::Objects), ..Operation::new(name, share, run) }
    }

    const fn of_shared(
        name: &'static str,
        share: u64,
        run: fn(&mut Caller, u64) -> Result<()>,
    ) -> Operation {
        Operation { needs: Some(Kind::Shared), ..Operation::new(name, share, run) }
    }

    /// All of them, in an order of their own.
    pub(super) fn all() -> impl Iterator<Item = &'static Operation> + Clone {
        const ALL: [&[Operation]; 12] = [
            writes::OPERATIONS,
            reads::OPERATIONS,
            transactions::OPERATIONS,
            lists::OPERATIONS,
            prepared::OPERATIONS,
            queue::OPERATIONS,
            young::OPERATIONS,
            tables::OPERATIONS,
            upkeep::OPERATIONS,
            objects::OPERATIONS,
            shared::OPERATIONS,
            lives::OPERATIONS,
        ];
        ALL.into_iter().flatten()
    }

    /// The one with a name.
    pub(super) fn named(name: &str) -> Option<&'static Operation> {
        Operation::all().chain([&CLOSE]).find(|operation| operation.name == name)
    }

    /// One by chance.
    pub(super) fn drawn(chance: &mut Chance) -> &'static Operation {
        Operation::drawn_of(Operation::all(), chance)
    }

    /// One by chance of what an operator does; a compaction in half. What callers write in a run
    /// does not fill a memtable, and goes down beside them by compactions alone.
    pub(super) fn of_upkeep(chance: &mut Chance) -> &'static Operation {
        let [compaction, others @ ..] = upkeep::OPERATIONS else {
            unreachable!("there are several")
        };
        match chance.percent(50) {
            true => compaction,
            false => Operation::drawn_of(others.iter().chain(&tables::OPERATIONS[..1]), chance),
        }
    }

    /// A few of those that do something on such a machine, each as often as another: two that
    /// seldom come are at work at once then (swarm testing: Groce, Zhang, Eide, Chen, Regehr,
    /// "Swarm Testing", 2012).
    pub(super) fn few(kind: Kind, chance: &mut Chance) -> Vec<&'static Operation> {
        let may = |operation: &&Operation| operation.needs.is_none_or(|needs| needs == kind);
        let all: Vec<_> = Operation::all().filter(may).collect();
        (0..2 + chance.below(6)).map(|_| *chance.pick(&all)).collect()
    }

    fn drawn_of(
        mut all: impl Iterator<Item = &'static Operation> + Clone,
        chance: &mut Chance,
    ) -> &'static Operation {
        let mut drawn = chance.below(all.clone().map(|operation| operation.share).sum());
        loop {
            let operation = all.next().expect("invariant: what is drawn is below the sum");
            if drawn < operation.share {
                return operation;
            }
            drawn -= operation.share;
        }
    }

    /// The two that a seed has more of than others, so that seeds in a row have each pair.
    pub(super) fn pair_of(seed: u64) -> [&'static Operation; 2] {
        let n = Operation::all().count() as u64;
        let at = |n: u64| Operation::all().nth(n as usize);
        [seed % n, seed / n % n]
            .map(|number| at(number).expect("invariant: a remainder is a number of one"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_operation_has_a_name_and_each_pair_a_seed() {
        let names: BTreeSet<_> = Operation::all().map(|operation| operation.name).collect();
        let n = Operation::all().count();
        assert_eq!(names.len(), n);
        let pairs = (0..(n * n) as u64).map(|seed| Operation::pair_of(seed).map(|one| one.name));
        assert_eq!(pairs.collect::<BTreeSet<_>>().len(), n * n);
    }
}
