//! One type name means one thing in the engine. The same name for two types makes a reader look up
//! each use.

use std::collections::BTreeMap;

use super::Finding;
use super::config::SharedNames;
use super::source::{Source, identifier, is_of_library};

const RULE: &str = "type-name";
const KINDS: &[&str] = &["struct", "enum", "trait", "union"];

/// Finds names that several types of the engine have outside tests, and exceptions without need.
pub(crate) fn check(sources: &[Source], shared: &[SharedNames], findings: &mut Vec<Finding>) {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for source in sources.iter().filter(|source| is_of_library(&source.path)) {
        for (name, line) in types(source) {
            places.entry(name).or_default().push((&source.path, line));
        }
    }
    places.retain(|_, places| places.len() > 1);
    for (name, places) in &places {
        if shared.iter().any(|shared| shared.names.iter().any(|known| known == name)) {
            continue;
        }
        for (path, line) in places {
            let others: Vec<String> = places
                .iter()
                .filter(|place| *place != &(*path, *line))
                .map(|(path, line)| format!("{path}:{line}"))
                .collect();
            let advice = format!("`{name}` is also a type in {}: rename one", others.join(", "));
            findings.push(Finding::new(path, *line, RULE, advice));
        }
    }
    for name in shared.iter().flat_map(|shared| &shared.names) {
        if !places.contains_key(name.as_str()) {
            let advice = format!("`{name}` is the name of one type: remove the exception");
            findings.push(Finding::new("tidy.toml", 1, RULE, advice));
        }
    }
}

/// The names of the types that a file defines outside tests, each with its line.
fn types(source: &Source) -> impl Iterator<Item = (&str, usize)> {
    let definitions = KINDS.iter().flat_map(|kind| {
        source.words(kind).map(|at| (identifier(source.code[at + kind.len()..].trim_start()), at))
    });
    definitions
        .filter(|(name, _)| name.starts_with(char::is_uppercase))
        .map(|(name, at)| (name, source.line_of(at)))
        .filter(|(_, line)| !source.is_test_line(*line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], shared: &[&str]) -> Vec<Finding> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let names = shared.iter().map(|name| (*name).to_owned()).collect();
        let shared = [SharedNames { names, reason: "r".into() }];
        let mut findings = Vec::new();
        check(&sources, &shared, &mut findings);
        findings
    }

    const A: (&str, &str) = ("engine/src/a.rs", "pub struct Step<T>(T);\n");
    const B: (&str, &str) = ("engine/src/b.rs", "\nenum Step {}\n");

    #[test]
    fn a_name_of_two_types_is_found_at_both() {
        let findings = found(&[A, B], &[]);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].advice.contains("engine/src/b.rs:2"), "{findings:?}");
    }

    #[test]
    fn an_exception_lets_it_be_and_one_without_need_is_found() {
        assert!(found(&[A, B], &["Step"]).is_empty());
        assert!(found(&[A], &["Step"])[0].advice.contains("remove the exception"));
    }

    #[test]
    fn tests_comments_and_other_crates_have_names_of_their_own() {
        let in_tests = ("engine/src/c.rs", "#[cfg(test)]\nmod tests { struct Step; }");
        let in_comment = ("engine/src/d.rs", "// a struct Step\nfn f(step: Step) {}");
        let elsewhere = ("sim/src/e.rs", "struct Step;");
        assert!(found(&[A, in_tests, in_comment, elsewhere], &[]).is_empty());
    }
}
