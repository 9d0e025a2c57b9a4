//! `txn`: transfers between two rows, durable, from one thread to sixteen, over many rows and over
//! sixteen; beside RocksDB's `TransactionDB`. Both lock the two rows in the order of their keys, so
//! that no two threads wait in a circle. The sum of all rows is checked at the end.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::drive::Drive;
use crate::isolated;
use crate::keys::key;
use crate::random::Random;
use crate::report::Report;
use crate::stores::transactions::{self, Transaction, Transactional};
use crate::stores::{Kind, Memory, System, version};

const FIGURE: &str = "txn";

const SYSTEMS: [System; 6] = [
    System::disk(Kind::Terrace),
    System::disk(Kind::RocksDb),
    System::disk(Kind::RocksDbTuned),
    System::disk(Kind::TerraceEmulated),
    System::tmpfs(Kind::RocksDb),
    System::tmpfs(Kind::RocksDbTuned),
];

const MEMORY: Memory = Memory { write: 64 << 20, cache: 64 << 20 };

/// What a row begins with.
const BALANCE: u64 = 1000;

/// The rows that all threads want.
const HOT: u64 = 16;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    memory: Memory,
    rows: u64,
    phases: Vec<Phase>,
    seed: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Phase {
    threads: u64,
    is_hot: bool,
    millis: u64,
}

impl Phase {
    fn case(&self) -> String {
        format!("{} threads, {}", self.threads, if self.is_hot { "hot" } else { "uniform" })
    }
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let (rows, millis, threads): (u64, u64, &[u64]) = settings.pick(
        (10_000, 300, &[1, 16]),
        (200_000, 500, &[1, 4, 16]),
        (200_000, 1000, &[1, 2, 4, 8, 16]),
    );
    let millis = load.time(Duration::from_millis(millis)).as_millis() as u64;
    for _ in 0..settings.rounds {
        for system in System::there(&SYSTEMS, settings, report) {
            let own = load.threads.map(|n| vec![n]);
            let threads = own.unwrap_or_else(|| threads.to_vec());
            let both = threads.into_iter().flat_map(|n| [(n, false), (n, true)]);
            let phases = both.map(|(threads, is_hot)| Phase { threads, is_hot, millis });
            let wanted = |phase: &Phase| settings.wants(&phase.case(), &system.name());
            let cell = Cell {
                system,
                memory: load.memory(MEMORY),
                rows: load.records.unwrap_or(rows),
                phases: phases.filter(wanted).collect(),
                seed: settings.seed,
            };
            if !cell.phases.is_empty() {
                isolated::run(settings, report, FIGURE, &cell)?;
            }
        }
    }
    Ok(())
}

/// In a process of its own.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    let home = cell.system.home(dir)?;
    let store = transactions::open(cell.system.kind, &home.path(), cell.memory)?;
    let system = cell.system.name();
    report.settings(&system, &format!("{}; {}", version(cell.system.kind), store.settings()));
    for first in (0..cell.rows).step_by(1000) {
        transactions::run(&*store, |t| {
            let rows = first..(first + 1000).min(cell.rows);
            rows.into_iter().try_for_each(|n| t.put(&key(n), &BALANCE.to_be_bytes()))
        })?;
    }
    for phase in &cell.phases {
        let retries = AtomicU64::new(0);
        let drive = Drive::closed(phase.threads, Duration::from_millis(phase.millis));
        let seen = drive.run(|thread| {
            let mut random = Random::new(cell.seed ^ (thread + 1) << 40);
            let (store, retries) = (&*store, &retries);
            let rows = if phase.is_hot { HOT } else { cell.rows };
            move || {
                let again = transfer(store, &mut random, rows)?;
                retries.fetch_add(again, Ordering::Relaxed);
                Ok(())
            }
        })?;
        report.seen(&phase.case(), &system, &seen);
        let share = retries.into_inner() as f64 / seen.operations.max(1) as f64;
        report.add(&phase.case(), &system, "runs again", share, "a transfer");
    }
    check(&*store, cell.rows)
}

/// Moves one from a row to another; how often it had to run again.
fn transfer(store: &dyn Transactional, random: &mut Random, rows: u64) -> Result<u64> {
    let from = random.below(rows);
    let to = (from + 1 + random.below(rows - 1)) % rows;
    let (from, to) = (key(from), key(to));
    let ((), again) = transactions::run(store, |t| {
        let (first, second) = if from < to { (from, to) } else { (to, from) };
        let (a, b) = (balance(t, first)?, balance(t, second)?);
        // A balance may go below nothing; the sum is what counts.
        let (a, b) = if from < to { (a - 1, b + 1) } else { (a + 1, b - 1) };
        t.put(&first, &a.to_be_bytes())?;
        t.put(&second, &b.to_be_bytes())
    })?;
    Ok(again)
}

fn balance(transaction: &dyn Transaction, key: [u8; 8]) -> Result<i64> {
    decode(&transaction.get_for_update(&key)?.context("a row is missing")?)
}

fn decode(value: &[u8]) -> Result<i64> {
    Ok(i64::from_be_bytes(value.try_into().context("a row of another length")?))
}

/// Nothing came and nothing went.
fn check(store: &dyn Transactional, rows: u64) -> Result<()> {
    let (mut sum, mut found) = (0, 0);
    store.begin()?.scan(&[0], &[255; 9], &mut |_, value| {
        sum += decode(value).unwrap_or(i64::MIN / 4);
        found += 1;
        true
    })?;
    ensure!(found == rows, "{found} of {rows} rows are there");
    ensure!(sum == (rows * BALANCE) as i64, "all rows together hold {sum}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_keep_the_sum_and_a_lost_one_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory { write: 8 << 20, cache: 8 << 20 };
        let store = transactions::open(Kind::Terrace, dir.path(), memory).unwrap();
        let rows = 20;
        let fill = |t: &dyn Transaction| {
            (0..rows).try_for_each(|n| t.put(&key(n), &BALANCE.to_be_bytes()))
        };
        transactions::run(&*store, fill).unwrap();
        let store = &*store;
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..60 {
                        transfer(store, &mut random, rows).unwrap();
                    }
                });
            }
        });
        check(store, rows).unwrap();
        transactions::run(store, |t| t.put(&key(3), &0u64.to_be_bytes())).unwrap();
        assert!(check(store, rows).is_err());
    }
}
