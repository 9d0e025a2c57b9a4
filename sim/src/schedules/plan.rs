//! What a run does, in a form that is kept in a file, replayed and made smaller.

use serde::{Deserialize, Serialize};
use terrace::testing::Failpoint;

use super::operations::{CLOSE, Operation};
use crate::Chance;
use crate::machines::Kind;

/// One operation of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub operation: String,
    /// What its choices follow from.
    pub chance: u64,
}

impl Step {
    fn new(operation: &Operation, chance: u64) -> Step {
        Step { operation: operation.name.into(), chance }
    }

    pub(super) fn operation(&self) -> &'static Operation {
        Operation::named(&self.operation).expect("invariant: a plan is checked when it is read")
    }
}

/// All that a run follows from. As JSON it is what `terrace-sim --schedules --replay` reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Schedule {
    pub seed: u64,
    pub kind: Kind,
    /// What each caller does.
    pub callers: Vec<Vec<Step>>,
    /// Whether power is cut or a call fails, as the seed says.
    pub events: bool,
    /// What the order of the threads follows from.
    pub order: u64,
    /// The points of each life at which alone a thread is preempted. `None` where that follows from
    /// `order` alone.
    pub preemptions: Option<Vec<Vec<u64>>>,
    /// A bug that is planted.
    #[serde(skip)]
    pub bug: Option<Failpoint>,
    /// How many of the last points a failure prints.
    #[serde(skip)]
    pub trace: usize,
}

impl Schedule {
    /// That of a seed.
    pub fn of(seed: u64) -> Schedule {
        let mut chance = Chance::new(seed ^ 0x5C4E_D01E);
        let kinds = [Kind::Files, Kind::Memory, Kind::Objects, Kind::Memory, Kind::Index];
        let drawn = *chance.pick(&kinds);
        let (callers, operations) = (2 + chance.below(3), 4 + chance.below(16));
        let pair = Operation::pair_of(seed);
        let needed = pair.iter().filter_map(|operation| operation.needs).max();
        // The tables of a shared database lie on its machine.
        let drawn =
            if drawn == Kind::Objects && seed.is_multiple_of(3) { Kind::Shared } else { drawn };
        let kind = needed.unwrap_or(drawn);
        let closer = chance.percent(15).then(|| chance.below(callers));
        // In a third of the runs one caller or two do what an operator does.
        let is_kept = kind != Kind::Shared;
        let keepers = if is_kept { [0, 0, 0, 0, 1, 2][(seed / 13 % 6) as usize] } else { 0 };
        let few = (seed / 23).is_multiple_of(2).then(|| Operation::few(kind, &mut chance));
        let steps = |number: u64| {
            let mut step = || {
                let operation = match chance.percent(FOCUS) {
                    true => pair[(number % 2) as usize],
                    false if let Some(few) = &few => *chance.pick(few),
                    false if number + keepers >= callers => Operation::of_upkeep(&mut chance),
                    false => Operation::drawn(&mut chance),
                };
                Step::new(operation, chance.next())
            };
            let mut steps: Vec<Step> = (0..operations).map(|_| step()).collect();
            if closer == Some(number) {
                steps.pop();
                steps.push(Step::new(&CLOSE, 0));
            }
            steps
        };
        let callers = (0..callers).map(steps).collect();
        let (events, order) = (true, seed);
        Schedule { seed, kind, callers, events, order, preemptions: None, bug: None, trace: 0 }
    }

    /// What a file says.
    ///
    /// # Errors
    ///
    /// It is no schedule of this program.
    pub fn read(json: &str) -> Result<Schedule, String> {
        let schedule: Schedule = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let mut steps = schedule.callers.iter().flatten();
        match steps.find(|step| Operation::named(&step.operation).is_none()) {
            Some(Step { operation, .. }) => Err(format!("there is no operation {operation:?}")),
            None if schedule.callers.len() > super::rows::OWN_TABLES.len() => {
                Err(format!("there are {} callers", schedule.callers.len()))
            }
            None => Ok(schedule),
        }
    }

    /// What [`Schedule::read`] reads.
    pub fn written(&self) -> String {
        serde_json::to_string(self).expect("invariant: a schedule is plain data")
    }

    /// How many operations it has.
    pub fn operations(&self) -> usize {
        self.callers.iter().map(Vec::len).sum()
    }
}

/// So many of a hundred operations are one of the two that the seed has more of.
const FOCUS: u64 = 30;
