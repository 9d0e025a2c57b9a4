//! Transactions.

use std::cell::Cell;
use std::collections::BTreeMap;

use terrace::testing::ReadFaults;
use terrace::{Durability, Isolation, LockWait, Result, Transaction, TxnOptions};

use super::super::caller::{Caller, changes_of, is_of_isolation};
use super::super::ledger::{Place, State};
use super::super::rows::{COUNTER, MAIN, count_of, counter, shown, stamp_of, value};
use super::Operation;

/// What a write that counts is called.
pub(crate) const COUNT: &str = "count";

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("count", 8, count),
    Operation::new("count again", 2, count_again),
    Operation::new("update", 3, update),
    Operation::new("savepoint", 4, savepoint),
    Operation::new("spill", 1, spill),
];

/// A transaction, and between which moments its snapshot was taken.
struct Begun {
    txn: Transaction,
    from: u64,
    to: u64,
}

impl Begun {
    fn new(caller: &Caller, options: TxnOptions) -> Result<Begun> {
        let from = caller.world.ledger.now();
        let txn = caller.db.begin_with(options)?;
        Ok(Begun { txn, from, to: caller.world.ledger.now() })
    }

    /// Reads a row of all callers' table, which the transaction has not written: it is that of the
    /// snapshot. Returns its count, if it is the counter.
    fn read(&self, caller: &Caller, key: &[u8]) -> Result<u64> {
        let found = self.txn.get(&caller.db.table(MAIN)?, key)?;
        let stamp = found.as_ref().map(|value| stamp_of(key, value));
        let seen = caller.world.seen(&caller.db, (self.from, self.to));
        let who = format!("a transaction of caller {}", caller.number);
        caller.world.ledger.judge(&State::from([((MAIN, key.to_vec()), stamp)]), seen, &who);
        Ok(found.map_or(0, |value| count_of(&value)))
    }

    /// Reads those of the places that are in all callers' table.
    fn read_all<'a>(
        &self,
        caller: &Caller,
        places: impl IntoIterator<Item = &'a Place>,
    ) -> Result<()> {
        let mut places = places.into_iter().filter(|(table, _)| *table == MAIN);
        places.try_for_each(|(_, key)| self.read(caller, key).map(drop))
    }
}

/// Counts the row of all callers up, and puts a row of its own.
fn count(caller: &mut Caller, _from: u64) -> Result<()> {
    let (place, len) = (caller.own_place(), caller.chance.below(caller.largest));
    let (at, optimistic) = (place.clone(), caller.chance.percent(30));
    let counted = caller.write(
        COUNT.into(),
        Durability::Durable,
        |stamp| BTreeMap::from([((MAIN, COUNTER.to_vec()), Some(stamp)), (place, Some(stamp))]),
        |caller, stamp| {
            let (counters, own) = (caller.db.table(MAIN)?, caller.db.table(at.0)?);
            let options = TxnOptions::new();
            let options = if optimistic { options.optimistic() } else { options };
            let begun = Begun::new(caller, options)?;
            let (count, txn) = (begun.read(caller, COUNTER)?, begun.txn);
            txn.put(&counters, COUNTER, counter(stamp, count + 1))?;
            txn.put(&own, &at.1, value(stamp, len))?;
            caller.world.ledger.commits(stamp);
            txn.commit()
        },
    );
    unless_refused(counted)
}

/// Counts it up by a call that cannot read what it checks, and by the same call once more. What
/// others count between the snapshot and the call has gone down to where it is read from a file.
fn count_again(caller: &mut Caller, _from: u64) -> Result<()> {
    let faults = ReadFaults { seed: caller.chance.next(), every: 1, flips: false };
    let counted = caller.write(
        COUNT.into(),
        Durability::Durable,
        |stamp| BTreeMap::from([((MAIN, COUNTER.to_vec()), Some(stamp))]),
        |caller, stamp| {
            let counters = caller.db.table(MAIN)?;
            let options = TxnOptions::new().isolation(Isolation::Snapshot);
            let begun = Begun::new(caller, options.lock_wait(LockWait::NoWait))?;
            let (count, txn) = (begun.read(caller, COUNTER)?, begun.txn);
            for _ in 0..2 {
                caller.db.compact_range(&counters, ..)?;
            }
            let put = || txn.put(&counters, COUNTER, counter(stamp, count + 1));
            let unread = caller.world.unread(faults, put);
            match unread {
                Err(error) if is_of_isolation(&error) => return Err(error),
                Err(_) => put()?,
                Ok(()) => {}
            }
            caller.world.ledger.commits(stamp);
            txn.commit()
        },
    );
    unless_refused(counted)
}

