//! `cargo xtask setup`: what `check --full` needs of this machine. No check changes anything
//! outside of its target folder.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::check::passes;
use crate::{elsewhere, mariadb};

/// Installs what is missing. Goes on behind what cannot be had, and says it at the end.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let parts: [(&str, &dyn Fn() -> Result<()>); 3] = [
        ("Rust's components", &|| rustup(&["component", "add", "clippy", "rustfmt"])),
        ("Rust's targets", &|| rustup(&[&["target", "add"], elsewhere::TARGETS].concat())),
        ("MariaDB", &|| mariadb::install(root)),
    ];
    let mut is_whole = true;
    for (name, install) in parts {
        match install().with_context(|| format!("installing {name}")) {
            Ok(()) => println!("{name}: there"),
            Err(error) => {
                println!("{name}: {error:#}");
                is_whole = false;
            }
        }
    }
    Ok(is_whole)
}

fn rustup(arguments: &[&str]) -> Result<()> {
    passes(Command::new("rustup").args(arguments))
}

/// Installs the browser that tests of the page drive, where it is missing.
pub(crate) fn chromium() -> Result<()> {
    if Command::new("chromium").arg("--version").output().is_ok() {
        return Ok(());
    }
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "install", "--yes"]);
    passes(command.args(["--no-install-recommends", "chromium", "fonts-dejavu-core"]))
}
