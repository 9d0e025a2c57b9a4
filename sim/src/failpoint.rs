//! Bugs put in on purpose, each of which the runs must find: the proof of the tool.

use terrace::testing::Failpoint;

use crate::coverage::Coverage;
use crate::cuts::{Kind, Violation};
use crate::run::{Limits, Prepared, Run};
use crate::scenario::Scenario;
use crate::violation::Class;
use crate::{elsewhere, expiry, growth, isolation, objects, writers};

/// What is tried, and where.
#[derive(Clone, Copy, Debug)]
pub enum Trial {
    /// The power is cut while an operation is under way.
    Cuts(Kind, Scenario),
    /// The same, and the bug is in openings after a cut and in what they go on with, alone.
    Afterwards(Kind, Scenario),
    /// Calls fail while one is, then the power is cut.
    Faults(Kind, Scenario),
    /// Transactions count.
    Isolation,
    /// Rows with a time to live are read.
    Expiry,
    /// A database is opened twice.
    Writers,
    /// A region lies in another directory.
    Elsewhere,
    /// A sync of a growth of the region fails.
    Growth,
    /// A copy of a machine takes its object store over.
    Takeover,
    /// Objects that no edit named are deleted late.
    LateDeletion,
}

/// Where to look for a bug, and in how many runs.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub bug: Option<Failpoint>,
    pub trial: Trial,
    pub seeds: u64,
}

/// As much as a search tries for each seed.
const LIMITS: Limits = Limits { moments: 60, most: 12, until: None };

/// The same where calls fail: many lives are worth more than many images of one.
const FAULT_LIMITS: Limits = Limits { moments: 2, most: 1, until: None };

/// The seed that found a bug, and how it did.
#[derive(Clone, Debug)]
pub struct Found {
    pub seed: u64,
    pub violation: Violation,
}

impl Search {
    /// The first violation of one of these classes, or of any if none is named; else the others.
    /// A panic is of a class of its own: it says that an assertion does not hold, not that
    /// something is lost.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn first(&self, classes: &[Class]) -> Result<Found, Vec<Violation>> {
        self.first_that(|violation| {
            let class = Class::of(violation);
            classes.is_empty() || class.is_some_and(|class| classes.contains(&class))
        })
    }

    /// The first violation that is the one that is meant; else the others.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn first_that(&self, is_it: impl Fn(&Violation) -> bool) -> Result<Found, Vec<Violation>> {
        let (mut prepared, mut others) = (Prepared::default(), Vec::new());
        for seed in 0..self.seeds {
            let Some(violation) = self.try_seed(seed, &mut prepared) else { continue };
            if is_it(&violation) {
                return Ok(Found { seed, violation });
            }
            others.push(violation);
        }
        Err(others)
    }

    fn try_seed(&self, seed: u64, prepared: &mut Prepared) -> Option<Violation> {
        match self.trial {
            Trial::Cuts(kind, scenario) | Trial::Afterwards(kind, scenario) => {
                self.run(seed, (kind, scenario), LIMITS, prepared)
            }
            Trial::Faults(kind, scenario) => {
                self.run(seed, (kind, scenario), FAULT_LIMITS, prepared)
            }
            Trial::Isolation => isolation::check(seed, self.bug).err(),
            Trial::Expiry => expiry::check(seed, self.bug).err(),
            Trial::Writers => writers::check(self.bug).err(),
            Trial::Elsewhere => elsewhere::check(seed, self.bug).err(),
            Trial::Growth => growth::check(seed, self.bug).err(),
            Trial::Takeover => objects::takeover(self.bug).err(),
            Trial::LateDeletion => objects::late_deletion(seed, self.bug).err(),
        }
    }

    fn run(
        &self,
        seed: u64,
        (kind, scenario): (Kind, Scenario),
        limits: Limits,
        prepared: &mut Prepared,
    ) -> Option<Violation> {
        let mut coverage = Coverage::default();
        let faults = matches!(self.trial, Trial::Faults(..));
        let is_afterwards = matches!(self.trial, Trial::Afterwards(..));
        let run = Run { seed, kind, scenario, limits, faults, is_afterwards, ..Run::of(0, limits) };
        let run = Run { failpoint: self.bug, has_levels: false, ..run };
        run.run(prepared, &mut coverage);
        coverage.violations.pop()
    }
}
