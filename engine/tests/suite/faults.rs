//! Reads that go wrong, at any moment: I/O errors, less than was asked for, flipped bits. Answers
//! are right or clear errors, nothing panics, and what was acknowledged is there when reads work
//! again.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::collections::BTreeMap;

use crate::common::cuts::{KINDS, Kind, PATH, options};
use crate::common::{Chance, rounds};
use terrace::testing::{Machine, ReadFaults, Survive};
use terrace::{Database, Error, ErrorKind, Table};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// How often what happened, over all runs.
#[derive(Debug, Default)]
struct Tally {
    struck: u64,
    failed_reads: u64,
    failed_jobs: u64,
    failed_writes: u64,
    failed_openings: u64,
}

/// A database whose reads fail, and what it should hold.
struct Run<'a> {
    machine: Machine,
    chance: Chance,
    rows: Rows,
    /// A write that may or may not have happened.
    doubt: Option<(Vec<u8>, Option<Vec<u8>>)>,
    tally: &'a mut Tally,
}

impl Run<'_> {
    fn faults(&mut self, flips: bool) {
        let (seed, every) = (self.chance.next(), *self.chance.pick(&[2, 5, 20]));
        self.machine.fault_reads(Some(ReadFaults { seed, every, flips }));
    }

    fn calm(&mut self) {
        self.tally.struck += self.machine.fault_reads(None);
    }

    /// What reads fail with: the place, or the device.
    fn is_clear(&self, e: &Error) {
        match e.kind() {
            ErrorKind::Corrupt => assert!(e.damage().is_some(), "{e}"),
            ErrorKind::Unavailable => assert!(e.to_string().contains(PATH), "{e}"),
            kind => panic!("{kind:?}: {e}"),
        }
    }

    /// Works until it cannot go on, or for so many operations.
    fn life(&mut self, db: &Database, acts: u64) {
        let table = db.table("t").unwrap();
        for _ in 0..acts {
            if self.chance.percent(70) {
                self.faults(true);
            }
            match self.chance.below(10) {
                0..4 => self.write(db, &table),
                4..6 => self.get(&table),
                6 => self.scan(&table),
                7 if db.verify().is_err() => self.tally.failed_reads += 1,
                7 => {}
                _ => {
                    self.tally.failed_jobs +=
                        (0..3).filter(|_| self.job(db).is_err()).count() as u64
                }
            }
            self.calm();
            if self.doubt.is_some() {
                return;
            }
        }
    }

    fn job(&self, db: &Database) -> Result<bool, ()> {
        db.step().map_err(|e| self.is_clear(&e))
    }

    fn write(&mut self, db: &Database, table: &Table) {
        // What a full region does to writers is no matter of reads.
        while db.stats().pm.zones - db.stats().pm.zones_used < 5 {
            self.calm();
            if !db.step().unwrap_or(false) {
                break;
            }
        }
        let key = format!("key {:02}", self.chance.below(80)).into_bytes();
        let len = self.chance.below(40_000) as usize;
        let value = self.chance.percent(80).then(|| self.chance.bytes(len));
        let done = match &value {
            Some(value) => table.put(&key, value),
            None => table.delete(&key),
        };
        match (done, value) {
            (Ok(()), Some(value)) => drop(self.rows.insert(key, value)),
            (Ok(()), None) => drop(self.rows.remove(&key)),
            (Err(e), value) => {
                let stopped = [ErrorKind::Unavailable, ErrorKind::UnknownOutcome];
                assert!(stopped.contains(&e.kind()), "{:?}: {e}", e.kind());
                self.tally.failed_writes += 1;
                self.doubt = Some((key, value));
            }
        }
    }

    fn get(&mut self, table: &Table) {
        let key = format!("key {:02}", self.chance.below(80)).into_bytes();
        match table.get(&key) {
            Ok(found) => assert_eq!(found.as_deref(), self.rows.get(&key).map(Vec::as_slice)),
            Err(e) => {
                self.is_clear(&e);
                self.tally.failed_reads += 1;
            }
        }
    }

    /// Rows are right up to the first that cannot be read.
    fn scan(&mut self, table: &Table) {
        let mut want = self.rows.iter();
        for row in table.iter() {
            match row {
                Ok((key, value)) => {
                    let (k, v) = want.next().expect("no more rows than there are");
                    assert!(
                        key == *k && value == *v,
                        "{} is not what was written",
                        key.escape_ascii()
                    );
                }
                Err(e) => {
                    self.is_clear(&e);
                    self.tally.failed_reads += 1;
                    return;
                }
            }
        }
        assert_eq!(want.next(), None, "a row is missing");
    }

    /// Opens it again, after it was closed or lost its power, while reads fail: as often as needed.
    fn open(&mut self, kind: Kind) -> Database {
        for n in 0.. {
            // After a power cut, bytes beyond the floor that do not check out are the end of what
            // was written, so that these may not be flipped: the next opening would miss them.
            if n < 6 {
                self.faults(false);
            }
            let opened = options(&self.machine, None).open(PATH);
            self.calm();
            match opened {
                Ok(db) => return db,
                Err(e) => self.is_clear(&e),
            }
            self.tally.failed_openings += 1;
            assert!(n < 6, "{kind:?}: it cannot be opened although reads work");
        }
        unreachable!("it was opened or that was a failure")
    }

    /// What is there when reads work: all of it.
    fn check(&mut self, db: &Database) {
        let table = db.table("t").unwrap();
        let found: Rows =
            table.iter().map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
        if let Some((key, value)) = self.doubt.take()
            && found.get(&key) == value.as_ref()
        {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
        assert!(found == self.rows, "not what was acknowledged");
        assert!(db.verify().unwrap().damages.is_empty());
    }
}

fn run(kind: Kind, seed: u64, tally: &mut Tally) {
    let machine = kind.machine();
    let mut db = options(&machine, None).create(PATH).unwrap();
    let chance = Chance::new(seed);
    let mut run = Run { machine, chance, rows: Rows::new(), doubt: None, tally };
    for _ in 0..4 {
        run.life(&db, 120);
        if run.chance.percent(50) {
            let survive = Survive::Seeded(run.chance.next());
            run.machine = run.machine.crash(survive);
        } else {
            db.close().unwrap_or(());
        }
        db = run.open(kind);
        run.check(&db);
    }
}

#[test]
fn whatever_reads_do_answers_are_right_or_clear_errors() {
    let mut tally = Tally::default();
    for seed in 0..rounds(8, 2000) {
        KINDS.into_iter().for_each(|kind| run(kind, seed, &mut tally));
    }
    eprintln!("{tally:?}");
    let Tally { struck, failed_reads, failed_jobs, failed_openings, .. } = tally;
    assert!(struck > 100 && failed_reads > 10 && failed_jobs > 3 && failed_openings > 3);
}
