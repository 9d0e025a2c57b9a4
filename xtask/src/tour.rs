//! The tours as a check: what they were told of was there, and they were told of enough. It runs
//! the command as the tests were built, with the assertions of debug builds.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::check::{Setting, binaries, last_lines};

/// Fewer acknowledged commits than this prove little.
const ENOUGH: u64 = 10_000;

/// The same of commits that wait for a shared store.
const ENOUGH_REMOTE: u64 = 1_000;

#[derive(Debug, Deserialize)]
struct Outcome {
    acknowledged: u64,
    lost: u64,
    torn: u64,
    wrong: u64,
    invented: u64,
}

/// Runs both tours and judges what they found.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    take(setting, &[], ENOUGH)?;
    take(setting, &["--lost-machine"], ENOUGH_REMOTE)
}

fn take(setting: &mut Setting, arguments: &[&str], enough: u64) -> Result<()> {
    let mut command = binaries::find(setting.programs()?, "terrace")?.command();
    command.args(["tour", "--json"]).args(arguments);
    if setting.is_long() {
        command.args(["--rounds", "20"]);
    }
    judged(command, enough)
}

/// Twenty machines are lost whose shared store is on a server; `command` runs the command of
/// Terrace with the variables of the server.
pub(crate) fn lose_machines(mut command: Command, store: &str) -> Result<()> {
    command.args(["tour", "--lost-machine", "--json", "--rounds", "20", "--object-store", store]);
    judged(command, ENOUGH_REMOTE)
}

fn judged(mut command: Command, enough: u64) -> Result<()> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.trim());
    if !output.status.success() {
        bail!("{}: {}", output.status, last_lines(&output.stderr));
    }
    judge(&text, enough)
}

fn judge(text: &str, enough: u64) -> Result<()> {
    let outcome: Outcome = serde_json::from_str(text).context("reading the tour's outcome")?;
    let Outcome { acknowledged, lost, torn, wrong, invented } = outcome;
    ensure!(
        (lost, torn, wrong, invented) == (0, 0, 0, 0),
        "{lost} lost, {torn} torn, {wrong} wrong, {invented} invented"
    );
    ensure!(acknowledged >= enough, "{acknowledged} acknowledged commits, at least {enough}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(acknowledged: u64, torn: u64) -> String {
        format!(
            r#"{{"mode":"file","acknowledged":{acknowledged},"lost":0,"torn":{torn},"wrong":0,
            "invented":0}}"#
        )
    }

    #[test]
    fn a_whole_tour_passes() {
        assert!(judge(&outcome(ENOUGH, 0), ENOUGH).is_ok());
    }

    #[test]
    fn damage_and_too_little_fail() {
        assert!(judge(&outcome(ENOUGH, 1), ENOUGH).is_err());
        assert!(judge(&outcome(ENOUGH - 1, 0), ENOUGH).is_err());
        assert!(judge("", ENOUGH).is_err());
    }
}
