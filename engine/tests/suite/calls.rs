//! The calls that are made of others, each against a sorted map.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::VecDeque;
use std::ops::Bound;

use bytes::Bytes;

use crate::common::content::Rows;
use crate::common::{Chance, rounds, tiny};
use terrace::{Database, ReadTables, Table, WriteBatch};

type Row = Option<(Vec<u8>, Vec<u8>)>;

fn owned(row: Option<(Bytes, Bytes)>) -> Row {
    row.map(|(key, value)| (key.to_vec(), value.to_vec()))
}

fn cloned(row: Option<(&Vec<u8>, &Vec<u8>)>) -> Row {
    row.map(|(key, value)| (key.clone(), value.clone()))
}

/// ReadTables a table by every call, through everything that it can be read through.
pub(crate) fn check(db: &Database, table: &Table, rows: &Rows, (a, b): (Vec<u8>, Vec<u8>)) {
    assert_eq!(table.contains_key(&a).unwrap(), rows.contains_key(&a));
    assert_eq!(owned(table.first().unwrap()), cloned(rows.first_key_value()));
    assert_eq!(owned(table.last().unwrap()), cloned(rows.last_key_value()));
    through(db, table, rows, (&a, &b));
    through(&db.snapshot().unwrap(), table, rows, (&a, &b));
    through(&db.begin().unwrap(), table, rows, (&a, &b));
    ranges(db, table, rows, (&a, &b));
    lent(db, table, rows, (&a, &b));
}

/// What lends a value, or a row.
fn lent(db: &Database, table: &Table, rows: &Rows, (a, b): (&[u8], &[u8])) {
    let snapshot = db.snapshot().unwrap();
    let mut into = b"before".to_vec();
    for key in [a, b] {
        let want = rows.get(key).cloned();
        assert_eq!(table.get_with(key, <[u8]>::to_vec).unwrap(), want);
        assert_eq!(snapshot.get_with(table, key, <[u8]>::to_vec).unwrap(), want);
        assert_eq!(table.get_into(key, &mut into).unwrap(), want.is_some());
        assert_eq!(into, want.clone().unwrap_or_default());
        assert_eq!(snapshot.get_into(table, key, &mut into).unwrap(), want.is_some());
        assert_eq!(into, want.unwrap_or_default());
    }
    let (mut up, mut down) = (table.range(a..), table.range(a..).rev());
    let mut both = Vec::new();
    for _ in 0..40 {
        let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        let three = [up.next_with(row), down.next_with(row), up.next_back_with(row)];
        both.extend(three.map(|row| row.transpose().unwrap()));
    }
    let mut owned = (table.range(a..), table.range(a..).rev());
    for lent in both.chunks(3) {
        let want = [owned.0.next(), owned.1.next(), owned.0.next_back()];
        let want = want.map(|row| row.transpose().unwrap()).map(self::owned);
        assert_eq!(lent, want);
    }
}

fn through(it: &impl ReadTables, table: &Table, rows: &Rows, (a, b): (&[u8], &[u8])) {
    assert_eq!(it.get(table, a).unwrap().as_deref(), rows.get(a).map(Vec::as_slice));
    assert_eq!(it.contains_key(table, b).unwrap(), rows.contains_key(b));
    let got = it.multi_get(table, [a, b]).unwrap();
    let want = [a, b].map(|key| rows.get(key).cloned());
    assert_eq!(got.iter().map(|v| v.as_ref().map(|v| v.to_vec())).collect::<Vec<_>>(), want);
    assert_eq!(owned(it.first(table).unwrap()), cloned(rows.first_key_value()));
    assert_eq!(owned(it.last(table).unwrap()), cloned(rows.last_key_value()));
    let count = it.range(table, ..).unwrap().count();
    assert_eq!(count, rows.len());
    let prefixed = rows.keys().filter(|key| key.starts_with(a)).count();
    assert_eq!(it.prefix(table, a).unwrap().count(), prefixed);
}

