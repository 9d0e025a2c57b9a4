//! The engine and the command for macOS, Windows and Linux on aarch64: checked, not run, since no
//! machine of such a kind is at hand.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::check::{Setting, cargo, passes};

const MACOS: &str = "x86_64-apple-darwin";
const WINDOWS: &str = "x86_64-pc-windows-gnu";
const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// All of them.
pub(crate) const TARGETS: &[&str] = &[MACOS, WINDOWS, AARCH64];

/// The stage of the check for macOS.
pub(crate) fn macos(setting: &mut Setting) -> Result<()> {
    check(setting, "macOS", MACOS)
}

/// The stage of the check for Windows.
pub(crate) fn windows(setting: &mut Setting) -> Result<()> {
    check(setting, "Windows", WINDOWS)
}

/// The stage of the check for Linux on aarch64, where the search of heads is one of its own.
pub(crate) fn aarch64(setting: &mut Setting) -> Result<()> {
    check(setting, "aarch64", AARCH64)
}

fn check(setting: &Setting, system: &str, target: &str) -> Result<()> {
    if !is_installed(target)? {
        setting.leave_out(format!(
            "the engine for {system}; `cargo xtask setup` installs what it takes"
        ));
        return Ok(());
    }
    let mut command = cargo(setting);
    command.args(["clippy", "--package", "terrace", "--package", "terrace-cli"]);
    command.args(["--package", "terrace-os"]);
    command.args(["--features", "terrace/typed,terrace/serde"]);
    command.args(["--target", target, "--", "-D", "warnings"]);
    // A check links nothing, so the library in C needs no compiler for that system.
    for (name, value) in [("CC", "true"), ("AR", "true")] {
        command.env(format!("{name}_{}", target.replace('-', "_")), value);
    }
    passes(command.env("SDKROOT", "/"))
}

/// Whether the standard library of the target is there.
fn is_installed(target: &str) -> Result<bool> {
    let printed = Command::new("rustc").args(["--print", "sysroot"]).output();
    let printed = printed.context("starting rustc")?;
    let sysroot = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    Ok(Path::new(&sysroot).join("lib/rustlib").join(target).is_dir())
}
