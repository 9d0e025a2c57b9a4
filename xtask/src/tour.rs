//! The tour as a check: what it was told of was there, and it was told of enough. It runs the
//! command as the tests were built, with the assertions of debug builds.

use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::check::{Setting, binaries};

/// Fewer acknowledged commits than this prove little.
const ENOUGH: u64 = 10_000;

#[derive(Debug, Deserialize)]
struct Outcome {
    acknowledged: u64,
    lost: u64,
    torn: u64,
    wrong: u64,
    invented: u64,
}

/// Runs the tour and judges what it found.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    let mut command = binaries::find(setting.programs()?, "terrace")?.command();
    command.args(["tour", "--json"]);
    if setting.long {
        command.args(["--rounds", "20"]);
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.trim());
    if !output.status.success() {
        bail!("{}", output.status);
    }
    judge(&text)
}

fn judge(text: &str) -> Result<()> {
    let outcome: Outcome = serde_json::from_str(text).context("reading the tour's outcome")?;
    let Outcome { acknowledged, lost, torn, wrong, invented } = outcome;
    ensure!(
        (lost, torn, wrong, invented) == (0, 0, 0, 0),
        "{lost} lost, {torn} torn, {wrong} wrong, {invented} invented"
    );
    ensure!(acknowledged >= ENOUGH, "{acknowledged} acknowledged commits, at least {ENOUGH}");
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
        assert!(judge(&outcome(ENOUGH, 0)).is_ok());
    }

    #[test]
    fn damage_and_too_little_fail() {
        assert!(judge(&outcome(ENOUGH, 1)).is_err());
        assert!(judge(&outcome(ENOUGH - 1, 0)).is_err());
        assert!(judge("").is_err());
    }
}
