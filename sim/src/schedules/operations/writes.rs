//! Writes without a transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use terrace::testing::schedule;
use terrace::{Durability, Result};

use super::super::caller::{Caller, changes_of};
use super::super::ledger::Wanted;
use super::super::rows::{BLOB, MAIN, MERGED, ROWS, key, operand, shown, value};
use super::super::tasks::wait_for;
use super::Operation;
use crate::violation::Class;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("put", 24, put),
    Operation::new("delete", 4, delete),
    Operation::new("batch", 12, batch),
    Operation::new("put with a blob", 6, put_with_blob),
    Operation::new("delete range", 4, delete_range),
    Operation::new("merge", 6, merge),
    Operation::new("enqueue", 6, enqueue),
    Operation::new("enqueue two", 3, enqueue_two),
    Operation::new("await", 4, await_one),
    Operation::new("enqueue and rest", 2, enqueue_and_rest),
    Operation::new("sync", 2, sync),
];

/// So long a caller rests before it waits for what it has enqueued.
const REST: Duration = Duration::from_millis(50);

fn put(caller: &mut Caller, _from: u64) -> Result<()> {
    let (place, durability) = (caller.own_place(), caller.durability());
    let (at, len) = (place.clone(), caller.chance.below(caller.largest));
    caller.write(
        format!("put {} of {len} bytes, {durability:?}", shown(&place)),
        durability,
        |stamp| BTreeMap::from([(place, Some(stamp))]),
        |caller, stamp| caller.db.table(at.0)?.durability(durability).put(&at.1, value(stamp, len)),
    )
}

fn delete(caller: &mut Caller, _from: u64) -> Result<()> {
    let (place, durability) = (caller.own_place(), caller.durability());
    let at = place.clone();
    caller.write(
        format!("delete {}, {durability:?}", shown(&place)),
        durability,
        |_| BTreeMap::from([(place, None)]),
        |caller, _| caller.db.table(at.0)?.durability(durability).delete(&at.1),
    )
}

/// Some rows, and in some a blob.
fn batch(caller: &mut Caller, _from: u64) -> Result<()> {
    let (durability, has_blob) = (caller.durability(), caller.chance.percent(40));
    let (parts, names) = caller.parts(5);
    caller.write(
        format!("batch of {names}{}, {durability:?}", if has_blob { " and a blob" } else { "" }),
        durability,
        |stamp| {
            let mut changes = changes_of(&parts, stamp);
            changes.extend(has_blob.then_some((BLOB, Some(stamp))));
            changes
        },
        |caller, stamp| {
            let mut batch = caller.batch_of(&parts, stamp)?;
            if has_blob {
                batch.set_blob(value(stamp, 4));
            }
            caller.db.write_with(&batch, durability)
        },
    )
}

/// A small batch with a blob: many of them supersede each other in a short time.
fn put_with_blob(caller: &mut Caller, _from: u64) -> Result<()> {
    let (durability, (parts, names)) = (caller.durability(), caller.parts(1));
    caller.write(
        format!("put {names} with a blob, {durability:?}"),
        durability,
        |stamp| {
            let mut changes = changes_of(&parts, stamp);
            changes.insert(BLOB, Some(stamp));
            changes
        },
        |caller, stamp| {
            let mut batch = caller.batch_of(&parts, stamp)?;
            batch.set_blob(value(stamp, 4));
            caller.db.write_with(&batch, durability)
        },
    )
}

fn delete_range(caller: &mut Caller, _from: u64) -> Result<()> {
    let (table, number) = (caller.any_table(), caller.number);
    let prefix = format!("{number} ").into_bytes();
    caller.write(
        format!("delete prefix {number} in {table}"),
        Durability::Durable,
        |_| (0..ROWS).map(|row| ((table, key(number, row)), None)).collect(),
        |caller, _| caller.db.table(table)?.delete_prefix(&prefix),
    )
}

