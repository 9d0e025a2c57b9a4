//! A Rust source file as the rules see it: its text, and the same text with comments and
//! literals blanked, byte for byte, so that neither can fool a rule.

use super::scan::{self, Class};

/// One Rust file, scanned once and read by every rule.
pub(crate) struct Source {
    /// Path from the root of the repository, with `/`.
    pub(crate) path: String,
    /// The text as it is.
    pub(crate) text: String,
    /// The text with comments and literals blanked; offsets and lines stay the same.
    pub(crate) code: String,
    /// For each line, whether it belongs to tests.
    test_lines: Vec<bool>,
    /// Offset at which each line starts.
    line_starts: Vec<usize>,
    classes: Vec<Class>,
}

/// Whether a file is of the library: of the engine, or of a crate below it.
pub(crate) fn is_of_library(path: &str) -> bool {
    ["engine/src/", "crates/"].iter().any(|root| path.starts_with(root))
}

impl Source {
    /// Scans a file.
    pub(crate) fn new(path: &str, text: &str) -> Source {
        let classes = scan::classify(text);
        let code = scan::blank(text, &classes);
        let line_starts: Vec<usize> =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
            test_lines: vec![is_test_file(path); line_starts.len()],
            code,
            line_starts,
            classes,
        };
        source.mark_inline_tests();
        source
    }

    /// The line, from 1, of an offset.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }

    /// Whether a line, counted from 1, belongs to tests.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    /// Whether the byte at an offset lies in a comment.
    pub(crate) fn is_comment(&self, offset: usize) -> bool {
        self.classes.get(offset) == Some(&Class::Comment)
    }

    /// The lines of the text, numbered from 1, each with the offset of its start.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, usize, &str)> {
        let starts = self.line_starts.iter().copied();
        starts.zip(self.text.lines()).enumerate().map(|(n, (start, line))| (n + 1, start, line))
    }

    /// The text of one line, counted from 1.
    pub(crate) fn line(&self, line: usize) -> &str {
        self.slice_line(&self.text, line)
    }

    /// The blanked text of one line, counted from 1.
    pub(crate) fn code_line(&self, line: usize) -> &str {
        self.slice_line(&self.code, line)
    }

    fn slice_line<'a>(&self, of: &'a str, line: usize) -> &'a str {
        let start = self.line_starts[line - 1];
        let end = self.line_starts.get(line).map_or(of.len(), |next| next - 1);
        &of[start..end]
    }

    /// Offsets in the code at which `word` stands as a whole word.
    pub(crate) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
            let before = self.code[..at].chars().next_back();
            let after = self.code[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    }

    /// The offset just behind the brace that closes the one at `open`.
    pub(crate) fn behind_closing(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (at, byte) in self.code.bytes().enumerate().skip(open) {
            match byte {
                b'{' => depth += 1,
                b'}' if depth <= 1 => return at + 1,
                b'}' => depth -= 1,
                _ => {}
            }
        }
        self.code.len()
    }

    /// The first `{` or `;` from `from` on that stands outside parentheses and brackets.
    pub(crate) fn body_or_end(&self, from: usize) -> Option<(usize, u8)> {
        let mut depth = 0_usize;
        for (at, byte) in self.code.bytes().enumerate().skip(from) {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth = depth.saturating_sub(1),
                b'{' | b';' if depth == 0 => return Some((at, byte)),
                _ => {}
            }
        }
        None
    }

    /// Marks the lines of every item under `#[cfg(test)]`.
    fn mark_inline_tests(&mut self) {
        let attributes: Vec<usize> = ["#[cfg(test)]", "#[cfg(all(test,"]
            .iter()
            .flat_map(|attribute| self.code.match_indices(attribute).map(|(at, _)| at))
            .collect();
        for at in attributes {
            let behind = at + self.code[at..].find(']').map_or(0, |end| end + 1);
            let end = match self.body_or_end(behind) {
                Some((open, b'{')) => self.behind_closing(open),
                Some((end, _)) => end + 1,
                None => self.code.len(),
            };
            let (first, last) = (self.line_of(at), self.line_of(end.saturating_sub(1)));
            self.test_lines[first - 1..last].fill(true);
        }
    }
}

/// Whether a character can be part of an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The identifier at the start of a text; empty if there is none.
pub(crate) fn identifier(text: &str) -> &str {
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    &text[..end]
}

/// Whether a whole file is test code.
pub(crate) fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let folders = path.split('/').rev().skip(1);
    name == "tests.rs" || folders.into_iter().any(|f| f == "tests" || f == "benches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_tests_are_marked() {
        let source =
            Source::new("a/src/x.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n  {}\n}\nfn b() {}\n");
        let marked: Vec<bool> = (1..=6).map(|line| source.is_test_line(line)).collect();
        assert_eq!(marked, [false, true, true, true, true, false]);
    }

    #[test]
    fn a_test_module_in_its_own_file_marks_one_item() {
        let source = Source::new("a/src/x.rs", "#[cfg(test)]\nmod tests;\nfn b() {}\n");
        assert!(source.is_test_line(2));
        assert!(!source.is_test_line(3));
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        assert!(is_test_file("engine/tests/a.rs"));
        assert!(is_test_file("engine/src/pm/tests.rs"));
        assert!(!is_test_file("engine/src/tests_of_time.rs"));
    }

    #[test]
    fn words_are_whole() {
        let source = Source::new("x.rs", "unsafe not_unsafe unsafely (unsafe)");
        assert_eq!(source.words("unsafe").collect::<Vec<_>>(), [0, 28]);
    }

    #[test]
    fn lines_and_offsets_agree() {
        let source = Source::new("x.rs", "a\nbb\nccc");
        assert_eq!(source.line_of(0), 1);
        assert_eq!(source.line_of(2), 2);
        assert_eq!(source.line_of(6), 3);
        assert_eq!(source.line(2), "bb");
        assert_eq!(source.line(3), "ccc");
    }
}
