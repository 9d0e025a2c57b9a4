//! The files of the repository: tracked, and untracked but not ignored.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Lists the files by path from the root, with `/`, sorted.
pub(crate) fn list(root: &Path) -> Result<Vec<String>> {
    let mut files = match from_git(root) {
        Some(files) => files,
        None => walk(root)?,
    };
    // A file removed but still in the index is no file any more.
    files.retain(|path| root.join(path).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

/// What git lists, or `None` without git or outside a repository (a source archive).
fn from_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Every file below the root, without build outputs and hidden folders other than the project's.
fn walk(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let entries = fs::read_dir(&path).with_context(|| format!("listing {}", path.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let below = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if entry.file_type()?.is_file() {
                files.push(below);
            } else if entry.file_type()?.is_dir() && name != "target" && name != ".git" {
                folders.push(below);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_and_the_walk_both_find_this_file() {
        let root = crate::root();
        let this = "xtask/src/tidy/files.rs".to_owned();
        assert!(list(&root).unwrap().contains(&this));
        assert!(walk(&root).unwrap().contains(&this));
    }
}
