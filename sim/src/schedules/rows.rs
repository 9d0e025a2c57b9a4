//! The tables of a run, their rows, and how what is read becomes a state of the ledger.

use terrace::{Database, Result};

use super::ledger::{Ledger, Place, State};
use crate::violation::Class;

/// The table of all callers.
pub(super) const MAIN: &str = "a";
/// Its values from 600 bytes on lie apart on disk, and callers truncate it.
pub(super) const APART: &str = "b";
/// Both.
pub(super) const TABLES: [&str; 2] = [MAIN, APART];
/// Of rows that callers push and pop.
pub(super) const QUEUE: &str = "queue";
/// Of lists that transactions append themselves to.
pub(super) const LISTS: &str = "lists";
/// Its rows live a minute.
pub(super) const YOUNG: &str = "young";
/// The table of each caller alone, which it creates, renames and drops.
pub(super) const OWN_TABLES: [&str; 4] = ["own 0", "own 1", "own 2", "own 3"];
/// No table: the blob of the last commit that had one.
pub(super) const BLOB: Place = ("blob", Vec::new());

/// A caller has so many rows in each table.
pub(super) const ROWS: u64 = 5;
/// And so many that prepared transactions alone write.
pub(super) const PREPARED_ROWS: u64 = 2;
/// The row that all callers count up in transactions.
pub(super) const COUNTER: &[u8] = b"counter";
/// The row that all callers merge their stamps into.
pub(super) const MERGED: &[u8] = b"merged";
/// Lists.
pub(super) const LIST_KEYS: u8 = 4;
/// The place of a table's name.
pub(super) const NAME: &[u8] = b"name";
/// The place of a table's options.
pub(super) const OPTIONS: &[u8] = b"options";

pub(super) fn key(caller: usize, row: u64) -> Vec<u8> {
    format!("{caller} {row}").into_bytes()
}

/// A row that prepared transactions write.
pub(super) fn prepared_key(caller: usize, row: u64) -> Vec<u8> {
    format!("prepared {caller} {row}").into_bytes()
}

/// The place of an operand that was merged.
pub(super) fn operand(stamp: u64) -> Place {
    (MAIN, format!("operand {stamp}").into_bytes())
}

/// All rows that a table can have.
pub(super) fn places(table: &'static str, callers: usize, ledger: &Ledger) -> Vec<Place> {
    let all = |key: fn(usize, u64) -> Vec<u8>, rows: u64| {
        let of_caller = move |caller| (0..rows).map(move |row| (table, key(caller, row)));
        (0..callers).flat_map(of_caller)
    };
    match table {
        QUEUE => ledger.places_of(QUEUE, b""),
        MAIN => {
            let rows = all(key, ROWS).chain(all(prepared_key, PREPARED_ROWS));
            let rows = rows.chain([(MAIN, COUNTER.to_vec())]);
            rows.chain(ledger.places_of(MAIN, b"operand ")).collect()
        }
        _ => all(key, ROWS).collect(),
    }
}

/// The state of a table without a row.
pub(super) fn empty(table: &'static str, callers: usize, ledger: &Ledger) -> State {
    places(table, callers, ledger).into_iter().map(|place| (place, None)).collect()
}

pub(super) fn value(stamp: u64, len: u64) -> Vec<u8> {
    let mut bytes = stamp.to_le_bytes().to_vec();
    bytes.resize(8 + len as usize, stamp as u8);
    bytes
}

/// The counter, as a write has left it.
pub(super) fn counter(stamp: u64, count: u64) -> Vec<u8> {
    let mut bytes = value(stamp, 1);
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes
}

/// What the counter has come to.
pub(super) fn count_of(value: &[u8]) -> u64 {
    value.get(9..).and_then(|count| count.try_into().ok()).map_or(u64::MAX, u64::from_le_bytes)
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

/// Notes a row that was read.
pub(super) fn take_in(
    state: &mut State,
    ledger: &Ledger,
    table: &'static str,
    (key, value): (&[u8], &[u8]),
) {
    if (table, key) != (MAIN, MERGED) {
        state.insert((table, key.to_vec()), Some(stamp_of(key, value)));
        return;
    }
    let (operands, rest) = value.as_chunks();
    let operands: Vec<u64> = operands.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    ledger.judge_order(&operands);
    if !rest.is_empty() {
        ledger.violate(Class::Changed.violation("a part of an operand is there"));
    }
    // All operands that were merged until now: those that are not in the row are missing.
    state.extend(ledger.places_of(MAIN, b"operand ").into_iter().map(|place| (place, None)));
    state.extend(operands.into_iter().map(|stamp| (operand(stamp), Some(stamp))));
}

pub(super) fn shown((table, key): &Place) -> String {
    format!("{table}[{}]", String::from_utf8_lossy(key))
}

/// The number that a caller's table is called by at this moment, if it is there.
pub(super) fn own_table(db: &Database, own: &str) -> Option<(String, u64)> {
    let names = db.table_names().into_iter();
    let mut named = names.filter_map(|name| {
        let stamp = name.strip_prefix(own)?.strip_prefix('/')?.parse().ok()?;
        Some((name, stamp))
    });
    named.next()
}

/// All rows of a database that no caller changes meanwhile, its blob, and the names and options of
/// its tables.
pub(super) fn read_all(db: &Database, callers: usize, ledger: &Ledger) -> Result<State> {
    let mut state = State::new();
    for table in TABLES.into_iter().chain([QUEUE]) {
        state.extend(empty(table, callers, ledger));
        let Ok(rows) = db.existing_table(table) else { continue };
        for row in rows.iter() {
            let (key, value) = row?;
            take_in(&mut state, ledger, table, (&key, &value));
        }
    }
    for own in OWN_TABLES.into_iter().take(callers) {
        state.extend(empty(own, callers, ledger));
        state.extend([NAME, OPTIONS].map(|key| ((own, key.to_vec()), None)));
        let Some((name, stamp)) = own_table(db, own) else { continue };
        let table = db.existing_table(&name)?;
        state.insert((own, NAME.to_vec()), Some(stamp));
        let ttl = table.options().time_to_live();
        state.insert((own, OPTIONS.to_vec()), ttl.map(|ttl| ttl.as_secs() - LONG));
        for row in table.iter() {
            let (key, value) = row?;
            take_in(&mut state, ledger, own, (&key, &value));
        }
    }
    state.insert(BLOB, db.last_blob().map(|blob| stamp_of(b"", &blob)));
    Ok(state)
}

/// Seconds to live that no run sees the end of. A stamp is added.
pub(super) const LONG: u64 = 1 << 32;
