//! `durability`: that every store keeps the promise it is measured with. A process of its own does
//! durable puts while `strace` counts its syncs; half as many puts before that say how many of them
//! opening and closing take. Nothing is timed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::drive::{Drive, Until};
use crate::isolated;
use crate::keys::{Values, key};
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory, System};

const FIGURE: &str = "durability";

const MEMORY: Memory = Memory { write: 64 << 20, cache: 64 << 20 };

const SYSTEMS: [System; 10] = [
    System::disk(Kind::Terrace),
    System::disk(Kind::TerraceEmulated),
    System::disk(Kind::RocksDb),
    System::disk(Kind::RocksDbTuned),
    System::tmpfs(Kind::RocksDbTuned),
    System::disk(Kind::Fjall),
    System::disk(Kind::FjallTuned),
    System::disk(Kind::Redb),
    System::disk(Kind::Lmdb),
    System::disk(Kind::LmdbTuned),
];

/// The calls that make what was written survive a power cut.
const SYNCS: [&str; 4] = ["fsync", "fdatasync", "msync", "sync_file_range"];

/// So many durable puts of new keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    threads: u64,
    puts: u64,
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    if Command::new("strace").arg("-V").output().is_err() {
        report.skipped("syncs are not counted: strace is missing (apt-get install strace)");
        return Ok(());
    }
    let puts = settings.pick(100, 500, 2000);
    for system in System::there(&SYSTEMS, settings, report) {
        for threads in [1, 16] {
            let case = format!("{threads} clients, untimed");
            if !settings.wants(&case, &system.name()) {
                continue;
            }
            let count = |puts| syncs(settings, &Cell { system, threads, puts });
            let syncs = count(2 * puts)?.saturating_sub(count(puts)?);
            let each = syncs as f64 / puts as f64;
            report.add(&case, &system.name(), "syncs a durable put", each, "syncs");
        }
    }
    report.skipped(
        "of terrace-emulated there is nothing to sync: its stores are flushed and fenced, as the \
         figure commit counts; on tmpfs syncs are made and cost nothing",
    );
    Ok(())
}

/// How many syncs a process makes that does what `cell` says.
fn syncs(settings: &Settings, cell: &Cell) -> Result<u64> {
    let counts = settings.dir.join("strace");
    let path = counts.to_str().context("the directory's name is no text")?;
    let trace = format!("trace={}", SYNCS.join(","));
    let tool = ["strace", "-f", "-c", "-e", &trace, "-o", path];
    isolated::run_under(&tool, settings, FIGURE, cell)?;
    let table = std::fs::read_to_string(&counts).context("strace wrote nothing")?;
    Ok(table.lines().filter_map(calls).sum())
}

/// The calls of a line of strace's summary: the number before the name, or before its errors.
fn calls(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let name = words.last().filter(|name| SYNCS.contains(name))?;
    // % time, seconds, usecs/call, calls, errors if there are any, syscall
    debug_assert!(words.len() >= 5, "{name} without a count");
    words.get(3)?.parse().ok()
}

/// In the process that is traced.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    let home = cell.system.home(dir)?;
    let store = cell.system.open(&home, MEMORY, report)?;
    let values = Values::new(100);
    let drive = Drive { threads: cell.threads, until: Until::Operations(cell.puts), rate: None };
    drive.run(|thread| {
        let mut random = Random::new(thread << 32);
        let (store, values) = (&store, &values);
        move || {
            let n = random.next();
            store.put(&key(n), values.draw(&mut random), true)
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_strace_is_read() {
        let head = "% time     seconds  usecs/call     calls    errors syscall";
        assert_eq!(calls(head), None);
        let line = " 99.12    0.031415          15      2012           fdatasync";
        assert_eq!(calls(line), Some(2012));
        let errors = "  0.88    0.000271          90         3         1 fsync";
        assert_eq!(calls(errors), Some(3));
        assert_eq!(calls("100.00    0.031686          15      2015         1 total"), None);
    }
}
