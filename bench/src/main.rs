//! Terrace's figures. Every number that is quoted anywhere is printed by this command:
//!
//! ```sh
//! cargo run --release -p terrace-bench -- FIGURE [--quick] [--json] [--seed N]
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing figures is its job")]

mod bound;
mod compare;
mod drive;
mod figures;
mod guard;
mod indexes;
mod isolated;
mod kernel;
mod keys;
mod latency;
mod load;
mod page;
mod plot;
mod probe;
mod random;
mod report;
mod stores;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};

/// Which figure to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// The bare device: what a durable write costs, by way of writing.
    Sync,
    /// Commit: threads × batch × tables, beside bare loops.
    Commit,
    /// One sorted level 0 beside a pile of files.
    Level0,
    /// The memtable's index beside its peers.
    Memtable,
    /// What the region holds, and how writers slow down, under four loads.
    PmBudget,
    /// Records rebuilt a second at open.
    Restart,
    /// YCSB A to F, on Terrace and its peers.
    Ycsb,
    /// How many syncs a durable put makes, on Terrace and its peers.
    Durability,
    /// Reads of the head of a queue over ten minutes, on Terrace and RocksDB.
    Queue,
    /// The process's memory beside its limit, in an hour of mixed load.
    MemoryLimit,
    /// Throughput each 100 ms and longest waits under random writes.
    Stalls,
    /// The containers of level 0, beside RocksDB.
    Containers,
    /// What lies on disk, and what was written to get there.
    Space,
    /// Bytes written to the device for each byte of the user's, by size of the data.
    WriteAmp,
    /// Short and long ranges, up and down.
    Scan,
    /// Cold levels in an object store 20 ms away, beside the SSD and RocksDB.
    Object,
    /// The work of redb's own benchmark, beside redb, LMDB, RocksDB and fjall.
    Rows,
    /// Transfers between two rows, beside RocksDB's TransactionDB.
    Txn,
    /// A TPC-C-like driver, beside RocksDB's TransactionDB.
    Tpcc,
    /// Every store as it opens with no option set, under a bound on memory.
    Defaults,
    /// The main figures as data, threads and values grow.
    Growth,
    /// Look-ups and ranges in memory, step by step of the read path.
    ReadPath,
    /// Instructions of hot paths, counted by callgrind.
    Instructions,
    /// Allocation in persistent memory: time, lines, fences.
    Alloc,
    /// Persistent trees: lines flushed, nodes, time.
    Ods,
    /// The time of one step of the background, by the number of tables.
    Scheduler,
    /// What an operation costs beside many tables, snapshots, locks, range tombstones and others.
    Scaling,
    /// What the C interface costs beyond the Rust one.
    C,
    /// A shared store: what it costs a writer, remote commits, lag, takeover, requests.
    Shared,
    /// All of them, as one HTML page with the raw rows beside it.
    Report,
    /// Two runs' rows, OLD and NEW: what changed beyond their noise.
    Compare,
}

/// Measures figures of Terrace.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// The figure.
    figure: Figure,
    /// For `compare`: the rows of the old run and of the new one, from `--json` or `report`.
    files: Vec<std::path::PathBuf>,
    /// For `report`: the directory that `report.html` and `report.json` go to.
    #[arg(long, default_value = "report")]
    out: std::path::PathBuf,
    /// Under a minute, fewer cases and rounds.
    #[arg(long)]
    quick: bool,
    /// Everything, which is what is done without `--quick`: a report takes most of an hour.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// JSON: a header object, then an object a row.
    #[arg(long)]
    json: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rounds; the cases of a figure take turns, the median counts.
    #[arg(long)]
    rounds: Option<u32>,
    /// Directory for databases and files; a fresh one under the system's by default.
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Only cases and systems whose `case system` contains this.
    #[arg(long)]
    only: Option<String>,
    /// Draws what was seen over time into this file, as SVG (`pm-budget`).
    #[arg(long)]
    plot: Option<std::path::PathBuf>,
    /// Serve the page of each Terrace database while it is measured, and say where (built with the
    /// feature `watch`).
    #[arg(long)]
    watch: bool,
    /// Measure although something else runs; the header says so.
    #[arg(long)]
    anyway: bool,
    #[command(flatten)]
    load: load::Load,
    /// One system's part of a figure, in this process: what a figure starts itself with.
    #[arg(long, hide = true)]
    cell: Option<String>,
    /// The control group that a cell joins first.
    #[arg(long, hide = true)]
    group: Option<std::path::PathBuf>,
}

/// What figures are measured with.
#[derive(Clone, Debug)]
struct Settings {
    quick: bool,
    seed: u64,
    rounds: u32,
    /// One figure of many, which together are to end within the hour.
    in_report: bool,
    only: Option<String>,
    plot: Option<std::path::PathBuf>,
    dir: std::path::PathBuf,
    watch: bool,
    load: load::Load,
}

impl Settings {
    /// Whether a case of a system is asked for.
    fn wants(&self, case: &str, system: &str) -> bool {
        self.only.as_ref().is_none_or(|only| format!("{case} {system}").contains(only.as_str()))
    }

