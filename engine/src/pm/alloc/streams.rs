//! The pool of stream objects.

use super::segments::{Pool, PoolEntry};
use crate::base::error::{Error, Mismatch, Result};
use crate::base::record::{Reader, checksum, put_u32};
use crate::pm::{Dirty, Geometry, LINE, Region, STREAM_SLOTS};

const MAGIC: &[u8; 4] = b"TSTR";

/// Streams that a creation makes: the shared one, and the cleaner's.
const CREATED: u32 = 2;

/// Which tables append to a stream. A policy, not a format: records carry their table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// Every table that has no stream of its own.
    Shared,
    /// One busy table at a time.
    Own,
    /// None: the cleaner appends copies of records of any table.
    Cleaner,
}

impl StreamKind {
    fn number(self) -> u32 {
        match self {
            StreamKind::Shared => 1,
            StreamKind::Own => 2,
            StreamKind::Cleaner => 3,
        }
    }
}

/// A stream as the region describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamObject {
    pub(crate) stream: u32,
    pub(crate) generation: u32,
    pub(crate) kind: StreamKind,
}

impl StreamObject {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(LINE as usize);
        put_u32(&mut body, self.stream);
        put_u32(&mut body, self.generation);
        put_u32(&mut body, self.kind.number());
        body.resize(LINE as usize - 8, 0);
        let mut out = Vec::with_capacity(LINE as usize);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, checksum(&[u64::from(self.stream)], &body));
        out.extend_from_slice(&body);
        out
    }

    pub(crate) fn decode(bytes: &[u8], stream: u32) -> Option<StreamObject> {
        let mut r = Reader::new(bytes);
        let (magic, sum) = (r.take(4)?, r.u32()?);
        if magic != MAGIC || sum != checksum(&[u64::from(stream)], bytes.get(8..)?) {
            return None;
        }
        Some(StreamObject {
            stream: r.u32()?,
            generation: r.u32()?,
            kind: match r.u32()? {
                1 => StreamKind::Shared,
                2 => StreamKind::Own,
                3 => StreamKind::Cleaner,
                _ => return None,
            },
        })
    }
}

/// The pool of stream objects.
#[derive(Debug)]
pub(crate) struct StreamPool;

impl StreamPool {
    /// Writes an empty pool into a new region.
    pub(crate) fn format(region: &Region) -> Vec<Dirty> {
        (0..STREAM_SLOTS)
            .map(|stream| {
                let word = PoolEntry::default().encode(Pool::Streams, stream);
                region.store_word(Geometry::stream_entry(stream), word)
            })
            .collect()
    }

    /// Takes a free object for a stream. The caller persists what it returns in one go. Entry and
    /// object may land in any order: an entry without a sound object is a leak, and its number is
    /// the next one to be taken.
    pub(crate) fn take(region: &Region, object: &StreamObject) -> [Dirty; 2] {
        let entry = PoolEntry { persistent: true, in_use: false, generation: object.generation };
        [
            region.write(Geometry::stream_object(object.stream), &object.encode()),
            region.store_word(
                Geometry::stream_entry(object.stream),
                entry.encode(Pool::Streams, object.stream),
            ),
        ]
    }

    /// All streams of a region whose fixed parts are loaded.
    pub(crate) fn scan(region: &Region) -> Result<Vec<StreamObject>> {
        let found = (0..STREAM_SLOTS).map(|stream| StreamPool::find(region, stream));
        found.filter_map(Result::transpose).collect()
    }

    /// A stream of a region whose fixed parts are loaded, if it is there.
    pub(crate) fn find(region: &Region, stream: u32) -> Result<Option<StreamObject>> {
        let at = Geometry::stream_entry(stream);
        let entry = PoolEntry::decode(region.word(at), Pool::Streams, stream)
            .map_err(|e| damaged(region, at, "stream index entry", e))?;
        if !entry.persistent {
            return Ok(None);
        }
        let at = Geometry::stream_object(stream);
        let object = StreamObject::decode(region.bytes(at, LINE), stream);
        match object.filter(|o| o.generation == entry.generation) {
            Some(object) => Ok(Some(object)),
            None if StreamPool::may_be_cut_short(region, stream) => Ok(None),
            None => Err(damaged(region, at, "stream object", (0, 0))),
        }
    }

    /// Whether a stream without a sound object may be one that a cut left half made. Nothing was
    /// ever appended to it then, and none has come behind it. A creation makes the first two whole.
    fn may_be_cut_short(region: &Region, stream: u32) -> bool {
        let next = stream + 1;
        let is_last = next == STREAM_SLOTS || {
            let word = region.word(Geometry::stream_entry(next));
            PoolEntry::decode(word, Pool::Streams, next).is_ok_and(|entry| !entry.persistent)
        };
        stream >= CREATED && is_last && region.word(Geometry::gidx(stream)) == 0
    }
}

fn damaged(region: &Region, offset: u64, what: &str, sums: (u32, u32)) -> Error {
    Error::corrupt(region.damage(offset, what, Mismatch::checksum(sums.0, sums.1)))
}
