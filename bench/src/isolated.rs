//! A measurement in a process of its own: what the kernel counts is then of one system alone, and
//! tools can be put around it.
//!
//! A figure describes what it wants as a value; the process that is started gets it as JSON,
//! measures with the figure's `cell`, and prints what it gathered.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Settings;
use crate::bound::{self, Bound};
use crate::report::{Gathered, Report};
use crate::stores::{Memory, System};

/// Measures what a JSON text asks for, in a directory that is empty.
pub(crate) type Cell = fn(&str, &Path, &mut Report) -> Result<()>;

/// Measures `cell` of `figure` in a process of its own.
pub(crate) fn run<C: Serialize>(
    settings: &Settings,
    report: &mut Report,
    figure: &str,
    cell: &C,
) -> Result<()> {
    report.take_in(run_under(&[], settings, figure, cell)?);
    Ok(())
}

/// The same for data that is larger than memory: the process has what its store is given, and the
/// system's cache of its files is in it, as far as this machine can see to that.
pub(crate) fn run_bounded<C: Serialize>(
    settings: &Settings,
    report: &mut Report,
    figure: &str,
    (system, memory): (System, Memory),
    cell: &C,
) -> Result<()> {
    run_within(settings, report, figure, (system, bound::bytes(memory.all())), cell)
}

/// The same, where all that the process has is `bytes`.
pub(crate) fn run_within<C: Serialize>(
    settings: &Settings,
    report: &mut Report,
    figure: &str,
    (system, bytes): (System, u64),
    cell: &C,
) -> Result<()> {
    // On tmpfs all files are in memory, and are no cache.
    let bound = if system.on_tmpfs { None } else { Some(Bound::new(bytes)) };
    let bound = match bound.transpose() {
        Ok(Some(bound)) => bound,
        Ok(None) => return run(settings, report, figure, cell),
        Err(error) => {
            report.skipped(&format!("a bound on the system's cache of files: {error:#}"));
            return run(settings, report, figure, cell);
        }
    };
    let group = bound.group().to_str().context("the name of a group is text")?;
    let output = output(&[], settings, figure, cell, &["--group", group])?;
    if output.status.signal() == Some(9) {
        let mib = bytes >> 20;
        report.skipped(&format!("{}: it takes more than {mib} MiB of memory", system.name()));
        return Ok(());
    }
    let gathered = gathered(figure, &output)?;
    report.bounded(&gathered, bytes >> 20);
    report.take_in(gathered);
    Ok(())
}

/// As [`run`], with a tool and its arguments around it.
pub(crate) fn run_under<C: Serialize>(
    tool: &[&str],
    settings: &Settings,
    figure: &str,
    cell: &C,
) -> Result<Gathered> {
    gathered(figure, &output(tool, settings, figure, cell, &[])?)
}

fn output<C: Serialize>(
    tool: &[&str],
    settings: &Settings,
    figure: &str,
    cell: &C,
    more: &[&str],
) -> Result<Output> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let dir = tempfile::tempdir_in(&settings.dir)?;
    let mut command = match tool {
        [] => Command::new(&own),
        [tool, arguments @ ..] => {
            let mut command = Command::new(tool);
            command.args(arguments).arg(&own);
            command
        }
    };
    command
        .arg(figure)
        .arg("--cell")
        .arg(serde_json::to_string(cell)?)
        .arg("--dir")
        .arg(dir.path())
        .args(settings.watch.then_some("--watch"))
        .args(more);
    command.stderr(Stdio::inherit()).output().context("cannot start it")
}

fn gathered(figure: &str, output: &Output) -> Result<Gathered> {
    ensure!(output.status.success(), "a cell of {figure} ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("a cell printed something else")
}

/// In the process that was started: measures, and prints.
pub(crate) fn serve(cell: Cell, text: &str, dir: &Path) -> Result<()> {
    let mut report = Report::new(true);
    cell(text, dir, &mut report)?;
    println!("{}", serde_json::to_string(&report.gathered())?);
    Ok(())
}

/// The description of a cell.
pub(crate) fn read<C: DeserializeOwned>(text: &str) -> Result<C> {
    serde_json::from_str(text).context("this is no cell of the figure")
}
