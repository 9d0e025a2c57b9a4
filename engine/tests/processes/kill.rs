//! Processes killed in the middle of their work on real files, at moments chosen by what the
//! engine is doing: every acknowledged commit is there, relaxed ones too since only the process
//! died; at most the one under way in each thread is there besides, whole or not at all.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::common::content::{Rows, read_table, short};
use crate::common::{Chance, long, rounds, tiny};
use terrace::testing::{Phase, watch_phases};
use terrace::{Database, Durability, Table, WriteBatch};

const THREADS: u64 = 3;
const TABLES: [&str; 2] = ["a", "b"];
const DIRECTORY: &str = "TERRACE_KILL_DIRECTORY";
const START: &str = "TERRACE_KILL_START";
const PHASES: [&str; 3] = ["commit", "drain", "journal edit"];

/// Where the child says what it is doing: a byte for each phase, the threads that are in it.
static SIGNAL: OnceLock<File> = OnceLock::new();
static ACTIVE: [AtomicU8; 3] = [const { AtomicU8::new(0) }; 3];

fn signal(phase: Phase, entered: bool) {
    let n = phase as usize;
    let before = if entered {
        ACTIVE[n].fetch_add(1, Ordering::SeqCst) + 1
    } else {
        ACTIVE[n].fetch_sub(1, Ordering::SeqCst) - 1
    };
    let file = SIGNAL.get().unwrap();
    file.write_all_at(&[before], n as u64).unwrap();
}

/// What commit `n` of thread `t` does, in both tables: a put, or a delete, and its number.
fn operation(t: u64, n: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut chance = Chance::new(t << 40 | n);
    let key = format!("{t} row {:03}", chance.below(150)).into_bytes();
    let len = 10 + chance.below(1500) as usize;
    let value = (!chance.percent(20)).then(|| chance.bytes(len));
    (key, value)
}

fn last_key(t: u64) -> Vec<u8> {
    format!("{t} last").into_bytes()
}

fn commit(db: &Database, tables: &[Table; 2], t: u64, n: u64) -> terrace::Result<()> {
    let (key, value) = operation(t, n);
    let mut batch = WriteBatch::new();
    for table in tables {
        match &value {
            Some(value) => batch.put(table, &key, value),
            None => batch.delete(table, &key),
        };
        batch.put(table, last_key(t), n.to_be_bytes());
    }
    let durable = n.is_multiple_of(8);
    db.write_with(&batch, if durable { Durability::Durable } else { Durability::Relaxed })
}

