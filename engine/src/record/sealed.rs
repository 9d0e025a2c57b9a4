//! Sealed bytes: magic, format version, checksum of the rest seeded with the version, and the rest.

use std::fmt::Display;
use std::path::PathBuf;

use super::{Reader, checksum, put_u32};
use crate::error::{Error, Mismatch};

/// The version of the on-media format. Each file says in which one it was written.
pub(crate) const FORMAT: u32 = 1;

/// The error for what another version of Terrace has written.
pub(crate) fn other_format(what: impl Display, version: u32) -> Error {
    Error::invalid(format!(
        "{what} has on-media format {version}, and this version of Terrace reads format {FORMAT} \
         alone; use the version that wrote it"
    ))
}

/// Magic, version and checksum.
const HEADER_LEN: usize = 16;

/// Why sealed bytes cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SealRefused {
    /// They have this version of the format, which is not known.
    Format(u32),
    Damaged(Mismatch),
}

impl SealRefused {
    /// The error, of `what` at the start of a file.
    pub(crate) fn error(self, what: &str, tier: &'static str, file: impl Into<PathBuf>) -> Error {
        let file = file.into();
        match self {
            SealRefused::Format(version) => {
                other_format(format_args!("the {what} {}", file.display()), version)
            }
            SealRefused::Damaged(found) => Error::corrupt(found.at(what, tier, file, 0)),
        }
    }
}

/// What is written as sealed bytes.
pub(crate) trait Sealable: Sized {
    const MAGIC: &'static [u8; 8];
    /// What it is, for messages.
    const WHAT: &'static str;

    /// Appends the rest.
    fn encode_rest(&self, out: &mut Vec<u8>);

    /// Reads the rest, all of it; `None` for what cannot be one.
    fn decode_rest(reader: &mut Reader<'_>) -> Option<Self>;

    fn encode(&self) -> Vec<u8> {
        let mut out = Self::MAGIC.to_vec();
        put_u32(&mut out, FORMAT);
        put_u32(&mut out, 0);
        self.encode_rest(&mut out);
        let sum = checksum(&[u64::from(FORMAT)], &out[HEADER_LEN..]);
        out[12..HEADER_LEN].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, SealRefused> {
        let damaged = |found| Err(SealRefused::Damaged(found));
        let mut reader = Reader::new(bytes);
        let header = (|| Some((reader.take(8)?, reader.u32()?, reader.u32()?)))();
        let Some((magic, version, sum)) = header else {
            let got = format!("{}", bytes.len());
            return damaged(Mismatch::new(format!("{HEADER_LEN} bytes or more"), got));
        };
        if magic != Self::MAGIC {
            let expected = format!("magic {}", Self::MAGIC.escape_ascii());
            return damaged(Mismatch::new(expected, magic.escape_ascii().to_string()));
        }
        let computed = checksum(&[u64::from(version)], &bytes[HEADER_LEN..]);
        if sum != computed {
            return damaged(Mismatch::checksum(sum, computed));
        }
        if version != FORMAT {
            return Err(SealRefused::Format(version));
        }
        match Self::decode_rest(&mut reader).filter(|_| reader.is_empty()) {
            Some(sound) => Ok(sound),
            None => damaged(Mismatch::new("fields that can be", "others, checksum and all")),
        }
    }
}
