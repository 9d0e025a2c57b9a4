//! The suites of mariadb-test for storage engines, on Terrace and on InnoDB in one run each.
//!
//! Most expected results are of older servers, so stock InnoDB fails many tests. A test counts for
//! Terrace when it passes, or when its output is InnoDB's.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::FOLDER;
use crate::check::passes;

/// The overlay of the engine, in the repository and in the tree of tests.
const OVERLAY: &str = "mariadb/tests/storage_engine";

/// Where the package has its tests.
const PACKAGED: &str = "/usr/share/mysql";

const SUITES: [&str; 3] = ["storage_engine", "storage_engine/trx", "storage_engine/parts"];

/// How a test went: whether it passed, and what it said where it did not.
struct Outcome {
    passed: bool,
    rejected: String,
}

/// Runs the suites and prints the score. Returns whether Terrace does as well as InnoDB.
pub(super) fn run(root: &Path, plugin: &Path) -> Result<bool> {
    let tree = tree(root)?;
    let ours = one(root, &tree, plugin, "terrace")?;
    let theirs = one(root, &tree, plugin, "innobase")?;
    let passed = |of: &BTreeMap<String, Outcome>| of.values().filter(|test| test.passed).count();
    let mut alike = 0;
    for (name, test) in &ours {
        if test.passed {
            continue;
        }
        if theirs.get(name).is_some_and(|other| !other.passed && other.rejected == test.rejected) {
            alike += 1;
        } else {
            println!("differs from InnoDB: {name}");
        }
    }
    println!(
        "Terrace passes {} of {} and fails {alike} more as InnoDB does; InnoDB passes {} of {}",
        passed(&ours),
        ours.len(),
        passed(&theirs),
        theirs.len()
    );
    Ok(passed(&ours) + alike >= passed(&theirs))
}

/// A copy of the package's tests that can be written to, with the overlay.
fn tree(root: &Path) -> Result<PathBuf> {
    let base = root.join(FOLDER).join("mysql-test");
    let tests = base.join("share/mysql/mysql-test");
    if !tests.exists() {
        fs::create_dir_all(base.join("share/mysql")).context("making a tree of tests")?;
        for (to, from) in [
            ("bin", "/usr/bin"),
            ("sbin", "/usr/sbin"),
            ("lib", "/usr/lib"),
            ("share/mariadb", "/usr/share/mariadb"),
        ] {
            if Path::new(from).exists() {
                symlink(from, base.join(to)).with_context(|| format!("linking {to}"))?;
            }
        }
        for entry in fs::read_dir(PACKAGED).context("reading the tests of mariadb-test")? {
            let path = entry?.path();
            let name = path.file_name().context("an entry has a name")?.to_owned();
            if name != "mysql-test" {
                symlink(&path, base.join("share/mysql").join(name)).context("linking")?;
            }
        }
        passes(
            Command::new("cp").arg("-r").arg(Path::new(PACKAGED).join("mysql-test")).arg(&tests),
        )?;
    }
    let overlay = tests.join("plugin/terrace/storage_engine");
    if overlay.exists() {
        fs::remove_dir_all(&overlay).context("removing the old overlay")?;
    }
    fs::create_dir_all(overlay.parent().context("an overlay lies in a folder")?)?;
    passes(Command::new("cp").arg("-r").arg(root.join(OVERLAY)).arg(&overlay))?;
    Ok(tests)
}

/// Runs the suites of one engine's overlay.
fn one(
    root: &Path,
    tree: &Path,
    plugin: &Path,
    overlay: &str,
) -> Result<BTreeMap<String, Outcome>> {
    let var = root.join(FOLDER).join(format!("var-{overlay}"));
    let suites: Vec<String> = SUITES.iter().map(|suite| format!("{suite}-{overlay}")).collect();
    let mut command = Command::new("./mtr");
    command.current_dir(tree).env_remove("MTR_MEM").env("TERRACE_PLUGIN_DIR", plugin);
    command.args(["--force", "--max-test-fail=1000", "--retry=0", "--parallel=2"]);
    command.args(["--nocheck-testcases", "--nowarnings"]);
    command.arg(format!("--vardir={}", var.display()));
    let output = command.arg(format!("--suite={}", suites.join(","))).output()?;
    Ok(outcomes(&String::from_utf8_lossy(&output.stdout), overlay))
}

/// What each test did, by its name without the overlay's.
fn outcomes(said: &str, overlay: &str) -> BTreeMap<String, Outcome> {
    let mut found: BTreeMap<String, Outcome> = BTreeMap::new();
    let mut current = None;
    for line in said.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if line.starts_with("storage_engine") && line.contains('[') {
            let name = name.replace(&format!("-{overlay}"), "");
            let (passed, failed) = (line.contains("[ pass ]"), line.contains("[ fail ]"));
            if passed || failed {
                found.insert(name.clone(), Outcome { passed, rejected: String::new() });
                current = failed.then_some(name);
            }
        } else if let Some(test) = current.as_ref().and_then(|name| found.get_mut(name)) {
            // Lines of the difference, without the names of files.
            let is_change = line.starts_with(['+', '-']);
            if is_change && !line.starts_with("+++") && !line.starts_with("---") {
                test.rejected.push_str(line);
                test.rejected.push('\n');
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::outcomes;

    #[test]
    fn outcomes_are_read() {
        let said = "storage_engine-terrace.one w1 [ pass ] 4\nstorage_engine-terrace.two w2 \
                    [ fail ]\n--- a\n+++ b\n-x\n+y\nstorage_engine-terrace.three [ disabled ] z\n";
        let found = outcomes(said, "terrace");
        assert_eq!(found.len(), 2);
        assert!(found["storage_engine.one"].passed);
        assert_eq!(found["storage_engine.two"].rejected, "-x\n+y\n");
    }
}
