//! The anomalies of Hermitage, each level against its promise. The table that this prints is the
//! one in `docs/transactions.md`, and is held against it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop and tell")]

use std::collections::VecDeque;
use std::fmt::Write;

use crate::common::tiny;
use terrace::{Database, ErrorKind, Isolation, LockWait, Table, Transaction, TxnOptions};

/// A step of one of the transactions.
#[derive(Clone, Copy, Debug)]
enum Op {
    Get(u8),
    Put(u8, u8),
    Scan,
    Commit,
    RollBack,
}

use Op::{Commit, Get, Put, RollBack, Scan};

/// A transaction with the steps that it could not do yet, as another transaction held a lock.
struct Runner {
    txn: Option<Transaction>,
    held_up: VecDeque<Op>,
    /// What each read returned.
    read: Vec<Vec<(u8, u8)>>,
    committed: bool,
}

impl Runner {
    /// Does what it can; whether it did anything.
    fn go_on(&mut self, table: &Table) -> bool {
        let before = self.held_up.len();
        while let Some(&op) = self.held_up.front() {
            let Some(txn) = self.txn.take() else {
                self.held_up.clear();
                return true;
            };
            let done = match op {
                Get(key) => txn.get(table, [key]).map(|value| {
                    self.read.push(value.map(|v| (key, v[0])).into_iter().collect());
                }),
                Put(key, value) => txn.put(table, [key], [value]),
                Scan => txn.range(table, ..).map(|rows| {
                    self.read.push(rows.map(|r| r.map(|(k, v)| (k[0], v[0])).unwrap()).collect());
                }),
                Commit => {
                    match txn.commit() {
                        Ok(()) => self.committed = true,
                        Err(e) => assert_eq!(e.kind(), ErrorKind::Conflict, "{e}"),
                    }
                    self.held_up.clear();
                    return true;
                }
                RollBack => {
                    txn.roll_back();
                    self.held_up.clear();
                    return true;
                }
            };
            match done {
                Ok(()) => {
                    self.held_up.pop_front();
                    self.txn = Some(txn);
                }
                Err(e) if e.kind() == ErrorKind::Timeout => {
                    self.txn = Some(txn);
                    break;
                }
                Err(e) => assert!(e.is_retryable(), "{e}"),
            }
        }
        self.held_up.len() < before
    }
}

/// Runs the steps in their order; a step that would wait is done as soon as it can be. When all
/// wait for each other, the last one is rolled back.
fn play(level: &Level, script: &[(usize, Op)]) -> (Vec<Runner>, Vec<(u8, u8)>) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("test").unwrap();
    table.put([1], [10]).unwrap();
    table.put([2], [20]).unwrap();
    let count = script.iter().map(|(t, _)| t + 1).max().unwrap();
    let mut runners: Vec<Runner> = (0..count).map(|_| begin(&db, level)).collect();
    for &(t, op) in script {
        runners[t].held_up.push_back(op);
        while runners.iter_mut().any(|runner| runner.go_on(&table)) {}
    }
    while let Some(stuck) = runners.iter().rposition(|r| !r.held_up.is_empty()) {
        runners[stuck].txn = None;
        while runners.iter_mut().any(|runner| runner.go_on(&table)) {}
    }
    assert_eq!(db.locks_held(), (0, 0));
    let rows = table.iter().map(|r| r.map(|(k, v)| (k[0], v[0])).unwrap()).collect();
    (runners, rows)
}

fn begin(db: &Database, level: &Level) -> Runner {
    let options = TxnOptions::new().isolation(level.isolation).lock_wait(LockWait::NoWait);
    let options = if level.optimistic { options.optimistic() } else { options };
    Runner {
        txn: Some(db.begin_with(options).unwrap()),
        held_up: VecDeque::new(),
        read: Vec::new(),
        committed: false,
    }
}

struct Level {
    name: &'static str,
    isolation: Isolation,
    optimistic: bool,
}

const LEVELS: [Level; 5] = [
    Level { name: "read committed", isolation: Isolation::ReadCommitted, optimistic: false },
    Level { name: "snapshot", isolation: Isolation::Snapshot, optimistic: false },
    Level { name: "snapshot, optimistic", isolation: Isolation::Snapshot, optimistic: true },
    Level { name: "serializable", isolation: Isolation::Serializable, optimistic: false },
    Level {
        name: "serializable, optimistic",
        isolation: Isolation::Serializable,
        optimistic: true,
    },
];

type Seen = fn(&[Runner], &[(u8, u8)]) -> bool;

