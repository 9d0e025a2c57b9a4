//! What callers do.

use std::collections::BTreeMap;
use std::ops::Bound;

use terrace::{Database, Durability, Error, ErrorKind, Result, Table, WriteBatch};

use super::ledger::{Ledger, Outcome, Place, Seen, Stamp, State};
use crate::Chance;
use crate::violation::Class;

/// The tables of all callers. In the second values from 600 bytes on lie apart on disk.
pub(super) const TABLES: [&str; 2] = ["a", "b"];
/// The one that callers truncate.
const TRUNCATED: &str = TABLES[1];
/// The table of each caller alone, which it creates and drops.
pub(super) const OWN_TABLES: [&str; 4] = ["own 0", "own 1", "own 2", "own 3"];

/// A caller has so many rows in each table.
const ROWS: u64 = 5;
/// The row that all callers count up in transactions.
pub(super) const COUNTER: &[u8] = b"counter";

/// What a caller may do. Its share of all operations is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Put,
    Delete,
    Batch,
    DeleteRange,
    Get,
    Range,
    Snapshot,
    Count,
    Enqueue,
    Sync,
    Truncate,
    Create,
    Drop,
    CompactRange,
    Verify,
    Grow,
    Close,
}

pub(super) const OPERATIONS: [(Operation, u64); 16] = [
    (Operation::Put, 30),
    (Operation::Delete, 5),
    (Operation::Batch, 15),
    (Operation::DeleteRange, 4),
    (Operation::Get, 10),
    (Operation::Range, 6),
    (Operation::Snapshot, 4),
    (Operation::Count, 10),
    (Operation::Enqueue, 5),
    (Operation::Sync, 2),
    (Operation::Truncate, 1),
    (Operation::Create, 3),
    (Operation::Drop, 2),
    (Operation::CompactRange, 1),
    (Operation::Verify, 1),
    (Operation::Grow, 1),
];

/// One caller of the database.
pub(super) struct Caller {
    pub number: usize,
    pub callers: usize,
    pub db: Database,
    pub ledger: Ledger,
    pub chance: Chance,
    /// What is done with each operation that ends: for coverage.
    pub done: BTreeMap<Operation, u64>,
    pub is_closed: bool,
    largest: u64,
}

pub(super) fn key(caller: usize, row: u64) -> Vec<u8> {
    format!("{caller} {row}").into_bytes()
}

/// All rows that a table can have.
pub(super) fn places(table: &'static str, callers: usize) -> Vec<Place> {
    let of_caller = |caller| (0..ROWS).map(move |row| (table, key(caller, row)));
    let mut places: Vec<Place> = (0..callers).flat_map(of_caller).collect();
    if table == TABLES[0] {
        places.push((table, COUNTER.to_vec()));
    }
    places
}

fn value(stamp: u64, len: u64) -> Vec<u8> {
    let mut bytes = stamp.to_le_bytes().to_vec();
    bytes.resize(8 + len as usize, stamp as u8);
    bytes
}

/// The stamp of a value at a key; one that no write has if its bytes are those of several.
pub(super) fn stamp_of(key: &[u8], value: &[u8]) -> u64 {
    let (head, rest) = value.split_at(8.min(value.len()));
    let Ok(head) = head.try_into() else { return u64::MAX };
    let stamp = u64::from_le_bytes(head);
    // The counter has its count behind the stamp.
    let is_whole = key == COUNTER || rest.iter().all(|&byte| byte == stamp as u8);
    if is_whole { stamp } else { u64::MAX }
}

impl Caller {
    pub(super) fn new(
        number: usize,
        callers: usize,
        db: Database,
        ledger: Ledger,
        seed: u64,
    ) -> Caller {
        let mut chance = Chance::new(seed ^ ((number as u64 + 1) << 32));
        let largest = *chance.pick(&[16, 300, 3000, 20_000]);
        let (done, is_closed) = (BTreeMap::new(), false);
        Caller { number, callers, db, ledger, chance, done, is_closed, largest }
    }

    /// One operation that is drawn.
    pub(super) fn act(&mut self) {
        let all: u64 = OPERATIONS.iter().map(|(_, share)| share).sum();
        let mut drawn = self.chance.below(all);
        for (operation, share) in OPERATIONS {
            if drawn < share {
                return self.perform(operation);
            }
            drawn -= share;
        }
    }

