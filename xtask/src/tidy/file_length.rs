//! A file is one idea: at most so many lines outside tests.

use super::{Finding, source::Source};

const LIMIT: usize = 600;

/// Finds files that are too long.
pub(crate) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source.lines().filter(|(line, ..)| !source.is_test_line(*line)).count();
    if lines > LIMIT {
        let advice = format!("{lines} lines outside tests, at most {LIMIT}: split it by idea");
        findings.push(Finding::new(&source.path, 1, "file-length", advice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &mut findings);
        findings.len()
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(findings("a/src/x.rs", &"x\n".repeat(LIMIT)), 0);
        assert_eq!(findings("a/src/x.rs", &"x\n".repeat(LIMIT + 1)), 1);
    }

    #[test]
    fn tests_do_not_count() {
        let long = "x\n".repeat(LIMIT + 1);
        assert_eq!(findings("a/src/tests.rs", &long), 0);
        assert_eq!(findings("a/tests/x.rs", &long), 0);
        assert_eq!(findings("a/src/x.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")), 0);
    }
}
