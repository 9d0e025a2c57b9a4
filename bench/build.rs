//! Names the commit that a figure is of: that of the sources at the build.

#![allow(clippy::print_stdout, reason = "cargo reads it")]

use std::process::Command;

fn main() {
    let commit = git(&["rev-parse", "--short", "HEAD"]);
    println!("cargo::rustc-env=TERRACE_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    // It grows with each commit, checkout and reset.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}
