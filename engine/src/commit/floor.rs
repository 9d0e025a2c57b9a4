//! F, the floor, and the GIDX words: what recovery may take for granted (`docs/format.md`).

use crate::error::{Damage, Error, Mismatch, Result};
use crate::pm::{Dirty, Geometry, LINE, Region, STREAM_SLOTS};
use crate::record::{LSN_MAX, Lsn, Reader, checksum, put_u64};

/// How much of the journal is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JournalMark {
    pub(crate) epoch: u64,
    pub(crate) edit: u64,
}

/// The floor as one slot states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    /// Number of the writing; its lowest bit is the slot.
    pub(crate) number: u64,
    /// F.
    pub(crate) lsn: Lsn,
    pub(crate) incarnation: u64,
    pub(crate) journal: JournalMark,
}

const SUM_AT: usize = 60;

impl Floor {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LINE as usize);
        put_u64(&mut out, self.number);
        put_u64(&mut out, self.lsn);
        put_u64(&mut out, self.incarnation);
        put_u64(&mut out, self.journal.epoch);
        put_u64(&mut out, self.journal.edit);
        out.resize(SUM_AT, 0);
        let sum = checksum(&[], &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Floor, Mismatch> {
        let fields = |bytes: &[u8]| {
            let mut r = Reader::new(bytes);
            let floor = Floor {
                number: r.u64()?,
                lsn: r.u64()?,
                incarnation: r.u64()?,
                journal: JournalMark { epoch: r.u64()?, edit: r.u64()? },
            };
            r.take(SUM_AT - 40)?;
            Some((floor, r.u32()?))
        };
        let (floor, sum) =
            fields(bytes).ok_or_else(|| Mismatch::new("64 bytes", format!("{}", bytes.len())))?;
        let computed = checksum(&[], &bytes[..SUM_AT]);
        if sum != computed {
            return Err(Mismatch::checksum(sum, computed));
        }
        if floor.lsn == LSN_MAX {
            return Err(Mismatch::new("an LSN that has a next one", format!("F = {LSN_MAX}")));
        }
        Ok(floor)
    }

    /// Stores the floor in the slot that its number names. Written only after the sync or fence
    /// that made it true.
    pub(crate) fn store(&self, region: &Region) -> Dirty {
        region.store_words(Geometry::floor_slot(self.number % 2), &self.encode())
    }

    /// The floor of a region whose fixed parts are loaded, and what is wrong with the other slot.
    ///
    /// # Errors
    ///
    /// `Corrupt` when neither slot is sound.
    pub(crate) fn load(region: &Region) -> Result<(Floor, Option<Damage>)> {
        let read = |slot: u64| {
            let at = Geometry::floor_slot(slot);
            let what = || format!("floor slot {}", ["A", "B"][slot as usize]);
            Floor::decode(region.bytes(at, LINE)).map_err(|found| region.damage(at, what(), found))
        };
        match (read(0), read(1)) {
            (Ok(a), Ok(b)) => Ok((if a.number > b.number { a } else { b }, None)),
            (Ok(floor), Err(damage)) | (Err(damage), Ok(floor)) => Ok((floor, Some(damage))),
            (Err(damage), Err(_)) => Err(Error::corrupt(damage)),
        }
    }
}

/// The bits of a GIDX word that check the others.
const CHECK: u64 = 0xff_ffff;

/// A stream's tail as of the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gidx {
    pub(crate) zone: u32,
    /// Offset in the zone, a multiple of 64.
    pub(crate) tail: u64,
}

impl Gidx {
    /// Stores the word of `stream`.
    pub(crate) fn store(self, region: &Region, stream: u32) -> Dirty {
        region.store_word(Geometry::gidx(stream), self.encode(stream))
    }

    /// The word on media.
    pub(crate) fn encode(self, stream: u32) -> u64 {
        debug_assert!(self.tail.is_multiple_of(LINE), "sub-entries are aligned to lines");
        let place = ((u64::from(self.zone) << 20) | (self.tail / LINE)) << 24;
        place | check(stream, place)
    }

    /// The tail in a word; `None` when there is none, the word's check and that of its bits if
    /// they differ.
    pub(crate) fn decode(word: u64, stream: u32) -> std::result::Result<Option<Gidx>, (u64, u64)> {
        if word == 0 {
            return Ok(None);
        }
        let (place, sum) = (word & !CHECK, word & CHECK);
        let computed = check(stream, place);
        if sum != computed {
            return Err((sum, computed));
        }
        let place = place >> 24;
        Ok(Some(Gidx { zone: (place >> 20) as u32, tail: (place & 0xf_ffff) * LINE }))
    }

    /// Stores that `stream` has no tail: all its zones are gone.
    pub(crate) fn clear(region: &Region, stream: u32) -> Dirty {
        region.store_word(Geometry::gidx(stream), 0)
    }

    /// The word of `stream`; `None` when it has no tail.
    ///
    /// # Errors
    ///
    /// `Corrupt` when the word does not check out.
    pub(crate) fn load(region: &Region, stream: u32) -> Result<Option<Gidx>> {
        debug_assert!(stream < STREAM_SLOTS, "streams are numbered below STREAM_SLOTS");
        let at = Geometry::gidx(stream);
        Gidx::decode(region.word(at), stream).map_err(|(sum, computed)| {
            let found = Mismatch::new(format!("check {sum:06x}"), format!("{computed:06x}"));
            Error::corrupt(region.damage(at, format!("GIDX word of stream {stream}"), found))
        })
    }
}

fn check(stream: u32, place: u64) -> u64 {
    u64::from(checksum(&[u64::from(stream), place >> 24], &[])) & CHECK
}