    pub(super) fn perform(&mut self, operation: Operation) {
        let from = self.ledger.now();
        let done = self.try_to(operation, from);
        match done {
            Ok(()) => *self.done.entry(operation).or_default() += 1,
            Err(error) if error.kind() == ErrorKind::Closed => self.is_closed = true,
            Err(error) => {
                let what = format!("{operation:?} of caller {}: {error}", self.number);
                self.ledger.violate(Class::WrongError.violation(what));
            }
        }
    }

    fn try_to(&mut self, operation: Operation, from: u64) -> Result<()> {
        match operation {
            Operation::Put => self.put(),
            Operation::Delete => self.delete(),
            Operation::Batch => self.batch(),
            Operation::DeleteRange => self.delete_range(),
            Operation::Get => self.get(from),
            Operation::Range => self.range(from),
            Operation::Snapshot => self.snapshot(from),
            Operation::Count => self.count(),
            Operation::Enqueue => self.enqueue(),
            Operation::Sync => {
                self.note("sync");
                self.db.sync()?;
                self.ledger.made_durable(from);
                Ok(())
            }
            Operation::Truncate => self.truncate(),
            Operation::Create => self.create(),
            Operation::Drop => self.drop_own(),
            Operation::CompactRange => {
                self.note("compact range");
                let table = self.any_table();
                let table = self.db.table(table)?;
                self.db.compact_range(&table, ..).map(drop)
            }
            Operation::Verify => {
                self.note("verify");
                let report = self.db.verify()?;
                if !report.damages.is_empty() {
                    self.ledger.violate(Class::Damaged.violation(format!("{report:?}")));
                }
                Ok(())
            }
            Operation::Grow => {
                self.note("grow");
                let grown = self.db.grow_pm((3 + self.chance.below(3)) << 20);
                match grown {
                    // Another caller has made it larger.
                    Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
                    grown => grown.map(drop),
                }
            }
            Operation::Close => {
                self.note("close");
                self.is_closed = true;
                self.db.clone().close()
            }
        }
    }

    fn note(&self, what: &str) {
        self.ledger.note(format!("caller {}: {what}", self.number));
    }