/// Limits, directions, keys alone, values alone, and seeks, of ranges of both kinds.
fn ranges(db: &Database, table: &Table, rows: &Rows, (a, b): (&[u8], &[u8])) {
    let (low, high) = if a <= b { (a, b) } else { (b, a) };
    let bounds = || (Bound::Included(low), Bound::Included(high));
    let want: Vec<_> = rows.range::<[u8], _>(bounds()).collect();
    let forward: Vec<_> = want.iter().take(3).map(|(key, _)| key.as_slice()).collect();
    let backward: Vec<_> = want.iter().rev().take(3).map(|(key, _)| key.as_slice()).collect();
    let txn = db.begin().unwrap();
    let keys = |found: Vec<terrace::Result<Bytes>>| -> Vec<Bytes> {
        found.into_iter().map(Result::unwrap).collect()
    };
    let of_table = || table.range(bounds());
    let of_txn = || txn.range(table, bounds()).unwrap();
    assert_eq!(keys(of_table().limit(3).keys().collect()), forward);
    assert_eq!(keys(of_table().rev().limit(3).keys().collect()), backward);
    assert_eq!(keys(of_table().limit(3).rev().keys().collect()), backward);
    assert_eq!(keys(of_table().rev().rev().limit(3).keys().collect()), forward);
    assert_eq!(keys(of_txn().limit(3).keys().collect()), forward);
    assert_eq!(keys(of_txn().rev().limit(3).keys().collect()), backward);
    let values: Vec<_> = want.iter().map(|(_, value)| value.as_slice()).collect();
    assert_eq!(keys(of_table().values().collect()), values);
    assert_eq!(keys(of_txn().values().collect()), values);
    // From its middle to its end, and then from before its beginning.
    let (mut plain, mut own) = (of_table(), of_txn());
    let middle = want.get(want.len() / 2).map_or(low, |(key, _)| key.as_slice());
    for at in [middle, high, low, b""] {
        plain.seek(at);
        own.seek(at);
        let next = want.iter().find(|(key, _)| key.as_slice() >= at);
        let next = next.map(|(key, value)| ((*key).clone(), (*value).clone()));
        assert_eq!(owned(plain.next().transpose().unwrap()), next);
        assert_eq!(owned(own.next().transpose().unwrap()), next);
    }
    let (mut plain, mut own) = (of_table().rev(), of_txn().rev());
    for at in [middle, low, high] {
        plain.seek(at);
        own.seek(at);
        let next = want.iter().rev().find(|(key, _)| key.as_slice() <= at);
        let next = next.map(|(key, value)| ((*key).clone(), (*value).clone()));
        assert_eq!(owned(plain.next().transpose().unwrap()), next);
        assert_eq!(owned(own.next().transpose().unwrap()), next);
    }
    // What a seek leaves behind is not counted against the limit.
    let mut few = of_table().limit(2);
    few.next();
    few.seek(low);
    assert_eq!(few.count(), want.len().min(1), "one of two was taken");
}

/// A change that depends on what is there.
pub(crate) struct Change {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) call: u8,
}

impl Change {
    pub(crate) fn run(&self, db: &Database, table: &Table, rows: &mut Rows, in_txn: bool) {
        let current = rows.get(&self.key).cloned();
        let (key, value) = (&self.key[..], &self.value[..]);
        let txn = db.begin().unwrap();
        match self.call % 8 {
            0 => {
                let inserted = match in_txn {
                    true => txn.insert_if_absent(table, key, value),
                    false => table.insert_if_absent(key, value),
                };
                assert_eq!(inserted.unwrap(), current.is_none());
                rows.entry(key.to_vec()).or_insert(value.to_vec());
            }
            1 | 2 => {
                let expected = match self.call % 8 {
                    1 => current.as_deref(),
                    _ => Some(value),
                };
                // A value, or none.
                let new = (self.call.is_multiple_of(2)).then_some(value);
                let set = match in_txn {
                    true => txn.compare_and_set(table, key, expected, new),
                    false => table.compare_and_set(key, expected, new),
                };
                let matches = expected == current.as_deref();
                assert_eq!(set.unwrap(), matches);
                if matches {
                    put(rows, key, new);
                }
            }
            3 => {
                let twice = |old: Option<&[u8]>| match old {
                    Some(old) if old.len() > 5000 => None,
                    Some(old) => Some([old, value].concat()),
                    None => Some(value.to_vec()),
                };
                let new = twice(current.as_deref());
                let updated = match in_txn {
                    true => txn.update(table, key, twice),
                    false => table.update(key, twice),
                };
                assert_eq!(updated.unwrap().as_deref(), new.as_deref());
                put(rows, key, new.as_deref());
            }
            4 => {
                let popped = match in_txn {
                    true => txn.pop_first(table),
                    false => table.pop_first(),
                };
                assert_eq!(owned(popped.unwrap()), rows.pop_first());
            }
            5 => {
                let popped = match in_txn {
                    true => txn.pop_last(table),
                    false => table.pop_last(),
                };
                assert_eq!(owned(popped.unwrap()), rows.pop_last());
            }
            6 => {
                match in_txn {
                    true => txn.merge(table, key, value).unwrap(),
                    false => table.merge(key, value).unwrap(),
                }
                rows.entry(key.to_vec()).or_default().extend(value);
            }
            _ => {
                match in_txn {
                    true => txn.delete_prefix(table, key).unwrap(),
                    false => {
                        let mut batch = WriteBatch::new();
                        batch.delete_prefix(table, key);
                        db.write(batch).unwrap();
                    }
                }
                rows.retain(|own, _| !own.starts_with(key));
            }
        }
        txn.commit().unwrap();
    }
}

