//! Bugs that the schedules must find: slips that users or readers once found, planted again.

use std::time::{Duration, Instant};

use terrace::testing::Failpoint;

use super::plan::Schedule;
use super::run::Failure;
use crate::machines::Kind;
use crate::violation::Class;

/// A bug, and what finds it.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    pub bug: Failpoint,
    pub kind: Kind,
    /// What its violations may be.
    pub classes: &'static [Class],
    /// A seed from which on one finds it soon. None where that takes longer than a test may.
    pub seed: Option<u64>,
}

const fn planted(
    bug: Failpoint,
    kind: Kind,
    classes: &'static [Class],
    seed: Option<u64>,
) -> Planted {
    Planted { bug, kind, classes, seed }
}

/// All of them.
pub const PLANTED: &[Planted] = &[
    planted(Failpoint::SkipConflictCheck, Kind::Memory, &[Class::Isolation], Some(0)),
    planted(Failpoint::SkipRunSync, Kind::Files, &[Class::Lost], Some(0)),
    planted(Failpoint::SkipFence, Kind::Memory, &[Class::Lost], Some(0)),
    planted(Failpoint::LookForBlobOnce, Kind::Files, &[Class::Lost], None),
    planted(Failpoint::PopUnlockedRow, Kind::Files, &[Class::Isolation], None),
    planted(Failpoint::QuietEnqueue, Kind::Files, &[Class::NoEnd], Some(0)),
    planted(Failpoint::GrowOutside, Kind::Files, LATE, None),
    planted(Failpoint::LoadOutside, Kind::Files, LATE, None),
    planted(Failpoint::SecondCloseReturns, Kind::Files, &[Class::WrongError], Some(0)),
    planted(Failpoint::MissWorkersWake, Kind::Files, &[Class::NoEnd], Some(0)),
    planted(Failpoint::MergedBeforeFloor, Kind::Index, &[Class::Lost, Class::NotAPrefix], None),
    planted(Failpoint::NoteBeforeRegister, Kind::Files, &[Class::NoEnd], None),
    planted(Failpoint::ForgetOwedChecks, Kind::Files, &[Class::Isolation], Some(0)),
    planted(Failpoint::DumpVersionRuns, Kind::Files, &[Class::WrongError, Class::Backup], None),
    planted(Failpoint::SecondPollReturns, Kind::Files, &[Class::Lost, Class::NotAPrefix], None),
    planted(Failpoint::KeepReservation, Kind::Files, &[Class::Leaked], Some(0)),
    planted(Failpoint::EditBeforeAcknowledgement, Kind::Objects, LOST_OBJECT, Some(0)),
    planted(Failpoint::KeepUnneededObjects, Kind::Objects, &[Class::Leaked], Some(0)),
    planted(Failpoint::AcknowledgeEarly, Kind::Shared, &[Class::Lost], Some(0)),
    planted(Failpoint::IgnoreClaims, Kind::Shared, &[Class::TwoWriters, Class::Lost], None),
    planted(Failpoint::EventsFirst, Kind::Shared, &[Class::NotAPrefix, Class::Changed], None),
    planted(Failpoint::ShipUndurable, Kind::Shared, &[Class::Lost, Class::Refused], None),
    planted(Failpoint::AwaitInOneQueue, Kind::Shared, &[Class::NoEnd], Some(0)),
    planted(Failpoint::SleepWithoutSecondLook, Kind::Files, &[Class::NoEnd], None),
    planted(Failpoint::RetireAtOnce, Kind::Files, GONE, Some(0)),
    planted(Failpoint::JudgeBeforeNews, Kind::Files, &[Class::Lost, Class::NotAPrefix], None),
];

/// What records look like that a reader does not find.
const GONE: &[Class] = &[Class::Lost, Class::NotAPrefix, Class::Changed, Class::Isolation];

/// What a write after a closing looks like.
const LATE: &[Class] =
    &[Class::WrongError, Class::Refused, Class::Damaged, Class::Lost, Class::Changed];

/// What it looks like that the store lacks an object.
const LOST_OBJECT: &[Class] =
    &[Class::Damaged, Class::WrongError, Class::Refused, Class::Lost, Class::Backup];

impl Planted {
    /// Runs a seed with the bug; what of its violations was found.
    pub fn run(&self, seed: u64) -> Option<Failure> {
        let schedule = self.schedule(seed, Some(self.bug));
        let failure = schedule.run().err()?;
        let is_it = |class: Class| self.classes.contains(&class);
        let found = failure.violations.iter().any(|what| Class::of(what).is_some_and(is_it));
        found.then_some(failure)
    }

    /// The seed, with the bug or without.
    pub fn schedule(&self, seed: u64, bug: Option<Failpoint>) -> Schedule {
        Schedule { kind: self.kind, bug, ..Schedule::of(seed) }
    }

    /// The first seed that finds it within a time, and when it has.
    pub fn search(&self, within: Duration) -> Option<(u64, Duration, Failure)> {
        let begin = Instant::now();
        let seeds = (0..).take_while(|_| begin.elapsed() < within);
        let mut found = seeds.filter_map(|seed| Some((seed, self.run(seed)?)));
        found.next().map(|(seed, failure)| (seed, begin.elapsed(), failure))
    }
}