/// Not a test of its own: what the killed process runs. Without its variables it does nothing.
#[test]
fn child_entry() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let start: Vec<u64> =
        std::env::var(START).unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    let signal_file = File::options().write(true).open(directory.join("signal")).unwrap();
    SIGNAL.get_or_init(|| signal_file);
    watch_phases(signal);
    let db = tiny().open(directory.join("db")).unwrap();
    let tables = TABLES.map(|name| db.table(name).unwrap());
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let (db, tables, start) = (&db, &tables, &start);
            scope.spawn(move || {
                for n in start[t as usize].. {
                    commit(db, tables, t, n).unwrap();
                    // Not buffered: one write for each.
                    std::io::stderr().write_all(format!("ack {t} {n}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}

fn start_child(directory: &Path, next: &[u64]) -> Child {
    let start: Vec<String> = next.iter().map(u64::to_string).collect();
    Command::new(std::env::current_exe().unwrap())
        .args(["kill::child_entry", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(START, start.join(" "))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets the child work for a while, then kills it as soon as it is in the phase that is aimed at;
/// what it acknowledged, by thread, and the phases it died in.
fn kill_in(directory: &Path, next: &[u64], aim: usize, wait: Duration) -> (Vec<u64>, [bool; 3]) {
    let signal = File::options().read(true).write(true).open(directory.join("signal")).unwrap();
    signal.write_all_at(&[0; 3], 0).unwrap();
    let mut child = start_child(directory, next);
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let acks = std::thread::spawn(move || {
        let (mut acks, mut other) = (vec![None; THREADS as usize], String::new());
        for line in stderr.lines().map_while(Result::ok) {
            let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            match (line.starts_with("ack "), &numbers[..]) {
                (true, [t, n]) => acks[*t as usize] = Some(*n),
                _ => other = other + &line + "\n",
            }
        }
        (acks, other)
    });
    let phases = || {
        let mut active = [0; 3];
        signal.read_exact_at(&mut active, 0).unwrap();
        active.map(|n| n > 0)
    };
    let (began, limit) = (Instant::now(), wait + Duration::from_secs(5));
    while began.elapsed() < wait || (!phases()[aim] && began.elapsed() < limit) {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the child ended by itself, {status}: {}", acks.join().unwrap().1);
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (acks, _) = acks.join().unwrap();
    let next_after = |(t, ack): (usize, Option<u64>)| ack.map_or(next[t], |n| n + 1);
    (acks.into_iter().enumerate().map(next_after).collect(), phases())
}

/// Opens what the killed process left and holds it against its acknowledgements.
fn check(path: &Path, acknowledged: &[u64], next: &mut [u64], model: &mut Rows) {
    let db = tiny().open(path).unwrap();
    let tables: Vec<Rows> = TABLES.map(|name| read_table(&db.table(name).unwrap()).unwrap()).into();
    for t in 0..THREADS {
        let last = tables[0].get(&last_key(t));
        let found = last.map_or(0, |v| u64::from_be_bytes(v[..].try_into().unwrap()) + 1);
        let acknowledged = acknowledged[t as usize];
        assert!(
            (acknowledged..=acknowledged + 1).contains(&found),
            "thread {t} had {acknowledged} commits acknowledged, {found} are there"
        );
        for n in next[t as usize]..found {
            let (key, value) = operation(t, n);
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
            model.insert(last_key(t), n.to_be_bytes().to_vec());
        }
        next[t as usize] = found;
    }
    for (rows, name) in tables.iter().zip(TABLES) {
        let wrong = rows.iter().find(|(k, v)| model.get(*k) != Some(v));
        assert!(wrong.is_none(), "{name}: a wrong row {:?}", wrong.map(|(k, _)| short(k)));
        let gone = model.keys().find(|k| !rows.contains_key(*k));
        assert!(gone.is_none(), "{name}: a row is missing {:?}", gone.map(|k| short(k)));
    }
    assert!(db.verify().unwrap().damages.is_empty());
    db.close().unwrap();
}

#[test]
fn killed_at_chosen_moments_nothing_acknowledged_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    File::create(directory.path().join("signal")).unwrap().write_all(&[0; 3]).unwrap();
    let (mut chance, mut next, mut model) =
        (Chance::new(77), vec![0; THREADS as usize], BTreeMap::new());
    let mut landed = [0; 3];
    let enough = rounds(10, 200);
    for n in 0..10 * enough {
        // A slow machine takes more rounds for as many commits.
        if n >= enough && next.iter().all(|n| *n > 50) {
            break;
        }
        let wait = Duration::from_millis(50 + chance.below(250));
        let (acknowledged, phases) = kill_in(directory.path(), &next, n as usize % 3, wait);
        for (count, active) in landed.iter_mut().zip(phases) {
            *count += u64::from(active);
        }
        check(&directory.path().join("db"), &acknowledged, &mut next, &mut model);
    }
    let counts: Vec<_> = PHASES.iter().zip(landed).map(|(p, n)| format!("{n} in {p}")).collect();
    eprintln!("kills landed: {}; {} commits", counts.join(", "), next.iter().sum::<u64>());
    assert!(next.iter().all(|n| *n > 50), "{next:?}");
    if long() {
        assert!(landed.iter().all(|n| *n >= 20), "{landed:?}");
    }
}
