//! Bugs put in on purpose, each of which the runs must find: the proof of the tool.

use terrace::testing::Planted;

use crate::coverage::Coverage;
use crate::cuts::{Kind, Violation};
use crate::run::{Limits, Prepared, Run};
use crate::scenario::Scenario;

/// Where to look for a bug: the machine, what is under test, and how much of it is tried.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub bug: Option<Planted>,
    pub kind: Kind,
    pub scenario: Scenario,
    pub seeds: u64,
}

/// As much as a search tries for each seed.
const LIMITS: Limits = Limits { moments: 60, most: 12, until: None };

impl Search {
    /// The first violation, if any.
    pub fn first(&self) -> Option<Violation> {
        let (mut prepared, mut coverage) = (Prepared::default(), Coverage::default());
        for seed in 0..self.seeds {
            let Search { bug: planted, kind, scenario, .. } = *self;
            let run = Run { seed, kind, scenario, limits: LIMITS, planted, replay: None };
            run.run(&mut prepared, &mut coverage);
            if let Some(violation) = coverage.violations.pop() {
                return Some(violation);
            }
        }
        None
    }
}
