//! Values that a job writes again, in the order of its records. Of value extents that are objects
//! it reads pieces of many values: a request for each value would take its latency as often.
//!
//! Values lie in the order of their keys, so those of one value extent come one behind the other.
//! A job may go through several of them at a time.

use bytes::Bytes;

use super::{HEADER_LEN, ValueExtent};
use crate::base::error::Result;
use crate::base::memory::Holding;
use crate::base::record::Reference;
use crate::sstable::frame;
use crate::storage::Reading;

/// Bytes of a piece, or of one value that has more.
const PIECE: u32 = 1024 * 1024;

/// Pieces of all value extents have so many bytes, or as many as the job may read ahead. Beyond
/// that the one that was used longest ago goes.
const MOST: u64 = 16 * 1024 * 1024;

/// A piece has one part in so many of them.
const SHARE: u64 = 4;

/// What a job has read of value extents.
#[derive(Debug, Default)]
pub(super) struct ValuePieces {
    /// One of each value extent, the one that was used last at the end.
    pieces: Vec<ValuePiece>,
}

/// Values that were read at once.
#[derive(Debug)]
struct ValuePiece {
    extent: u64,
    offset: u32,
    bytes: Bytes,
    _held: Holding,
    /// The next one, on its way.
    coming: Option<(Reading, Holding)>,
}

impl ValuePieces {
    /// The bytes of the value that a reference leads to, still sealed. They are not checked yet.
    /// The reference leads inside.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the object is lost; or on an I/O error.
    pub(super) fn bytes(&mut self, source: &ValueExtent, at: &Reference) -> Result<Bytes> {
        let number = self.pieces.iter().position(|piece| piece.extent == at.extent);
        let before = number.map(|number| self.pieces.remove(number));
        let piece = match before {
            Some(piece) if piece.has(at).is_some() => piece,
            before => {
                let most = source.store.memory().job_ahead().min(MOST);
                self.make_room(most);
                ValuePiece::read(source, at, (before.and_then(|piece| piece.coming), most))?
            }
        };
        let bytes = piece.has(at).unwrap_or_default();
        debug_assert_eq!(bytes.len(), at.len as usize, "a piece has what it was read for");
        self.pieces.push(piece);
        Ok(bytes)
    }

    /// Drops pieces, so that there is room for another one.
    fn make_room(&mut self, most: u64) {
        let bytes = |piece: &ValuePiece| {
            let coming = piece.coming.as_ref().map_or(0, |(reading, _)| reading.range().1);
            piece.bytes.len() as u64 + u64::from(coming)
        };
        let mut all: u64 = self.pieces.iter().map(bytes).sum();
        let mut gone = 0;
        for piece in &self.pieces {
            if all + most / SHARE * 2 <= most {
                break;
            }
            all -= bytes(piece);
            gone += 1;
        }
        self.pieces.drain(..gone);
    }
}

impl ValuePiece {
    /// The piece that begins with a value: the one that is on its way, if that has the value.
    fn read(
        source: &ValueExtent,
        at: &Reference,
        (coming, most): (Option<(Reading, Holding)>, u64),
    ) -> Result<ValuePiece> {
        let memory = source.store.memory();
        let len = |from: u32, least: u32| {
            let piece = u32::try_from(most / SHARE).unwrap_or(PIECE).min(PIECE).max(least);
            piece.min(source.meta.values_end() - from)
        };
        let has_it = |(reading, _): &(Reading, Holding)| {
            let (from, len) = reading.range();
            from <= at.offset && at.offset + at.len <= from + len
        };
        let (offset, bytes, held) = match coming.filter(has_it) {
            Some((reading, held)) => (reading.range().0, source.store.end_read(reading)?, held),
            None => {
                let len = len(at.offset, at.len);
                let held = memory.jobs.hold(u64::from(len));
                (at.offset, source.store.read(&source.meta.location, at.offset, len)?, held)
            }
        };
        let (extent, bytes) = (at.extent, Bytes::from(bytes));
        let mut piece = ValuePiece { extent, offset, bytes, _held: held, coming: None };
        let next = piece.behind_whole_values();
        // The next value may be as long as this one.
        let has_room = at.len <= len(next, 0);
        if source.store.reads_behind() && has_room && next < source.meta.values_end() {
            let len = len(next, 0);
            let reading = source.store.ask(&source.meta.location, next, len)?;
            piece.coming = Some((reading, memory.jobs.hold(u64::from(len))));
        }
        Ok(piece)
    }

    /// The bytes of a value, if they are here.
    fn has(&self, at: &Reference) -> Option<Bytes> {
        let from = at.offset.checked_sub(self.offset)? as usize;
        let to = from + at.len as usize;
        (to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }

    /// Where the last value ends that is here whole, by the lengths that are there.
    fn behind_whole_values(&self) -> u32 {
        let mut end = 0;
        while let Some((len, _)) = self.bytes.get(end..).and_then(frame::lens_of) {
            let next = end + HEADER_LEN + len as usize;
            if next > self.bytes.len() {
                break;
            }
            end = next;
        }
        self.offset + end as u32
    }
}