fn put(rows: &mut Rows, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => drop(rows.insert(key.to_vec(), value.to_vec())),
        None => drop(rows.remove(key)),
    }
}

/// Calls of several threads that change rows by what is there: none is lost, none is done twice.
#[test]
fn changes_that_read_are_atomic_across_threads() {
    const THREADS: u64 = 4;
    let each = crate::common::rounds(60, 2000);
    let dir = tempfile::tempdir().unwrap();
    let db = crate::common::tiny().open(dir.path()).unwrap();
    let (counters, queue) = (db.table("counters").unwrap(), db.table("queue").unwrap());
    let number = |value: &[u8]| u64::from_be_bytes(value.try_into().unwrap());
    (0..THREADS * each).for_each(|n| queue.put(n.to_be_bytes(), "").unwrap());
    let mut taken: Vec<u64> = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (counters, queue) = (&counters, &queue);
            scope.spawn(move || {
                let mut taken = Vec::new();
                for n in 0..each {
                    let add = |old: Option<&[u8]>| Some((old.map_or(0, number) + 1).to_be_bytes());
                    counters.update("updated", add).unwrap();
                    loop {
                        let old = counters.get("compared").unwrap();
                        let new = (old.as_deref().map_or(0, number) + 1).to_be_bytes();
                        if counters.compare_and_set("compared", old.as_deref(), Some(&new)).unwrap()
                        {
                            break;
                        }
                    }
                    if counters.insert_if_absent(format!("slot {n}"), [thread as u8]).unwrap() {
                        counters.update("inserted", add).unwrap();
                    }
                    let popped = if n % 2 == 0 { queue.pop_first() } else { queue.pop_last() };
                    taken.push(number(&popped.unwrap().unwrap().0));
                }
                taken
            })
        };
        let threads: Vec<_> = (0..THREADS).map(work).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let counted = |name: &str| number(&counters.get(name).unwrap().unwrap());
    assert_eq!(counted("updated"), THREADS * each);
    assert_eq!(counted("compared"), THREADS * each);
    assert_eq!(counted("inserted"), each, "one thread a slot");
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..THREADS * each), "each row once");
    assert_eq!((queue.first().unwrap(), queue.pop_last().unwrap()), (None, None));
    assert_eq!(db.locks_held(), (0, 0));
}

/// Options that were changed hold for what is written from then on, and after a restart.
#[test]
fn a_table_s_options_are_read_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    let db = crate::common::tiny().open(dir.path()).unwrap();
    let hour = std::time::Duration::from_secs(3600);
    let first = terrace::TableOptions::new().block_size(4096).ttl(hour);
    let table = db.create_table("t", first).unwrap();
    assert_eq!(table.options(), first);
    let second = first.filter_bits(0).large_values(1000);
    db.set_table_options("t", second).unwrap();
    assert_eq!(table.options(), second);
    assert!(db.set_table_options("t", second.block_size(1)).is_err());
    db.set_ttl("t", None).unwrap();
    assert_eq!((table.options().time_to_live(), table.options().block_bytes()), (None, 4096));
    assert_eq!(table.options().large_values_from(), Some(1000));
    db.set_table_options("t", second).unwrap();
    db.truncate_table("t").unwrap();
    drop(table);
    db.close().unwrap();
    let db = crate::common::tiny().open(dir.path()).unwrap();
    assert_eq!(db.table("t").unwrap().options(), second);
    assert_eq!(second.filter_bits_per_key(), 0);
}

/// A table's own compression holds for bulk loads, drains and compactions, and after a restart.
#[test]
fn a_table_has_a_compression_of_its_own() {
    use terrace::{Compression, TableOptions};
    let dir = tempfile::tempdir().unwrap();
    let options = || crate::common::tiny().compression(Compression::Zstd, Compression::Zstd);
    let db = options().open(dir.path()).unwrap();
    let plain = TableOptions::new().compression(Compression::None, Compression::None);
    db.create_table("plain", plain).unwrap();
    db.create_table("small", TableOptions::new()).unwrap();
    let fill = |db: &Database, first: char| {
        for name in ["plain", "small"] {
            let table = db.existing_table(name).unwrap();
            let mut load = table.bulk_load(terrace::Existing::Refuse).unwrap();
            for n in 0..500 {
                load.put(format!("{first}{n:06}"), [b'x'; 200]).unwrap();
            }
            load.finish().unwrap();
            for n in 0..500 {
                let key = format!("{}{n:06}", first.to_ascii_uppercase());
                table.durability(terrace::Durability::Relaxed).put(key, [b'y'; 200]).unwrap();
            }
            db.compact_range(&table, ..).unwrap();
        }
    };
    let bytes = |db: &Database, name| {
        let stats = db.stats();
        let levels = &stats.tables.iter().find(|table| table.name == name).unwrap().levels;
        levels.iter().map(|level| level.bytes).sum::<u64>()
    };
    fill(&db, 'a');
    assert!(bytes(&db, "plain") > 200_000, "{:?}", db.stats().tables);
    assert!(bytes(&db, "small") < 100_000, "{:?}", db.stats().tables);
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    assert_eq!(db.existing_table("plain").unwrap().options(), plain);
    let before = bytes(&db, "plain");
    db.set_table_options("plain", TableOptions::new()).unwrap();
    fill(&db, 'b');
    assert!(bytes(&db, "plain") < before + 100_000, "{:?}", db.stats().tables);
}

