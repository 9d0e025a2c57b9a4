//! Bulk loads: written once, visible at once, beside everything else.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::common::cuts::{PATH, options};
use crate::common::{Chance, rounds, tiny, together};
use terrace::testing::Machine;
use terrace::{
    BulkLoad, Database, Durability, ErrorKind, Existing, Isolation, LockWait, Options, Snapshot,
    Table, TxnOptions, WriteBatch,
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn open() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().stepped().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (dir, db, table)
}

fn rest(db: &Database) {
    while db.step().unwrap() {}
}

fn rows(range: impl Iterator<Item = terrace::Result<(bytes::Bytes, bytes::Bytes)>>) -> Rows {
    range.map(|row| row.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn fill(load: &mut BulkLoad, rows: &Rows) {
    rows.iter().for_each(|(key, value)| load.put(key, value).unwrap());
}

fn load(table: &Table, existing: Existing, rows: &Rows) {
    let mut load = table.bulk_load(existing).unwrap();
    fill(&mut load, rows);
    load.finish().unwrap();
}

/// Keys of so many numbers with values that do not compress.
fn numbers(range: std::ops::Range<u32>, seed: u64, len: usize) -> Rows {
    let mut chance = Chance::new(seed);
    range.map(|n| (n.to_be_bytes().to_vec(), chance.bytes(len))).collect()
}

/// Extents of each level of the first table.
fn levels(db: &Database) -> Vec<u64> {
    db.stats().tables[0].levels.iter().map(|level| level.extents).collect()
}

#[test]
fn into_an_empty_table_every_byte_is_written_once() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let open = || Options::new().pm_size(4 << 20).stepped().open(&path).unwrap();
    let db = open();
    let table = db.table("t").unwrap();
    let before = db.snapshot().unwrap();
    let region_before = db.stats().commit.bytes;
    let mut want = numbers(1000..7000, 1, 2000);
    load(&table, Existing::Refuse, &want);
    let raw: u64 = want.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
    let written = db.stats().disk.written_bytes;
    assert!((raw..raw + raw / 50).contains(&written), "{written} bytes for {raw}");
    rest(&db);
    // A reader of an older state does not change that.
    assert_eq!(before.range(&table, ..).count(), 0);
    let stats = db.stats();
    assert_eq!(stats.disk.written_bytes, written, "the background has written nothing");
    assert_eq!((levels(&db), stats.tables[0].spilled_runs), (vec![0, 6], 0));
    assert_eq!(stats.background.moves, 6);
    let metadata = stats.commit.bytes - region_before + journal_bytes(&path);
    assert!(metadata < 100_000, "{metadata} bytes of metadata");
    // What comes behind it and in front of it goes down too.
    for range in [7000..9000, 0..1000] {
        let more = numbers(range, 2, 2000);
        load(&table, Existing::Refuse, &more);
        want.extend(more);
    }
    rest(&db);
    let all: u64 = want.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
    assert!(db.stats().disk.written_bytes < all + all / 50);
    assert_eq!((levels(&db)[0], before.range(&table, ..).count()), (0, 0));
    assert!(rows(table.iter()) == want && rows(table.iter().rev()) == want);
    drop((before, table));
    db.close().unwrap();
    let db = open();
    assert!(rows(db.table("t").unwrap().iter()) == want, "after an opening");
    assert!(db.verify().unwrap().damages.is_empty());
}

fn journal_bytes(path: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let journals = files.filter(|f| f.file_name().to_string_lossy().starts_with("journal-"));
    journals.map(|f| f.metadata().unwrap().len()).sum()
}

/// The first key that two tables differ in, with the beginnings of its values.
fn difference(got: &Rows, want: &Rows) -> Option<String> {
    let mut keys = got.keys().chain(want.keys());
    let key = keys.find(|key| got.get(*key) != want.get(*key))?;
    let head = |rows: &Rows| rows.get(key).map(|value| value[..value.len().min(8)].to_vec());
    Some(format!("{key:?} is {:?} instead of {:?}", head(got), head(want)))
}

/// A table, what it should hold, and what snapshots should see.
struct Model {
    now: Rows,
    seen: Vec<(Snapshot, Rows)>,
}

impl Model {
    fn step(&mut self, db: &Database, table: &Table, chance: &mut Chance) {
        let key = |chance: &mut Chance| vec![chance.below(120) as u8];
        match chance.below(12) {
            0..5 => self.load(table, chance),
            5 | 6 => {
                let (key, len) = (key(chance), chance.below(3000) as usize);
                let value = chance.bytes(len);
                table.durability(Durability::Relaxed).put(&key, &value).unwrap();
                self.now.insert(key, value);
            }
            7 => {
                let key = key(chance);
                table.delete(&key).unwrap();
                self.now.remove(&key);
            }
            8 => {
                let (from, len) = (chance.below(120) as u8, chance.below(40) as u8);
                table.delete_range([from]..[from + len]).unwrap();
                self.now.retain(|key, _| !(from..from + len).contains(&key[0]));
            }
            9 => {
                let txn = db.begin_with(TxnOptions::new().spill_at(500)).unwrap();
                for _ in 0..chance.below(10) {
                    let (key, value) = (key(chance), chance.bytes(300));
                    txn.put(table, &key, &value).unwrap();
                    self.now.insert(key, value);
                }
                txn.commit().unwrap();
            }
            10 => self.seen.push((db.snapshot().unwrap(), self.now.clone())),
            _ => drop(self.seen.pop()),
        }
    }

    /// A load of some keys; refused if one is there, unless it replaces.
    fn load(&mut self, table: &Table, chance: &mut Chance) {
        let existing = *chance.pick(&[Existing::Refuse, Existing::Replace]);
        let (from, len) = (chance.below(120), 1 + chance.below(60));
        let every = 1 + chance.below(20);
        let mut load = table.bulk_load(existing).unwrap();
        let mut new = Rows::new();
        for key in (from..(from + len).min(120)).step_by(every as usize) {
            let value = chance.bytes(1 + key as usize * 37 % 900);
            load.put([key as u8], &value).unwrap();
            new.insert(vec![key as u8], value);
        }
        let first = new.keys().find(|key| self.now.contains_key(*key));
        match (load.finish(), first.filter(|_| existing == Existing::Refuse)) {
            (Ok(()), None) => self.now.extend(new),
            (Err(e), Some(key)) => {
                assert_eq!(e.kind(), ErrorKind::Exists);
                let named = format!("has key \"{}\" already", key.escape_ascii());
                assert!(e.to_string().contains(&named), "{e}, not {named}");
            }
            (finished, first) => panic!("{finished:?} with {first:?}"),
        }
    }

    fn check(&self, table: &Table, chance: &mut Chance) {
        assert_eq!(difference(&rows(table.iter()), &self.now), None);
        assert_eq!(difference(&rows(table.iter().rev()), &self.now), None);
        for (snapshot, then) in &self.seen {
            assert_eq!(difference(&rows(snapshot.range(table, ..)), then), None);
            let key = [chance.below(120) as u8];
            let found = snapshot.get(table, key).unwrap().map(|value| value.to_vec());
            assert_eq!(found.as_ref(), then.get(key.as_slice()));
        }
        for key in 0..120u8 {
            let found = table.get([key]).unwrap().map(|value| value.to_vec());
            assert_eq!(found.as_ref(), self.now.get([key].as_slice()), "{key}");
        }
    }
}

#[test]
fn loads_among_all_other_writes_are_as_a_map_says() {
    let _together = together();
    for seed in 0..rounds(8, 2000) {
        let dir = tempfile::tempdir().unwrap();
        let mut chance = Chance::new(seed);
        let mut db = tiny().stepped().open(dir.path().join("db")).unwrap();
        let mut model = Model { now: Rows::new(), seen: Vec::new() };
        for _ in 0..8 {
            let table = db.table("t").unwrap();
            for _ in 0..12 {
                model.step(&db, &table, &mut chance);
                for _ in 0..chance.below(6) {
                    db.step().unwrap();
                }
            }
            model.check(&table, &mut chance);
            if chance.percent(40) {
                rest(&db);
                model.check(&table, &mut chance);
            }
            if chance.percent(30) {
                model.seen.clear();
                drop((table, db));
                db = tiny().stepped().open(dir.path().join("db")).unwrap();
                model.check(&db.table("t").unwrap(), &mut chance);
            }
        }
        model.seen.clear();
        rest(&db);
        model.check(&db.table("t").unwrap(), &mut chance);
        assert_eq!(db.stats().tables[0].spilled_runs, 0);
        assert_eq!(db.verify().unwrap().damages, []);
    }
}

#[test]
fn input_out_of_order_is_refused_by_its_keys_and_the_load_goes_on() {
    let _together = together();
    let (_dir, db, table) = open();
    let mut load = table.bulk_load(terrace::Existing::Refuse).unwrap();
    load.put("", "the empty key").unwrap();
    load.put("b", "1").unwrap();
    let mut refused = |key: &[u8], value: &[u8], words: &[&str]| {
        let error = load.put(key, value).unwrap_err();
        let is_too_large = words[0].ends_with(" bytes");
        let kind = if is_too_large { ErrorKind::TooLarge } else { ErrorKind::Invalid };
        assert_eq!(error.kind(), kind);
        words.iter().for_each(|word| assert!(error.to_string().contains(word), "{error}"));
    };
    refused(b"a", b"", &["\"a\" comes after \"b\"", "sort them"]);
    refused(b"b", b"", &["\"b\" comes twice"]);
    refused(&[b'x'; 70_000], b"", &["70000 bytes", "65536", "after \"b\""]);
    refused(b"c", &vec![0; 2 << 20], &["2097152 bytes", "key \"c\"", "after \"b\""]);
    load.put("c", "2").unwrap();
    load.finish().unwrap();
    assert_eq!(table.iter().count(), 3);
    let error = load.put("d", "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(load.finish().unwrap_err().kind(), ErrorKind::Closed);
    let mut first = table.bulk_load(terrace::Existing::Refuse).unwrap();
    assert_eq!(first.put([0; 70_000], "").unwrap_err().kind(), ErrorKind::TooLarge);
    first.finish().unwrap();
    assert_eq!(db.stats().tables[0].spilled_runs, 1, "without a key there is no commit");
}

/// Wherever the one key lies that is there, it is named, and nothing was loaded.
#[test]
fn a_key_that_exists_is_named_and_once_it_is_gone_the_load_goes_in() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().stepped().open(dir.path().join("db")).unwrap();
    let key = |n: u32| format!("{n:04}");
    for place in ["memtable", "level 0", "levels", "run", "load"] {
        let table = db.table(place).unwrap();
        let others = (0..300).filter(|n| n % 3 == 0 && *n != 150);
        let put = |n: u32| table.durability(Durability::Relaxed).put(key(n), [1; 100]).unwrap();
        others.for_each(put);
        let push_down = || {
            let filler = db.table("filler").unwrap();
            for n in 0..400 {
                filler.durability(Durability::Relaxed).put(key(n), [2; 9000]).unwrap();
                db.step().unwrap();
            }
            rest(&db);
        };
        match place {
            "memtable" => put(200),
            "level 0" => {
                put(200);
                rest(&db);
            }
            "levels" => {
                put(200);
                push_down();
            }
            "run" => {
                let txn = db.begin_with(TxnOptions::new().spill_at(1)).unwrap();
                txn.put(&table, key(200), "in a run").unwrap();
                txn.put(&table, key(900), "behind").unwrap();
                txn.commit().unwrap();
            }
            _ => {
                load(&table, Existing::Refuse, &BTreeMap::from([(key(200).into(), vec![3])]));
                rest(&db);
            }
        }
        // Deleted ones are not there.
        table.delete(key(202)).unwrap();
        put(205);
        table.delete_range(key(203)..key(206)).unwrap();
        let before = rows(table.iter());
        let mut load = table.bulk_load(terrace::Existing::Refuse).unwrap();
        let new: Rows = [1, 199, 200, 202, 205, 299].map(|n| (key(n).into(), vec![9])).into();
        fill(&mut load, &new);
        let error = load.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists);
        let named = format!("table {place:?} has key \"0200\" already");
        assert!(error.to_string().contains(&named), "{error}");
        assert!(rows(table.iter()) == before, "{place}: nothing was done");
        table.delete(key(200)).unwrap();
        load.finish().unwrap();
        let mut want = before;
        want.extend(new);
        assert!(rows(table.iter()) == want, "{place}");
        rest(&db);
        assert!(rows(table.iter()) == want, "{place}, at rest");
    }
}

