//! Random transactions of many threads, recorded and checked for the cycles that their level
//! forbids.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::child::{given, tell, told_until_killed};
use crate::common::cuts::{KINDS, Kind, PATH, options as on_machine};
use crate::common::{Chance, rounds, tiny};
use terrace::testing::Survive;
use terrace::{Database, Durability, Error, Isolation, Table, Transaction, TxnOptions};
use terrace_sim::histories::{Done, check, list_of, times};

const KEYS: u64 = 5;

/// In two phases, one time in four.
fn commit(db: &Database, txn: Transaction, id: u32, chance: &mut Chance) -> Result<(), Error> {
    if chance.percent(75) {
        return txn.commit();
    }
    txn.prepare(id.to_be_bytes())?;
    db.commit_prepared(id.to_be_bytes())
}

/// One random transaction; what it did, if it was committed. `about_to` is told before that.
fn one(
    db: &Database,
    table: &Table,
    options: &TxnOptions,
    (id, chance): (u32, &mut Chance),
    about_to: &dyn Fn(&Done),
) -> Option<Done> {
    let mut done = Done { id, ..Done::default() };
    let mut body = || -> Result<(), Error> {
        let txn = db.begin_with(options.clone())?;
        for _ in 0..1 + chance.below(4) {
            let key = chance.below(KEYS) as u8;
            if chance.percent(20) {
                let mut rows: BTreeMap<u8, Vec<u32>> =
                    (0..KEYS as u8).map(|key| (key, Vec::new())).collect();
                for row in txn.range(table, ..)? {
                    let (key, value) = row?;
                    rows.insert(key[0], list_of(Some(&value)));
                }
                rows.retain(|key, _| !done.appends.contains(key));
                done.reads.extend(rows);
            } else if chance.percent(50) {
                let read = list_of(txn.get(table, [key])?.as_deref());
                if !done.appends.contains(&key) {
                    done.reads.push((key, read));
                }
            } else {
                let value = txn.get_for_update(table, [key])?;
                if !done.appends.contains(&key) {
                    done.reads.push((key, list_of(value.as_deref())));
                }
                let mut value = value.map(|v| v.to_vec()).unwrap_or_default();
                value.extend_from_slice(&id.to_be_bytes());
                txn.put(table, [key], value)?;
                done.appends.push(key);
            }
            if chance.percent(30) {
                thread::yield_now();
            }
        }
        if chance.percent(10) {
            txn.roll_back();
            done.appends.clear();
            done.reads.clear();
            return Ok(());
        }
        about_to(&done);
        commit(db, txn, id, chance)
    };
    match body() {
        Ok(()) => Some(done),
        Err(e) => {
            assert!(e.is_retryable(), "{e}");
            None
        }
    }
}

fn read_all(table: &Table) -> Vec<(u8, Vec<u32>)> {
    let rows = table.iter().map(|row| row.unwrap());
    rows.map(|(key, value)| (key[0], list_of(Some(&value)))).collect()
}

fn record(options: &TxnOptions, seed: u64) -> Vec<Done> {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let history = Mutex::new(Vec::new());
    thread::scope(|s| {
        for t in 0..6u32 {
            let (db, table, history) = (&db, &table, &history);
            s.spawn(move || {
                let mut chance = Chance::new(seed * 100 + u64::from(t));
                for n in 0..rounds(120, 400) as u32 {
                    let id = t * 100_000 + n + 1;
                    if let Some(done) = one(db, table, options, (id, &mut chance), &|_| ()) {
                        history.lock().unwrap().push(done);
                    }
                }
            });
        }
    });
    assert_eq!(db.locks_held(), (0, 0));
    let mut history = history.into_inner().unwrap();
    // One more reads all, so that the order of every version is known.
    let reads = read_all(&table);
    for done in &history {
        for key in &done.appends {
            let there = reads.iter().filter(|(of, _)| of == key);
            let there: usize = there.map(|(_, list)| times(list, done.id)).sum();
            assert_eq!(there, done.times(*key), "a write of {} to key {key} was lost", done.id);
        }
    }
    history.push(Done { id: u32::MAX, reads, ..Done::default() });
    history
}

fn holds(options: &TxnOptions, level: Isolation) {
    for seed in 0..rounds(3, 60) {
        let history = record(&options.clone().durability(Durability::Relaxed), seed);
        let writes: usize = history.iter().map(|d| d.appends.len()).sum();
        assert!(writes > 50, "only {writes} writes got through");
        check(&history, level).unwrap();
    }
}

#[test]
fn read_committed_holds() {
    let level = Isolation::ReadCommitted;
    holds(&TxnOptions::new().isolation(level), level);
}

#[test]
fn snapshot_holds() {
    holds(&TxnOptions::new(), Isolation::Snapshot);
    holds(&TxnOptions::new().optimistic(), Isolation::Snapshot);
}

