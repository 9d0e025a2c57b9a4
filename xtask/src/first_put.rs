//! `cargo xtask first-put`: the time and the disk of the first put, by the command that users have.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// How many databases are made. The median counts.
const ROUNDS: usize = 11;

/// Puts one key into fresh databases, with the command given or else with this tree's, and prints
/// the median time and what the database takes on disk.
pub(crate) fn run(root: &Path, terrace: Option<&str>) -> Result<bool> {
    let terrace = terrace.map_or_else(|| build(root), |path| Ok(PathBuf::from(path)))?;
    let folder = root.join("target/first-put");
    let mut milliseconds = Vec::new();
    let mut disk = 0;
    for _ in 0..ROUNDS {
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("removing {}", folder.display()))?;
        }
        let begin = Instant::now();
        let mut put = Command::new(&terrace);
        let put = put.arg("--db").arg(&folder).args(["put", "--table", "t", "key", "value"]);
        let status = put.status().with_context(|| format!("starting {}", terrace.display()))?;
        milliseconds.push(begin.elapsed().as_secs_f64() * 1e3);
        ensure!(status.success(), "{put:?}: {status}");
        disk = bytes_on_disk(&folder)?;
    }
    milliseconds.sort_by(f64::total_cmp);
    let (least, median, most) =
        (milliseconds[0], milliseconds[ROUNDS / 2], milliseconds[ROUNDS - 1]);
    println!("time of the first put: {median:.1} ms ({least:.1} to {most:.1}, {ROUNDS} rounds)");
    println!("disk of the first put: {:.1} MiB", disk as f64 / f64::from(1 << 20));
    Ok(true)
}

/// The command, built for release.
fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "--release", "--quiet", "--package", "terrace-cli"]);
    let status = command.status().context("starting cargo")?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(root.join("target/release/terrace"))
}

/// What the files of a folder occupy, which is less than their lengths where they have holes.
fn bytes_on_disk(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let data = entry.metadata()?;
        bytes += if data.is_dir() { bytes_on_disk(&entry.path())? } else { data.blocks() * 512 };
    }
    Ok(bytes)
}
