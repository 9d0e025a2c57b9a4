//! A small scanner that tells code from comments and literals. It knows just enough of Rust's
//! lexical grammar for that: nested comments, raw strings, lifetimes beside character literals.

/// What a byte of a source file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Anything that the compiler reads as tokens.
    Code,
    /// A comment, documentation included.
    Comment,
    /// The inside of a string or character literal, its quotes included.
    Literal,
}

/// The class of every byte.
pub(crate) fn classify(text: &str) -> Vec<Class> {
    let bytes = text.as_bytes();
    let mut classes = vec![Class::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (class, end) = token(bytes, at);
        classes[at..end].fill(class);
        at = end;
    }
    classes
}

/// The text with everything but code replaced by spaces; line ends stay.
pub(crate) fn blank(text: &str, classes: &[Class]) -> String {
    let kept = |at: usize| classes[at] == Class::Code;
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if c == '\n' || kept(at) {
            out.push(c);
        } else {
            // As many spaces as the character has bytes, so that offsets stay the same.
            out.extend(std::iter::repeat_n(' ', c.len_utf8()));
        }
    }
    out
}

/// The class of what starts at `at`, and where it ends.
fn token(bytes: &[u8], at: usize) -> (Class, usize) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        return (Class::Comment, at + end);
    }
    if rest.starts_with(b"/*") {
        return (Class::Comment, at + block_comment(rest));
    }
    match rest[0] {
        b'"' => (Class::Literal, at + quoted(rest, b'"')),
        b'\'' => match character(rest) {
            Some(length) => (Class::Literal, at + length),
            // A lifetime or a label.
            None => (Class::Code, at + 1),
        },
        first if first.is_ascii_alphabetic() || first == b'_' => word(bytes, at),
        _ => (Class::Code, at + 1),
    }
}

/// A word is code, unless it is the prefix of a string: `r"…"`, `br#"…"#`, `b"…"`, `c"…"`.
fn word(bytes: &[u8], at: usize) -> (Class, usize) {
    let rest = &bytes[at..];
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii();
    let length = rest.iter().position(|b| !is_part(b)).unwrap_or(rest.len());
    let after = &rest[length..];
    match &rest[..length] {
        b"r" | b"br" | b"cr" => match raw(after) {
            Some(raw) => (Class::Literal, at + length + raw),
            None => (Class::Code, at + length),
        },
        b"b" | b"c" if after.first() == Some(&b'"') => {
            (Class::Literal, at + length + quoted(after, b'"'))
        }
        _ => (Class::Code, at + length),
    }
}

/// The length of a block comment, which may hold others.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of a literal with escapes, from its opening quote on.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a raw string behind its prefix letters, or `None` for a raw identifier.
fn raw(after: &[u8]) -> Option<usize> {
    let hashes = after.iter().position(|&b| b != b'#')?;
    if after.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &after[hashes + 1..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(end.map_or(after.len(), |end| hashes + 1 + end + close.len()))
}

/// The length of a character literal, or `None` if the quote starts a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    match rest.get(1)? {
        b'\\' => Some(quoted(rest, b'\'')),
        b'\'' | b'\n' => None,
        &first => {
            let width = match first {
                0x00..=0x7f => 1,
                0x80..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xff => 4,
            };
            (rest.get(1 + width) == Some(&b'\'')).then_some(2 + width)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let blanked = blank(text, &classify(text));
        assert_eq!(blanked.len(), text.len());
        blanked.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blanked() {
        assert_eq!(code("a // unsafe\nb /* x /* y */ z */ c"), "a b c");
        assert_eq!(code("a /* never closed"), "a");
    }

    #[test]
    fn strings_are_blanked() {
        assert_eq!(code(r#"f("unsafe \" {", 'x')"#), "f( , )");
        assert_eq!(code(r#"b"{" + c"}" + x"#), "+ + x");
    }

    #[test]
    fn raw_strings_end_at_their_hashes() {
        assert_eq!(code(r###"r#"a " b"# + r"\" + br##"x"# y"## + z"###), "+ + + z");
    }

    #[test]
    fn raw_identifiers_are_code() {
        assert_eq!(code("r#match + for_r"), "r#match + for_r");
    }

    #[test]
    fn lifetimes_are_code() {
        assert_eq!(code("fn a<'a>(x: &'a str) -> &'static str"), {
            "fn a<'a>(x: &'a str) -> &'static str"
        });
        assert_eq!(code("'outer: loop {}"), "'outer: loop {}");
    }

    #[test]
    fn character_literals_are_blanked() {
        assert_eq!(code(r"['{', '\'', '\\', '\u{7d}', 'é', '漢', b'}']"), "[ , , , , , , b ]");
        assert_eq!(code("('\"', 1)"), "( , 1)");
    }

    #[test]
    fn a_string_over_lines_keeps_them() {
        let text = "\"a\nb\"\nc";
        assert_eq!(blank(text, &classify(text)), "  \n  \nc");
    }
}
