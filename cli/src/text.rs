//! Keys and values as people type and read them.

use std::ffi::OsStr;
use std::fmt::Write;

pub(crate) use terrace_monitor::units::{grouped, size};

use crate::failure::Failure;

/// How keys and values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As text; what is no text as `\xNN`.
    Text,
    /// As hexadecimal digits.
    Hex,
}

impl Encoding {
    /// The bytes that an argument stands for.
    pub(crate) fn parse(self, argument: &OsStr) -> Result<Vec<u8>, Failure> {
        match self {
            Encoding::Text => Ok(argument.as_encoded_bytes().to_vec()),
            Encoding::Hex => from_hex(argument.as_encoded_bytes()).ok_or_else(|| {
                let argument = argument.to_string_lossy();
                Failure::Invalid(format!("`{argument}` is not an even number of hex digits"))
            }),
        }
    }

    /// The bytes of a name that can be typed again: a backslash is escaped too.
    pub(crate) fn name(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Text => escape(bytes, |c| c.is_control() || c == '\\'),
            Encoding::Hex => to_hex(bytes),
        }
    }

    /// The bytes that a name stands for, as [`name`](Encoding::name) writes them.
    pub(crate) fn parse_name(self, argument: &OsStr) -> Result<Vec<u8>, Failure> {
        if self == Encoding::Hex {
            return self.parse(argument);
        }
        unescape(argument.as_encoded_bytes()).ok_or_else(|| {
            let argument = argument.to_string_lossy();
            Failure::Invalid(format!(
                "`{argument}` has a backslash that begins no escape; there are \\\\ for a \
                 backslash, \\n, \\r, \\t and \\xNN"
            ))
        })
    }

    /// The bytes on one line: control characters are escaped too.
    pub(crate) fn line(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Text => escape(bytes, char::is_control),
            Encoding::Hex => to_hex(bytes),
        }
    }

    /// The bytes as a text of any number of lines. JSON escapes control characters itself.
    pub(crate) fn whole(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Text => escape(bytes, |_| false),
            Encoding::Hex => to_hex(bytes),
        }
    }

    /// The same for a terminal, which other control characters than ends of lines and tabs change.
    pub(crate) fn on_terminal(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Text => escape(bytes, |c| c.is_control() && !matches!(c, '\n' | '\t')),
            Encoding::Hex => to_hex(bytes),
        }
    }
}

/// Text with the characters that are chosen, and bytes that are none, as `\xNN`.
pub(crate) fn escape(bytes: &[u8], is_escaped: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    let hex = |out: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // Writing to a string cannot fail.
            write!(out, "\\x{byte:02x}").unwrap_or_default();
        }
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' if is_escaped(c) => out.push_str("\\n"),
                '\r' if is_escaped(c) => out.push_str("\\r"),
                '\t' if is_escaped(c) => out.push_str("\\t"),
                c if is_escaped(c) => hex(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        hex(&mut out, chunk.invalid());
    }
    out
}

fn unescape(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    while let Some((&byte, behind)) = text.split_first() {
        let (byte, behind) = match (byte, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) => {
                (*from_hex(&[*high, *low])?.first()?, behind)
            }
            (b'\\', [code, behind @ ..]) => {
                let codes = [(b'\\', b'\\'), (b'n', b'\n'), (b'r', b'\r'), (b't', b'\t')];
                (codes.iter().find(|(of, _)| of == code)?.1, behind)
            }
            (b'\\', []) => return None,
            plain => plain,
        };
        out.push(byte);
        text = behind;
    }
    Some(out)
}

fn to_hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(out, "{byte:02x}").unwrap_or_default();
    }
    out
}

/// The bytes of hexadecimal digits.
pub(crate) fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

/// A number of things, one or several.
pub(crate) fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { several })
}

/// At most `width` characters of a line, the last one showing that there is more.
pub(crate) fn clipped(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_prints_as_it_is_and_the_rest_escaped() {
        assert_eq!(Encoding::Text.line("é\"\\".as_bytes()), "é\"\\");
        assert_eq!(Encoding::Text.line(b"a\nb\tc\0\xff"), "a\\nb\\tc\\x00\\xff");
        assert_eq!(Encoding::Text.whole(b"a\nb\xff"), "a\nb\\xff");
        let sent = b"a\n\tb\x1b[31m\x07\r\xff";
        assert_eq!(Encoding::Text.on_terminal(sent), "a\n\tb\\x1b[31m\\x07\\r\\xff");
        assert_eq!(Encoding::Text.whole(sent), "a\n\tb\x1b[31m\x07\r\\xff");
    }

    #[test]
    fn names_go_both_ways() {
        let name = b"a\\x\n\xff\x1b\xc3\xa9\x7f\\";
        for encoding in [Encoding::Text, Encoding::Hex] {
            let shown = encoding.name(name);
            assert!(!shown.chars().any(char::is_control));
            assert_eq!(encoding.parse_name(OsStr::new(&shown)).unwrap(), name);
        }
        assert_eq!(Encoding::Text.parse_name(OsStr::new("\\\\\\t\\x41")).unwrap(), b"\\\tA");
        for broken in ["\\", "a\\", "\\q", "\\x4", "\\x4g"] {
            assert!(Encoding::Text.parse_name(OsStr::new(broken)).is_err());
        }
    }

    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(Encoding::Hex.line(b"a\xff"), "61ff");
        assert_eq!(Encoding::Hex.parse(OsStr::new("61Ff")).unwrap(), b"a\xff");
        assert!(Encoding::Hex.parse(OsStr::new("61f")).is_err());
        assert!(Encoding::Hex.parse(OsStr::new("zz")).is_err());
        assert_eq!(Encoding::Hex.parse(OsStr::new("")).unwrap(), b"");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(counted(1, "loss", "losses"), "1 loss");
        assert_eq!(counted(0, "loss", "losses"), "0 losses");
        assert_eq!(counted(4321, "loss", "losses"), "4,321 losses");
        assert_eq!(clipped("abcdef", 4), "abc…");
        assert_eq!(clipped("abcd", 4), "abcd");
    }
}
