//! A reader with any snapshot sees exactly that snapshot, however old it is, while memtables are
//! frozen and merged, versions pruned, columns drained, zones cleaned and freed below it as fast
//! as they can be.
//!
//! What a writer does in its n-th commit follows from n alone, and n is in the commit. So a
//! checker that finds n in a snapshot knows all that has to be there.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Chance, Course, alone, long, tiny, together};
use terrace::{Database, Durability, Index, Mode, Range, Snapshot, Table, WriteBatch};

const WRITERS: u64 = 2;

/// Keys of a writer: few hot ones, and many that are written now and then.
const HOT: u64 = 20;
const COLD: u64 = 600;

fn time() -> Duration {
    Duration::from_secs(if long() { 120 } else { 5 })
}

/// One operation: a key, and the length of the value that it is given; none if it is deleted.
type Operation = (u64, Option<usize>);

/// The cold keys that a writer's n-th commit deletes before it does anything else, now and then.
fn range(writer: u64, n: u64) -> Option<std::ops::Range<u64>> {
    let mut chance = Chance::new((n * WRITERS + writer) << 32);
    chance.percent(3).then(|| {
        let start = HOT + chance.below(COLD);
        start..start + 1 + chance.below(COLD / 4)
    })
}

/// The operations of a writer's n-th commit, each key once.
fn operations(writer: u64, n: u64) -> BTreeMap<u64, Option<usize>> {
    let mut chance = Chance::new(n * WRITERS + writer);
    let one = |chance: &mut Chance| -> Operation {
        let key = if chance.percent(92) { chance.below(HOT) } else { HOT + chance.below(COLD) };
        let value = (!chance.percent(15)).then(|| 24 + chance.below(900) as usize);
        (key, value)
    };
    (0..1 + chance.below(3)).map(|_| one(&mut chance)).collect()
}

fn key(writer: u64, key: u64) -> Vec<u8> {
    format!("writer {writer} key {key:04}").into_bytes()
}

fn counter(writer: u64) -> Vec<u8> {
    format!("counter {writer}").into_bytes()
}

fn value(key: u64, n: u64, len: usize) -> Vec<u8> {
    let mut value = [n.to_le_bytes(), key.to_le_bytes()].concat();
    value.resize(len, (n ^ key) as u8);
    value
}

/// What a writer's keys hold after some commit: the commit that wrote each, and the length.
#[derive(Clone, Debug, Default)]
struct Model {
    n: u64,
    rows: BTreeMap<u64, (u64, usize)>,
}

impl Model {
    fn advance(&mut self, writer: u64, to: u64) {
        assert!(self.n <= to, "writer {writer}: commit {} was visible, now {to} is", self.n);
        for n in self.n + 1..=to {
            if let Some(range) = range(writer, n) {
                self.rows.retain(|key, _| !range.contains(key));
            }
            for (key, value) in operations(writer, n) {
                match value {
                    Some(len) => self.rows.insert(key, (n, len)),
                    None => self.rows.remove(&key),
                };
            }
        }
        self.n = to;
    }
}

fn write(db: &Database, tables: &[Table; 2], writer: u64, goes_on: &dyn Fn() -> bool) -> u64 {
    let mut n = 0;
    while goes_on() {
        n += 1;
        let mut batch = WriteBatch::new();
        if let Some(range) = range(writer, n) {
            let keys = key(writer, range.start)..key(writer, range.end);
            for table in tables {
                batch.delete_range(table, keys.clone());
            }
        }
        for (k, len) in operations(writer, n) {
            let table = &tables[(k % 2) as usize];
            match len {
                Some(len) => batch.put(table, key(writer, k), value(k, n, len)),
                None => batch.delete(table, key(writer, k)),
            };
        }
        batch.put(&tables[0], counter(writer), n.to_le_bytes());
        let durable = n.is_multiple_of(50);
        let durability = if durable { Durability::Durable } else { Durability::Relaxed };
        db.write_with(&batch, durability).unwrap();
    }
    n
}

/// Keys and values.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A snapshot with what it has to show, and an iterator that was left in the middle of it.
struct Held {
    snapshot: Snapshot,
    models: Vec<Model>,
    iterator: Option<(Range, Rows)>,
}

/// What a table has to show of all writers.
fn expected(models: &[Model], table: u64) -> Rows {
    let mut rows = Rows::new();
    for (writer, model) in (0..).zip(models) {
        let own = model.rows.iter().filter(|(k, _)| *k % 2 == table);
        rows.extend(own.map(|(k, (n, len))| (key(writer, *k), value(*k, *n, *len))));
        if table == 0 && model.n > 0 {
            rows.insert(counter(writer), model.n.to_le_bytes().to_vec());
        }
    }
    rows
}

