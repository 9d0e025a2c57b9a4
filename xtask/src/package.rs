//! `cargo xtask package`: what others install.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::check::passes;
use crate::{c, python};

/// Makes one package in a folder.
pub(crate) fn run(root: &Path, what: &str, folder: &Path) -> Result<bool> {
    match what {
        "c" => c::package(root, folder),
        "python" => python::package(root, folder),
        "crate" => {
            println!("{}", library(root, folder)?.display());
            Ok(true)
        }
        other => bail!("there is no package {other:?}; there are c, python and crate"),
    }
}

/// Makes the crate of the library, as the registry would get it.
pub(crate) fn library(root: &Path, folder: &Path) -> Result<PathBuf> {
    let mut command =
        std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let target = root.join("target/package-crate");
    command.current_dir(root).args(["package", "--package", "terrace", "--no-verify"]);
    passes(command.args(["--allow-dirty", "--quiet", "--target-dir"]).arg(&target))?;
    let name = concat!("terrace-", env!("CARGO_PKG_VERSION"), ".crate");
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let (from, to) = (target.join("package").join(name), folder.join(name));
    fs::copy(&from, &to)
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    Ok(to)
}
