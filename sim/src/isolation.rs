//! Transactions of one thread that take turns, each of which reads a counter and writes one more.
//! At the end each counter is as many as were acknowledged: else an update was lost.

use terrace::testing::Failpoint;
use terrace::{ErrorKind, LockWait, Table, Transaction, TxnOptions};

use crate::chance::Chance;
use crate::cuts::{Kind, PATH, options};
use crate::violation::{Class, Violation};

/// Transactions at a time.
const AT_ONCE: usize = 4;

/// Counters.
const KEYS: usize = 3;

/// A transaction that may have counted.
struct Open {
    txn: Transaction,
    counted: Option<usize>,
}

/// Counts by chance, and looks whether all that was acknowledged is counted.
pub fn check(seed: u64, failpoint: Option<Failpoint>) -> Result<(), Violation> {
    let mut chance = Chance::new(seed);
    let machine = Kind::Files.machine();
    let db = options(&machine, failpoint).create(PATH).map_err(|e| Class::Refused.violation(e))?;
    let table = db.table("counters").map_err(|e| Class::Refused.violation(e))?;
    let mut acknowledged = [0u64; KEYS];
    let mut open: Vec<Open> = Vec::new();
    for _ in 0..120 {
        if open.len() < AT_ONCE {
            let txn = db.begin_with(TxnOptions::new().lock_wait(LockWait::NoWait));
            open.push(Open { txn: txn.map_err(|e| wrong(&e))?, counted: None });
        }
        let n = chance.below(open.len() as u64) as usize;
        if let Some(key) = open[n].counted {
            match open.swap_remove(n).txn.commit() {
                Ok(()) => acknowledged[key] += 1,
                Err(e) => may_refuse(&e)?,
            }
            continue;
        }
        let key = chance.below(KEYS as u64) as usize;
        match count(&open[n].txn, &table, key) {
            Ok(()) => open[n].counted = Some(key),
            Err(e) => {
                may_refuse(&e)?;
                open.swap_remove(n);
            }
        }
    }
    drop(open);
    for (key, wanted) in acknowledged.into_iter().enumerate() {
        let found =
            table.get([key as u8]).map_err(|e| wrong(&e))?.map_or(0, |value| number(&value));
        if found != wanted {
            let what = format!("seed {seed}: counter {key} is {found} after {wanted} increments");
            return Err(Class::Isolation.violation(what));
        }
    }
    Ok(())
}

fn count(txn: &Transaction, table: &Table, key: usize) -> terrace::Result<()> {
    let now = txn.get(table, [key as u8])?.map_or(0, |value| number(&value));
    txn.put(table, [key as u8], (now + 1).to_le_bytes())
}

fn number(value: &[u8]) -> u64 {
    value.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

fn may_refuse(error: &terrace::Error) -> Result<(), Violation> {
    match error.kind() {
        ErrorKind::Conflict | ErrorKind::Deadlock | ErrorKind::Timeout => Ok(()),
        _ => Err(wrong(error)),
    }
}

fn wrong(error: &terrace::Error) -> Violation {
    Class::WrongError.violation(error)
}