#[test]
fn a_load_that_is_dropped_or_that_fails_leaves_nothing() {
    let _together = together();
    let (_dir, db, table) = open();
    table.put("old", "1").unwrap();
    let mut dropped = table.bulk_load(terrace::Existing::Refuse).unwrap();
    fill(&mut dropped, &numbers(0..3000, 1, 1000));
    assert!(db.stats().disk.extent_bytes > 2 << 20);
    drop(dropped);
    assert_eq!((db.stats().disk.extent_bytes, db.stats().memory.writes), (0, 0));
    for truncate in [true, false] {
        let mut late = table.bulk_load(terrace::Existing::Refuse).unwrap();
        fill(&mut late, &numbers(0..10, 1, 1000));
        match truncate {
            true => db.truncate_table("t").unwrap(),
            false => db.drop_table("t").unwrap(),
        }
        assert_eq!(late.finish().unwrap_err().kind(), ErrorKind::MissingTable);
        assert_eq!(late.finish().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(db.stats().disk.extent_bytes, 0);
    assert_eq!(
        table.bulk_load(terrace::Existing::Refuse).unwrap_err().kind(),
        ErrorKind::MissingTable,
        "the table is gone"
    );
}

#[test]
fn a_full_disk_ends_the_load_and_nothing_else() {
    let _together = together();
    let machine = Machine::with_files();
    let db = options(&machine, None).create(PATH).unwrap();
    let table = db.table("t").unwrap();
    table.put("kept", "1").unwrap();
    rest(&db);
    let used: u64 = machine.list(std::path::Path::new(PATH)).iter().map(|(_, len)| len).sum();
    machine.set_capacity(Some(used + (6 << 20)));
    let rows = numbers(0..10_000, 1, 1000);
    let mut load = table.bulk_load(terrace::Existing::Refuse).unwrap();
    let error = rows.iter().find_map(|(key, value)| load.put(key, value).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(load.put([255; 5], "").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(load.finish().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!((db.stats().disk.extent_bytes, table.iter().count()), (0, 1));
    table.put("also kept", "2").unwrap();
    machine.set_capacity(None);
    let mut again = table.bulk_load(terrace::Existing::Refuse).unwrap();
    fill(&mut again, &rows);
    again.finish().unwrap();
    rest(&db);
    assert_eq!(table.iter().count(), 10_002);
}

#[test]
fn memory_stays_within_its_limit_however_much_is_loaded() {
    let _together = together();
    const LIMIT: u64 = 16 << 20;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().pm_size(4 << 20).stepped().memory(LIMIT);
    let db = options.open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let mut load = table.bulk_load(terrace::Existing::Refuse).unwrap();
    rest(&db);
    for (n, (key, value)) in numbers(0..24_000, 1, 1000).iter().enumerate() {
        load.put(key, value).unwrap();
        if n % 1000 == 0 {
            let memory = db.stats().memory;
            assert!(memory.total() <= LIMIT && memory.writes >= 2 << 20, "{memory:?}");
            assert_eq!(memory.filters, 0, "no reader reads it");
        }
    }
    load.finish().unwrap();
    drop(load);
    rest(&db);
    let memory = db.stats().memory;
    assert_eq!((memory.filters, memory.writes), (0, 0), "nor when it has its place");
    assert_eq!(table.iter().count(), 24_000);
    rest(&db);
    let memory = db.stats().memory;
    assert!(memory.filters > 0 && memory.total() <= LIMIT, "{memory:?}");
}

/// A transaction that was first with a lock in the range is waited for; one under an older snapshot
/// has a conflict with what was loaded.
#[test]
fn transactions_in_the_range_of_a_load() {
    let _together = together();
    let (_dir, db, table) = open();
    table.put("m", "old").unwrap();
    let at = |isolation| db.begin_with(TxnOptions::new().isolation(isolation)).unwrap();
    let before = at(Isolation::Snapshot);
    let serializable = TxnOptions::new().isolation(Isolation::Serializable);
    let optimistic = db.begin_with(serializable.optimistic()).unwrap();
    assert_eq!(optimistic.get(&table, "m").unwrap().unwrap(), "old");
    let (reader, writer) = (at(Isolation::Serializable), at(Isolation::ReadCommitted));
    assert_eq!(reader.range(&table, "k"..).unwrap().count(), 1);
    // In a gap between the keys of the load.
    writer.put(&table, "c", "before the load").unwrap();
    let mut load = table.bulk_load(Existing::Replace).unwrap();
    fill(&mut load, &["a", "m", "z"].map(|key| (key.into(), b"loaded".to_vec())).into());
    std::thread::scope(|s| {
        let loading = s.spawn(|| {
            load.finish().unwrap();
            table.get("c").unwrap().unwrap()
        });
        // It gives up after ten seconds, so it is watched for a moment.
        let waits = |what: &str| {
            let until = Instant::now() + Duration::from_millis(50);
            while Instant::now() < until {
                assert!(!loading.is_finished(), "{what}");
                std::thread::yield_now();
            }
        };
        waits("two transactions have locks");
        assert_eq!(reader.range(&table, "k"..).unwrap().count(), 1, "what it has locked stays");
        reader.commit().unwrap();
        waits("the gap is locked still");
        assert_eq!(table.get("a").unwrap(), None);
        writer.commit().unwrap();
        assert_eq!(loading.join().unwrap(), "before the load");
    });
    assert_eq!(before.get(&table, "m").unwrap().unwrap(), "old");
    assert_eq!(before.get(&table, "a").unwrap(), None);
    assert_eq!(before.put(&table, "a", "mine").unwrap_err().kind(), ErrorKind::Conflict);
    optimistic.put(&table, "elsewhere", "1").unwrap();
    assert_eq!(optimistic.commit().unwrap_err().kind(), ErrorKind::Conflict, "it had read m");
    let after = db.begin_with(TxnOptions::new().lock_wait(LockWait::NoWait)).unwrap();
    after.put(&table, "a", "after").unwrap();
    after.commit().unwrap();
    assert_eq!(table.get("a").unwrap().unwrap(), "after", "its locks are given back");
}

#[test]
fn beside_running_writers_all_of_a_load_is_seen_or_nothing() {
    let _together = together();
    const LOADS: u32 = 10;
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(4 << 20).open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    // Loads have even numbers, the other writers odd ones.
    let key = |n: u32| n.to_be_bytes();
    std::thread::scope(|s| {
        for thread in 0..2u32 {
            let (db, table) = (&db, &table);
            s.spawn(move || {
                for n in 0..600u32 {
                    let place = (n * 7919 + thread * 2) % 4000 * 2 + 1;
                    if n % 50 == 0 {
                        let mut batch = WriteBatch::new();
                        batch.put(table, key(place), [1; 200]).put(table, key(90_001), [1]);
                        db.write(batch).unwrap();
                    } else {
                        table.durability(Durability::Relaxed).put(key(place), [1; 200]).unwrap();
                    }
                }
            });
        }
        s.spawn(|| {
            for round in 0..LOADS {
                let mut load = table.bulk_load(Existing::Replace).unwrap();
                for n in 0..500u32 {
                    load.put(key((n * 8 + round % 4) * 2), [round as u8; 100]).unwrap();
                }
                load.finish().unwrap();
            }
        });
        for _ in 0..15 {
            let snapshot = db.snapshot().unwrap();
            let seen = rows(snapshot.range(&table, ..key(90_000)));
            let mut of_each: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
            let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
            for (key, value) in seen.iter().filter(|(key, _)| key[3] % 2 == 0) {
                let n = u32::from_be_bytes(key[..].try_into().unwrap()) / 2 % 8;
                of_each.entry(n as u8).or_default().insert(value[0]);
                *counts.entry(n as u8).or_default() += 1;
            }
            assert!(of_each.values().all(|rounds| rounds.len() == 1), "{of_each:?}");
            assert!(counts.values().all(|count| *count == 500), "{counts:?}");
        }
    });
    let seen = rows(table.range(..key(90_000)));
    assert_eq!(seen.keys().filter(|key| key[3] % 2 == 0).count(), 2000);
    assert!(db.verify().unwrap().damages.is_empty());
    drop(table);
    db.close().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    assert!(rows(db.table("t").unwrap().range(..key(90_000))) == seen);
}
