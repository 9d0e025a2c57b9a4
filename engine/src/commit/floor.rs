//! F, the floor, and the GIDX words: what recovery may take for granted (`docs/format.md`).

use smallvec::SmallVec;

use super::group::Few;
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::record::{LSN_MAX, Lsn, Reader, checksum, put_u64};
use crate::pm::{Dirty, Geometry, LINE, Region, STREAM_SLOTS, Span};

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
    pub(crate) fn load(region: &Region) -> Result<(Floor, Option<Damage>)> {
        let read = |slot: u64| {
            let at = Geometry::floor_slot(slot);
            let what = || format!("floor slot {}", ["A", "B"][slot as usize]);
            Floor::decode(region.bytes(at, LINE)).map_err(|found| region.damage(at, what(), found))
        };
        match (read(0), read(1)) {
            (Ok(a), Ok(b)) => Ok((if a.number > b.number { a } else { b }, None)),
            (Ok(floor), Err(mut damage)) | (Err(mut damage), Ok(floor)) => {
                // In a file the slot's sector is written whole (invariant 3).
                let may_be_torn = region.is_persistent_memory();
                damage.got += if may_be_torn { ", or a power cut has torn it" } else { "" };
                Ok((floor, Some(damage)))
            }
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

// The floor writer: what the floor may say, and what it says on the media.
//
// Thread safety: behind one mutex, which is held for a few instructions. In `file` mode the
// publisher stores the floor into its run; on persistent memory the next group's thread does, so
// that one fence serves both. Until that sync or fence the floor is *on its way*, and the mutex
// is free: a thread that has stored the floor may be stopped and holds up no other. Any thread may
// write, or flush and fence, what another one has stored. A thread that needs the floor on the
// media does.
//
// Invariants:
//
// 1. `durable` is durable in all streams, and `tails` are where they ended with it. So F and the
//    GIDX words that are stored from here were true before (`docs/commit.md`).
// 2. F never falls.
// 3. On persistent memory the next floor is not stored while one is on its way: a slot is never
//    overwritten before the other one is on the media. (In a file a slot is a part of one sector,
//    so it is there as it was or as it will be.)
// 4. What it knows to be on the media is at most what is there: F there is no lower, and the words
//    there are those or later ones of the same streams.

/// Where each stream ends, by stream.
pub(super) type Tails = SmallVec<[Option<Gidx>; 4]>;

/// Moves a stream's tail.
pub(super) fn set_tail(tails: &mut Tails, stream: u32, tail: Gidx) {
    let stream = stream as usize;
    if tails.len() <= stream {
        tails.resize(stream + 1, None);
    }
    tails[stream] = Some(tail);
}

fn tail_of(tails: &Tails, stream: usize) -> Option<Gidx> {
    tails.get(stream).copied().flatten()
}

/// Forgets the tails of streams.
pub(super) fn forget(tails: &mut Tails, streams: &[u32]) {
    for &stream in streams {
        if let Some(tail) = tails.get_mut(stream as usize) {
            *tail = None;
        }
    }
}

/// A floor that was stored: the number of its writing, and F.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredFloor {
    pub(super) number: u64,
    pub(super) lsn: Lsn,
}

/// A floor that was stored, with the words as they were then.
#[derive(Clone, Debug)]
struct Stored {
    number: u64,
    lsn: Lsn,
    journal: JournalMark,
    words: Tails,
}

/// The floor writer.
#[derive(Debug)]
pub(super) struct FloorWriter {
    /// Known to be on the media (invariant 4).
    there: Stored,
    /// The first one that was stored after it, if any.
    coming: Option<Stored>,
    /// On the media, or on its way there.
    floor: Floor,
    /// The GIDX words there.
    words: Tails,
    /// What was stored last, and is pending until it is on the media.
    stored: Few<Span>,
    durable: Lsn,
    tails: Tails,
    incarnation: u64,
    journal: JournalMark,
}

impl FloorWriter {
    /// The writer of a floor that an opening has just written.
    pub(super) fn new(floor: Floor, tails: Tails, incarnation: u64) -> FloorWriter {
        let (durable, journal) = (floor.lsn, floor.journal);
        let (words, stored) = (tails.clone(), Few::new());
        let there = Stored { number: floor.number, lsn: floor.lsn, journal, words: tails.clone() };
        let coming = None;
        FloorWriter { there, coming, floor, words, stored, durable, tails, incarnation, journal }
    }

    /// Takes note of what is durable (invariant 1), unless more is known.
    pub(super) fn note_durable(&mut self, durable: Lsn, tails: &Tails) {
        if durable >= self.durable {
            self.durable = durable;
            self.tails.clone_from(tails);
        }
    }

    /// What it knows to be durable.
    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    /// Takes note of how much of the journal is durable. Threads may come in any order, and what is
    /// durable stays so: a floor that named an earlier epoch might name a journal that is gone.
    pub(super) fn note_journal(&mut self, mark: JournalMark) {
        self.journal = self.journal.max(mark);
    }

    /// The floor that was stored last.
    pub(super) fn last_stored(&self) -> StoredFloor {
        StoredFloor { number: self.floor.number, lsn: self.floor.lsn }
    }

    /// The number of the floor that was stored last.
    pub(super) fn number(&self) -> u64 {
        self.floor.number
    }

    /// Where it was stored, with its words.
    pub(super) fn stored(&self) -> &[Span] {
        &self.stored
    }

    /// Whether the floor, or a GIDX word, says less than it could.
    pub(super) fn lags(&self) -> bool {
        self.floor.lsn != self.durable
            || self.floor.journal != self.journal
            || self.moved().next().is_some()
    }

    /// Whether the floor is at least so many LSNs behind.
    pub(super) fn lags_by(&self, lsns: u64) -> bool {
        self.durable - self.floor.lsn >= lsns
    }

    /// The streams whose words do not say where their tails are.
    fn moved(&self) -> impl Iterator<Item = usize> {
        let streams = self.tails.len().max(self.words.len());
        (0..streams).filter(|&stream| tail_of(&self.tails, stream) != tail_of(&self.words, stream))
    }

    /// Stores the floor, and the GIDX words that moved, if it lags.
    pub(super) fn store(&mut self, region: &Region) -> Few<Dirty> {
        let mut dirty = Few::new();
        if !self.lags() {
            return dirty;
        }
        debug_assert!(self.durable >= self.floor.lsn, "the floor never falls (invariant 2)");
        self.floor = Floor {
            number: self.floor.number + 1,
            lsn: self.durable,
            incarnation: self.incarnation,
            journal: self.journal,
        };
        dirty.push(self.floor.store(region));
        dirty.extend(self.moved().map(|stream| match tail_of(&self.tails, stream) {
            Some(tail) => tail.store(region, stream as u32),
            None => Gidx::clear(region, stream as u32),
        }));
        self.words.clone_from(&self.tails);
        if self.coming.is_none() {
            self.coming = Some(self.last());
        }
        self.stored = dirty.iter().map(Dirty::span).collect();
        dirty
    }

    /// Forgets the tails of streams that will lose their last zones. Their words are cleared with
    /// the next floor, which has to be on the media before those zones are released.
    pub(super) fn forget(&mut self, streams: &[u32]) {
        forget(&mut self.tails, streams);
    }

    /// What was stored last.
    fn last(&self) -> Stored {
        let Floor { number, lsn, journal, .. } = self.floor;
        Stored { number, lsn, journal, words: self.words.clone() }
    }

    /// Notes that the floor of a number is on the media, and those before it.
    pub(super) fn mark_durable(&mut self, number: u64) {
        if let Some(coming) = self.coming.take_if(|coming| coming.number <= number) {
            debug_assert!(
                coming.lsn >= self.there.lsn && coming.number > self.there.number,
                "a later floor on the media is no lower (invariant 2)"
            );
            self.there = coming;
            if self.floor.number <= number {
                self.there = self.last();
            } else {
                self.coming = Some(self.last());
            }
        }
    }

    /// F on the media, as far as is known.
    pub(super) fn floor_on_media(&self) -> Lsn {
        self.there.lsn
    }

    /// Whether the floor on the media, with its words, allows the release of zones whose greatest
    /// LSN is `greatest`. The floor names the edits that freed them: an opening takes damage to
    /// others at the journal's end for an append that was torn.
    pub(super) fn lets_go(&self, zones: &[u32], greatest: Lsn) -> bool {
        let names = |tail: &Gidx| zones.contains(&tail.zone);
        self.there.lsn >= greatest
            && self.there.journal >= self.journal
            && !self.there.words.iter().flatten().any(names)
    }

    /// Whether the next floor's words name `zone`.
    pub(super) fn names(&self, zone: u32) -> bool {
        self.tails.iter().flatten().any(|tail| tail.zone == zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zone goes once F on the media has reached its greatest LSN, and no word there names it: a
    /// power cut brings that floor and those words back.
    #[test]
    fn a_zone_goes_when_the_floor_has_reached_it_and_no_word_names_it() {
        let floor = Floor { lsn: 5, ..Floor::default() };
        let mut tails = Tails::default();
        set_tail(&mut tails, 1, Gidx { zone: 3, tail: 4096 });
        let writer = FloorWriter::new(floor, tails, 1);
        let goes = |zones: &[u32], greatest| writer.lets_go(zones, greatest);
        assert_eq!([4, 5, 6].map(|greatest| goes(&[0, 1], greatest)), [true, true, false]);
        assert!(!goes(&[0, 3], 5), "stream 1 ends in zone 3");
    }

    /// Bug: rows vanished without a word. Cause: zones were released before the floor on the media
    /// named the edit that freed them. Where that edit was damaged later, an opening took it for a
    /// torn append. Fix: zones go once the floor names it.
    #[test]
    fn a_zone_goes_when_the_floor_names_the_edit_that_freed_it() {
        let floor = Floor { lsn: 5, ..Floor::default() };
        let mut writer = FloorWriter::new(floor, Tails::default(), 1);
        assert!(writer.lets_go(&[0], 5));
        writer.note_journal(JournalMark { epoch: 1, edit: 9 });
        assert!(!writer.lets_go(&[0], 5));
    }

    /// Bug: the floor could name less of the journal than before, also an epoch whose file was
    /// gone. Then no opening found the journal. Cause: two threads that had applied edits noted
    /// what was durable in the other order, and the later note counted. Fix: the greater mark
    /// counts.
    #[test]
    fn the_mark_of_the_journal_never_falls() {
        let at = |epoch, edit| JournalMark { epoch, edit };
        let floor = Floor { journal: at(2, 9), ..Floor::default() };
        let mut writer = FloorWriter::new(floor, Tails::default(), 1);
        for (noted, counts) in
            [(at(3, 10), at(3, 10)), (at(2, 9), at(3, 10)), (at(3, 11), at(3, 11))]
        {
            writer.note_journal(noted);
            assert_eq!(writer.journal, counts);
        }
    }
}
