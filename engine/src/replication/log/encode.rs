//! The bytes of entries that are appended: a header, and a body that is compressed where that makes
//! it shorter. The writer keeps the memory of its compressor.

use std::fmt;

use super::entry::{Entry, EntryBody, EntryKind, HEADER_LEN, MAGIC, MOST_BYTES, encode_body};
use super::groups::SegmentGroups;
use crate::error::{Error, ErrorKind, Result};
use crate::record::{FORMAT, Lsn, checksum, put_u32, put_u64};

/// Zstandard's level: the fastest that is worth it.
const LEVEL: i32 = 1;

/// Bodies below it are not compressed.
const LEAST_TO_COMPRESS: usize = 256;

/// The body of an entry that is to be appended. The groups of a segment are encoded as they come.
#[derive(Debug)]
pub(crate) enum NewBody {
    Segment(SegmentGroups),
    Other(EntryBody),
}

impl From<EntryBody> for NewBody {
    fn from(body: EntryBody) -> NewBody {
        NewBody::Other(body)
    }
}

impl NewBody {
    pub(super) fn kind(&self) -> EntryKind {
        match self {
            NewBody::Segment(_) => EntryKind::Segment,
            NewBody::Other(body) => body.kind(),
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        match self {
            NewBody::Segment(groups) => groups.into_bytes(),
            NewBody::Other(body) => encode_body(&body),
        }
    }
}

/// Compresses the bodies of a writer's entries, in memory that it has once.
#[derive(Default)]
pub(super) struct EntryCompressor(Option<zstd::bulk::Compressor<'static>>);

impl fmt::Debug for EntryCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntryCompressor")
    }
}

impl EntryCompressor {
    /// Appends what `body` is compressed to; whether that is shorter. If not, `out` is as before.
    fn append(&mut self, out: &mut Vec<u8>, body: &[u8]) -> bool {
        if body.len() < LEAST_TO_COMPRESS {
            return false;
        }
        if self.0.is_none() {
            self.0 = zstd::bulk::Compressor::new(LEVEL).ok();
        }
        let Some(compressor) = &mut self.0 else { return false };
        let before = out.len();
        // One byte less: what is as long is no gain.
        out.resize(before + body.len() - 1, 0);
        let len = compressor.compress_to_buffer(body, &mut out[before..]);
        out.truncate(before + *len.as_ref().unwrap_or(&0));
        len.is_ok()
    }
}

/// The fields of an entry that is to be encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewHead {
    pub(super) number: u64,
    pub(super) claim: u64,
    pub(super) checkpoint: u64,
    pub(super) first: Lsn,
    pub(super) last: Lsn,
    pub(super) kind: EntryKind,
}

impl NewHead {
    /// The bytes of the object with this body.
    ///
    /// # Errors
    ///
    /// `Full` if the body is too long.
    pub(super) fn encode(self, body: &[u8], compressor: &mut EntryCompressor) -> Result<Vec<u8>> {
        if body.len() > MOST_BYTES as usize {
            let len = body.len();
            let message = format!("an entry of the log takes {MOST_BYTES} bytes, not {len}");
            return Err(Error::new(ErrorKind::Full, message));
        }
        let mut out = Vec::with_capacity(HEADER_LEN + body.len());
        out.resize(HEADER_LEN, 0);
        let is_smaller = compressor.append(&mut out, body);
        if !is_smaller {
            out.extend_from_slice(body);
        }
        let (compression, stored) = (if is_smaller { 2 } else { 0 }, &out[HEADER_LEN..]);
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend_from_slice(MAGIC);
        put_u32(&mut header, FORMAT);
        put_u32(&mut header, 0);
        put_u32(&mut header, checksum(&[self.number], stored));
        header.extend_from_slice(&[self.kind as u8, compression, 0, 0]);
        put_u32(&mut header, body.len() as u32);
        put_u32(&mut header, stored.len() as u32);
        for field in [self.number, self.claim, self.checkpoint, self.first, self.last] {
            put_u64(&mut header, field);
        }
        debug_assert_eq!(header.len(), HEADER_LEN, "a header has a fixed length");
        let sum = checksum(&[u64::from(FORMAT), self.number], &header[16..]);
        header[12..16].copy_from_slice(&sum.to_le_bytes());
        out[..HEADER_LEN].copy_from_slice(&header);
        Ok(out)
    }
}

impl Entry {
    /// The bytes of the object.
    ///
    /// # Errors
    ///
    /// `Full` if the body is too long.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let Entry { number, claim, checkpoint, first, last, ref body } = *self;
        let head = NewHead { number, claim, checkpoint, first, last, kind: body.kind() };
        head.encode(&encode_body(body), &mut EntryCompressor::default())
    }
}