#[test]
fn serializable_holds() {
    let level = Isolation::Serializable;
    let options = TxnOptions::new().isolation(level);
    holds(&options, level);
    holds(&options.optimistic(), level);
}

/// What several lives of one database did.
struct Lives {
    history: Vec<Done>,
    next_id: u32,
    /// Drains until the ends.
    drains: u64,
}

/// Levels, and whether transactions are optimistic.
const WAYS: [(Isolation, bool); 5] = [
    (Isolation::ReadCommitted, false),
    (Isolation::Snapshot, false),
    (Isolation::Snapshot, true),
    (Isolation::Serializable, false),
    (Isolation::Serializable, true),
];

fn transactions((level, optimistic): (Isolation, bool)) -> TxnOptions {
    let options = TxnOptions::new().isolation(level);
    if optimistic { options.optimistic() } else { options }
}

impl Lives {
    /// Takes in a life that ended in its midst: what was `meant` to be committed, and what was
    /// `acknowledged` before the end. Prepared ones are committed or rolled back first. Whatever
    /// was acknowledged is there, and the rest as a whole or not at all.
    fn take_in(&mut self, db: &Database, meant: Vec<Done>, acknowledged: &BTreeSet<u32>) {
        for prepared in db.list_prepared() {
            match prepared.id[3] % 2 {
                0 => db.commit_prepared(&prepared.id).unwrap(),
                _ => db.roll_back_prepared(&prepared.id, terrace::Durability::Durable).unwrap(),
            }
        }
        let found = read_all(&db.table("t").unwrap());
        let is_in = |key: u8, done: &Done| {
            found.iter().any(|(k, list)| *k == key && times(list, done.id) == done.times(key))
        };
        for done in meant {
            let there = done.appends.iter().filter(|key| is_in(**key, &done)).count();
            let traces = found.iter().filter(|(_, list)| list.contains(&done.id)).count();
            assert!(there > 0 || traces == 0, "a part of {} is there", done.id);
            assert!(there == 0 || there == done.appends.len(), "a part of {} is there", done.id);
            let acknowledged = acknowledged.contains(&done.id);
            assert!(there == done.appends.len() || !acknowledged, "{} is missing", done.id);
            // A transaction that only read is believed if it was acknowledged.
            if acknowledged || there > 0 {
                self.history.push(done);
            }
        }
    }

    /// Writes of all lives that are there.
    fn writes(&self) -> usize {
        self.history.iter().map(|done| done.appends.len()).sum()
    }

    /// Checks all lives together.
    fn check(mut self, db: &Database, level: Isolation) {
        let reads = read_all(&db.table("t").unwrap());
        self.history.push(Done { id: u32::MAX, reads, ..Done::default() });
        assert!(self.writes() > 10, "only {} writes got through", self.writes());
        check(&self.history, level).unwrap();
    }
}

/// The recipient of an answer.
type Tell<'a, T> = dyn Fn(&T) + Sync + 'a;

/// Writes rows beside the transactions, so that theirs freeze, drain and sink with these.
fn pad(db: &Database, is_over: impl Fn() -> bool) {
    let table = db.table("padding").unwrap();
    let mut chance = Chance::new(7);
    while !is_over() {
        let key = chance.below(200).to_be_bytes();
        table.durability(Durability::Relaxed).put(key, chance.bytes(3000)).unwrap();
    }
}

/// Transactions of four threads until `stop`; `about_to` and `acknowledged` are told of each.
fn work(
    db: &Database,
    options: &TxnOptions,
    first_id: u32,
    stop: &AtomicBool,
    (about_to, acknowledged): (&Tell<'_, Done>, &Tell<'_, u32>),
) {
    let table = db.table("t").unwrap();
    thread::scope(|s| {
        let workers: Vec<_> = (0..4)
            .map(|t| {
                let table = &table;
                s.spawn(move || {
                    let mut chance = Chance::new(u64::from(first_id + t));
                    // Each thread has every fourth number, and as many as a life may need.
                    for id in (first_id + t..first_id + 1200).step_by(4) {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        if one(db, table, options, (id, &mut chance), about_to).is_some() {
                            acknowledged(&id);
                        }
                    }
                })
            })
            .collect();
        pad(db, || workers.iter().all(thread::ScopedJoinHandle::is_finished));
    });
}

