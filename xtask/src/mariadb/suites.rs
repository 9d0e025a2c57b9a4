//! The suites of mariadb-test for storage engines, on Terrace and on InnoDB in one run each.
//!
//! Most expected results are of older servers, so stock InnoDB fails many tests. A test counts for
//! Terrace when it passes, or when its output is InnoDB's: that of the same run, or the one that
//! InnoDB's own overlay of the package expects. Every other difference has its reason in
//! `differences.txt`, and every disabled test in `disabled.def`.

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

/// Tests that differ from InnoDB on purpose: `name: reason`.
const DIFFERENCES: &str = "mariadb/tests/storage_engine/differences.txt";

/// How a test went: whether it passed, the file with what it said where it did not, and what that
/// file has.
#[derive(Default)]
struct Outcome {
    passed: bool,
    file: Option<PathBuf>,
    said: Option<String>,
}

/// Runs the suites and prints the score. Returns whether Terrace does as well as InnoDB.
pub(super) fn run(root: &Path, plugin: &Path) -> Result<bool> {
    let tree = tree(root)?;
    let ours = one(root, &tree, plugin, "terrace")?;
    let theirs = one(root, &tree, plugin, "innobase")?;
    let passed = |of: &BTreeMap<String, Outcome>| of.values().filter(|test| test.passed).count();
    let reasons = reasons(root)?;
    let (mut alike, mut unexplained) = (0, 0);
    for (name, test) in ours.iter().filter(|(_, test)| !test.passed) {
        let other = theirs.get(name).and_then(|other| other.said.as_ref());
        let is_alike = test.said.is_some() && test.said.as_ref() == other;
        if is_alike {
            alike += 1;
        } else if let Some(reason) = reasons.get(name) {
            println!("differs from InnoDB: {name}: {reason}");
        } else {
            println!("DIFFERS FROM INNODB WITHOUT A REASON: {name}");
            unexplained += 1;
        }
    }
    println!(
        "Terrace passes {} of {} and says what InnoDB does in {alike} more; InnoDB passes {} of {}",
        passed(&ours),
        ours.len(),
        passed(&theirs),
        theirs.len()
    );
    Ok(unexplained == 0 && passed(&ours) + alike >= passed(&theirs))
}

/// Why tests differ, by name.
fn reasons(root: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(root.join(DIFFERENCES)).context("reading the differences")?;
    let pairs = text.lines().filter_map(|line| line.split_once(": "));
    Ok(pairs.map(|(name, reason)| (name.to_owned(), reason.to_owned())).collect())
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
    let mut found = outcomes(&String::from_utf8_lossy(&output.stdout), overlay);
    for (name, test) in &mut found {
        // Of a test that passed against a difference of its overlay: what it is to say.
        let expected = name.rsplit_once('.').map(|(suite, test)| {
            tree.join("plugin").join(overlay).join(suite).join(format!("{test}.result~"))
        });
        let file = if test.passed { expected } else { test.file.clone() };
        // Files come and go with the run, and the next one writes them anew.
        test.said = file
            .and_then(|file| fs::read(file).ok())
            .map(|said| String::from_utf8_lossy(&said).into_owned());
    }
    Ok(found)
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
                found.insert(name.clone(), Outcome { passed, ..Outcome::default() });
                current = failed.then_some(name);
            }
        } else if let Some(test) = current.as_ref().and_then(|name| found.get_mut(name)) {
            let file = line.strip_prefix("+++ ").and_then(|rest| rest.split('\t').next());
            if let Some(file) = file.filter(|file| file.ends_with(".reject")) {
                test.file = Some(PathBuf::from(file));
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
                    [ fail ]\n--- a\n+++ b.reject\t1\n-x\n+++y\nstorage_engine-terrace.three \
                    [ disabled ] z\n";
        let found = outcomes(said, "terrace");
        assert_eq!(found.len(), 2);
        assert!(found["storage_engine.one"].passed);
        assert_eq!(found["storage_engine.two"].file, Some("b.reject".into()));
    }
}