/// Appends the stamp to a row of all callers.
fn merge(caller: &mut Caller, _from: u64) -> Result<()> {
    let durability = caller.durability();
    caller.write(
        format!("merge, {durability:?}"),
        durability,
        |stamp| BTreeMap::from([(operand(stamp), Some(stamp))]),
        |caller, stamp| {
            caller.db.table(MAIN)?.durability(durability).merge(MERGED, stamp.to_le_bytes())
        },
    )
}

fn enqueue(caller: &mut Caller, _from: u64) -> Result<()> {
    let (durability, (parts, names)) = (caller.durability(), caller.parts(2));
    caller.write(
        format!("enqueue {names}, {durability:?}"),
        durability,
        |stamp| changes_of(&parts, stamp),
        |caller, stamp| {
            let batch = caller.batch_of(&parts, stamp)?;
            caller.db.enqueue(batch, durability)?.wait()
        },
    )
}

/// Two commits of other rows that are under way at once: the later one is waited for first, or
/// awaited. The rows of a commit are locked until it was waited for.
fn enqueue_two(caller: &mut Caller, _from: u64) -> Result<()> {
    let (first, mut second) = (caller.parts(2), caller.parts(2));
    second.0.retain(|place, _| !first.0.contains_key(place));
    let (relaxed, durable) = (Durability::Relaxed, Durability::Durable);
    let (awaits, is_impatient) = (caller.chance.percent(50), caller.chance.percent(50));
    let what = format!("enqueue {}, relaxed, before another", first.1);
    let wanted = Wanted { durability: relaxed, ..Wanted::new(caller.number, what) };
    let stamp = caller.world.ledger.call(wanted, |stamp| changes_of(&first.0, stamp));
    let enqueued = caller
        .batch_of(&first.0, stamp)
        .and_then(|batch| caller.db.enqueue(batch, relaxed))
        .inspect_err(|error| caller.ended(stamp, Some(error)))?;
    let later = caller.write(
        format!("enqueue {} behind it, durable", second.1),
        durable,
        |stamp| changes_of(&second.0, stamp),
        |caller, stamp| {
            let batch = caller.batch_of(&second.0, stamp)?;
            let pending = caller.db.enqueue(batch, durable)?;
            if awaits { wait_for(pending, is_impatient) } else { pending.wait() }
        },
    );
    let done = enqueued.wait();
    caller.ended(stamp, done.as_ref().err());
    later.and(done)
}

/// A commit that is awaited, and polled for no reason too. When it is done it is durable.
fn await_one(caller: &mut Caller, _from: u64) -> Result<()> {
    let (parts, names) = caller.parts(1);
    caller.write(
        format!("await {names}"),
        Durability::Durable,
        |stamp| changes_of(&parts, stamp),
        |caller, stamp| {
            let pending =
                caller.db.enqueue(caller.batch_of(&parts, stamp)?, Durability::Durable)?;
            let number = pending.number();
            wait_for(pending, true)?;
            let durable = caller.db.stats().commit.durable;
            if durable < number {
                let what = format!("commit {number} is done, and {durable} is durable");
                caller.world.ledger.violate(Class::Lost.violation(what));
            }
            Ok(())
        },
    )
}

/// What is enqueued is published by others, if they wait for what comes after it.
fn enqueue_and_rest(caller: &mut Caller, _from: u64) -> Result<()> {
    let (parts, names) = caller.parts(2);
    caller.write(
        format!("enqueue {names}, and rest before the wait"),
        Durability::Durable,
        |stamp| changes_of(&parts, stamp),
        |caller, stamp| {
            let batch = caller.batch_of(&parts, stamp)?;
            let pending = caller.db.enqueue(batch, Durability::Durable)?;
            schedule::pause(REST);
            pending.wait()
        },
    )
}

fn sync(caller: &mut Caller, from: u64) -> Result<()> {
    caller.note("sync");
    caller.db.sync()?;
    caller.world.ledger.made_durable(from);
    Ok(())
}
