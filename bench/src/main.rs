//! Terrace's figures. Every number that is quoted anywhere is printed by this command:
//!
//! ```sh
//! cargo run --release -p terrace-bench -- FIGURE [--quick] [--json] [--seed N]
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing figures is its job")]

mod compare;
mod figures;
mod guard;
mod indexes;
mod latency;
mod page;
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
#[derive(Clone, Debug)]
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

/// The figures of the report, and who measures them.
const FIGURES: [(&str, page::Measure); 9] = [
    ("ycsb", figures::ycsb::measure),
    ("commit", figures::commit::measure),
    ("restart", figures::restart::measure),
    ("memtable", figures::memtable::measure),
    ("level0", figures::level0::measure),
    ("pm-budget", figures::pm_budget::measure),
    ("alloc", figures::alloc::measure),
    ("ods", figures::ods::measure),
    ("sync", figures::sync::measure),
];

fn main() -> Result<std::process::ExitCode> {
    let arguments = Arguments::parse();
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
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    // A quick report is a glance at everything.
    let rounds = match (arguments.quick, arguments.figure) {
        (true, Figure::Report) => 1,
        (true, Figure::Commit) => 2,
        (true, _) => 3,
        (false, _) => 5,
    };
    let settings = Settings {
        quick: arguments.quick,
        seed: arguments.seed,
        rounds: arguments.rounds.unwrap_or(rounds),
        only: arguments.only.clone(),
        plot: arguments.plot.clone(),
        dir: dir.path().to_path_buf(),
    };

    if arguments.figure == Figure::Report {
        let page = page::run(&settings, &guard, &FIGURES, &arguments.out)?;
        println!("{}", page.display());
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let mut report = report::Report::new(arguments.json);
    let name = arguments.figure.to_possible_value().map(|value| value.get_name().to_string());
    let name = name.unwrap_or_default();
    report.header(&name, &settings, &guard)?;
    let figure = FIGURES.iter().find(|(figure, _)| *figure == name);
    let (_, measure) = figure.ok_or_else(|| anyhow::anyhow!("nobody measures {name}"))?;
    measure(&settings, &mut report)?;
    report.finish()?;
    Ok(std::process::ExitCode::SUCCESS)
}
