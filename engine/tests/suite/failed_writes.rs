//! Writes to files that fail, each in turn: of a relaxed commit's own hand-over, of the publisher,
//! of the background. The call that meets one says so, nothing is acknowledged after it that is
//! not there, and the next opening finds all that was acknowledged before, and at most the commit
//! whose outcome was called unknown. After a power cut it finds all that was durable. Either way it
//! is a database that goes on, and what it acknowledges then survives a cut.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::collections::BTreeMap;

use crate::common::cuts::{KINDS, Kind, PATH, options};
use terrace::testing::{Machine, Survive};
use terrace::{Database, Durability, Error, ErrorKind};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// How many commits a life tries: on persistent memory, enough for files to come into it.
fn commits(kind: Kind) -> u64 {
    match kind {
        Kind::Files | Kind::Triangle | Kind::Objects | Kind::Shared => 60,
        Kind::Memory | Kind::Index | Kind::FullIndex | Kind::Matrix | Kind::Mixed => 600,
    }
}

/// The key and the value of a commit: every other one overwrites, the others fill the region.
fn row(n: u64) -> (Vec<u8>, Vec<u8>) {
    let key = if n.is_multiple_of(2) { n % 24 } else { n };
    let len = 200 + n as usize * 97 % 9000;
    (format!("key {key:03}").into_bytes(), vec![n as u8; len])
}

/// The rows after so many commits.
fn rows(commits: u64) -> Rows {
    (0..commits).map(row).collect()
}

/// Commits until something fails: how many were acknowledged, and how it failed.
fn life(db: &Database, commits: u64) -> Result<u64, (u64, Error)> {
    let table = db.existing_table("t").unwrap();
    for n in 0..commits {
        let (key, value) = row(n);
        let durability = if n % 3 == 2 { Durability::Durable } else { Durability::Relaxed };
        table.durability(durability).put(key, value).map_err(|e| (n, e))?;
        // A job that fails has acknowledged nothing.
        db.step().map_err(|e| (n + 1, e))?;
    }
    Ok(commits)
}

fn content(db: &Database) -> Rows {
    let table = db.existing_table("t").unwrap();
    table
        .iter()
        .map(|row| row.unwrap())
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect()
}

/// How the failure of one write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The writer could do without, or tried again.
    Absorbed,
    /// The commit's outcome is not known.
    Unknown,
    Refused,
}

fn fail_one(kind: Kind, n: u64) -> Option<End> {
    let machine = kind.machine();
    let db = options(&machine, None).create(PATH).unwrap();
    drop(db.table("t").unwrap());
    machine.fail_write_after(n);
    let (acknowledged, end) = match life(&db, commits(kind)) {
        Ok(all) => (all, End::Absorbed),
        Err((acknowledged, e)) => {
            let unknown = e.kind() == ErrorKind::UnknownOutcome;
            assert!(unknown || e.kind() == ErrorKind::Unavailable, "write {n}: {e}");
            assert!(e.to_string().contains("simulated I/O error"), "the cause is named: {e}");
            (acknowledged, if unknown { End::Unknown } else { End::Refused })
        }
    };
    // Statistics say whether the database stopped, and why.
    let stats = db.stats();
    let why = stats.stopped.unwrap_or_default();
    assert_eq!(stats.state == "stopped", why.contains("simulated I/O error"), "{why}");
    match end {
        End::Absorbed => assert_eq!(stats.state, "open"),
        End::Unknown => assert_eq!(stats.state, "stopped"),
        End::Refused => {}
    }
    let struck = !machine.write_will_fail();
    let (killed, cut) = (machine.kill(), machine.crash(Survive::Seeded(n)));
    drop(db);
    let more = u64::from(end == End::Unknown);
    for (after, least) in [(killed, acknowledged), (cut, durable(acknowledged))] {
        let what = format!("write {n}: {acknowledged} acknowledged, {end:?}");
        let db = options(&after, None).open(PATH).unwrap_or_else(|e| panic!("{what}: {e}"));
        let found = content(&db);
        let there = (least..=acknowledged + more).find(|n| found == rows(*n));
        let there = there.unwrap_or_else(|| panic!("{what}, and other rows are found"));
        go_on(&after, &db, there).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    struck.then_some(end)
}

/// How many of the first `commits` survive a power cut: up to the last durable one.
fn durable(commits: u64) -> u64 {
    (0..commits).rev().find(|n| n % 3 == 2).map_or(0, |n| n + 1)
}

/// Commits more to a database with so many rows, and cuts the power.
fn go_on(machine: &Machine, db: &Database, there: u64) -> Result<(), Error> {
    let table = db.existing_table("t")?;
    for n in there..there + 3 {
        let (key, value) = row(n);
        table.put(key, value)?;
        while db.step()? {}
    }
    let cut = machine.crash(Survive::Nothing);
    assert_eq!(content(&options(&cut, None).open(PATH)?), rows(there + 3), "after {there}");
    Ok(())
}

#[test]
fn a_write_that_fails_loses_nothing_and_is_told() {
    for kind in KINDS {
        let mut ends = BTreeMap::<End, u64>::new();
        for n in 1.. {
            match fail_one(kind, n) {
                Some(end) => *ends.entry(end).or_default() += 1,
                None => break,
            }
        }
        eprintln!("{kind:?}: {ends:?}");
        let unknown = ends.get(&End::Unknown).copied().unwrap_or_default();
        let refused = ends.get(&End::Refused).copied().unwrap_or_default();
        match kind {
            Kind::Files | Kind::Triangle | Kind::Objects | Kind::Shared => {
                assert!(unknown >= commits(kind), "each commit writes: {ends:?}");
            }
            Kind::Memory | Kind::Index | Kind::FullIndex | Kind::Matrix | Kind::Mixed => {
                assert_eq!(unknown, 0, "commits write no file: {ends:?}");
            }
        }
        assert!(refused > 0, "jobs write too: {ends:?}");
    }
}
