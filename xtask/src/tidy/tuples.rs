//! A parameter has a name for each of its parts: no function of the library takes a tuple of three
//! or more, or a tuple in a tuple.

use super::Finding;
use super::source::{Source, identifier, is_of_library, is_word};

const RULE: &str = "tuple-parameter";

/// Finds tuples among the parameters of functions outside tests.
pub(crate) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if !is_of_library(&source.path) {
        return;
    }
    for at in source.words("fn") {
        let name = identifier(source.code[at + "fn".len()..].trim_start());
        let line = source.line_of(at);
        if name.is_empty() || source.is_test_line(line) {
            continue;
        }
        let Some((end, _)) = source.body_or_end(at) else { continue };
        let signature = source.code[at..end].split("->").next().unwrap_or_default();
        let Some(open) = signature.find('(') else { continue };
        if has_large_tuple(&signature[open + 1..]) {
            let advice =
                format!("`{name}` takes a tuple of three, or one in another: name a struct");
            findings.push(Finding::new(&source.path, line, RULE, advice));
        }
    }
}

/// Whether the text has a tuple of three or more, or one within another. What follows a name is a
/// list of parameters.
fn has_large_tuple(text: &str) -> bool {
    // Of each parenthesis and bracket around the place: whether it is a tuple's, and its commas.
    let mut open: Vec<(bool, usize)> = Vec::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '<' | '{' => {
                let is_tuple = c == '(' && !is_word(before) && before != '>';
                if is_tuple && open.iter().any(|outer| outer.0 && outer.1 > 0) {
                    return true;
                }
                open.push((is_tuple, 0));
            }
            '>' if before == '-' || before == '=' => {}
            ')' | ']' | '>' | '}' => drop(open.pop()),
            ',' => {
                // A comma before the end separates nothing.
                let is_last = text[at + 1..].trim_start().starts_with([')', ']', '>', '}']);
                if let Some((is_tuple, commas)) = open.last_mut() {
                    *commas += usize::from(!is_last);
                    if *is_tuple && *commas >= 2 {
                        return true;
                    }
                }
            }
            _ => {}
        }
        before = c;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(text: &str) -> bool {
        let mut findings = Vec::new();
        check(&Source::new("engine/src/a.rs", text), &mut findings);
        !findings.is_empty()
    }

    #[test]
    fn a_tuple_of_three_and_one_in_another_are_found() {
        assert!(finds("fn a((b, c, d): (u8, u8, u8)) {}"));
        assert!(finds("fn a(b: &[(u8, u8, u8)]) {}"));
        assert!(finds("fn a(b: (u8, Option<(u8, u8)>)) {}"));
        assert!(finds("fn a<T>(\n    self,\n    (b, (c, d)): (T, (T, T)),\n) -> u8 {}"));
    }

    #[test]
    fn pairs_and_parameters_of_functions_are_free() {
        assert!(!finds("fn a((b, c): (u8, u8), d: (u8, u8,)) -> (u8, u8, u8) {}"));
        assert!(!finds("fn a(b: impl Fn(u8, u8, u8) -> u8, c: &(dyn Fn(u8, u8, u8) + Sync)) {}"));
        assert!(!finds("fn a(b: fn(u8, u8, u8), c: HashMap<u8, (u8, u8)>, d: [u8; 3]) {}"));
        assert!(!finds("#[cfg(test)]\nmod tests {\n    fn a(b: (u8, u8, u8)) {}\n}"));
    }
}
