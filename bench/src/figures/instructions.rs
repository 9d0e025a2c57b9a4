//! `instructions`: what a hit, a put and a row of a range cost in instructions, counted by
//! callgrind on the calling thread, and on those of shards. Unlike times they hardly scatter, so
//! `compare` sees small changes.

mod batches;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::isolated;
use crate::keys::{Values, key};
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory, Store, System, load};

const FIGURE: &str = "instructions";

const SYSTEMS: [System; 2] = [System::disk(Kind::Terrace), System::disk(Kind::RocksDb)];

const MEMORY: Memory = Memory { write: 32 << 20, cache: 32 << 20 };

const RECORDS: u64 = 5000;

/// Rows of a range.
const ROWS: u64 = 100;

/// What is counted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Which {
    Get,
    Put,
    Scan,
    /// Look-ups that a level answers, one way or the other.
    OnDisk(batches::Way),
}

/// One path of one system.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    path: Which,
    operations: u64,
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        report.skipped("callgrind is missing (apt-get install valgrind)");
        return Ok(());
    }
    let operations = if settings.quick { 200 } else { 5000 };
    let paths = [
        ("get, a hit in memory", Which::Get, 1),
        ("put, unsynced", Which::Put, 1),
        ("a row of a range of 100", Which::Scan, ROWS),
    ];
    let most = if settings.quick { 1 } else { SYSTEMS.len() };
    for system in System::there(&SYSTEMS[..most], settings, report) {
        for (case, path, each) in paths {
            if !settings.wants(case, &system.name()) {
                continue;
            }
            let count = count(settings, &Cell { system, path, operations })?;
            let one = count as f64 / (operations * each) as f64;
            report.add(case, &system.name(), "count", one, "instructions");
        }
    }
    for (case, way) in batches::WAYS {
        let (system, name) = (System::disk(Kind::Terrace), System::disk(Kind::Terrace).name());
        if settings.wants(case, &name) {
            let operations = if settings.quick { 2 * batches::BATCH } else { 40 * batches::BATCH };
            let count = count(settings, &Cell { system, path: Which::OnDisk(way), operations })?;
            report.add(case, &name, "count", count as f64 / operations as f64, "instructions");
        }
    }
    Ok(())
}

/// Instructions in `counted`.
fn count(settings: &Settings, cell: &Cell) -> Result<u64> {
    let out = settings.dir.join("callgrind");
    let out_file = format!("--callgrind-out-file={}", out.display());
    let (own, shards) = ("--toggle-collect=*counted_operations*", batches::TOGGLE);
    let tool = ["valgrind", "--tool=callgrind", "-q", own, shards, &out_file];
    isolated::run_under(&tool, settings, FIGURE, cell)?;
    let text = std::fs::read_to_string(&out).context("callgrind wrote nothing")?;
    total(&text).context("callgrind's file has no totals")
}

fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("totals: "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// In the process that callgrind watches.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    if let Which::OnDisk(way) = cell.path {
        return batches::Loaded::new(dir, way)?.look_up(way, cell.operations);
    }
    let home = cell.system.home(dir)?;
    let store = cell.system.open(&home, MEMORY, report)?;
    let values = Values::new(100);
    let mut random = Random::new(1);
    load(&*store, RECORDS, &values, &mut random)?;
    counted_operations(&*store, &values, &cell)
}

/// Found by its name in the program's symbols.
#[inline(never)]
fn counted_operations(store: &dyn Store, values: &Values, cell: &Cell) -> Result<()> {
    let mut random = Random::new(2);
    for _ in 0..cell.operations {
        let key = key(random.below(RECORDS));
        match cell.path {
            Which::Get => ensure!(store.get(&key)?.is_some(), "a key is missing"),
            Which::Put => store.put(&key, values.draw(&mut random), false)?,
            Which::Scan => ensure!(store.scan(&key, ROWS as usize)? > 0, "an empty range"),
            Which::OnDisk(_) => bail!("no store does this"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_callgrind_are_read() {
        let text = "events: Ir\n\nfn=(1) main\n12 40\n\ntotals: 123456\n";
        assert_eq!(total(text), Some(123_456));
        assert_eq!(total("events: Ir\n"), None);
    }
}
