//! No text of the project names a path of a developer's machine.

use super::Finding;
use super::source::is_word;

/// Folders that exist on one machine and not on the reader's. Written in halves, so that this
/// file does not find itself.
const FOLDERS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];

/// Finds such paths. `text` may be any kind of text.
pub(crate) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in text.lines().enumerate() {
        if FOLDERS.iter().any(|folder| names(line, folder)) {
            let advice = "name the file from the repository's root, or any place at all";
            findings.push(Finding::new(path, number + 1, "machine-path", advice));
        }
    }
}

/// Whether the line holds the folder at the start of a path, not in the middle of another.
fn names(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| is_word(c) || ".-~}/".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let mut findings = Vec::new();
        check("a.md", text, &mut findings);
        findings.len()
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for folder in FOLDERS {
            assert_eq!(found(&format!("see {folder}notes\n\"{folder}x\"")), 2);
        }
    }

    #[test]
    fn a_folder_inside_another_path_is_free() {
        for folder in FOLDERS {
            assert_eq!(found(&format!("https://example.org{folder}x ${{A}}{folder}y")), 0);
        }
    }
}
