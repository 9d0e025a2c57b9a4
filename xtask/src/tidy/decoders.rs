//! Bytes from a medium are tried by bad ones: each decoder of the engine has a fuzz target, and
//! each target a corpus to start from.

use super::Finding;
use super::config::Decoder;
use super::source::{Source, identifier};

const RULE: &str = "decoders";
const TARGETS: &str = "fuzz/fuzz_targets/";

/// Finds decoders without a target, and targets without a corpus or a place in the crate `fuzz`.
/// `paths` are all files of the repository, `crate_of_targets` is the text of its `Cargo.toml`.
pub(crate) fn check(
    sources: &[Source],
    (paths, crate_of_targets): (&[String], &str),
    listed: &[Decoder],
    findings: &mut Vec<Finding>,
) {
    for source in sources.iter().filter(|source| source.path.starts_with("engine/src/")) {
        let is_listed = listed.iter().any(|decoder| decoder.path == source.path);
        if let Some(line) = decoder_in(source).filter(|_| !is_listed) {
            let advice = "give it a target in engine/src/decoders, and list both as a [[decoder]] \
                          in tidy.toml";
            findings.push(Finding::new(&source.path, line, RULE, advice));
        }
    }
    let has = |path: &str| paths.iter().any(|known| known == path);
    for Decoder { path, target } in listed {
        let source = sources.iter().find(|source| source.path == *path);
        if source.and_then(decoder_in).is_none() {
            let advice = format!("{path} decodes nothing: remove it from the list");
            findings.push(Finding::new("tidy.toml", 1, RULE, advice));
        }
        if !has(&format!("{TARGETS}{target}.rs")) {
            let advice = format!("{path} has no target: write {TARGETS}{target}.rs");
            findings.push(Finding::new("tidy.toml", 1, RULE, advice));
        }
    }
    for path in paths {
        let target = path.strip_prefix(TARGETS).and_then(|name| name.strip_suffix(".rs"));
        let Some(target) = target else { continue };
        if !paths.iter().any(|known| known.starts_with(&format!("fuzz/corpus/{target}/"))) {
            let advice = format!("it has no corpus: `cargo xtask corpora` makes {target}'s");
            findings.push(Finding::new(path, 1, RULE, advice));
        }
        if !crate_of_targets.contains(&format!("\"{target}\"")) {
            let advice = format!("name {target} as a [[bin]] in fuzz/Cargo.toml");
            findings.push(Finding::new(path, 1, RULE, advice));
        }
    }
}

/// The line of the first function that decodes.
fn decoder_in(source: &Source) -> Option<usize> {
    let functions = source.words("fn").map(|at| (at, source.code[at + "fn".len()..].trim_start()));
    let decoders = functions.filter(|(_, name)| identifier(name).starts_with("decode"));
    let mut lines = decoders.map(|(at, _)| source.line_of(at));
    lines.find(|line| !source.is_test_line(*line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], listed: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_string()).collect();
        let listed: Vec<Decoder> = listed
            .iter()
            .map(|(path, target)| Decoder { path: (*path).into(), target: (*target).into() })
            .collect();
        let mut findings = Vec::new();
        check(&sources, (&paths, "name = \"a\"\nname = \"b\""), &listed, &mut findings);
        findings.into_iter().map(|finding| finding.advice).collect()
    }

    const DECODES: (&str, &str) = ("engine/src/a.rs", "fn decode(bytes: &[u8]) {}");
    const TARGET: (&str, &str) = ("fuzz/fuzz_targets/a.rs", "");
    const CORPUS: (&str, &str) = ("fuzz/corpus/a/1", "");

    #[test]
    fn a_decoder_with_target_and_corpus_is_fine() {
        assert!(found(&[DECODES, TARGET, CORPUS], &[("engine/src/a.rs", "a")]).is_empty());
        let in_tests = ("engine/src/b.rs", "#[cfg(test)]\nmod tests { fn decode() {} }");
        assert!(found(&[in_tests, ("cli/src/c.rs", "fn decode() {}")], &[]).is_empty());
    }

    #[test]
    fn a_decoder_without_either_is_found() {
        let listed = [("engine/src/a.rs", "a")];
        assert!(found(&[DECODES, TARGET, CORPUS], &[])[0].contains("give it a target"));
        assert!(found(&[DECODES, CORPUS], &listed)[0].contains("has no target"));
        assert!(found(&[DECODES, TARGET], &listed)[0].contains("no corpus"));
    }

    #[test]
    fn what_is_listed_or_built_for_nothing_is_found() {
        let nothing = found(&[TARGET, CORPUS], &[("engine/src/a.rs", "a")]);
        assert!(nothing[0].contains("decodes nothing"));
        let unknown = [("fuzz/fuzz_targets/c.rs", ""), ("fuzz/corpus/c/1", "")];
        assert!(found(&unknown, &[])[0].contains("[[bin]]"));
    }
}
