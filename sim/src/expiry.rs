//! Rows with a time to live, by a clock that moves by chance. Each row is there until its time is
//! over, and gone soon after. Jobs run meanwhile, and the process is killed.

use std::collections::BTreeMap;
use std::time::Duration;

use terrace::testing::{Failpoint, HandClock};
use terrace::{Durability, TableOptions};

use crate::chance::Chance;
use crate::cuts::{KINDS, PATH, options};
use crate::violation::{Class, Violation};

/// How long rows live.
const TTL: Duration = Duration::from_secs(60);

/// A row counts as written when the clock is looked at next, a second later at least: here after
/// the longest pause. At a great age it does so up to a 64th of that later. Its time is over by
/// then.
const LATE: Duration = Duration::from_millis(12_000);

/// Writes by chance, and looks whether something is gone that is younger than its time, or there
/// that is older.
pub fn check(seed: u64, failpoint: Option<Failpoint>) -> Result<(), Violation> {
    let mut chance = Chance::new(seed);
    let mut machine = KINDS[(seed % 3) as usize].machine();
    let clock = HandClock::default();
    let open = |machine: &terrace::testing::Machine| options(machine, failpoint).clock(&clock);
    let refused = |e: terrace::Error| Class::Refused.violation(e);
    let mut db = open(&machine).create(PATH).map_err(refused)?;
    let mut table = db.create_table("t", TableOptions::new().ttl(TTL)).map_err(refused)?;
    let mut written = BTreeMap::new();
    let mut now = Duration::ZERO;
    for round in 0..60u64 {
        let pause = Duration::from_millis(chance.below(9000));
        clock.pass(pause);
        now += pause;
        for _ in 0..chance.below(8) {
            let key = format!("row {:02}", chance.below(40));
            let value = chance.bytes(chance.clone().below(3000) as usize);
            table.durability(Durability::Relaxed).put(&key, &value).map_err(refused)?;
            written.insert(key, (now, value));
        }
        for _ in 0..chance.below(12) {
            db.step().map_err(refused)?;
        }
        if chance.percent(5) {
            machine = machine.kill();
            db = open(&machine).open(PATH).map_err(refused)?;
            table = db.existing_table("t").map_err(refused)?;
        }
        for (key, (at, value)) in written.iter().filter(|(_, (at, _))| now - *at < TTL) {
            let found = table.get(key).map_err(refused)?;
            if found.as_deref() != Some(value.as_slice()) {
                let age = (now - *at).as_millis();
                let what = format!("seed {seed}, round {round}: {key} is gone after {age} ms");
                return Err(Class::EarlyExpiry.violation(what));
            }
        }
        let left = table.iter().collect::<terrace::Result<Vec<_>>>().map_err(refused)?;
        for (key, (at, _)) in written.iter().filter(|(_, (at, _))| now - *at > TTL + LATE) {
            let is_left = left.iter().any(|(other, _)| **other == *key.as_bytes());
            if is_left || table.get(key).map_err(refused)?.is_some() {
                let age = (now - *at).as_millis();
                let what = format!("seed {seed}, round {round}: {key} is there after {age} ms");
                return Err(Class::LateExpiry.violation(what));
            }
        }
    }
    Ok(())
}