/// Counts it up without a transaction.
fn update(caller: &mut Caller, _from: u64) -> Result<()> {
    let counted = caller.write(
        COUNT.into(),
        Durability::Durable,
        |stamp| BTreeMap::from([((MAIN, COUNTER.to_vec()), Some(stamp))]),
        |caller, stamp| {
            let (from, read) = (caller.world.ledger.now(), Cell::new(None));
            let count = |old: Option<&[u8]>| {
                read.set(old.map(|old| stamp_of(COUNTER, old)));
                Some(counter(stamp, old.map_or(0, count_of) + 1))
            };
            caller.db.table(MAIN)?.update(COUNTER, count)?;
            let state = State::from([((MAIN, COUNTER.to_vec()), read.get())]);
            let seen = caller.world.seen(&caller.db, (from, caller.world.ledger.now()));
            caller.world.ledger.judge(&state, seen, "an update");
            Ok(())
        },
    );
    unless_refused(counted)
}

/// What is written behind a savepoint is rolled back in some.
fn savepoint(caller: &mut Caller, _from: u64) -> Result<()> {
    let [first, behind, last] = [0; 3].map(|_| caller.own_place());
    let (rolls_back, ends) = (caller.chance.percent(70), caller.chance.percent(80));
    let wanted: Vec<_> = match (ends, rolls_back) {
        (false, _) => Vec::new(),
        (true, true) => vec![first.clone(), last.clone()],
        (true, false) => vec![first.clone(), behind.clone(), last.clone()],
    };
    let names: Vec<String> = wanted.iter().map(shown).collect();
    let committed = caller.write(
        format!("transaction with a savepoint: {}", names.join(", ")),
        Durability::Durable,
        |stamp| wanted.into_iter().map(|place| (place, Some(stamp))).collect(),
        |caller, stamp| {
            let begun = Begun::new(caller, TxnOptions::new())?;
            begun.read_all(caller, [&first, &behind, &last])?;
            let txn = begun.txn;
            let put = |place: &(&'static str, Vec<u8>), stamp| {
                txn.put(&caller.db.table(place.0)?, &place.1, value(stamp, 40))
            };
            put(&first, stamp)?;
            txn.set_savepoint("here")?;
            // A stamp that no write has, where it must not be seen.
            put(&behind, if rolls_back { u64::MAX - 1 } else { stamp })?;
            if rolls_back {
                txn.roll_back_to("here")?;
                // Another savepoint has room where the first one was.
                txn.set_savepoint("again")?;
            }
            put(&last, stamp)?;
            if ends {
                caller.world.ledger.commits(stamp);
                return txn.commit();
            }
            txn.roll_back();
            Ok(())
        },
    );
    unless_refused(committed)
}

/// A transaction whose writes do not stay in memory.
fn spill(caller: &mut Caller, _from: u64) -> Result<()> {
    let (mut parts, _) = caller.parts(6);
    parts.values_mut().for_each(|len| *len = len.map(|len| 4000 + len));
    let committed = caller.write(
        format!("transaction that spills: {} rows", parts.len()),
        Durability::Durable,
        |stamp| changes_of(&parts, stamp),
        |caller, stamp| {
            let begun = Begun::new(caller, TxnOptions::new().spill_at(4096))?;
            begun.read_all(caller, parts.keys())?;
            let txn = begun.txn;
            for ((table, key), len) in &parts {
                let table = caller.db.table(table)?;
                match len {
                    Some(len) => txn.put(&table, key, value(stamp, *len))?,
                    None => txn.delete(&table, key)?,
                }
            }
            caller.world.ledger.commits(stamp);
            txn.commit()
        },
    );
    unless_refused(committed)
}

fn unless_refused(done: Result<()>) -> Result<()> {
    match done {
        Err(error) if is_of_isolation(&error) => Ok(()),
        other => other,
    }
}
