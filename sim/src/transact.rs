//! Transactions of a rig: they write, or are prepared.

use std::ops::Bound;

use terrace::{Database, Result, Transaction, TxnOptions};

use crate::content::{Effect, prepared_name, prepared_rows, upper};

/// A transaction that has written `effects` and is to be committed.
pub(crate) fn write_in_transaction(db: &Database, effects: &[Effect]) -> Result<Transaction> {
    let txn = db.begin_with(TxnOptions::new().spill_at(6000))?;
    for (n, effect) in effects.iter().enumerate() {
        txn.set_savepoint("before")?;
        match effect {
            Effect::Put(table, key, value) => {
                let table = db.existing_table(table)?;
                if n % 5 == 0 {
                    txn.put(&table, key, [7; 5000])?;
                    txn.roll_back_to("before")?;
                }
                txn.put(&table, key, value)?;
            }
            Effect::Merge(table, key, operand) => {
                txn.merge(&db.existing_table(table)?, key, operand)?;
            }
            Effect::Delete(table, key) => txn.delete(&db.existing_table(table)?, key)?,
            Effect::DeleteRange(table, start, end) => {
                let range = (Bound::Included(start.clone()), upper(end.as_ref()));
                txn.delete_range(&db.existing_table(table)?, range)?;
            }
            other => panic!("{other:?} is no write"),
        }
        txn.release_savepoint("before")?;
    }
    Ok(txn)
}

/// Prepares transaction `n`: every second one keeps a row in memory, and spills the others.
pub(crate) fn prepare_transaction(db: &Database, n: u64) -> Result<()> {
    let spill_at = if n.is_multiple_of(2) { 1 } else { usize::MAX };
    let txn = db.begin_with(TxnOptions::new().spill_at(spill_at))?;
    for effect in prepared_rows(n) {
        match effect {
            Effect::Put(table, key, value) => txn.put(&db.existing_table(&table)?, key, value)?,
            Effect::Delete(table, key) => txn.delete(&db.existing_table(&table)?, key)?,
            other => panic!("{other:?} is no write"),
        }
    }
    txn.prepare(prepared_name(n))
}
