//! The house rules, checked. Each rule is a file and a function from sources to findings.

mod banned;
mod closed;
mod config;
mod dead_files;
mod decoders;
mod document_names;
mod documents;
mod file_length;
pub(crate) mod files;
mod function_length;
pub(crate) mod layers;
mod layout;
mod machine_paths;
mod scan;
pub(crate) mod source;
mod tuples;
mod type_names;
mod unsafe_code;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use config::Config;
use document_names::Words;
use documents::Document;
use source::Source;

use crate::reference;

/// A place where a rule is broken, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

/// Checks the repository at `root`, prints each finding and returns how many there are.
pub(crate) fn run(root: &Path) -> Result<usize> {
    let findings = check(root)?;
    for Finding { path, line, rule, advice } in &findings {
        println!("{path}:{line}: {rule}: {advice}");
    }
    if !findings.is_empty() {
        println!("tidy: {} found", findings.len());
    }
    Ok(findings.len())
}

/// Every finding in the repository at `root`, in order of place.
fn check(root: &Path) -> Result<Vec<Finding>> {
    let config = Config::load(root)?;
    let (mut sources, mut documents) = (Vec::new(), Vec::new());
    let (mut findings, mut words) = (Vec::new(), Words::default());
    let paths = files::list(root)?;
    for path in &paths {
        let bytes = fs::read(root.join(path)).with_context(|| format!("reading {path}"))?;
        // What is no UTF-8 is no text, and no rule speaks about it.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        machine_paths::check(path, &text, &mut findings);
        if path.ends_with(".rs") {
            let source = Source::new(path, &text);
            words.add_source(&source);
            sources.push(source);
        } else if !documents::is_document(path) && path != "tidy.toml" {
            words.add(&text);
        }
        if documents::is_document(path) {
            documents.push(Document { path: path.clone(), text });
        }
    }
    for source in &sources {
        file_length::check(source, &mut findings);
        layout::check(source, &mut findings);
        layers::check(source, &config.layers, &mut findings);
        closed::check(source, &config.closed, &mut findings);
        banned::check(source, &mut findings);
        tuples::check(source, &mut findings);
    }
    function_length::check(&sources, &config.long_functions, &mut findings);
    unsafe_code::check(&sources, &config.unsafe_code, &mut findings);
    dead_files::check(&sources, &mut findings);
    type_names::check(&sources, &config.shared_names, &mut findings);
    document_names::check(&documents, &words, &config.foreign_names, &mut findings);
    documents::check(&documents, &paths, &sources, &config.document_limits, &mut findings);
    let targets = fs::read_to_string(root.join("fuzz/Cargo.toml")).context("fuzz/Cargo.toml")?;
    decoders::check(&sources, (&paths, &targets), &config.decoders, &mut findings);
    for (path, made) in reference::pages(root)? {
        if fs::read_to_string(root.join(path)).unwrap_or_default() != made {
            let advice = "the source says something else: run `cargo xtask reference`";
            findings.push(Finding::new(path, 1, "reference", advice));
        }
    }
    findings.sort();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        assert_eq!(check(&crate::root()).unwrap(), []);
    }
}
