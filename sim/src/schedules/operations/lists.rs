//! Transactions of one level that append themselves to lists, and read lists: their histories show
//! what their level forbids.

use std::collections::BTreeMap;
use std::time::Duration;

use terrace::{Isolation, LockWait, Result, Table, Transaction, TxnOptions};

use super::super::caller::{Caller, is_of_isolation};
use super::super::rows::{LIST_KEYS, LISTS};
use super::Operation;
use crate::histories::{Done, list_of};

pub(super) const OPERATIONS: &[Operation] = &[Operation::new("lists", 8, lists)];

fn lists(caller: &mut Caller, from: u64) -> Result<()> {
    let id = caller.world.ledger.new_history();
    match run(caller, id, from) {
        Err(error) if is_of_isolation(&error) => {
            caller.world.ledger.history_refused(id);
            Ok(())
        }
        Ok(()) => {
            caller.world.ledger.history_committed(id);
            Ok(())
        }
        other => other,
    }
}

fn run(caller: &mut Caller, id: u32, from: u64) -> Result<()> {
    let options = TxnOptions::new().isolation(caller.world.isolation);
    // It checks against a snapshot.
    let can_check = caller.world.isolation != Isolation::ReadCommitted;
    let is_optimistic = caller.chance.percent(25) && can_check;
    let options = if is_optimistic { options.optimistic() } else { options };
    // A point takes a microsecond or more. Some give up while others wait behind them.
    let is_impatient = caller.chance.percent(30);
    let wait = Duration::from_micros(1 << caller.chance.below(18));
    let options = if is_impatient { options.lock_wait(LockWait::AtMost(wait)) } else { options };
    let table = caller.db.table(LISTS)?;
    let txn = caller.db.begin_with(options)?;
    let mut done = Done { id, called: Some(from), ..Done::default() };
    for _ in 0..1 + caller.chance.below(4) {
        let key = caller.chance.below(u64::from(caller.world.lists)) as u8;
        match caller.chance.below(5) {
            0 => read_range(&txn, &table, &mut done)?,
            1 | 2 => {
                let read = list_of(txn.get(&table, [key])?.as_deref());
                if !done.appends.contains(&key) {
                    done.reads.push((key, read));
                }
            }
            _ => append(&txn, &table, key, &mut done)?,
        }
    }
    caller.note(&format!("transaction {id} of lists: {:?} to {:?}", done.reads, done.appends));
    caller.world.ledger.history_meant(done);
    txn.commit()
}

fn read_range(txn: &Transaction, table: &Table, done: &mut Done) -> Result<()> {
    let mut rows: BTreeMap<u8, Vec<u32>> = (0..LIST_KEYS).map(|key| (key, Vec::new())).collect();
    for row in txn.range(table, ..)? {
        let (key, value) = row?;
        rows.insert(key[0], list_of(Some(&value)));
    }
    rows.retain(|key, _| !done.appends.contains(key));
    done.reads.extend(rows);
    Ok(())
}

fn append(txn: &Transaction, table: &Table, key: u8, done: &mut Done) -> Result<()> {
    let value = txn.get_for_update(table, [key])?;
    if !done.appends.contains(&key) {
        done.reads.push((key, list_of(value.as_deref())));
    }
    let mut value = value.map(|value| value.to_vec()).unwrap_or_default();
    value.extend_from_slice(&done.id.to_be_bytes());
    txn.put(table, [key], value)?;
    done.appends.push(key);
    Ok(())
}
