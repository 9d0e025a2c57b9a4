//! The engine for macOS: checked, not run, since no machine of that kind is at hand.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::check::{Setting, cargo, passes};

const TARGET: &str = "x86_64-apple-darwin";

/// The stage of the check.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    if !is_installed()? {
        println!(
            "SKIPPED: the engine for macOS; `rustup target add {TARGET}` installs what it takes"
        );
        return Ok(());
    }
    let mut command = cargo(setting);
    command.args(["clippy", "--package", "terrace", "--features", "typed,serde"]);
    command.args(["--target", TARGET, "--", "-D", "warnings"]);
    // A check links nothing, so the library in C needs no compiler for that system.
    for (name, value) in [("CC", "true"), ("AR", "true")] {
        command.env(format!("{name}_{}", TARGET.replace('-', "_")), value);
    }
    passes(command.env("SDKROOT", "/"))
}

/// Whether the standard library of the target is there, or could be had.
fn is_installed() -> Result<bool> {
    let printed = Command::new("rustc").args(["--print", "sysroot"]).output();
    let printed = printed.context("starting rustc")?;
    let sysroot = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    let library = Path::new(&sysroot).join("lib/rustlib").join(TARGET);
    if library.is_dir() {
        return Ok(true);
    }
    let added = Command::new("rustup").args(["target", "add", TARGET]).status();
    Ok(added.is_ok_and(|status| status.success()) && library.is_dir())
}
