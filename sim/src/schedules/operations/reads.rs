//! Reads.

use terrace::{Result, Snapshot};

use super::super::caller::Caller;
use super::super::ledger::{Place, Stamp, State};
use super::super::rows::{
    APART, BLOB, COUNTER, MAIN, MERGED, ROWS, TABLES, empty, empty_row, key, shown, stamp_of,
    take_in,
};
use super::Operation;
use crate::violation::Class;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("get", 10, get),
    Operation::new("get several", 3, multi_get),
    Operation::new("range", 6, range),
    Operation::new("snapshot", 5, snapshot),
    Operation::new("last blob", 6, last_blob),
];

/// Holds what was read since `from` against the ledger.
fn judge(caller: &Caller, state: &State, from: u64, what: &str) {
    let ledger = &caller.world.ledger;
    let to = ledger.now();
    ledger.judge(
        state,
        caller.world.seen(&caller.db, (from, to)),
        &format!("{what} of caller {}", caller.number),
    );
}

fn get(caller: &mut Caller, from: u64) -> Result<()> {
    let of = caller.chance.below(caller.world.callers as u64) as usize;
    let (name, row) = (caller.any_table(), key(of, caller.chance.below(caller.world.rows)));
    let (name, key) = match caller.chance.below(8) {
        0 => (MAIN, MERGED.to_vec()),
        1 => (MAIN, COUNTER.to_vec()),
        _ => (name, row),
    };
    let found = caller.db.table(name)?.get(&key)?;
    judge(caller, &row_of(caller, name, (&key, found.as_deref())), from, "get");
    Ok(())
}

/// The state of a row that was read.
fn row_of(caller: &Caller, table: &'static str, (key, value): (&[u8], Option<&[u8]>)) -> State {
    let mut state = match (table, key) {
        (MAIN, MERGED) => empty_row(&caller.world.ledger),
        _ => State::from([((table, key.to_vec()), None)]),
    };
    if let Some(value) = value {
        take_in(&mut state, &caller.world.ledger, table, (key, value));
    }
    state
}

/// All rows of a caller, at one moment.
fn multi_get(caller: &mut Caller, from: u64) -> Result<()> {
    let of = caller.chance.below(caller.world.callers as u64) as usize;
    let (name, keys) = (caller.any_table(), (0..ROWS).map(|row| key(of, row)));
    let keys: Vec<Vec<u8>> = keys.collect();
    let found = caller.db.table(name)?.multi_get(&keys)?;
    let stamps = keys.into_iter().zip(found).map(|(key, value)| {
        let stamp = value.map(|value| stamp_of(&key, &value));
        ((name, key), stamp)
    });
    judge(caller, &stamps.collect(), from, "get of several");
    Ok(())
}

fn range(caller: &mut Caller, from: u64) -> Result<()> {
    let (name, backwards) = (caller.any_table(), caller.chance.percent(40));
    caller.note(&format!("range of {name}"));
    let (callers, ledger) = (caller.world.callers, caller.world.ledger.clone());
    let range = caller.db.table(name)?.iter();
    let rows: Result<Vec<_>> = if backwards { range.rev().collect() } else { range.collect() };
    let rows = match rows {
        Ok(rows) => rows,
        // A truncation between two chunks ends a range, as the documents say.
        Err(error) if caller.is_of_emptying(&error, name, from) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut state = empty(name, callers, &ledger);
    for (key, value) in rows {
        take_in(&mut state, &ledger, name, (&key, &value));
    }
    judge(caller, &state, from, "range");
    Ok(())
}

/// A snapshot, whose tables are read some time later.
fn snapshot(caller: &mut Caller, from: u64) -> Result<()> {
    let snapshot = caller.db.snapshot()?;
    let (callers, ledger) = (caller.world.callers, caller.world.ledger.clone());
    let (to, backwards) = (ledger.now(), caller.chance.percent(50));
    caller.note(&format!("snapshot, taken in {from} to {to}"));
    let mut state = State::new();
    stays_as_it_is(caller, &snapshot, from)?;
    for name in TABLES {
        let table = caller.db.table(name)?;
        let range = snapshot.range(&table, ..);
        let rows: Result<Vec<_>> = if backwards { range.rev().collect() } else { range.collect() };
        let rows = match rows {
            Ok(rows) => rows,
            // The table was emptied: its older rows are gone for snapshots too.
            Err(error) if caller.is_of_emptying(&error, name, from) => continue,
            Err(error) => return Err(error),
        };
        let mut of_table = empty(name, callers, &ledger);
        for (key, value) in rows {
            take_in(&mut of_table, &ledger, name, (&key, &value));
        }
        if name == MAIN {
            let merged = snapshot.get(&table, MERGED)?;
            let again = row_of(caller, name, (MERGED, merged.as_deref()));
            // The later one knows of operands that were merged since.
            let differs = |(place, found): &(&Place, &Stamp)| {
                of_table.get(*place).copied().flatten() != **found
            };
            if let Some((place, _)) = again.iter().find(differs) {
                let what = format!("a snapshot has {} in a range or a get alone", shown(place));
                ledger.violate(Class::Changed.violation(what));
            }
        }
        for (place, found) in of_table.iter().filter(|((_, key), _)| key.first() != Some(&b'o')) {
            let again = match snapshot.get(&table, &place.1) {
                Ok(again) => again.map(|value| stamp_of(&place.1, &value)),
                Err(error) if caller.is_of_emptying(&error, name, from) => break,
                Err(error) => return Err(error),
            };
            if again != *found {
                let what = format!("{name}: a snapshot has {found:?} in a range, and {again:?}");
                ledger.violate(Class::Changed.violation(what));
            }
        }
        state.extend(of_table);
    }
    ledger.judge(
        &state,
        caller.world.seen(&caller.db, (from, to)),
        &format!("snapshot of caller {}", caller.number),
    );
    Ok(())
}

/// A row that is read again and again is the same in a snapshot.
fn stays_as_it_is(caller: &mut Caller, snapshot: &Snapshot, from: u64) -> Result<()> {
    let table = caller.db.table(APART)?;
    let of = caller.chance.below(caller.world.callers as u64) as usize;
    let key = key(of, caller.chance.below(caller.world.rows));
    let times = caller.chance.below(30);
    let get = || match snapshot.get(&table, &key) {
        Err(error) if caller.is_of_emptying(&error, APART, from) => Ok(None),
        found => found.map(|found| Some(found.map(|value| stamp_of(&key, &value)))),
    };
    let Some(first) = get()? else { return Ok(()) };
    for _ in 0..times {
        let Some(again) = get()? else { break };
        if again != first {
            let what =
                format!("{}: a snapshot has {first:?}, and {again:?} later", shown(&(APART, key)));
            caller.world.ledger.violate(Class::Changed.violation(what));
            break;
        }
    }
    Ok(())
}

fn last_blob(caller: &mut Caller, from: u64) -> Result<()> {
    let blob = caller.db.last_blob().map(|blob| stamp_of(b"", &blob));
    if caller.db.existing_table(TABLES[0]).is_err() {
        // It was closed meanwhile, and has told none.
        return Ok(());
    }
    judge(caller, &State::from([(BLOB, blob)]), from, "last blob");
    Ok(())
}
