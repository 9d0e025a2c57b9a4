//! Terrace's figures. Every number that is quoted anywhere is printed by this command:
//!
//! ```sh
//! cargo run --release -p terrace-bench -- FIGURE [--quick] [--json] [--seed N]
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing figures is its job")]

mod figures;
mod guard;
mod indexes;
mod latency;
mod plot;
mod random;
mod report;
mod stores;

use anyhow::Result;
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
    /// Allocation in persistent memory: time, lines, fences.
    Alloc,
    /// Persistent trees: lines flushed, nodes, time.
    Ods,
}

/// Measures figures of Terrace.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// The figure.
    figure: Figure,
    /// Under a minute, fewer cases and rounds.
    #[arg(long)]
    quick: bool,
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
    /// Measure although something else runs; the header says so.
    #[arg(long)]
    anyway: bool,
}

/// What figures are measured with.
#[derive(Debug)]
struct Settings {
    quick: bool,
    seed: u64,
    rounds: u32,
    only: Option<String>,
    plot: Option<std::path::PathBuf>,
    dir: std::path::PathBuf,
}

impl Settings {
    /// Whether a case of a system is asked for.
    fn wants(&self, case: &str, system: &str) -> bool {
        self.only.as_ref().is_none_or(|only| format!("{case} {system}").contains(only.as_str()))
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let guard = guard::take(arguments.anyway)?;
    let dir = match &arguments.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let settings = Settings {
        quick: arguments.quick,
        seed: arguments.seed,
        rounds: arguments.rounds.unwrap_or(if arguments.quick { 3 } else { 5 }),
        only: arguments.only.clone(),
        plot: arguments.plot.clone(),
        dir: dir.path().to_path_buf(),
    };

    let mut report = report::Report::new(arguments.json);
    let name = arguments.figure.to_possible_value().map(|value| value.get_name().to_string());
    report.header(&name.unwrap_or_default(), &settings, &guard)?;
    match arguments.figure {
        Figure::Sync => figures::sync::measure(&settings, &mut report)?,
        Figure::Alloc => figures::alloc::measure(&settings, &mut report)?,
        Figure::Ods => figures::ods::measure(&settings, &mut report)?,
        Figure::Level0 => figures::level0::measure(&settings, &mut report)?,
        Figure::PmBudget => figures::pm_budget::measure(&settings, &mut report)?,
        Figure::Restart => figures::restart::measure(&settings, &mut report)?,
        Figure::Memtable => figures::memtable::measure(&settings, &mut report)?,
        Figure::Ycsb => figures::ycsb::measure(&settings, &mut report)?,
        Figure::Commit => figures::commit::measure(&settings, &mut report)?,
    }
    report.finish()
}
