//! Rows with a time to live, by a clock that callers move.

use std::time::Duration;

use terrace::{Database, Result};

use super::super::caller::Caller;
use super::super::ledger::Ledger;
use super::super::rows::{YOUNG, stamp_of, value};
use super::Operation;
use crate::violation::Class;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("put young", 3, put),
    Operation::new("get young", 4, get),
    Operation::new("time passes", 2, pass),
];

/// How long rows live.
pub(crate) const LIFE: Duration = Duration::from_secs(60);

/// A row counts as written at the next mark of time. The background makes one a second, but callers
/// may move the clock on many times while it stands still.
const LONGEST_LIFE: Duration = Duration::from_secs(1200);

fn put(caller: &mut Caller, _from: u64) -> Result<()> {
    let ledger = caller.world.ledger.clone();
    let stamp = ledger.now();
    let called = ledger.young_called(caller.number);
    caller.note("put a row that lives a minute");
    caller.db.existing_table(YOUNG)?.put(caller.number.to_string(), value(stamp, 20))?;
    ledger.young_put(caller.number, stamp, called);
    Ok(())
}

/// Of itself: no other caller writes it meanwhile.
fn get(caller: &mut Caller, _from: u64) -> Result<()> {
    judge_young(&caller.db, &caller.world.ledger, caller.number)
}

/// Holds the row of a caller that does not write it meanwhile against the ledger.
pub(crate) fn judge_young(db: &Database, ledger: &Ledger, number: usize) -> Result<()> {
    let Some(row) = ledger.young(number) else { return Ok(()) };
    let (before, _) = ledger.time();
    let found = db.existing_table(YOUNG)?.get(number.to_string())?;
    let (_, after) = ledger.time();
    let found = found.map(|value| stamp_of(b"", &value));
    let is_young = after < row.called + LIFE;
    let is_old = before > row.ended + LONGEST_LIFE;
    match found {
        None if is_young => {
            let what = format!("row {} is gone at {after:?}: {row:?}", row.stamp);
            ledger.violate(Class::EarlyExpiry.violation(what));
        }
        Some(_) if is_old => {
            let what = format!("row {} is there at {before:?}: {row:?}", row.stamp);
            ledger.violate(Class::Changed.violation(what));
        }
        Some(stamp) if stamp != row.stamp => {
            let what = format!("row {stamp} is there for {}", row.stamp);
            ledger.violate(Class::Changed.violation(what));
        }
        _ => {}
    }
    Ok(())
}

fn pass(caller: &mut Caller, _from: u64) -> Result<()> {
    let time = Duration::from_secs(1 + caller.chance.below(80));
    caller.note(&format!("{time:?} pass"));
    caller.world.ledger.pass(time, || caller.world.clock.pass(time));
    Ok(())
}
