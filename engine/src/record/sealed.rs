//! Sealed bytes: magic, format version, checksum of the rest seeded with the version, and the rest.

use std::fmt::Display;

use super::{Reader, checksum, put_u32};
use crate::error::Error;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealRefused {
    /// They have this version of the format, which is not known.
    Format(u32),
    Damaged,
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
        let damaged = SealRefused::Damaged;
        let mut reader = Reader::new(bytes.strip_prefix(Self::MAGIC).ok_or(damaged)?);
        let (version, sum) = reader.u32().zip(reader.u32()).ok_or(damaged)?;
        if sum != checksum(&[u64::from(version)], &bytes[HEADER_LEN..]) {
            return Err(damaged);
        }
        if version != FORMAT {
            return Err(SealRefused::Format(version));
        }
        Self::decode_rest(&mut reader).filter(|_| reader.is_empty()).ok_or(damaged)
    }
}
