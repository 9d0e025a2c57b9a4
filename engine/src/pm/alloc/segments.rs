//! Where pools of objects get their memory: segments of a region.
//!
//! The index entry that every pool has for each of its objects: one self-checking word.

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::{Reader, checksum, put_u32, put_u64};
use crate::os::sync::locks::Mutex;
use crate::pm::{LINE, Region, Span};

const MAGIC: &[u8; 4] = b"TSEG";

/// What a pool puts at the start of a segment that it takes (`docs/format.md`, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Which of its owner's pools has the segment.
    pub(crate) pool: u32,
    /// Bytes in an object.
    pub(crate) object: u32,
    /// How many there are.
    pub(crate) count: u32,
}

impl SegmentHeader {
    /// The first line of the segment at `at`.
    pub(crate) fn encode(&self, at: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(LINE as usize);
        put_u32(&mut body, self.pool);
        put_u32(&mut body, self.object);
        put_u32(&mut body, self.count);
        put_u32(&mut body, 0);
        put_u64(&mut body, at);
        body.resize(LINE as usize - 8, 0);
        let mut out = Vec::with_capacity(LINE as usize);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, checksum(&[at], &body));
        out.extend_from_slice(&body);
        out
    }

    /// Reads the first line of the segment at `at`; `None` when no pool has it.
    pub(crate) fn decode(bytes: &[u8], at: u64) -> Option<SegmentHeader> {
        let mut r = Reader::new(bytes);
        let (magic, sum) = (r.take(4)?, r.u32()?);
        if magic != MAGIC || sum != checksum(&[at], bytes.get(8..)?) {
            return None;
        }
        Some(SegmentHeader { pool: r.u32()?, object: r.u32()?, count: r.u32()? })
    }
}

/// A part of a region that is handed out in segments of one length.
pub(crate) trait Segments: Send + Sync + std::fmt::Debug {
    /// Takes a free segment. `write` makes its header durable, and from then on it is the caller's.
    /// No other thread takes one meanwhile.
    ///
    /// # Errors
    ///
    /// `Full` when there is none, and what `write` gives: then the segment is still free.
    fn take(&self, write: &mut dyn FnMut(u64) -> Result<()>) -> Result<u64>;

    /// Makes sure that so many more can be taken.
    fn reserve(&self, segments: u64) -> Result<()>;

    /// How many are taken.
    fn count(&self) -> u64;

    /// The segments that were taken before, with their headers, at open.
    fn taken(&self) -> Vec<(u64, SegmentHeader)>;

    /// The segment that holds an offset.
    fn segment_of(&self, at: u64) -> u64;

    /// The length of each.
    fn len(&self) -> u64;
}

/// All of a region from some offset on, in order: the memory of a region that serves one owner.
#[derive(Debug)]
pub(crate) struct Slices {
    region: Arc<Region>,
    start: u64,
    len: u64,
    count: u64,
    /// Segments from this one on were never taken.
    next: Mutex<u64>,
    /// The headers of those that were taken before, at open.
    found: Vec<(u64, SegmentHeader)>,
}

impl Slices {
    /// `count` segments of `len` bytes from `start` on. Reads the header of each that was taken,
    /// and the rest of it, from the media.
    pub(crate) fn open(region: &Arc<Region>, start: u64, len: u64, count: u64) -> Result<Slices> {
        debug_assert!(start.is_multiple_of(LINE) && len.is_multiple_of(LINE), "whole lines");
        let region = Arc::clone(region);
        let mut slices =
            Slices { region, start, len, count, next: Mutex::new(0), found: Vec::new() };
        // They are taken in order, each durably before the next.
        for next in 0..count {
            let at = slices.at(next);
            if at + len > slices.region.len() {
                break;
            }
            slices.region.load(Span { at, len: LINE })?;
            let Some(header) = slices.header(at) else { break };
            slices.region.load(Span { at, len })?;
            slices.found.push((at, header));
        }
        // The process that took the last one may have been killed before that was durable.
        if let Some((at, _)) = slices.found.last() {
            let header = slices.region.rewrite(Span { at: *at, len: LINE });
            slices.region.persist([header])?;
        }
        *slices.next.get_mut() = slices.found.len() as u64;
        Ok(slices)
    }

    fn at(&self, segment: u64) -> u64 {
        self.start + segment * self.len
    }

