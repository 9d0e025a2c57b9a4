//! The engine and the command for macOS, Windows and Linux on aarch64: checked, not run, since no
//! machine of such a kind is at hand.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::check::{Setting, cargo, passes};

/// The stage of the check for macOS.
pub(crate) fn macos(setting: &mut Setting) -> Result<()> {
    check(setting, "macOS", "x86_64-apple-darwin")
}

/// The stage of the check for Windows.
pub(crate) fn windows(setting: &mut Setting) -> Result<()> {
    check(setting, "Windows", "x86_64-pc-windows-gnu")
}

/// The stage of the check for Linux on aarch64, where the search of heads is one of its own.
pub(crate) fn aarch64(setting: &mut Setting) -> Result<()> {
    check(setting, "aarch64", "aarch64-unknown-linux-gnu")
}

fn check(setting: &Setting, system: &str, target: &str) -> Result<()> {
    if !is_installed(target)? {
        setting.leave_out(format!(
            "the engine for {system}; `rustup target add {target}` installs what it takes"
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

/// Whether the standard library of the target is there, or could be had.
fn is_installed(target: &str) -> Result<bool> {
    let printed = Command::new("rustc").args(["--print", "sysroot"]).output();
    let printed = printed.context("starting rustc")?;
    let sysroot = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    let library = Path::new(&sysroot).join("lib/rustlib").join(target);
    if library.is_dir() {
        return Ok(true);
    }
    let added = Command::new("rustup").args(["target", "add", target]).status();
    Ok(added.is_ok_and(|status| status.success()) && library.is_dir())
}
