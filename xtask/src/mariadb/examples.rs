//! The examples of several servers: scripts that a reader can run, and the long check does.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::FOLDER;
use crate::check::passes;

/// Where the scripts lie. Each file but the functions that they share is one.
const EXAMPLES: &str = "mariadb/examples";
const SHARED: &str = "servers.sh";

/// Runs all examples, or the one of a name.
pub(super) fn run(root: &Path, plugin: &Path, name: Option<&str>) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    passes(Command::new(cargo).current_dir(root).args(["build", "--package", "terrace-cli"]))?;
    let folder = root.join(EXAMPLES);
    let mut scripts: Vec<_> = fs::read_dir(&folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    scripts.retain(|path| {
        let stem = path.file_stem().unwrap_or_default();
        !path.ends_with(SHARED) && name.is_none_or(|name| stem == name)
    });
    scripts.sort();
    if scripts.is_empty() {
        bail!("there is no example {name:?} in {}", folder.display());
    }
    for script in &scripts {
        println!("{}", script.display());
        let work = root.join(FOLDER).join("examples").join(script.file_stem().unwrap_or_default());
        fs::create_dir_all(&work).with_context(|| format!("making {}", work.display()))?;
        let mut bash = Command::new("bash");
        bash.arg(script).env("PLUGIN", plugin).env("WORK", &work);
        passes(bash.env("TERRACE", root.join("target/debug/terrace")))?;
    }
    Ok(())
}
