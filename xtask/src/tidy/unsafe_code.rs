//! `unsafe` stays in the places that `tidy.toml` lists, and says at each use why it is sound.

use super::Finding;
use super::config::UnsafeCode;
use super::source::{Source, identifier};

const RULE: &str = "unsafe";

/// Finds `unsafe` out of its places, or without a reason, and places that hold none.
pub(crate) fn check(sources: &[Source], allowed: &[UnsafeCode], findings: &mut Vec<Finding>) {
    let mut needed = vec![false; allowed.len()];
    for source in sources {
        for at in source.words("unsafe") {
            let line = source.line_of(at);
            match allowed.iter().position(|place| is_under(&source.path, &place.path)) {
                Some(place) => needed[place] = true,
                None => findings.push(Finding::new(
                    &source.path,
                    line,
                    RULE,
                    "write it in safe code, or list the file in tidy.toml with a reason",
                )),
            }
            if needs_reason(source, at) && !has_reason(source, line) {
                let advice = "say above it, behind `// SAFETY:`, why it is sound";
                findings.push(Finding::new(&source.path, line, RULE, advice));
            }
        }
    }
    for (place, _) in allowed.iter().zip(needed).filter(|(_, needed)| !needed) {
        let advice = format!("{} holds no `unsafe`: remove it from the list", place.path);
        findings.push(Finding::new("tidy.toml", 1, RULE, advice));
    }
}

/// Whether a path is `place`, or lies in the folder `place`.
pub(super) fn is_under(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Blocks and impls claim that something holds; functions and traits only ask for it.
fn needs_reason(source: &Source, at: usize) -> bool {
    let next = source.code[at + "unsafe".len()..].trim_start();
    next.starts_with('{') || identifier(next) == "impl"
}

/// Whether the comment above the statement that `line` belongs to gives the reason.
fn has_reason(source: &Source, line: usize) -> bool {
    let mut above = line;
    loop {
        if source.line(above).contains("SAFETY:") {
            return true;
        }
        above -= 1;
        if above == 0 {
            return false;
        }
        let code = source.code_line(above).trim();
        let is_blank = source.line(above).trim().is_empty();
        let ends_another = code.ends_with([';', '{', '}', ',']);
        if is_blank || ends_another {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let mut findings = Vec::new();
        let allowed = UnsafeCode { path: "engine/src/pm".into(), reason: "stores".into() };
        check(&[Source::new("engine/src/pm/x.rs", text)], &[allowed], &mut findings);
        findings.len()
    }

    #[test]
    fn a_reason_is_asked_for() {
        assert_eq!(found("fn a() {\n    unsafe { b() }\n}"), 1);
        assert_eq!(found("fn a() {\n    // SAFETY: it is.\n    unsafe { b() }\n}"), 0);
        assert_eq!(found("// SAFETY: it is,\n// indeed.\n#[x]\nunsafe impl Send for A {}"), 0);
        assert_eq!(found("// SAFETY: it is.\nlet x =\n    unsafe { b() };"), 0);
        assert_eq!(found("// SAFETY: it is.\na();\nunsafe { b() };"), 1);
    }

    #[test]
    fn an_unsafe_function_is_a_question_not_a_claim() {
        assert_eq!(found("unsafe fn a() {}"), 0);
    }

    #[test]
    fn other_places_are_found_and_so_are_empty_ones() {
        let mut findings = Vec::new();
        let allowed = UnsafeCode { path: "engine/src/pm".into(), reason: "stores".into() };
        let source = Source::new("engine/src/pm2.rs", "unsafe fn a() {}\n// unsafe\n");
        check(&[source], &[allowed], &mut findings);
        let places: Vec<&str> = findings.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(places, ["engine/src/pm2.rs", "tidy.toml"]);
    }
}
