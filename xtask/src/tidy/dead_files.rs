//! Every source file is part of its crate: its parent declares it with `mod`.

use std::collections::HashMap;

use super::Finding;
use super::source::{Source, identifier};

/// Finds files that no `mod` reaches. Each file is held against its parent alone; that the
/// parent is reached is the parent's own finding.
pub(crate) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let by_path: HashMap<&str, &Source> =
        sources.iter().map(|source| (source.path.as_str(), source)).collect();
    for source in sources {
        let Some((stem, parents)) = place(&source.path) else { continue };
        let is_there = |parent: &String| by_path.contains_key(parent.as_str());
        // A folder of tests without a root has what other files include by their paths.
        if place_in_test_binary(&source.path).is_some() && !parents.iter().any(is_there) {
            continue;
        }
        let is_declared = parents
            .iter()
            .filter_map(|parent| by_path.get(parent.as_str()))
            .any(|parent| declares(parent, &stem));
        if !is_declared {
            let there = parents.iter().find(|parent| by_path.contains_key(parent.as_str()));
            let parent = there.unwrap_or(&parents[0]);
            let advice = format!("no `mod {stem};` in {parent}: declare or remove it");
            findings.push(Finding::new(&source.path, 1, "dead-file", advice));
        }
    }
}

/// The module's name and the files that could declare it, or `None` for the root of a crate.
fn place(path: &str) -> Option<(String, Vec<String>)> {
    if let Some(found) = place_in_test_binary(path) {
        return Some(found);
    }
    let (_, below) = path.split_once("/src/")?;
    if below == "lib.rs" || below == "main.rs" || below.starts_with("bin/") {
        return None;
    }
    let (folder, name) = path.rsplit_once('/')?;
    let (stem, folder) = match name.strip_suffix(".rs")? {
        "mod" => {
            let (above, stem) = folder.rsplit_once('/')?;
            (stem, above)
        }
        stem => (stem, folder),
    };
    let parents = if folder.ends_with("/src") {
        vec![format!("{folder}/lib.rs"), format!("{folder}/main.rs")]
    } else {
        vec![format!("{folder}/mod.rs"), format!("{folder}.rs")]
    };
    Some((stem.to_owned(), parents))
}

/// The same for a file of a test binary that is a folder: `tests/suite/model.rs`. What several
/// binaries share lies in folders without a `main.rs`, and may be declared by `mod.rs`.
fn place_in_test_binary(path: &str) -> Option<(String, Vec<String>)> {
    let (before, below) = path.split_once("/tests/").filter(|(before, _)| !before.contains('/'))?;
    let (folder, name) = below.split_once('/')?;
    let stem = name.strip_suffix(".rs").filter(|stem| !["main", "mod"].contains(stem))?;
    let parent = |name: &str| format!("{before}/tests/{folder}/{name}.rs");
    let found = !folder.contains('/') && !stem.contains('/');
    found.then(|| (stem.to_owned(), vec![parent("main"), parent("mod")]))
}

fn declares(parent: &Source, stem: &str) -> bool {
    parent.words("mod").any(|at| {
        let rest = parent.code[at + "mod".len()..].trim_start();
        let name = identifier(rest);
        name == stem && rest[name.len()..].trim_start().starts_with(';')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn declared_files_are_alive() {
        let files = [
            ("e/src/lib.rs", "mod a;\npub mod b;"),
            ("e/src/a.rs", ""),
            ("e/src/b/mod.rs", "pub(crate) mod c;"),
            ("e/src/b/c.rs", "mod d;"),
            ("e/src/b/c/d.rs", ""),
            ("e/tests/free.rs", ""),
            ("e/tests/suite/main.rs", "mod f;"),
            ("e/tests/suite/f.rs", ""),
            ("e/tests/common/mod.rs", "mod g;"),
            ("e/tests/common/g.rs", ""),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn undeclared_files_are_found() {
        let files = [
            ("e/src/lib.rs", "// mod a;\nmod aa;\nmod b { }"),
            ("e/src/a.rs", ""),
            ("e/src/b.rs", ""),
            ("e/tests/suite/main.rs", "mod f;"),
            ("e/tests/suite/g.rs", ""),
        ];
        assert_eq!(found(&files), ["e/src/a.rs", "e/src/b.rs", "e/tests/suite/g.rs"]);
    }
}
