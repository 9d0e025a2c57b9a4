//! Closed folders: the files of one know no more of their part than `tidy.toml` lists. So the jobs
//! of the background know neither the engine, nor the scheduler, nor each other.

use super::Finding;
use super::config::Closed;
use super::layers::first_names;
use super::source::{Source, is_word};

const ROOT: &str = "engine/src/";
const RULE: &str = "closed";

/// Finds paths that lead out of a closed folder, or to a sibling that is not listed.
pub(crate) fn check(source: &Source, closed: &[Closed], findings: &mut Vec<Finding>) {
    let is_in = |of: &&Closed| source.path.strip_prefix(&of.path).is_some_and(is_below);
    let Some(closed) = closed.iter().find(is_in) else { return };
    let part = closed.path.strip_prefix(ROOT).and_then(|below| below.split('/').next());
    let part = format!("crate::{}", part.unwrap_or_default());
    let through_part = occurrences(source, &part);
    // What stands in a folder of its own names by `super` what is in there.
    let stands_in_it = |of: &str| !of.trim_start_matches('/').contains('/');
    let own = source.path.strip_prefix(&closed.path).is_some_and(stands_in_it);
    let through_super = occurrences(source, "super").filter(|_| own);
    for (at, name) in through_part.chain(through_super) {
        let line = source.line_of(at);
        if !source.is_test_line(line) && !closed.uses.iter().any(|used| used == name) {
            let advice =
                format!("`{}` may not use `{name}`: see [[closed]] in tidy.toml", closed.path);
            findings.push(Finding::new(&source.path, line, RULE, advice));
        }
    }
}

/// Whether what is left of a path behind that of a folder is a file in it, but for its root.
fn is_below(rest: &str) -> bool {
    rest.starts_with('/') && rest != "/mod.rs"
}

/// The names behind each occurrence of `path` that is not the tail of another one.
fn occurrences<'a>(
    source: &'a Source,
    path: &'a str,
) -> impl Iterator<Item = (usize, &'a str)> + 'a {
    source.code.match_indices(path).flat_map(move |(at, _)| {
        let before = source.code[..at].chars().next_back();
        let is_whole = !before.is_some_and(|c| c == ':' || is_word(c));
        if is_whole { first_names(source, at + path.len()) } else { Vec::new() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let uses = ["context", "claims"].map(str::to_owned).to_vec();
        let closed = Closed { path: "engine/src/db/jobs".to_owned(), uses };
        let mut findings = Vec::new();
        check(&Source::new(path, text), &[closed], &mut findings);
        findings.into_iter().map(|finding| finding.advice).collect()
    }

    #[test]
    fn what_is_listed_may_be_used() {
        let text = "use super::context::JobContext;\nuse crate::db::claims::Claims;";
        assert!(found("engine/src/db/jobs/drain.rs", text).is_empty());
        assert!(found("engine/src/db/jobs/drain.rs", "use crate::error::Result;").is_empty());
    }

    #[test]
    fn the_engine_the_scheduler_and_siblings_are_found() {
        for text in [
            "use crate::db::inner::Engine;",
            "use crate::db::{claims::Claims, scheduler::Scheduler};",
            "use super::compact::Compact;",
            "use super::super::inner::Engine;",
            "fn a() { super::compact::plan() }",
        ] {
            assert_eq!(found("engine/src/db/jobs/drain.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_folder_in_it_knows_its_own_files() {
        assert!(found("engine/src/db/jobs/drain/state.rs", "use super::Drain;").is_empty());
        let text = "use crate::db::scheduler::Scheduler;";
        assert_eq!(found("engine/src/db/jobs/drain/state.rs", text).len(), 1);
    }

    #[test]
    fn the_root_of_the_folder_and_others_are_free() {
        assert!(found("engine/src/db/jobs/mod.rs", "use crate::db::inner::Engine;").is_empty());
        assert!(found("engine/src/db/engine.rs", "use super::inner::Engine;").is_empty());
    }
}
