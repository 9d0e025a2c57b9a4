//! A function fits on a screen: at most so many lines outside tests, or an exception in
//! `tidy.toml` that says why. An exception that nothing needs is itself a finding.

use super::config::LongFunction;
use super::source::{Source, identifier};
use super::{Finding, config};

const LIMIT: usize = 70;
const RULE: &str = "function-length";

/// Finds functions that are too long, and exceptions that nothing needs.
pub(crate) fn check(sources: &[Source], allowed: &[LongFunction], findings: &mut Vec<Finding>) {
    let mut needed = vec![false; allowed.len()];
    for source in sources {
        for function in functions(source).filter(|function| function.lines > LIMIT) {
            let exception = allowed
                .iter()
                .position(|long| long.path == source.path && long.name == function.name);
            match exception {
                Some(at) => needed[at] = true,
                None => findings.push(Finding::new(
                    &source.path,
                    function.line,
                    RULE,
                    format!(
                        "`{}` has {} lines, at most {LIMIT}: split it",
                        function.name, function.lines
                    ),
                )),
            }
        }
    }
    for (config::LongFunction { path, name, .. }, _) in
        allowed.iter().zip(needed).filter(|(_, needed)| !needed)
    {
        let advice = format!("`{name}` of {path} is no longer too long: remove the exception");
        findings.push(Finding::new("tidy.toml", 1, RULE, advice));
    }
}

struct Function<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
}

/// The functions of a file that have a body and stand outside tests.
fn functions(source: &Source) -> impl Iterator<Item = Function<'_>> {
    source.words("fn").filter_map(|at| {
        let behind = at + "fn".len();
        let name = identifier(source.code[behind..].trim_start());
        let line = source.line_of(at);
        // Without a name it is the type of a function pointer.
        if name.is_empty() || source.is_test_line(line) {
            return None;
        }
        let (open, b'{') = source.body_or_end(behind)? else { return None };
        let last = source.line_of(source.behind_closing(open) - 1);
        Some(Function { name, line, lines: last - line + 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long(x: [u8; 2]) -> fn() {{\n{}}}\n", "    x(\"}\");\n".repeat(lines - 2))
    }

    fn found(path: &str, text: &str, allowed: &[LongFunction]) -> Vec<Finding> {
        let mut findings = Vec::new();
        check(&[Source::new(path, text)], allowed, &mut findings);
        findings
    }

    fn exception() -> LongFunction {
        LongFunction { path: "a.rs".into(), name: "long".into(), reason: "a table".into() }
    }

    #[test]
    fn long_functions_are_found() {
        assert_eq!(found("a.rs", &function(LIMIT), &[]), []);
        assert_eq!(found("a.rs", &function(LIMIT + 1), &[])[0].line, 1);
        assert_eq!(found("a/tests/a.rs", &function(LIMIT + 1), &[]), []);
    }

    #[test]
    fn declarations_have_no_length() {
        assert_eq!(found("a.rs", &format!("fn declared();\n{}", "\n".repeat(99)), &[]), []);
    }

    #[test]
    fn exceptions_hold_and_grow_stale() {
        assert_eq!(found("a.rs", &function(LIMIT + 1), &[exception()]), []);
        let stale = found("a.rs", &function(LIMIT), &[exception()]);
        assert_eq!(stale[0].path, "tidy.toml");
    }
}
