//! A measurement in a process of its own: what the kernel counts is then of one system alone, and
//! tools can be put around it.
//!
//! A figure describes what it wants as a value; the process that is started gets it as JSON,
//! measures with the figure's `cell`, and prints what it gathered.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Settings;
use crate::report::{Gathered, Report};

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

/// The same with a tool and its arguments around it.
pub(crate) fn run_under<C: Serialize>(
    tool: &[&str],
    settings: &Settings,
    figure: &str,
    cell: &C,
) -> Result<Gathered> {
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
        .arg(dir.path());
    let output = command.stderr(Stdio::inherit()).output().context("cannot start it")?;
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