/// Name, script, whether the anomaly is there in what came out.
type Anomaly = (&'static str, Vec<(usize, Op)>, Seen);

fn anomalies() -> Vec<Anomaly> {
    fn both(runners: &[Runner]) -> bool {
        runners[0].committed && runners[1].committed
    }
    vec![
        (
            "G0",
            vec![
                (0, Put(1, 11)),
                (1, Put(1, 12)),
                (0, Put(2, 21)),
                (0, Commit),
                (1, Put(2, 22)),
                (1, Commit),
            ],
            |_, rows| rows == [(1, 11), (2, 22)] || rows == [(1, 12), (2, 21)],
        ),
        (
            "G1a",
            vec![(0, Put(1, 101)), (1, Get(1)), (0, RollBack), (1, Get(1)), (1, Commit)],
            |runners, _| runners[1].read.iter().flatten().any(|r| *r == (1, 101)),
        ),
        (
            "G1b",
            vec![
                (0, Put(1, 101)),
                (1, Get(1)),
                (0, Put(1, 11)),
                (0, Commit),
                (1, Get(1)),
                (1, Commit),
            ],
            |runners, _| runners[1].read.iter().flatten().any(|r| *r == (1, 101)),
        ),
        (
            "G1c",
            vec![
                (0, Put(1, 11)),
                (1, Put(2, 22)),
                (0, Get(2)),
                (1, Get(1)),
                (0, Commit),
                (1, Commit),
            ],
            |runners, _| {
                both(runners) && runners[0].read[0] == [(2, 22)] && runners[1].read[0] == [(1, 11)]
            },
        ),
        (
            "OTV",
            vec![
                (0, Put(1, 11)),
                (0, Put(2, 19)),
                (1, Put(1, 12)),
                (0, Commit),
                (2, Get(1)),
                (1, Put(2, 18)),
                (2, Get(2)),
                (1, Commit),
                (2, Get(2)),
                (2, Get(1)),
                (2, Commit),
            ],
            |runners, _| {
                // The second transaction was seen, and then the first again.
                let read: Vec<_> = runners[2].read.iter().flatten().collect();
                let second = read.iter().position(|r| [(1, 12), (2, 18)].contains(r));
                second.is_some_and(|at| read[at..].iter().any(|r| [(1, 11), (2, 19)].contains(r)))
            },
        ),
        (
            "PMP",
            vec![(0, Scan), (1, Put(3, 30)), (1, Commit), (0, Scan), (0, Commit)],
            |runners, _| both(runners) && runners[0].read[0] != runners[0].read[1],
        ),
        (
            "P4",
            vec![
                (0, Get(1)),
                (1, Get(1)),
                (0, Put(1, 11)),
                (1, Put(1, 12)),
                (0, Commit),
                (1, Commit),
            ],
            |runners, _| both(runners) && runners.iter().all(|r| r.read[0] == [(1, 10)]),
        ),
        (
            "G-single",
            vec![
                (0, Get(1)),
                (1, Put(1, 12)),
                (1, Put(2, 18)),
                (1, Commit),
                (0, Get(2)),
                (0, Commit),
            ],
            |runners, _| both(runners) && runners[0].read == [vec![(1, 10)], vec![(2, 18)]],
        ),
        (
            "G2-item",
            vec![
                (0, Get(1)),
                (0, Get(2)),
                (1, Get(1)),
                (1, Get(2)),
                (0, Put(1, 11)),
                (1, Put(2, 21)),
                (0, Commit),
                (1, Commit),
            ],
            |runners, _| {
                let old = vec![vec![(1, 10)], vec![(2, 20)]];
                both(runners) && runners.iter().all(|r| r.read == old)
            },
        ),
        (
            "G2",
            vec![(0, Scan), (1, Scan), (0, Put(3, 30)), (1, Put(4, 42)), (0, Commit), (1, Commit)],
            |runners, _| both(runners) && runners.iter().all(|r| r.read[0].len() == 2),
        ),
    ]
}

#[test]
fn each_level_keeps_its_promise_and_the_documentation_says_so() {
    let anomalies = anomalies();
    let mut text = String::from("| level |");
    anomalies.iter().for_each(|(name, ..)| write!(text, " {name} |").unwrap());
    text += "\n|---|";
    anomalies.iter().for_each(|_| text += "---|");
    for level in &LEVELS {
        write!(text, "\n| {} |", level.name).unwrap();
        for (name, script, there) in &anomalies {
            let (runners, rows) = play(level, script);
            let there = there(&runners, &rows);
            let promised = match level.isolation {
                Isolation::ReadCommitted => ["G0", "G1a", "G1b", "G1c", "OTV"].contains(name),
                Isolation::Snapshot => !["G2-item", "G2"].contains(name),
                Isolation::Serializable => true,
            };
            assert_eq!(there, !promised, "{name} at {}", level.name);
            text += if there { " possible |" } else { " – |" };
        }
    }
    println!("{text}");
    let documented = include_str!("../../../docs/transactions.md");
    assert!(documented.contains(&text), "docs/transactions.md has another table than\n{text}");
}
