//! What documents say is there: each file and folder that they name exists, and so does each
//! function.
//! The overview of the architecture stays short enough to be read in one go.

use std::collections::HashSet;

use super::Finding;
use super::config::DocumentLimit;
use super::source::{Source, identifier};

const RULE: &str = "documents";
const OVERVIEW: &str = "ARCHITECTURE.md";

/// The most bytes of the overview.
const BYTES: usize = 12 << 10;

/// A text of the repository: its path and what is in it.
pub(crate) struct Document {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Whether the rule speaks about a file.
pub(crate) fn is_document(path: &str) -> bool {
    path.ends_with(".md")
}

/// Finds files and functions that documents name and that do not exist, and documents that are too
/// long. `paths` are all files of the repository.
pub(crate) fn check(
    documents: &[Document],
    paths: &[String],
    sources: &[Source],
    limits: &[DocumentLimit],
    findings: &mut Vec<Finding>,
) {
    let functions = functions(sources);
    for Document { path, text } in documents {
        for (number, line) in text.lines().enumerate() {
            for span in spans(line).chain(folders(line)) {
                let missing = missing_file(span, paths)
                    .or_else(|| missing_path(span, paths))
                    .or_else(|| missing_function(span, &functions).then(|| span.to_owned()));
                if let Some(missing) = missing {
                    let advice = format!("`{missing}` does not exist: name what is there");
                    findings.push(Finding::new(path, number + 1, RULE, advice));
                }
            }
        }
    }
    check_lengths(documents, limits, findings);
}

fn check_lengths(documents: &[Document], limits: &[DocumentLimit], findings: &mut Vec<Finding>) {
    for Document { path, text } in documents.iter().filter(|document| document.path == OVERVIEW) {
        let exception = limits.iter().find(|limit| limit.path == *path);
        let most = exception.map_or(BYTES, |limit| limit.bytes);
        if text.len() > most {
            let advice = format!("{} bytes, at most {most}: move a part to docs/", text.len());
            findings.push(Finding::new(path, 1, RULE, advice));
        }
        if exception.is_some() && text.len() <= BYTES {
            let advice = format!("{path} is short enough: remove the exception");
            findings.push(Finding::new("tidy.toml", 1, RULE, advice));
        }
    }
    for limit in limits.iter().filter(|limit| limit.path != OVERVIEW) {
        let advice = format!("{} has no limit: remove the exception", limit.path);
        findings.push(Finding::new("tidy.toml", 1, RULE, advice));
    }
}

/// What stands between backticks in a line.
pub(super) fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Folders of the engine in a line, also in a picture.
fn folders(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| c.is_whitespace() || ",()`\"".contains(c));
    words
        .filter(|word| word.starts_with("engine/src/"))
        .map(|word| word.trim_end_matches(['.', ':']))
}

/// A span that is a path from a folder of the root, and that there is not.
fn missing_path(span: &str, paths: &[String]) -> Option<String> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let (first, _) = span.split_once('/').filter(|_| span.chars().all(is_path))?;
    let within = |path: &String, folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_of_root = paths.iter().any(|path| path.contains('/') && within(path, first));
    let exists = paths.iter().any(|path| within(path, span.trim_end_matches('/')));
    (is_of_root && !exists).then(|| span.to_owned())
}

/// The first Rust file that a span names and that no path ends with. `a/{b,c}.rs` names two.
fn missing_file(span: &str, paths: &[String]) -> Option<String> {
    if !span.ends_with(".rs") || span.contains([' ', '*', '…']) {
        return None;
    }
    let named = match (span.split_once('{'), span.rsplit_once('}')) {
        (Some((before, _)), Some((_, behind))) => {
            let names = &span[before.len() + 1..span.len() - behind.len() - 1];
            names.split(',').map(|name| format!("{before}{}{behind}", name.trim())).collect()
        }
        _ => vec![span.to_owned()],
    };
    let exists = |name: &str| {
        let below = format!("/{name}");
        paths.iter().any(|path| path == name || path.ends_with(&below))
    };
    named.into_iter().find(|name| !exists(name))
}

/// Whether a span is a call such as `name()` or `Type::name()`, and no function has this name.
fn missing_function(span: &str, functions: &HashSet<&str>) -> bool {
    let Some(path) = span.strip_suffix("()") else { return false };
    let name = path.rsplit(['.', ':']).next().unwrap_or(path);
    !name.is_empty() && identifier(name) == name && !functions.contains(name)
}

/// The names of all functions.
fn functions(sources: &[Source]) -> HashSet<&str> {
    let named = |source| {
        let source: &Source = source;
        source.words("fn").map(|at| identifier(source.code[at + "fn".len()..].trim_start()))
    };
    sources.iter().flat_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(path: &str, text: &str, limits: &[DocumentLimit]) -> Vec<String> {
        let sources = [Source::new("engine/src/a/b.rs", "pub fn known() {}")];
        let paths: Vec<String> = ["engine/src/a/b.rs", "engine/src/a/c.rs"].map(Into::into).into();
        let document = Document { path: path.into(), text: text.into() };
        let mut findings = Vec::new();
        check(&[document], &paths, &sources, limits, &mut findings);
        findings.into_iter().map(|finding| finding.advice).collect()
    }

    fn found(text: &str) -> Vec<String> {
        found_in("docs/a.md", text, &[])
    }

    #[test]
    fn files_that_are_there_may_be_named_by_their_end() {
        assert!(
            found("`a/b.rs`, `b.rs`, `engine/src/a/{b,c}.rs`, b/d.rs, `a` and `x y.rs`").is_empty()
        );
    }

    #[test]
    fn files_that_are_not_there_are_found() {
        assert!(found("`a/d.rs`")[0].contains("a/d.rs"));
        assert!(found("`a/{b,d}.rs`")[0].contains("a/d.rs"));
        assert!(found("`ab.rs` is no end of a/b.rs")[0].contains("ab.rs"));
    }

    #[test]
    fn folders_that_are_not_there_are_found_also_in_pictures() {
        assert!(
            found("`engine/src/a`, `engine/src/a/`, `target/x`, engine/src/a, `no path/`")
                .is_empty()
        );
        assert!(found("`engine/gone`")[0].contains("engine/gone"));
        assert!(found("   │ drain   engine/src/gone, b")[0].contains("engine/src/gone"));
    }

    #[test]
    fn functions_are_held_against_the_code() {
        assert!(found("`known()`, `Type::known()`, `type.known()`, `a(b)`").is_empty());
        assert!(found("`Type::gone()`")[0].contains("gone"));
    }

    #[test]
    fn the_overview_has_a_limit_and_an_exception_is_one_too() {
        let text = "a".repeat(BYTES + 1);
        let limit = |bytes| DocumentLimit { path: OVERVIEW.into(), bytes, reason: "r".into() };
        assert_eq!(found_in(OVERVIEW, &text, &[]).len(), 1);
        assert!(found_in(OVERVIEW, &text, &[limit(BYTES + 1)]).is_empty());
        assert_eq!(found_in(OVERVIEW, &text, &[limit(BYTES)]).len(), 1);
        assert!(found_in(OVERVIEW, "short", &[limit(BYTES)])[0].contains("remove the exception"));
        assert!(found(&text).is_empty());
    }
}
