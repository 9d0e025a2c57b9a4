//! Names of code that documents have between backticks: each is in a source. So a name that was
//! changed is changed in documents too. Options, statistics, types, variables and flags are names.

use std::collections::HashSet;

use super::Finding;
use super::config::ForeignNames;
use super::documents::{Document, spans};
use super::source::Source;

const RULE: &str = "document names";

/// Variables of MariaDB and what macros make have this before the name in the source.
const PREFIX: &str = "terrace_";

/// The names and flags of all sources, whatever their language.
#[derive(Default)]
pub(crate) struct Words {
    names: HashSet<String>,
    flags: HashSet<String>,
}

impl Words {
    /// Adds those of a file of any kind.
    pub(crate) fn add(&mut self, text: &str) {
        self.names.extend(names(text).map(|(_, name)| name.to_owned()));
        self.flags.extend(flags(text).map(str::to_owned));
    }

    /// Adds those of a Rust file, but for its comments: they may be as old as documents.
    pub(crate) fn add_source(&mut self, source: &Source) {
        let named = names(&source.text).filter(|(at, _)| !source.is_comment(*at));
        self.names.extend(named.map(|(_, name)| name.to_owned()));
        self.flags.extend(flags(&source.text).map(str::to_owned));
    }

    fn has(&self, name: &str) -> bool {
        let named = |name: &str| self.names.contains(name);
        // What begins so is the end of several names.
        named(name) || name.starts_with('_') || name.strip_prefix(PREFIX).is_some_and(named)
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.flags.contains(flag) || self.has(&flag[2..].replace('-', "_"))
    }
}

/// Finds names that no source has, and exceptions that no document needs.
pub(crate) fn check(
    documents: &[Document],
    words: &Words,
    foreign: &[ForeignNames],
    findings: &mut Vec<Finding>,
) {
    let mut unused: HashSet<&str> =
        foreign.iter().flat_map(|of| of.names.iter().map(String::as_str)).collect();
    let mut is_foreign = HashSet::new();
    is_foreign.extend(unused.iter().copied());
    for Document { path, text } in documents {
        let mut in_code = false;
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
                continue;
            }
            if in_code {
                continue;
            }
            for name in spans(line).flat_map(|span| missing(span, words)) {
                unused.remove(name);
                if !is_foreign.contains(name) {
                    let advice = format!("`{name}` is in no source: name what is there");
                    findings.push(Finding::new(path, number + 1, RULE, advice));
                }
            }
        }
    }
    for name in unused {
        let advice = format!("no document has the foreign name {name}: remove it");
        findings.push(Finding::new("tidy.toml", 1, RULE, advice));
    }
}

/// The names and flags of a span that no source has.
fn missing<'a>(span: &'a str, words: &Words) -> Vec<&'a str> {
    let mut missing: Vec<&str> = flags(span).filter(|flag| !words.has_flag(flag)).collect();
    if is_path_of_names(span) {
        let is_path = span.contains(['.', ':']);
        let named = names(span).map(|(_, name)| name);
        missing.extend(named.filter(|name| (is_path || is_of_code(name)) && !words.has(name)));
    }
    missing
}

/// Whether a span is `name`, `Type::name`, `part.name()` or so. A file's name is none.
fn is_path_of_names(span: &str) -> bool {
    const FILES: [&str; 12] =
        ["rs", "h", "md", "toml", "py", "sh", "so", "a", "frm", "par", "txt", "def"];
    let parts = span.replace("()", "").replace("::", ".");
    let is_name = |part: &str| {
        !part.is_empty()
            && !part.starts_with(|c: char| c.is_ascii_digit())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let is_file = parts.rsplit_once('.').is_some_and(|(_, end)| FILES.contains(&end));
    !is_file && parts.split('.').all(is_name)
}

/// Whether a word by itself is a name of code: it has an underscore, or capitals and small letters.
fn is_of_code(name: &str) -> bool {
    let is_type = name.starts_with(|c: char| c.is_ascii_uppercase());
    name.contains('_') || is_type && name.contains(|c: char| c.is_ascii_lowercase())
}

/// The identifiers in a text, with their offsets.
fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        rest = &rest[rest.find(is_of_name)?..];
        let at = text.len() - rest.len();
        let len = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        let name = &rest[..len];
        rest = &rest[len..];
        Some((at, name))
    })
}

/// The flags in a text: `--name`.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("--").filter_map(|(at, _)| {
        let is_of_flag = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let len = text[at..].find(|c| !is_of_flag(c)).unwrap_or(text.len() - at);
        let flag = &text[at..at + len];
        flag[2..].starts_with(|c: char| c.is_ascii_lowercase()).then_some(flag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, foreign: &[&str]) -> Vec<String> {
        let mut words = Words::default();
        let source = "struct Options { pm_size: u64 } // gone_from_code\nset(\"--once\");";
        words.add_source(&Source::new("engine/src/a.rs", source));
        words.add("SHOW VARIABLES LIKE 'server_var'");
        let names = foreign.iter().map(|name| (*name).to_owned()).collect();
        let foreign = [ForeignNames { names, reason: "r".into() }];
        let document = Document { path: "README.md".into(), text: text.into() };
        let mut findings = Vec::new();
        check(&[document], &words, &foreign, &mut findings);
        findings.into_iter().map(|finding| finding.advice).collect()
    }

    #[test]
    fn names_that_are_there_in_any_source_are_known() {
        let text = "`Options::pm_size`, `pm_size`, `terrace_pm_size`, `server_var`, `--once`, \
                    `a word`, `plain`, `_end`, `file.rs`, Gone and `--pm-size`";
        assert!(found(text, &[]).is_empty());
    }

    #[test]
    fn names_of_no_source_are_found() {
        assert!(found("`Options::gone`", &[])[0].contains("`gone`"));
        assert!(found("`pm.size`", &[])[0].contains("`pm`"));
        assert!(found("`gone_too`", &[])[0].contains("gone_too"));
        assert!(found("`gone_from_code`", &[])[0].contains("gone_from_code"));
        assert!(found("`run --gone`", &[])[0].contains("--gone"));
        assert!(found("```\n`Gone`\n```\n`GoneToo`", &[])[0].contains("GoneToo"));
    }

    #[test]
    fn foreign_names_are_listed_and_needed() {
        assert!(found("`foreign_call`", &["foreign_call"]).is_empty());
        assert!(found("nothing", &["foreign_call"])[0].contains("remove it"));
    }
}