impl Held {
    fn new(db: &Database, tables: &[Table; 2], models: &mut [Model], seen: &mut [u64]) -> Held {
        let snapshot = db.snapshot().unwrap();
        for (writer, model) in (0..).zip(models.iter_mut()) {
            let found = snapshot.get(&tables[0], counter(writer)).unwrap();
            let n = found.map_or(0, |n| u64::from_le_bytes(n[..].try_into().unwrap()));
            model.advance(writer, n);
            seen[writer as usize] = n;
        }
        Held { snapshot, models: models.to_vec(), iterator: None }
    }

    /// Reads all of it, one way or the other, or some keys, or more of the iterator.
    fn check(&mut self, tables: &[Table; 2], chance: &mut Chance) {
        let table = chance.below(2);
        match chance.below(4) {
            0 => self.check_all(tables, table, false),
            1 => self.check_all(tables, table, true),
            2 => self.check_keys(tables, chance),
            _ => self.check_iterator(tables, table, chance),
        }
    }

    fn check_all(&self, tables: &[Table; 2], table: u64, backward: bool) {
        let range = self.snapshot.range(&tables[table as usize], ..);
        let rows: Vec<_> = if backward {
            let mut rows: Vec<_> = range.rev().map(Result::unwrap).collect();
            rows.reverse();
            rows
        } else {
            range.map(Result::unwrap).collect()
        };
        let expected = expected(&self.models, table);
        let keys: Vec<_> = rows.iter().map(|(key, _)| &key[..]).collect();
        assert_eq!(keys, expected.keys().map(Vec::as_slice).collect::<Vec<_>>());
        for (key, value) in &rows {
            self.assert_same(key, value, &expected[&key[..]]);
        }
    }

    fn assert_same(&self, key: &[u8], found: &[u8], expected: &[u8]) {
        assert!(found == expected, "{:?} at {}", String::from_utf8_lossy(key), self.snapshot.lsn());
    }

    fn check_keys(&self, tables: &[Table; 2], chance: &mut Chance) {
        for _ in 0..30 {
            let (writer, k) = (chance.below(WRITERS), chance.below(HOT + COLD));
            let found = self.snapshot.get(&tables[(k % 2) as usize], key(writer, k)).unwrap();
            let expected = self.models[writer as usize].rows.get(&k);
            let expected = expected.map(|(n, len)| value(k, *n, *len));
            let lsn = self.snapshot.lsn();
            assert!(found.as_deref() == expected.as_deref(), "writer {writer} key {k} at {lsn}");
        }
    }

    /// Some rows of an iterator that lives as long as the snapshot, from both ends.
    fn check_iterator(&mut self, tables: &[Table; 2], table: u64, chance: &mut Chance) {
        let (models, snapshot) = (&self.models, &self.snapshot);
        let (iterator, left) = self.iterator.get_or_insert_with(|| {
            let range = snapshot.range(&tables[table as usize], ..);
            (range, expected(models, table))
        });
        for _ in 0..50 {
            let (found, expected) = match chance.percent(70) {
                true => (iterator.next(), left.pop_first()),
                false => (iterator.next_back(), left.pop_last()),
            };
            let found = found.map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap());
            assert!(found == expected, "at {}", self.snapshot.lsn());
            if found.is_none() {
                self.iterator = None;
                return;
            }
        }
    }
}

fn read(
    db: &Database,
    tables: &[Table; 2],
    seed: u64,
    checks: &AtomicU64,
    stop: impl Fn() -> ControlFlow<()>,
) {
    let mut chance = Chance::new(seed);
    let mut models = vec![Model::default(); WRITERS as usize];
    let mut seen = [0; WRITERS as usize];
    let mut held: Vec<Held> = Vec::new();
    while stop().is_continue() {
        if held.len() < 6 || chance.percent(20) {
            let before = seen;
            held.push(Held::new(db, tables, &mut models, &mut seen));
            assert!(before.iter().zip(&seen).all(|(before, now)| before <= now));
        }
        if held.len() > 6 {
            // Some live long, most do not.
            let at = (chance.below(held.len() as u64)).max(chance.below(held.len() as u64));
            held.swap_remove(at as usize);
        }
        let at = chance.below(held.len() as u64) as usize;
        held[at].check(tables, &mut chance);
        checks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bug: a drained record was counted out of a zone that it was no longer in, the zone's count went
/// below nothing, and the background stopped. Cause: the retirement of a drain gave the offset that
/// its cursor had seen, and the cleaner had moved the record in between. Fix: it gives the offset
/// that the removal found. About one run in ten of this test showed it.
#[test]
fn any_snapshot_is_exact_while_everything_moves_below_it() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    is_exact(&tiny().open(dir.path().join("db")).unwrap());
}

#[test]
fn so_it_is_with_the_index_in_persistent_memory() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let mode = Mode::Emulated { delay: Duration::ZERO };
    let options = tiny().mode(mode).pm_path(dir.path().join("region")).index(Index::Persistent);
    is_exact(&options.open(dir.path().join("db")).unwrap());
}