/// A life on a simulated machine whose power is lost while the threads are at work; the machine
/// that is found.
fn cut_life(
    kind: Kind,
    way: (Isolation, bool),
    lives: &mut Lives,
    machine: &terrace::testing::Machine,
    chance: &mut Chance,
) -> terrace::testing::Machine {
    let db = tiny().machine(machine).open(PATH).unwrap();
    drop(db.table("t").unwrap());
    let (meant, acknowledged) = (Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    let (stop, enough) = (AtomicBool::new(false), 10 + chance.below(60) as usize);
    let waits_for_drain = chance.percent(30);
    let options = transactions(way);
    let (before, found) = thread::scope(|s| {
        let worker = s.spawn(|| {
            let about_to = |done: &Done| meant.lock().unwrap().push(done.clone());
            let ack = |id: &u32| {
                acknowledged.lock().unwrap().insert(*id);
            };
            work(&db, &options, lives.next_id, &stop, (&about_to, &ack));
        });
        let waits = || waits_for_drain && db.stats().background.drains == 0;
        while (waits() || acknowledged.lock().unwrap().len() < enough) && !worker.is_finished() {
            thread::yield_now();
        }
        let before = acknowledged.lock().unwrap().clone();
        let found = machine.crash(Survive::Seeded(chance.next()));
        lives.drains += db.stats().background.drains;
        stop.store(true, Ordering::Relaxed);
        (before, found)
    });
    lives.next_id += 2000;
    let opened = on_machine(&found, None).open(PATH);
    let db = opened.unwrap_or_else(|e| panic!("{kind:?}, {way:?}: {e}"));
    lives.take_in(&db, meant.into_inner().unwrap(), &before);
    found
}

#[test]
fn levels_hold_over_power_cuts() {
    let (mut drains, enough) = (0, rounds(2, 40));
    for seed in 0..10 * enough {
        // A slow machine takes more lives for as many drains.
        if seed >= enough && drains > 20 {
            break;
        }
        for (kind, way) in KINDS.into_iter().flat_map(|k| WAYS.map(|way| (k, way))) {
            let mut chance = Chance::new(seed);
            let mut lives = Lives { history: Vec::new(), next_id: 1, drains: 0 };
            let mut machine = kind.machine();
            for _ in 0..3 {
                machine = cut_life(kind, way, &mut lives, &machine, &mut chance);
            }
            drains += lives.drains;
            lives.check(&on_machine(&machine, None).open(PATH).unwrap(), way.0);
        }
    }
    assert!(drains > 20, "{drains} drains");
}

/// Not a test of its own: what the killed process runs. Without its variables it does nothing.
#[test]
fn child_entry() {
    let Some((directory, what)) = given() else { return };
    let (way, first_id) = what.split_once(' ').unwrap();
    let options = transactions(WAYS[way.parse::<usize>().unwrap()]);
    let db = tiny().open(directory).unwrap();
    let about_to = |done: &Done| tell(&format!("meant {}", line(done)));
    let acknowledged = |id: &u32| tell(&format!("ack {id}"));
    let stop = AtomicBool::new(false);
    work(&db, &options, first_id.parse().unwrap(), &stop, (&about_to, &acknowledged));
    loop {
        // All is done before the end has come.
        tell("rest");
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// `id;appends;key:list;…`, numbers parted by commas.
fn line(done: &Done) -> String {
    let list = |numbers: &[u32]| {
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        numbers.join(",")
    };
    let appends: Vec<u32> = done.appends.iter().map(|key| u32::from(*key)).collect();
    let reads = done.reads.iter().map(|(key, read)| format!(";{key}:{}", list(read)));
    format!("{};{}{}", done.id, list(&appends), reads.collect::<String>())
}

fn parse(line: &str) -> Done {
    let list = |text: &str| -> Vec<u32> {
        text.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect()
    };
    let mut fields = line.split(';');
    let id = fields.next().unwrap().parse().unwrap();
    let appends = list(fields.next().unwrap()).into_iter().map(|key| key as u8).collect();
    let read = |field: &str| {
        let (key, read) = field.split_once(':').unwrap();
        (key.parse().unwrap(), list(read))
    };
    Done { id, appends, reads: fields.map(read).collect(), ..Done::default() }
}

#[test]
fn levels_hold_over_kills() {
    let mut chance = Chance::new(5);
    for (n, way) in WAYS.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let mut lives = Lives { history: Vec::new(), next_id: 1, drains: 0 };
        let enough = rounds(3, 40);
        for life in 0..10 * enough {
            // A slow machine takes more lives for as many writes.
            if life >= enough && lives.writes() > 10 {
                break;
            }
            let wait = Duration::from_millis(30 + chance.below(120));
            let told = told_until_killed(
                "histories::child_entry",
                &path,
                &format!("{n} {}", lives.next_id),
                wait,
            );
            let (mut meant, mut acknowledged) = (Vec::new(), BTreeSet::new());
            for line in &told {
                match line.split_once(' ') {
                    Some(("meant", done)) => meant.push(parse(done)),
                    Some((_, id)) => {
                        acknowledged.insert(id.parse().unwrap());
                    }
                    None => {}
                }
            }
            lives.next_id += 2000;
            let db = tiny().open(&path).unwrap();
            lives.take_in(&db, meant, &acknowledged);
            db.close().unwrap();
        }
        lives.check(&tiny().open(&path).unwrap(), way.0);
    }
}
