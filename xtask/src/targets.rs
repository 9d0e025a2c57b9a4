//! The engine for other systems and processors: checked, not run, since no machine of that kind is
//! at hand.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::check::{Setting, cargo, passes};

/// The stage for macOS.
pub(crate) fn macos(setting: &mut Setting) -> Result<()> {
    check(setting, "x86_64-apple-darwin", "the engine for macOS")
}

/// The stage for Linux on aarch64, which has a search of heads of its own.
pub(crate) fn aarch64(setting: &mut Setting) -> Result<()> {
    check(setting, "aarch64-unknown-linux-gnu", "the engine for aarch64")
}

fn check(setting: &mut Setting, target: &str, what: &str) -> Result<()> {
    if !is_installed(target)? {
        println!("SKIPPED: {what}; `rustup target add {target}` installs what it takes");
        return Ok(());
    }
    let mut command = cargo(setting);
    command.args(["clippy", "--package", "terrace", "--features", "typed,serde"]);
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
