//! What the shared library exports is what a file lists, and programs in C use all of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{CRATE, Libraries, is_there};
use crate::check::Setting;

/// Fails unless the library exports the listed symbols and no others, and each is used by a
/// program.
pub(super) fn check(setting: &Setting, libraries: &Libraries) -> Result<()> {
    let root = &setting.root;
    let path = root.join(CRATE).join("symbols.txt");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let listed: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let unused = unused(&listed, &programs(root)?);
    if !unused.is_empty() {
        bail!("no test and no example in C calls {}", unused.join(", "));
    }
    if !is_there("nm") {
        setting.leave_out("the exported symbols, without `nm`; install binutils");
        return Ok(());
    }
    let differences = differences(&listed, &exported(&libraries.shared)?);
    if !differences.is_empty() {
        bail!(
            "bindings/c/symbols.txt is not what the library exports: {}; a symbol that is gone \
             breaks programs",
            differences.join(", ")
        );
    }
    Ok(())
}

/// The symbols that the library exports.
fn exported(library: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(library)
        .output()
        .context("starting nm")?;
    if !output.status.success() {
        bail!("nm {}: {}", library.display(), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// The text of all programs in C.
fn programs(root: &Path) -> Result<String> {
    let mut text = String::new();
    for file in super::programs::sources(root)? {
        text +=
            &fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    }
    Ok(text)
}

/// The symbols that no program calls.
fn unused(listed: &BTreeSet<String>, programs: &str) -> Vec<String> {
    let is_used = |name: &String| programs.contains(&format!("{name}("));
    listed.iter().filter(|name| !is_used(name)).cloned().collect()
}

/// What is in one set alone, with the side that has it.
fn differences(listed: &BTreeSet<String>, exported: &BTreeSet<String>) -> Vec<String> {
    let gone = listed.difference(exported).map(|name| format!("{name} is not exported"));
    let new = exported.difference(listed).map(|name| format!("{name} is not listed"));
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_is_gone_and_what_is_new_is_named() {
        assert!(differences(&set(&["a", "b"]), &set(&["b", "a"])).is_empty());
        assert_eq!(
            differences(&set(&["a", "b"]), &set(&["b", "c"])),
            ["a is not exported", "c is not listed"]
        );
    }

    #[test]
    fn a_longer_name_is_no_use() {
        assert!(unused(&set(&["a_get"]), "a_get(x)").is_empty());
        assert_eq!(unused(&set(&["a_get"]), "a_get_into(x)"), ["a_get"]);
    }
}