    /// What there is time for: at a glance, in a report that has an hour for all figures, and in a
    /// figure by itself.
    fn pick<T>(&self, quick: T, in_report: T, whole: T) -> T {
        match (self.quick, self.in_report) {
            (true, _) => quick,
            (false, true) => in_report,
            (false, false) => whole,
        }
    }

    /// Rounds of a figure of which a report has time for so many.
    fn rounds_within(&self, in_report: u32) -> u32 {
        if self.in_report { self.rounds.min(in_report) } else { self.rounds }
    }
}

/// The figures of the report, and the functions that measure them.
const FIGURES: &[(&str, page::Measure)] = &[
    ("ycsb", figures::ycsb::measure),
    ("durability", figures::durability::measure),
    ("stalls", figures::stalls::measure),
    ("containers", figures::containers::measure),
    ("txn", figures::txn::measure),
    ("rows", figures::rows::measure),
    ("tpcc", figures::tpcc::measure),
    ("defaults", figures::defaults::measure),
    ("growth", figures::growth::measure),
    ("instructions", figures::instructions::measure),
    ("write-amp", figures::write_amp::measure),
    ("space", figures::space::measure),
    ("scan", figures::scan::measure),
    ("object", figures::object::measure),
    ("commit", figures::commit::measure),
    ("restart", figures::restart::measure),
    ("read-path", figures::read_path::measure),
    ("memtable", figures::memtable::measure),
    ("level0", figures::level0::measure),
    ("pm-budget", figures::pm_budget::measure),
    ("alloc", figures::alloc::measure),
    ("ods", figures::ods::measure),
    ("queue", figures::queue::measure),
    ("memory-limit", figures::memory_limit::measure),
    ("scheduler", figures::scheduler::measure),
    ("scaling", figures::scaling::measure),
    #[cfg(feature = "c")]
    ("c", figures::c::measure),
    ("sync", figures::sync::measure),
    ("shared", figures::shared::measure),
];

/// Those that measure each system in a process of its own, and what that process does.
const CELLS: [(&str, isolated::Cell); 16] = [
    ("ycsb", figures::ycsb::cell::measure),
    ("durability", figures::durability::cell),
    ("stalls", figures::stalls::cell),
    ("containers", figures::containers::cell),
    ("queue", figures::queue::cell),
    ("memory-limit", figures::memory_limit::cell),
    ("write-amp", figures::ycsb::cell::measure),
    ("space", figures::space::cell),
    ("txn", figures::txn::cell),
    ("rows", figures::rows::cell),
    ("tpcc", figures::tpcc::cell),
    ("defaults", figures::ycsb::cell::measure),
    ("growth", figures::ycsb::cell::measure),
    ("instructions", figures::instructions::cell),
    ("scan", figures::scan::cell),
    ("object", figures::object::cell),
];

fn main() -> Result<std::process::ExitCode> {
    let arguments = Arguments::parse();
    let name = arguments.figure.to_possible_value().map(|value| value.get_name().to_string());
    let name = name.unwrap_or_default();
    stores::watch(arguments.watch)?;
    if let Some(text) = &arguments.cell {
        let (_, cell) = CELLS.iter().find(|(figure, _)| *figure == name).context("no cells")?;
        let dir = arguments.dir.as_ref().context("a cell needs its --dir")?;
        if let Some(group) = &arguments.group {
            bound::enter(group)?;
        }
        isolated::serve(*cell, text, dir)?;
        return Ok(std::process::ExitCode::SUCCESS);
    }
    if arguments.figure == Figure::Compare {
        let [old, new] = arguments.files.as_slice() else {
            anyhow::bail!("compare takes two files: terrace-bench compare OLD.json NEW.json");
        };
        let nothing_worse = compare::run(old, new)?;
        return Ok(u8::from(!nothing_worse).into());
    }
    anyhow::ensure!(arguments.files.is_empty(), "only compare takes files");
    let guard = guard::take(arguments.anyway)?;
    let dir = match &arguments.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot make the directory {}", dir.display()))?;
            tempfile::tempdir_in(dir)?
        }
        None => tempfile::tempdir()?,
    };
    // A quick report is a glance at everything.
    let rounds = match (arguments.quick, arguments.figure) {
        (true, Figure::Report) => 1,
        (true, Figure::Commit) => 2,
        (true, _) | (false, Figure::Report) => 3,
        (false, _) => 5,
    };
    let settings = Settings {
        quick: arguments.quick,
        seed: arguments.seed,
        rounds: arguments.rounds.unwrap_or(rounds),
        in_report: arguments.figure == Figure::Report,
        only: arguments.only.clone(),
        plot: arguments.plot.clone(),
        dir: dir.path().to_path_buf(),
        watch: arguments.watch,
        load: arguments.load.clone(),
    };

    if arguments.figure == Figure::Report {
        let page = page::run(&settings, &guard, FIGURES, &arguments.out)?;
        println!("{}", page.display());
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let mut report = report::Report::new(arguments.json);
    report.header(&name, &settings, &guard)?;
    let figure = FIGURES.iter().find(|(figure, _)| *figure == name);
    let (_, measure) = figure.ok_or_else(|| anyhow::anyhow!("no figure is called {name}"))?;
    measure(&settings, &mut report)?;
    report.finish()?;
    Ok(std::process::ExitCode::SUCCESS)
}
