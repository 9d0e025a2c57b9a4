//! Rows that callers push, and of which each is popped once.

use std::collections::BTreeMap;

use terrace::{Durability, Result};

use super::super::caller::{Caller, is_of_isolation};
use super::super::ledger::{Outcome, Wanted};
use super::super::rows::{QUEUE, empty, stamp_of, value};
use super::Operation;
use crate::violation::Class;

pub(super) const OPERATIONS: &[Operation] =
    &[Operation::new("push", 6, push), Operation::new("pop", 6, pop)];

fn key(caller: usize, stamp: u64) -> Vec<u8> {
    format!("{stamp:06} {caller}").into_bytes()
}

fn push(caller: &mut Caller, _from: u64) -> Result<()> {
    let (number, durability) = (caller.number, caller.durability());
    caller.write(
        format!("push, {durability:?}"),
        durability,
        |stamp| BTreeMap::from([((QUEUE, key(number, stamp)), Some(stamp))]),
        |caller, stamp| {
            let row = (key(number, stamp), value(stamp, 30));
            caller.db.table(QUEUE)?.durability(durability).put(row.0, row.1)
        },
    )
}

/// Which row it gets is known when it has it.
fn pop(caller: &mut Caller, from: u64) -> Result<()> {
    let ledger = caller.world.ledger.clone();
    let (is_last, in_txn) = (caller.chance.percent(50), caller.chance.percent(40));
    let what = format!("pop the {}", if is_last { "last" } else { "first" });
    let wanted = Wanted { is_one_of: true, ..Wanted::new(caller.number, what) };
    let callers = caller.world.callers;
    let all = empty(QUEUE, callers, &ledger);
    let stamp = ledger.call(wanted, |_| all);
    let run = || -> Result<_> {
        let table = caller.db.table(QUEUE)?;
        if !in_txn {
            return if is_last { table.pop_last() } else { table.pop_first() };
        }
        let options = terrace::TxnOptions::new()
            .isolation(caller.world.isolation)
            .durability(Durability::Durable);
        let txn = caller.db.begin_with(options)?;
        let popped = if is_last { txn.pop_last(&table) } else { txn.pop_first(&table) }?;
        txn.commit()?;
        Ok(popped)
    };
    let popped = run();
    match &popped {
        Ok(Some((key, value))) => {
            let place = (QUEUE, key.to_vec());
            ledger.judge_pop((stamp, from, is_last), (key, stamp_of(key, value)));
            if let Some(other) = ledger.popped(&place) {
                let what = format!("{stamp} has popped what {other} has popped: {key:?}");
                ledger.violate(Class::Isolation.violation(what));
            }
            ledger.narrow(stamp, BTreeMap::from([(place, None)]));
            ledger.ended(stamp, Outcome::Acknowledged);
        }
        Ok(None) => {
            ledger.narrow(stamp, BTreeMap::new());
            ledger.ended(stamp, |_| Outcome::Refused);
            // A moment of the call had no row. That of a transaction is its snapshot's.
            let state = empty(QUEUE, callers, &ledger);
            let to = ledger.now();
            let seen = caller.world.seen(&caller.db, (from, to));
            ledger.judge(&state, seen, "a pop of nothing");
        }
        Err(error) => caller.ended(stamp, Some(error)),
    }
    match popped {
        Err(error) if is_of_isolation(&error) => Ok(()),
        other => other.map(drop),
    }
}
