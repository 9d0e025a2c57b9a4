//! The tables of a run, their rows, and how what is read becomes a state of the ledger.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use terrace::{Database, ErrorKind, Result, Table, TableOptions, Tier};

use super::ledger::{Ledger, Outcome, Place, State, Wanted};
use super::operations::LIFE;
use crate::histories::list_of;
use crate::machines::table_options;
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
/// Of a machine that takes the store over, with one row of the same name.
pub(super) const NEW: &str = "new";
/// All that callers share.
pub(super) const SHARED: [&str; 5] = [MAIN, APART, QUEUE, LISTS, YOUNG];
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

/// What a shared table is created with.
fn options_of(name: &str) -> TableOptions {
    match name {
        YOUNG => TableOptions::new().ttl(LIFE),
        _ => table_options(name == APART),
    }
}

/// The place of a shared table itself.
fn itself(name: &str) -> Place {
    ("tables", name.into())
}

/// Creates a shared table, whose cold levels lie there if callers may change it.
pub(super) fn create_shared(
    db: &Database,
    ledger: &Ledger,
    (name, cold): (&'static str, Tier),
) -> Result<Table> {
    let wanted = Wanted::new(0, format!("create {name}"));
    let created = |stamp| BTreeMap::from([(itself(name), Some(stamp))]);
    let stamp = ledger.call(wanted, created);
    let cold = if TABLES.contains(&name) { cold } else { Tier::Ssd };
    let table = db.create_table(name, options_of(name).cold(cold))?;
    ledger.ended(stamp, Outcome::Acknowledged);
    Ok(table)
}

/// A shared table, if it is there.
pub(super) fn shared(db: &Database, name: &str) -> Result<Option<Table>> {
    match db.existing_table(name) {
        Err(error) if error.kind() == ErrorKind::MissingTable => Ok(None),
        found => found.map(Some),
    }
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

/// So long is what says of which write a value is, and how long it is behind that.
const HEAD: usize = 12;

/// So long is the counter: there is one byte before its count.
const COUNTER_LEN: usize = HEAD + 1 + 8;

pub(super) fn value(stamp: u64, len: u64) -> Vec<u8> {
    let mut bytes = stamp.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(len as u32).to_le_bytes());
    bytes.resize(HEAD + len as usize, stamp as u8);
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
    let count = value.get(COUNTER_LEN - 8..).and_then(|count| count.try_into().ok());
    count.map_or(u64::MAX, u64::from_le_bytes)
}

/// The stamp of a value at a key; one that no write has if its bytes are those of several, too few
/// or too many.
pub(super) fn stamp_of(key: &[u8], value: &[u8]) -> u64 {
    // The counter has its count behind the value.
    let value = match (key == COUNTER, value.len() == COUNTER_LEN) {
        (true, true) => &value[..COUNTER_LEN - 8],
        (true, false) => return u64::MAX,
        (false, _) => value,
    };
    let Some((stamp, rest)) = value.split_first_chunk() else { return u64::MAX };
    let Some((len, rest)) = rest.split_first_chunk() else { return u64::MAX };
    let stamp = u64::from_le_bytes(*stamp);
    let is_long = rest.len() == u32::from_le_bytes(*len) as usize;
    let is_whole = is_long && rest.iter().all(|&byte| byte == stamp as u8);
    if is_whole { stamp } else { u64::MAX }
}

/// The state of the merged row if it is not there: all operands that were merged until now are
/// missing.
pub(super) fn empty_row(ledger: &Ledger) -> State {
    ledger.places_of(MAIN, b"operand ").into_iter().map(|place| (place, None)).collect()
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
    state.extend(empty_row(ledger));
    state.extend(operands.into_iter().map(|stamp| (operand(stamp), Some(stamp))));
}

pub(super) fn shown((table, key): &Place) -> String {
    format!("{table}[{}]", String::from_utf8_lossy(key))
}

/// A list of transactions, and its key.
pub(super) type List = (u8, Vec<u32>);

/// The lists, if their table is there.
pub(super) fn lists_of(db: &Database) -> Result<Option<Vec<List>>> {
    let Some(table) = shared(db, LISTS)? else { return Ok(None) };
    let mut lists: BTreeMap<u8, Vec<u32>> = (0..LIST_KEYS).map(|key| (key, Vec::new())).collect();
    for row in table.iter() {
        let (key, value) = row?;
        lists.insert(key[0], list_of(Some(&value)));
    }
    Ok(Some(lists.into_iter().collect()))
}

/// What [`read_all`] leaves out: the rows whose values have no stamp, and those that time takes. In
/// place of a stamp it has a digest of the value.
pub(super) fn read_more(db: &Database) -> Result<State> {
    let mut state = State::new();
    for name in [LISTS, YOUNG] {
        let Some(table) = shared(db, name)? else { continue };
        for row in table.iter() {
            let (key, value) = row?;
            let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(&*value);
            state.insert((name, key.to_vec()), Some(digest));
        }
    }
    Ok(state)
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

/// Each table is one that callers have made, and has one name.
fn judge_names(db: &Database, ledger: &Ledger) {
    let names = db.table_names();
    let own = |name: &String| {
        let (own, stamp) = name.split_once('/')?;
        stamp.parse::<u64>().ok()?;
        OWN_TABLES.contains(&own).then(|| own.to_owned())
    };
    let mut owned: Vec<String> = names.iter().filter_map(own).collect();
    let n = owned.len();
    owned.dedup();
    let of_all = |name: &str| name == NEW || SHARED.contains(&name);
    let is_known = |name: &String| of_all(name) || own(name).is_some();
    if owned.len() < n || !names.iter().all(is_known) {
        ledger.violate(Class::Changed.violation(format!("the tables are {names:?}")));
    }
}

/// All rows of a database that no caller changes meanwhile, its blob, and the names and options of
/// its tables.
pub(super) fn read_all(db: &Database, callers: usize, ledger: &Ledger) -> Result<State> {
    let mut state = State::new();
    judge_names(db, ledger);
    for table in SHARED {
        let found = shared(db, table)?;
        let created = found.as_ref().and_then(|_| ledger.last_put(&itself(table)));
        state.insert(itself(table), created);
        let options = found.as_ref().map(Table::options);
        // Callers change where the cold levels lie.
        let are_its =
            |options: &TableOptions| *options == options_of(table).cold(options.cold_tier());
        if let Some(options) = options.filter(|options| !are_its(options)) {
            ledger.violate(Class::Changed.violation(format!("{table} has {options:?}")));
        }
        let has_rows = ![LISTS, YOUNG].contains(&table);
        if has_rows {
            state.extend(empty(table, callers, ledger));
        }
        let Some(rows) = found.filter(|_| has_rows) else { continue };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: a value that was cut short or too long was taken for a whole one. Cause: the stamp
    /// alone was looked at, and whether the bytes behind it are equal. Fix: a value says how long
    /// it is.
    #[test]
    fn a_value_has_its_length() {
        for len in [0, 1, 600, 20_000] {
            let whole = value(7, len);
            assert_eq!(stamp_of(b"0 1", &whole), 7);
            assert_eq!(stamp_of(b"0 1", &whole[..whole.len() - 1]), u64::MAX);
            let mut longer = whole.clone();
            longer.push(7);
            assert_eq!(stamp_of(b"0 1", &longer), u64::MAX);
        }
        let mut counted = counter(7, 3);
        assert_eq!((stamp_of(COUNTER, &counted), count_of(&counted)), (7, 3));
        counted.push(0);
        assert_eq!((stamp_of(COUNTER, &counted), count_of(&counted)), (u64::MAX, u64::MAX));
    }
}
