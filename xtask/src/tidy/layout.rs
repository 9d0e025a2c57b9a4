//! How the text is laid out: no separator lines in comments, no tabs, no white space at line
//! ends, no line over the limit.

use super::{Finding, source::Source};

const COLUMNS: usize = 100;
const RULE: &str = "layout";

/// Finds lines that are laid out badly.
pub(crate) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let mut report =
        |line: usize, advice: &str| findings.push(Finding::new(&source.path, line, RULE, advice));
    for (number, start, line) in source.lines() {
        if line.contains('\t') {
            report(number, "indent with spaces, and write a tab in a string as \\t");
        }
        if line.ends_with([' ', '\t', '\r']) {
            report(number, "remove the white space at the end of the line");
        }
        // An address cannot be broken.
        if line.chars().count() > COLUMNS && !line.contains("://") {
            report(number, "break the line: more than 100 columns");
        }
        let indent = line.len() - line.trim_start().len();
        if source.is_comment(start + indent) && is_separator(line) {
            report(number, "remove the separator: a file that needs one is two files");
        }
    }
}

/// Whether a comment is a rule across the page, bare or around a title.
fn is_separator(line: &str) -> bool {
    let is_rule = |c: char| "-=_*#~─━═".contains(c);
    let text = line.trim().trim_start_matches(['/', '!']).trim();
    let text = text.trim_start_matches("* ").trim_end_matches("*/").trim();
    let leading = text.chars().take_while(|&c| is_rule(c)).count();
    let trailing = text.chars().rev().take_while(|&c| is_rule(c)).count();
    leading >= 3 && trailing >= 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Source::new("a.rs", text), &mut findings);
        findings.len()
    }

    #[test]
    fn separators_are_found() {
        assert_eq!(found(&format!("// {}", "-".repeat(9))), 1);
        assert_eq!(found(&format!("    // {0} title {0}", "=".repeat(9))), 1);
        assert_eq!(found(&format!("/*{}*/", "*".repeat(9))), 1);
    }

    #[test]
    fn tables_lists_and_strings_are_no_separators() {
        assert_eq!(found("//! | a | b |\n//! |---|---|\n// - item\n/// # Errors"), 0);
        assert_eq!(found("//   ---> a then b"), 0);
        assert_eq!(found("let a = \"\n// -----\n\";"), 0);
        assert_eq!(found("///\n//!\n//"), 0);
    }

    #[test]
    fn white_space_and_width() {
        assert_eq!(found("a \nb\tc\n"), 2);
        assert_eq!(found(&"é".repeat(COLUMNS)), 0);
        assert_eq!(found(&"é".repeat(COLUMNS + 1)), 1);
        assert_eq!(found(&format!("// https://{}", "x".repeat(COLUMNS))), 0);
    }
}
