//! Transactions in two phases.

use std::collections::BTreeMap;

use terrace::{Database, Result};

use super::super::caller::{Caller, is_of_isolation, outcome_of};
use super::super::ledger::{Ledger, Outcome, State, Wanted};
use super::super::rows::{MAIN, PREPARED_ROWS, prepared_key, shown, stamp_of, value};
use super::Operation;

pub(super) const OPERATIONS: &[Operation] =
    &[Operation::new("prepare", 5, prepare), Operation::new("resolve", 5, resolve)];

/// Prepares a row that no other write has, or resolves the transaction that has it.
fn prepare(caller: &mut Caller, _from: u64) -> Result<()> {
    let place = (MAIN, prepared_key(caller.number, caller.chance.below(PREPARED_ROWS)));
    let ledger = caller.world.ledger.clone();
    if let Some(stamp) = ledger.prepared().into_iter().find(|stamp| ledger.changes(*stamp, &place))
    {
        let commits = caller.chance.percent(70);
        return verdict(&caller.db, &ledger, (stamp, commits));
    }
    let len = caller.chance.below(caller.largest);
    let what = format!("prepare {}", shown(&place));
    let wanted = Wanted { is_prepared: true, ..Wanted::new(caller.number, what) };
    let at = place.clone();
    let stamp = ledger.call(wanted, |stamp| BTreeMap::from([(place, Some(stamp))]));
    let prepare = || -> Result<()> {
        let table = caller.db.table(at.0)?;
        let txn = caller.db.begin()?;
        txn.put(&table, &at.1, value(stamp, len))?;
        // Read only: it is locked until the verdict.
        txn.get_for_update(&table, format!("locked {stamp}"))?;
        txn.prepare(stamp.to_string())
    };
    let prepared = prepare();
    match &prepared {
        Ok(()) => ledger.ended(stamp, |_| Outcome::Prepared),
        Err(error) if is_of_isolation(error) => ledger.ended(stamp, |_| Outcome::Refused),
        Err(error) => {
            // No reader sees it, though it may be prepared.
            let unless_refused = |outcome| match outcome {
                Outcome::Refused => Outcome::Refused,
                _ => Outcome::Preparing,
            };
            ledger.ended(stamp, |_| unless_refused(outcome_of(error)));
        }
    }
    match prepared {
        Err(error) if is_of_isolation(&error) => Ok(()),
        other => other,
    }
}

/// Resolves a transaction, of any caller.
fn resolve(caller: &mut Caller, _from: u64) -> Result<()> {
    let ledger = caller.world.ledger.clone();
    let prepared = ledger.prepared();
    if prepared.is_empty() {
        return Ok(());
    }
    let (stamp, commits) = (*caller.chance.pick(&prepared), caller.chance.percent(60));
    verdict(&caller.db, &ledger, (stamp, commits))
}

fn verdict(db: &Database, ledger: &Ledger, (stamp, commits): (u64, bool)) -> Result<()> {
    // One caller resolves it.
    if !ledger.resolving(stamp, commits) {
        return Ok(());
    }
    let id = stamp.to_string();
    let done = if commits {
        db.commit_prepared(id)
    } else {
        db.roll_back_prepared(id, terrace::Durability::Durable)
    };
    ledger.ended(stamp, |now| match (&done, commits) {
        (Ok(()), true) => Outcome::Acknowledged(now),
        (Ok(()), false) => Outcome::Refused,
        (Err(error), _) if error.kind() == terrace::ErrorKind::UnknownOutcome => {
            if commits {
                Outcome::Unknown
            } else {
                Outcome::RollingBack
            }
        }
        // It is still prepared.
        (Err(_), _) => Outcome::Prepared,
    });
    done
}

/// Whether a database has prepared what the ledger says, or committed it.
pub(crate) fn still_prepared(db: &Database, ledger: &Ledger, who: &str) -> Result<()> {
    let listed: Vec<u64> = db
        .list_prepared()
        .into_iter()
        .map(|info| String::from_utf8_lossy(&info.id).parse().unwrap_or(u64::MAX))
        .collect();
    let mut rows = State::new();
    for (name, key) in ledger.places_of(MAIN, b"prepared ") {
        let value = db.existing_table(name)?.get(&key)?;
        rows.insert((name, key.clone()), value.map(|value| stamp_of(&key, &value)));
    }
    ledger.judge_prepared(&listed, &rows, who);
    Ok(())
}

/// Resolves all that a database has prepared.
pub(crate) fn resolve_all(db: &Database, ledger: &Ledger) -> Result<()> {
    for stamp in ledger.prepared() {
        verdict(db, ledger, (stamp, stamp % 3 > 0))?;
    }
    Ok(())
}