    /// Has the region be long enough for so many segments, and for some more if it has to grow.
    fn grow(&self, segments: u64) -> Result<()> {
        if self.at(segments) <= self.region.len() {
            return Ok(());
        }
        let len = self.at((segments + segments / 4 + 1).min(self.count));
        self.region.grow(len, &|| true)
    }

    fn all_taken(&self) -> Error {
        Error::new(
            ErrorKind::Full,
            format!(
                "all {} segments of {} KiB of {} are taken",
                self.count,
                self.len / 1024,
                self.region.path().display()
            ),
        )
    }

    fn header(&self, at: u64) -> Option<SegmentHeader> {
        SegmentHeader::decode(self.region.bytes(at, LINE), at)
    }
}

impl Segments for Slices {
    fn take(&self, write: &mut dyn FnMut(u64) -> Result<()>) -> Result<u64> {
        let mut next = self.next.lock();
        if *next == self.count {
            return Err(self.all_taken());
        }
        let segment = self.at(*next);
        self.grow(*next + 1)?;
        write(segment)?;
        *next += 1;
        Ok(segment)
    }

    fn reserve(&self, segments: u64) -> Result<()> {
        let next = self.next.lock();
        let needed = *next + segments;
        if needed > self.count {
            return Err(self.all_taken());
        }
        self.grow(needed)
    }

    fn count(&self) -> u64 {
        *self.next.lock()
    }

    fn taken(&self) -> Vec<(u64, SegmentHeader)> {
        self.found.clone()
    }

    fn segment_of(&self, at: u64) -> u64 {
        debug_assert!(at >= self.start, "offset {at} lies before the segments");
        self.at((at - self.start) / self.len)
    }

    fn len(&self) -> u64 {
        self.len
    }
}

const PERSISTENT: u64 = 1 << 63;
const IN_USE: u64 = 1 << 62;
const GENERATION_BITS: u32 = 30;

/// Which pool an entry belongs to; seeds its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Streams = 1,
    Zones = 2,
    Objects = 3,
}

/// The state of one object of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolEntry {
    /// The object is taken.
    pub(crate) persistent: bool,
    /// Records were, or were about to be, appended (zones).
    pub(crate) in_use: bool,
    /// How often the object was released before.
    pub(crate) generation: u32,
}

impl PoolEntry {
    /// The entry after a release: free, a generation further. The generation wraps after 2³⁰
    /// releases of one object, which the incarnation in each sub-entry survives.
    pub(crate) fn released(self) -> PoolEntry {
        let generation = (self.generation + 1) % (1 << GENERATION_BITS);
        PoolEntry { persistent: false, in_use: false, generation }
    }

    /// The word on media.
    pub(crate) fn encode(self, pool: Pool, index: u32) -> u64 {
        debug_assert!(self.generation < 1 << GENERATION_BITS, "generations wrap in 30 bits");
        let mut word = u64::from(self.generation) << 32;
        if self.persistent {
            word |= PERSISTENT;
        }
        if self.in_use {
            word |= IN_USE;
        }
        word | u64::from(check(pool, index, word))
    }

    /// The entry in a word; the expected and the found checksum if it does not check out.
    pub(crate) fn decode(
        word: u64,
        pool: Pool,
        index: u32,
    ) -> std::result::Result<PoolEntry, (u32, u32)> {
        let (sum, computed) = (word as u32, check(pool, index, word));
        if sum != computed {
            return Err((sum, computed));
        }
        Ok(PoolEntry {
            persistent: word & PERSISTENT != 0,
            in_use: word & IN_USE != 0,
            generation: (word >> 32) as u32 & ((1 << GENERATION_BITS) - 1),
        })
    }
}

fn check(pool: Pool, index: u32, word: u64) -> u32 {
    checksum(&[pool as u64, u64::from(index), word >> 32], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let entry = PoolEntry { persistent: true, in_use: false, generation: 77 };
        let word = entry.encode(Pool::Zones, 4);
        assert_eq!(PoolEntry::decode(word, Pool::Zones, 4), Ok(entry));
        for bit in 0..64 {
            assert!(PoolEntry::decode(word ^ 1 << bit, Pool::Zones, 4).is_err(), "bit {bit}");
        }
        assert!(PoolEntry::decode(word, Pool::Zones, 5).is_err(), "another zone's entry");
        assert!(PoolEntry::decode(word, Pool::Streams, 4).is_err(), "another pool's entry");
    }
}