fn is_exact(db: &Database) {
    let tables = [db.table("even").unwrap(), db.table("odd").unwrap()];
    let course = Course::of(time());
    let (checks, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let has_enough = || {
        let done = db.stats().background;
        let work = [done.merges > 5, done.drains > 5, done.zones_released > 5];
        let gone = [done.pruned_records > 100, done.zones_cleaned > 0, done.records_moved > 0];
        checks.load(Ordering::Relaxed) > 100 && [work, gone].concat().into_iter().all(|is| is)
    };
    let goes_on = || course.goes_on(has_enough);
    let commits = std::thread::scope(|scope| {
        let (tables, checks, over, goes_on) = (&tables, &checks, &over, &goes_on);
        let stop = || match over.load(Ordering::Acquire) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let readers: Vec<_> =
            (0..3).map(|seed| scope.spawn(move || read(db, tables, seed, checks, stop))).collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(db, tables, writer, goes_on)))
            .collect();
        let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Ordering::Release);
        // One by one: the end of the scope alone is nothing that ThreadSanitizer understands.
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        ends.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    });
    let stats = db.stats();
    let (checks, done) = (checks.into_inner(), &stats.background);
    eprintln!("{commits:?} commits, {checks} checks, {done:?}");
    assert!(checks > 100, "{checks} checks");
    assert!(done.merges > 5 && done.drains > 5 && done.zones_released > 5, "{stats:?}");
    assert!(done.pruned_records > 100, "{stats:?}");
    assert!(done.zones_cleaned > 0 && done.records_moved > 0, "{stats:?}");
    // At last there is nothing but the last commit of each.
    let mut models = vec![Model::default(); WRITERS as usize];
    let held = Held::new(db, &tables, &mut models, &mut [0; WRITERS as usize]);
    assert_eq!(models.iter().map(|model| model.n).collect::<Vec<_>>(), commits);
    [0, 1].into_iter().for_each(|table| held.check_all(&tables, table, false));
    assert!(db.verify().unwrap().damages.is_empty());
}

/// An iterator that is left in the middle keeps its snapshot and nothing else: zones are released
/// below it, many times over, and it goes on where it was.
#[test]
fn an_iterator_that_is_left_half_way_holds_no_zone() {
    const ROWS: u64 = 3000;
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().stepped().create(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let put = |n: u64, round: u64| {
        let row = value(n, round, 24 + (n * 37 % 200) as usize);
        table.durability(Durability::Relaxed).put(key(0, n), row).unwrap();
        if n.is_multiple_of(50) {
            while db.step().unwrap() {}
        }
    };
    (0..ROWS).for_each(|n| put(n, 0));
    let mut range = table.iter();
    let mut found: Vec<_> = range.by_ref().take(ROWS as usize / 2).collect();
    let appended = || db.stats().pm.appended_bytes;
    let (before, capacity) = (appended(), db.stats().pm.capacity);
    let mut round = 0;
    while appended() - before < 10 * capacity {
        round += 1;
        // Rows that it has not come to among them, and others before and behind.
        (0..ROWS + 500).for_each(|n| put(n, round));
    }
    while db.step().unwrap() {}
    let stats = db.stats();
    assert_eq!((stats.pm.zones_pinned, stats.background.snapshots), (0, 1), "{stats:?}");
    assert!(stats.background.zones_released > 5 * u64::from(stats.pm.zones), "{stats:?}");
    found.extend(range);
    assert_eq!(found.len() as u64, ROWS);
    for (n, row) in (0..ROWS).zip(found) {
        let (found, row) = row.unwrap();
        let len = 24 + (n * 37 % 200) as usize;
        assert!(found == key(0, n) && row == value(n, 0, len), "row {n}");
    }
}