    fn any_table(&mut self) -> &'static str {
        TABLES[self.chance.below(TABLES.len() as u64) as usize]
    }

    fn durability(&mut self) -> Durability {
        if self.chance.percent(40) { Durability::Durable } else { Durability::Relaxed }
    }

    fn own_place(&mut self) -> Place {
        let row = self.chance.below(ROWS);
        (self.any_table(), key(self.number, row))
    }

    /// Calls a write and notes how it ended.
    fn write(
        &mut self,
        what: String,
        durability: Durability,
        changes: impl FnOnce(u64) -> BTreeMap<Place, Stamp>,
        write: impl FnOnce(&Caller, u64) -> Result<()>,
    ) -> Result<()> {
        let stamp = self.ledger.call(self.number, what, durability, changes);
        let written = write(self, stamp);
        self.ledger.ended(stamp, |now| match &written {
            Ok(()) => Outcome::Acknowledged(now),
            Err(error) => outcome_of(error),
        });
        written
    }

    fn put(&mut self) -> Result<()> {
        let (place, durability) = (self.own_place(), self.durability());
        let (at, len) = (place.clone(), self.chance.below(self.largest));
        let what = format!("put {} of {len} bytes, {durability:?}", shown(&place));
        self.write(
            what,
            durability,
            |stamp| BTreeMap::from([(place, Some(stamp))]),
            |caller, stamp| caller.db.table(at.0)?.put_with(&at.1, value(stamp, len), durability),
        )
    }

    fn delete(&mut self) -> Result<()> {
        let (place, durability) = (self.own_place(), self.durability());
        let at = place.clone();
        self.write(
            format!("delete {}, {durability:?}", shown(&place)),
            durability,
            |_| BTreeMap::from([(place, None)]),
            |caller, _| caller.db.table(at.0)?.delete_with(&at.1, durability),
        )
    }

    fn batch(&mut self) -> Result<()> {
        let durability = self.durability();
        let rows = 2 + self.chance.below(4);
        let mut parts = BTreeMap::new();
        for _ in 0..rows {
            let (place, deletes) = (self.own_place(), self.chance.percent(15));
            let len = self.chance.below(self.largest);
            parts.insert(place, (!deletes).then_some(len));
        }
        let names: Vec<String> = parts.keys().map(shown).collect();
        let changed: Vec<(Place, bool)> =
            parts.iter().map(|(place, len)| (place.clone(), len.is_some())).collect();
        self.write(
            format!("batch of {}, {durability:?}", names.join(", ")),
            durability,
            |stamp| {
                let change = |(place, puts): (Place, bool)| (place, puts.then_some(stamp));
                changed.into_iter().map(change).collect()
            },
            |caller, stamp| {
                let batch = caller.batch_of(&parts, stamp)?;
                caller.db.write_with(batch, durability)
            },
        )
    }

    fn batch_of(&self, parts: &BTreeMap<Place, Option<u64>>, stamp: u64) -> Result<WriteBatch> {
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

    fn delete_range(&mut self) -> Result<()> {
        let table = self.any_table();
        let prefix = format!("{} ", self.number).into_bytes();
        let number = self.number;
        self.write(
            format!("delete prefix {} in {table}", self.number),
            Durability::Durable,
            |_| (0..ROWS).map(|row| ((table, key(number, row)), None)).collect(),
            |caller, _| caller.db.table(table)?.delete_prefix(&prefix),
        )
    }

    fn get(&mut self, from: u64) -> Result<()> {
        let (caller, row) = (self.chance.below(self.callers as u64), self.chance.below(ROWS));
        let place = (self.any_table(), key(caller as usize, row));
        let found = self.db.table(place.0)?.get(&place.1)?;
        let key = place.1.clone();
        let state = State::from([(place, found.map(|value| stamp_of(&key, &value)))]);
        let to = self.ledger.now();
        self.ledger.judge(&state, Seen::Read(from, to), &format!("get of caller {}", self.number));
        Ok(())
    }

    fn range(&mut self, from: u64) -> Result<()> {
        let name = self.any_table();
        self.note(&format!("range of {name}"));
        let table = self.db.table(name)?;
        let mut state: State =
            places(name, self.callers).into_iter().map(|place| (place, None)).collect();
        let range = table.iter();
        let backwards = self.chance.percent(30);
        let read = |row: Result<(bytes::Bytes, bytes::Bytes)>| {
            row.map(|(key, value)| ((name, key.to_vec()), Some(stamp_of(&key, &value))))
        };
        let rows: Result<Vec<_>> =
            if backwards { range.rev().map(read).collect() } else { range.map(read).collect() };
        match rows {
            Ok(rows) => state.extend(rows),
            // A truncation between two chunks ends a range, as the documents say.
            Err(error) if error.kind() == ErrorKind::Invalid && name == TRUNCATED => return Ok(()),
            Err(error) => return Err(error),
        }
        let to = self.ledger.now();
        let who = format!("range of caller {}", self.number);
        self.ledger.judge(&state, Seen::Read(from, to), &who);
        Ok(())
    }

    fn snapshot(&mut self, from: u64) -> Result<()> {
        let snapshot = self.db.snapshot()?;
        let to = self.ledger.now();
        self.note(&format!("snapshot, taken in {from} to {to}"));
        let mut state = State::new();
        for name in TABLES {
            let table = self.db.table(name)?;
            for place in places(name, self.callers) {
                match snapshot.get(&table, &place.1) {
                    Ok(found) => {
                        state.insert(place.clone(), found.map(|value| stamp_of(&place.1, &value)))
                    }
                    // The table was emptied: its older rows are gone for snapshots too.
                    Err(error) if error.kind() == ErrorKind::Invalid && name == TRUNCATED => break,
                    Err(error) => return Err(error),
                };
            }
        }
        let who = format!("snapshot of caller {}", self.number);
        self.ledger.judge(&state, Seen::Read(from, to), &who);
        Ok(())
    }

    /// Counts the row of all callers up, in a transaction, and puts a row of its own.
    fn count(&mut self) -> Result<()> {
        let (place, len) = (self.own_place(), self.chance.below(self.largest));
        let at = place.clone();
        let counted = self.write(
            COUNT.into(),
            Durability::Durable,
            |stamp| {
                let counter = (TABLES[0], COUNTER.to_vec());
                BTreeMap::from([(counter, Some(stamp)), (place, Some(stamp))])
            },
            |caller, stamp| {
                let (counters, own) = (caller.db.table(TABLES[0])?, caller.db.table(at.0)?);
                let txn = caller.db.begin()?;
                let count = txn.get(&counters, COUNTER)?.map_or(0, |value| count_of(&value));
                txn.put(&counters, COUNTER, counter(stamp, count + 1))?;
                txn.put(&own, &at.1, value(stamp, len))?;
                txn.commit()
            },
        );
        match counted {
            Err(error) if is_of_isolation(&error) => Ok(()),
            other => other,
        }
    }

    fn enqueue(&mut self) -> Result<()> {
        let (place, durability) = (self.own_place(), self.durability());
        let (at, len) = (place.clone(), self.chance.below(self.largest));
        self.write(
            format!("enqueue {}, {durability:?}", shown(&place)),
            durability,
            |stamp| BTreeMap::from([(place, Some(stamp))]),
            |caller, stamp| {
                let batch = caller.batch_of(&BTreeMap::from([(at, Some(len))]), stamp)?;
                caller.db.enqueue(batch, durability)?.wait()
            },
        )
    }

    fn truncate(&mut self) -> Result<()> {
        let (table, callers) = (TRUNCATED, self.callers);
        self.write(
            format!("truncate {table}"),
            Durability::Durable,
            |_| places(table, callers).into_iter().map(|place| (place, None)).collect(),
            |caller, _| caller.db.truncate_table(table),
        )
    }

    /// Creates the caller's own table, if it is not there, and puts a row there.
    fn create(&mut self) -> Result<()> {
        let name = OWN_TABLES[self.number % OWN_TABLES.len()];
        let place = (name, key(self.number, 0));
        self.write(
            format!("create {name}"),
            Durability::Durable,
            |stamp| BTreeMap::from([(place, Some(stamp))]),
            |caller, stamp| {
                let table: Table = caller.db.table(name)?;
                table.put(key(caller.number, 0), value(stamp, 10))?;
                Ok(())
            },
        )
    }

    fn drop_own(&mut self) -> Result<()> {
        let name = OWN_TABLES[self.number % OWN_TABLES.len()];
        let place = (name, key(self.number, 0));
        if self.db.existing_table(name).is_err() {
            return Ok(());
        }
        self.write(
            format!("drop {name}"),
            Durability::Durable,
            |_| BTreeMap::from([(place, None)]),
            |caller, _| caller.db.drop_table(name),
        )
    }
}

