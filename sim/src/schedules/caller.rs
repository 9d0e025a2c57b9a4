//! A caller: what it knows, and how it calls an operation.

use std::collections::BTreeMap;
use std::time::Duration;

use terrace::testing::schedule::{self, SplitMix};
use terrace::{Database, Durability, Error, ErrorKind, Result, WriteBatch};

use super::ledger::{Outcome, Place, Stamp, Wanted};
use super::plan::Step;
use super::rows::{APART, MAIN, key, shown, value};
use super::world::World;
use crate::Chance;
use crate::violation::Class;

/// So many calls of a closed database a caller makes before it ends.
const CLOSED_CALLS: u64 = 3;

/// The operations that a full disk never refuses.
const FREES: [&str; 5] = ["delete range", "truncate", "drop", "close", "close and open"];

/// One caller of the database.
pub(super) struct Caller {
    pub number: usize,
    pub world: World,
    pub db: Database,
    pub chance: Chance,
    /// How often each operation has ended well.
    pub done: BTreeMap<&'static str, u64>,
    /// Which of the world's databases its handle is of.
    pub life: u64,
    pub largest: u64,
    closed_calls: u64,
}

impl Caller {
    pub(super) fn new(number: usize, world: World) -> Caller {
        let mut chance = Chance::new(world.seed ^ ((number as u64 + 1) << 32));
        let largest = *chance.pick(&[16, 300, 3000, 20_000]);
        let (life, db) = world.newest();
        let (done, closed_calls) = (BTreeMap::new(), 0);
        Caller { number, world, db, chance, done, life, largest, closed_calls }
    }

    /// Whether it has nothing more to call.
    pub(super) fn is_over(&self) -> bool {
        self.closed_calls >= CLOSED_CALLS
    }

    /// One operation, all of whose choices follow from its step.
    pub(super) fn perform(&mut self, step: &Step) {
        let operation = step.operation();
        self.chance = Chance::new(step.chance);
        let (life, db) = self.world.newest();
        if life > self.life {
            (self.life, self.db) = (life, db);
            self.closed_calls = 0;
        }
        let from = self.world.ledger.begin(self.number, operation.name);
        let task = schedule::number();
        if self.chance.percent(self.world.stayed) {
            self.world.stays.begin(task, &mut SplitMix::new(self.chance.next()));
        }
        let rest = Duration::from_millis(1 << self.chance.below(9));
        let rests = self.chance.percent(self.world.rests);
        let done = (operation.run)(self, from);
        self.world.stays.end(task);
        self.world.ledger.end(self.number);
        if rests {
            schedule::pause(rest);
        }
        match done {
            Ok(()) => *self.done.entry(operation.name).or_default() += 1,
            Err(error) if error.kind() == ErrorKind::Closed && self.world.is_closing(self.life) => {
                self.closed_calls += 1;
            }
            // The store may not have it yet.
            Err(error)
                if error.kind() == ErrorKind::UnknownOutcome
                    && self.world.is_shared
                    && self.world.is_closing(self.life) => {}
            Err(error) if error.kind() == ErrorKind::Full && self.frees(operation.name) => {
                let what = format!("{} on a full disk: {error}", operation.name);
                self.world.ledger.violate(Class::WrongError.violation(what));
            }
            Err(error) if self.world.excuses(&error) => self.closed_calls += 1,
            Err(error) => {
                let what = format!("{} of caller {}: {error}", operation.name, self.number);
                self.world.ledger.violate(Class::WrongError.violation(what));
            }
        }
    }

    /// Whether it goes on where the disk is full.
    fn frees(&self, operation: &str) -> bool {
        let is_full = self.world.machine.is_bounded();
        is_full && self.world.machine.failed_calls().is_empty() && FREES.contains(&operation)
    }

    pub(super) fn note(&self, what: &str) {
        self.world.ledger.note(format!("caller {}: {what}", self.number));
    }

    pub(super) fn any_table(&mut self) -> &'static str {
        if self.chance.percent(50) { MAIN } else { APART }
    }

    pub(super) fn durability(&mut self) -> Durability {
        if self.world.is_shared && self.chance.percent(20) {
            return Durability::Remote;
        }
        if self.chance.percent(40) { Durability::Durable } else { Durability::Relaxed }
    }

    /// Whether the error may come of a table that was emptied or dropped since the moment.
    pub(super) fn is_of_emptying(&self, error: &Error, table: &str, since: u64) -> bool {
        error.kind().is_refusal() && self.world.ledger.may_be_emptied(table, since)
    }

    pub(super) fn own_place(&mut self) -> Place {
        let row = self.chance.below(self.world.rows);
        (self.any_table(), key(self.number, row))
    }

    /// Calls a write and notes how it ended.
    pub(super) fn write(
        &self,
        what: String,
        durability: Durability,
        changes: impl FnOnce(u64) -> BTreeMap<Place, Stamp>,
        write: impl FnOnce(&Caller, u64) -> Result<()>,
    ) -> Result<()> {
        let wanted = Wanted { durability, ..Wanted::new(self.number, what) };
        let stamp = self.world.ledger.call(wanted, changes);
        let written = write(self, stamp);
        self.ended(stamp, written.as_ref().err());
        written
    }

    /// Notes how a write has ended.
    pub(super) fn ended(&self, stamp: u64, error: Option<&Error>) {
        self.world.ledger.ended(stamp, |now| match error {
            None => Outcome::Acknowledged(now),
            Some(error) => outcome_of(error),
        });
    }

    /// A batch of puts of so many bytes, and of deletions.
    pub(super) fn batch_of(
        &self,
        parts: &BTreeMap<Place, Option<u64>>,
        stamp: u64,
    ) -> Result<WriteBatch> {
        let mut batch = WriteBatch::new();
        for ((table, key), len) in parts {
            let table = self.db.table(table)?;
            match len {
                Some(len) => batch.put(&table, key, value(stamp, *len)),
                None => batch.delete(&table, key),
            };
        }
        Ok(batch)
    }

    /// Places with what comes there, and how a print names them.
    pub(super) fn parts(&mut self, most: u64) -> (BTreeMap<Place, Option<u64>>, String) {
        let mut parts = BTreeMap::new();
        for _ in 0..1 + self.chance.below(most) {
            let (place, deletes) = (self.own_place(), self.chance.percent(15));
            let len = self.chance.below(self.largest);
            parts.insert(place, (!deletes).then_some(len));
        }
        let names: Vec<String> = parts.keys().map(shown).collect();
        (parts, names.join(", "))
    }
}

/// What parts change, under a stamp.
pub(super) fn changes_of(
    parts: &BTreeMap<Place, Option<u64>>,
    stamp: u64,
) -> BTreeMap<Place, Stamp> {
    parts.iter().map(|(place, len)| (place.clone(), len.map(|_| stamp))).collect()
}

pub(super) fn is_of_isolation(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Deadlock | ErrorKind::Timeout)
}

/// What is known of a write that failed so.
pub(super) fn outcome_of(error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::Closed | ErrorKind::Full => Outcome::Refused,
        kind if kind.is_refusal() => Outcome::Refused,
        _ if is_of_isolation(error) => Outcome::Refused,
        _ => Outcome::Unknown,
    }
}