/// A range of a table, of a snapshot or of a transaction.
trait Limited: DoubleEndedIterator<Item = terrace::Result<(Bytes, Bytes)>> + Sized {
    fn limited(self, rows: usize) -> Self;
    /// The next row, from the back if asked, by another call.
    fn other_call(&mut self, from_back: bool) -> Option<u16>;
}

impl Limited for terrace::Range {
    fn limited(self, rows: usize) -> Self {
        self.limit(rows)
    }

    fn other_call(&mut self, from_back: bool) -> Option<u16> {
        let number = |key: &[u8], _: &[u8]| u16::from_be_bytes(key.try_into().unwrap());
        let lent = match from_back {
            false => self.next_with(number),
            true => self.next_back_with(number),
        };
        lent.transpose().unwrap()
    }
}

impl Limited for terrace::TxnRange {
    fn limited(self, rows: usize) -> Self {
        self.limit(rows)
    }

    fn other_call(&mut self, from_back: bool) -> Option<u16> {
        next(self, from_back)
    }
}

fn next(range: &mut impl Limited, from_back: bool) -> Option<u16> {
    let row = if from_back { range.next_back() } else { range.next() };
    row.map(|row| u16::from_be_bytes(row.unwrap().0[..].try_into().unwrap()))
}

fn takes_as_a_deque(mut range: impl Limited, rows: u16, chance: &mut Chance) {
    let (mut want, mut left): (VecDeque<u16>, usize) = ((0..rows).collect(), usize::MAX);
    for _ in 0..rows + 5 {
        if chance.percent(10) {
            let rows = chance.below(u64::from(rows) + 1) as usize;
            (range, left) = (range.limited(rows), left.min(rows));
        }
        let from_back = chance.percent(50);
        let got = match chance.percent(50) {
            true => range.other_call(from_back),
            false => next(&mut range, from_back),
        };
        let wanted = if from_back { want.pop_back() } else { want.pop_front() };
        let wanted = wanted.filter(|_| left > 0);
        left -= usize::from(wanted.is_some());
        assert_eq!(got, wanted);
        if got.is_none() {
            assert!(next(&mut range, !from_back).is_none(), "it has ended from both ends");
            return;
        }
    }
}

/// Bug: a range with a limit that was walked from both ends gave rows that are not next to what it
/// had given: `[0, 3, 1, 2]` of nine rows. A limit that was set after the first row did nothing.
/// Cause: it counted rows when they were read, a chunk at a time. Fix: it counts what is returned,
/// as the range of a transaction does.
#[test]
fn a_limit_counts_what_is_returned_from_either_end() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    for seed in 0..rounds(200, 10_000) {
        let mut chance = Chance::new(seed);
        let rows = *chance.pick(&[0u16, 1, 9, 40, 1500]);
        let table = db.table(&format!("{rows} rows")).unwrap();
        if table.first().unwrap().is_none() {
            let mut batch = WriteBatch::new();
            for n in 0..rows {
                batch.put(&table, n.to_be_bytes(), "value");
            }
            db.write(batch).unwrap();
        }
        takes_as_a_deque(table.range(..), rows, &mut chance);
        takes_as_a_deque(db.snapshot().unwrap().range(&table, ..), rows, &mut chance);
        takes_as_a_deque(db.begin().unwrap().range(&table, ..).unwrap(), rows, &mut chance);
    }
    // What is at hand is no more than may be taken.
    let table = db.table("few").unwrap();
    (0..9u8).for_each(|n| table.put([n], [n]).unwrap());
    let mut range = table.range(..);
    assert!(range.read_on().unwrap() && range.at_hand() == 9);
    range = range.limit(2);
    assert_eq!(range.at_hand(), 2);
    assert_eq!(range.by_ref().count(), 2);
    assert!(!range.read_on().unwrap() && range.at_hand() == 0);
}