/// What a write that counts is called.
pub(super) const COUNT: &str = "count";

fn counter(stamp: u64, count: u64) -> Vec<u8> {
    let mut bytes = value(stamp, 1);
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes
}

/// What the counter has come to.
pub(super) fn count_of(value: &[u8]) -> u64 {
    value.get(9..).and_then(|count| count.try_into().ok()).map_or(u64::MAX, u64::from_le_bytes)
}

fn is_of_isolation(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Deadlock | ErrorKind::Timeout)
}

fn outcome_of(error: &Error) -> Outcome {
    if is_of_isolation(error) || error.kind() == ErrorKind::Closed {
        Outcome::Refused
    } else {
        Outcome::Unknown
    }
}

fn shown((table, key): &Place) -> String {
    format!("{table}[{}]", String::from_utf8_lossy(key))
}

/// All rows of a database.
pub(super) fn read_all(db: &Database, callers: usize) -> Result<State> {
    let mut state = State::new();
    for name in TABLES.into_iter().chain(OWN_TABLES.into_iter().take(callers)) {
        state.extend(places(name, callers).into_iter().map(|place| (place, None)));
        let Ok(table) = db.existing_table(name) else { continue };
        let all = (Bound::<Vec<u8>>::Unbounded, Bound::<Vec<u8>>::Unbounded);
        for row in table.range(all) {
            let (key, value) = row?;
            state.insert((name, key.to_vec()), Some(stamp_of(&key, &value)));
        }
    }
    Ok(state)
}
