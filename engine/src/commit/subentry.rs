//! The sub-entry header: what one commit group appended to one stream (`docs/format.md`).

use std::sync::Arc;

use crate::base::error::Mismatch;
use crate::base::options::Failpoint;
use crate::base::record::{LSN_MAX, Lsn, Reader, checksum, put_u32, put_u64};
use crate::memtable::record_at;
use crate::mvcc::is_pinned;
use crate::os::sync::shared::ArcSwap;
use crate::pm::alloc::{ZONE_HEADER, ZoneHeader, ZonePool};
use crate::pm::{Geometry, LINE, Region};

/// Bytes before the payload.
pub(crate) const SUB_HEADER: usize = 64;

const MAGIC: &[u8; 4] = b"TSUB";

/// What the records of a sub-entry are. The numbers are on media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Content {
    /// A commit's.
    #[default]
    Commit = 0,
    /// Copies made by the cleaner, which keep the sequence numbers that they have, all below the
    /// LSN.
    Moved = 1,
    /// Those of a transaction that is prepared: they count for no reader.
    Prepared = 2,
}

impl Content {
    fn from_u8(n: u8) -> Option<Content> {
        [Content::Commit, Content::Moved, Content::Prepared].into_iter().find(|c| *c as u8 == n)
    }
}

/// A sub-entry's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubEntry {
    pub(crate) lsn: Lsn,
    pub(crate) incarnation: u64,
    pub(crate) zone_generation: u32,
    pub(crate) payload_len: u32,
    pub(crate) payload_sum: u32,
    /// How many sub-entries the LSN has.
    pub(crate) count: u16,
    /// Which of them this is.
    pub(crate) index: u16,
    pub(crate) records: u32,
    pub(crate) stream: u32,
    pub(crate) content: Content,
    /// Whether every record puts or deletes one key of a table: none is the engine's own, none is a
    /// range delete.
    pub(crate) is_plain: bool,
    /// Every LSN up to here was durable when this was written.
    pub(crate) durable: Lsn,
}

/// Where the low bytes of the salt lie in a header.
pub(crate) const SALT_AT: std::ops::Range<usize> = 50..56;

impl SubEntry {
    /// The header's bytes, for a place in `zone` where `salt` is in effect.
    pub(crate) fn encode(&self, zone: u32, salt: u64) -> [u8; SUB_HEADER] {
        let mut out = [0; SUB_HEADER];
        out[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        out[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        out[24..28].copy_from_slice(&self.zone_generation.to_le_bytes());
        out[28..32].copy_from_slice(&self.payload_len.to_le_bytes());
        out[32..36].copy_from_slice(&self.payload_sum.to_le_bytes());
        out[36..38].copy_from_slice(&self.count.to_le_bytes());
        out[38..40].copy_from_slice(&self.index.to_le_bytes());
        out[40..44].copy_from_slice(&self.records.to_le_bytes());
        out[44..48].copy_from_slice(&self.stream.to_le_bytes());
        out[48] = self.content as u8;
        out[49] = u8::from(self.is_plain);
        out[SALT_AT].copy_from_slice(&salt.to_le_bytes()[..SALT_AT.len()]);
        out[SALT_AT.end..].copy_from_slice(&self.durable.to_le_bytes());
        // The seed, where the magic and the checksum will be: one go over whole lines.
        out[..8].copy_from_slice(&header_seed(zone, salt).to_le_bytes());
        let sum = checksum(&[], &out);
        out[..4].copy_from_slice(MAGIC);
        out[4..8].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads a header at a place in `zone` where `salt` is in effect; what was expected and what
    /// was found if it does not check out.
    pub(crate) fn decode(
        bytes: &[u8],
        zone: u32,
        salt: u64,
    ) -> std::result::Result<SubEntry, Mismatch> {
        let short = || Mismatch::new("64 bytes", format!("{} bytes", bytes.len()));
        let mut r = Reader::new(bytes);
        let magic = r.take(4).ok_or_else(short)?;
        if magic != MAGIC {
            return Err(Mismatch::new("the magic TSUB", format!("{magic:02x?}")));
        }
        let sum = r.u32().ok_or_else(short)?;
        let body = bytes.get(8..SUB_HEADER).ok_or_else(short)?;
        let computed = checksum(&[header_seed(zone, salt)], body);
        if sum != computed {
            return Err(Mismatch::checksum(sum, computed));
        }
        let (found, own) = (&bytes[SALT_AT], &salt.to_le_bytes()[..SALT_AT.len()]);
        if found != own {
            return Err(Mismatch::new(format!("salt {own:02x?}"), format!("{found:02x?}")));
        }
        let mut fields = || {
            Some(SubEntry {
                lsn: r.u64()?,
                incarnation: r.u64()?,
                zone_generation: r.u32()?,
                payload_len: r.u32()?,
                payload_sum: r.u32()?,
                count: r.u16()?,
                index: r.u16()?,
                records: r.u32()?,
                stream: r.u32()?,
                content: Content::from_u8(r.u8()?)?,
                is_plain: r.u8()? == 1,
                durable: {
                    r.take(SALT_AT.len())?;
                    r.u64()?
                },
            })
        };
        // What was durable before it was written lies below its own LSN.
        let possible = fields().filter(|entry| entry.lsn < LSN_MAX && entry.durable <= entry.lsn);
        possible.ok_or_else(|| Mismatch::new("possible fields", "impossible ones"))
    }

    /// The checksum of a payload.
    pub(crate) fn payload_sum(lsn: Lsn, salt: u64, payload: &[u8]) -> u32 {
        checksum(&[lsn ^ salt], payload)
    }

    /// The checksum of the payload behind the room for a header, in which the seed is put.
    pub(crate) fn payload_sum_in(lsn: Lsn, salt: u64, bytes: &mut [u8]) -> u32 {
        bytes[SUB_HEADER - 8..SUB_HEADER].copy_from_slice(&(lsn ^ salt).to_le_bytes());
        checksum(&[], &bytes[SUB_HEADER - 8..])
    }
}

/// What the checksum of a header is seeded with.
fn header_seed(zone: u32, salt: u64) -> u64 {
    u64::from(zone) ^ salt
}

/// Walks the lines of a zone that lead to sub-entries: where it is, and the salt in effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk<'a> {
    region: &'a Region,
    geometry: Geometry,
    zone: u32,
    header: ZoneHeader,
    /// Offset in the zone.
    pub(super) at: u64,
    /// The salt in effect there.
    pub(super) salt: u64,
}

impl<'a> Walk<'a> {
    /// A walk from the first line behind a zone's header.
    pub(super) fn new(
        region: &'a Region,
        geometry: Geometry,
        (zone, header): (u32, ZoneHeader),
    ) -> Walk<'a> {
        Walk { region, geometry, zone, header, at: ZONE_HEADER, salt: header.salt }
    }

    /// The bytes at an offset in the zone.
    pub(super) fn bytes(&self, at: u64, len: u64) -> &'a [u8] {
        self.region.bytes(self.geometry.zone(self.zone) + at, len)
    }

    /// Passes lines in which openings have gone on, as long as there are any below `limit`.
    pub(super) fn pass_resumes(&mut self, limit: u64) {
        while self.at + RESUME as u64 <= limit
            && let Some(salt) = Resume::salt_behind(
                self.bytes(self.at, RESUME as u64),
                self.zone,
                &self.header,
                self.salt,
            )
        {
            self.at += RESUME as u64;
            self.salt = salt;
        }
    }

    /// The header of a sub-entry here; what was expected and what was found if there is none.
    pub(super) fn header(&self) -> std::result::Result<SubEntry, Mismatch> {
        SubEntry::decode(self.bytes(self.at, SUB_HEADER as u64), self.zone, self.salt)
    }

    /// Goes on behind a sub-entry with so long a payload.
    pub(super) fn pass(&mut self, payload_len: u32) {
        let len = SUB_HEADER as u64 + u64::from(payload_len);
        self.at = (self.at + len).next_multiple_of(LINE);
    }
}

/// The payload of a sub-entry: where it begins in its zone, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// The payloads in a sealed zone of a region that is open, all of which are whole.
pub(crate) fn payloads_of(
    region: &Region,
    geometry: Geometry,
    zone: u32,
) -> impl Iterator<Item = Payload> {
    let zone_at = geometry.zone(zone);
    let header = ZoneHeader::decode(region.bytes(zone_at, ZONE_HEADER), zone).ok();
    let mut walk = header.map(|header| Walk::new(region, geometry, (zone, header)));
    std::iter::from_fn(move || {
        let walk = walk.as_mut()?;
        let len = geometry.zone_len(walk.header.units);
        walk.pass_resumes(len);
        if walk.at + SUB_HEADER as u64 > len {
            return None;
        }
        // What an earlier use of the zone left behind has another generation.
        let is_own = |entry: &SubEntry| entry.zone_generation == walk.header.generation;
        let entry = walk.header().ok().filter(is_own)?;
        let at = walk.at + SUB_HEADER as u64;
        walk.pass(entry.payload_len);
        Some(Payload { at, len: u64::from(entry.payload_len) })
    })
}

// The line in which an opening goes on in a zone that an earlier one has left open.
//
// What lies behind the accepted sub-entries of an open zone may be anything that a crashed opening
// stored there, values included. It knew the salt in effect. So an opening that appends to the
// zone writes this line first, with a new salt: nothing that lies behind it checks out
// (`docs/commit.md`).

/// Bytes that it takes: one line.
pub(crate) const RESUME: usize = 64;

const RESUME_MAGIC: &[u8; 4] = b"TRES";

/// What the line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    /// The opening that wrote it.
    pub(crate) incarnation: u64,
    pub(crate) zone_generation: u32,
    pub(crate) stream: u32,
    /// The salt of the sub-entries behind it.
    pub(crate) salt: u64,
}

impl Resume {
    /// The bytes, for a place in `zone` where `before` is the salt in effect.
    pub(crate) fn encode(&self, zone: u32, before: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(RESUME);
        out.extend_from_slice(RESUME_MAGIC);
        put_u32(&mut out, 0);
        put_u64(&mut out, self.incarnation);
        put_u32(&mut out, self.zone_generation);
        put_u32(&mut out, self.stream);
        put_u64(&mut out, self.salt);
        put_u64(&mut out, before);
        out.resize(RESUME, 0);
        let sum = checksum(&[u64::from(zone)], &out[8..]);
        out[4..8].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the line; `None` if it is none, or not one of `zone` where `before` is the salt in
    /// effect.
    pub(crate) fn decode(bytes: &[u8], zone: u32, before: u64) -> Option<Resume> {
        let mut r = Reader::new(bytes);
        if r.take(4)? != RESUME_MAGIC
            || r.u32()? != checksum(&[u64::from(zone)], bytes.get(8..RESUME)?)
        {
            return None;
        }
        let resume = Resume {
            incarnation: r.u64()?,
            zone_generation: r.u32()?,
            stream: r.u32()?,
            salt: r.u64()?,
        };
        (r.u64()? == before && resume.salt != 0).then_some(resume)
    }

    /// The salt behind the line at the head of `bytes`, if it is one of the zone's own.
    fn salt_behind(bytes: &[u8], zone: u32, header: &ZoneHeader, before: u64) -> Option<u64> {
        let resume = Resume::decode(bytes, zone, before)?;
        let is_own = resume.zone_generation == header.generation && resume.stream == header.stream;
        is_own.then_some(resume.salt)
    }
}

// The blob that the last commit with one left: a position in another system's log, for example.
//
// A blob is a record of the engine's own in the group of its commit. It counts as living in its
// zone until a later commit with a blob is durable and visible, and yet another blob is noted. The
// cleaner carries it along like any other record.
//
// A reader names a moment and takes the blob of that moment in one call ([`Blobs::as_of`]). What
// it took stays readable while its thread is pinned. A snapshot keeps no blob: its owner takes it
// with the snapshot.
//
// Thread safety: every method takes `&self`. The list never changes: it is replaced as a whole,
// and a thread that finds another one was faster begins again. There is no lock: commits note
// their blobs between ticket and finish. A thread that is stopped there must not hold up earlier
// commits.
//
// Invariants:
//
// 1. `noted` ascends by LSN. It has the last one that is durable and visible, and all after it.
// 2. Each of `noted` counts as one living record in the zone that it lies in, but for those that
//    were just let go. Their zones stay until all pinned threads have left.

/// A blob that was noted: the LSN of its commit, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    lsn: Lsn,
    at: u64,
}

/// A list with one more, short of those that one at or below `settled` supersedes; and these.
fn with(noted: &[Noted], new: Noted, settled: Lsn) -> (Vec<Noted>, Vec<Noted>) {
    let mut list = noted.to_vec();
    list.insert(list.partition_point(|other| other.lsn < new.lsn), new);
    debug_assert!(list.is_sorted_by(|a, b| a.lsn < b.lsn), "they ascend (invariant 1)");
    let superseded = list.partition_point(|noted| noted.lsn <= settled).saturating_sub(1);
    let kept = list.split_off(superseded);
    (kept, list)
}

/// The last blobs of one database.
#[derive(Debug)]
pub(crate) struct Blobs {
    region: Arc<Region>,
    zones: Arc<ZonePool>,
    noted: ArcSwap<Vec<Noted>>,
}

impl Blobs {
    pub(super) fn new(region: Arc<Region>, zones: Arc<ZonePool>) -> Blobs {
        Blobs { region, zones, noted: ArcSwap::default() }
    }

    /// Takes note of the blob of commit `lsn`, which lies at `at` and counts in its zone; lets
    /// those go that one at or below `settled` supersedes, up to which all is durable and visible.
    pub(crate) fn note(&self, lsn: Lsn, at: u64, settled: Lsn) {
        let new = Noted { lsn, at };
        let before = self.noted.rcu(|noted| with(noted, new, settled).0);
        let (_, gone) = with(&before, new, settled);
        gone.into_iter().for_each(|gone| self.zones.sub_live(self.zones.zone_of(gone.at), 1));
    }

    /// The LSN that `moment` gives, up to which commits are seen, and the last blob at or below it.
    /// Takes no lock and allocates nothing. The caller is pinned while it uses the blob.
    ///
    /// `moment` may be asked several times. It never gives less than what was durable and visible
    /// before.
    pub(crate) fn as_of(&self, moment: impl Fn() -> Lsn) -> (Lsn, Option<Noted>) {
        loop {
            // First: what is seen was noted before.
            let lsn = moment();
            let noted = self.noted.load();
            let last = noted.iter().rev().find(|noted| noted.lsn <= lsn).copied();
            // One that was let go in between was superseded by one that the next moment has.
            let once = self.region.has(Failpoint::LookForBlobOnce);
            if last.is_some() || once || moment() == lsn {
                return (lsn, last);
            }
        }
    }

    /// A blob that was taken while this thread was pinned (invariant 2).
    pub(crate) fn read(&self, noted: Noted) -> Vec<u8> {
        debug_assert!(is_pinned(), "the zone of a blob stays while its reader is pinned");
        record_at(&self.region, noted.at).value.to_vec()
    }

    /// Whether the blob of commit `lsn` at `at` is noted.
    pub(crate) fn holds(&self, lsn: Lsn, at: u64) -> bool {
        self.noted.load().iter().any(|noted| noted.lsn == lsn && noted.at == at)
    }

    /// Has the blob of commit `lsn` be found at `to`, where it was copied to, instead of `from`;
    /// whether it was there.
    pub(crate) fn relocate(&self, lsn: Lsn, from: u64, to: u64) -> bool {
        let is_it = |noted: &Noted| noted.lsn == lsn && noted.at == from;
        let moved =
            |noted: &Noted| Noted { at: if is_it(noted) { to } else { noted.at }, ..*noted };
        let before = self.noted.rcu(|noted| noted.iter().map(moved).collect::<Vec<_>>());
        before.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: SubEntry = SubEntry {
        lsn: 9,
        incarnation: 2,
        zone_generation: 4,
        payload_len: 32,
        payload_sum: 1,
        count: 2,
        index: 1,
        records: 1,
        stream: 0,
        content: Content::Moved,
        is_plain: true,
        durable: 7,
    };

    #[test]
    fn every_flipped_byte_is_found() {
        let (zone, salt) = (3, 0x1122_3344_5566_7788);
        let sound = SAMPLE.encode(zone, salt);
        assert_eq!(SubEntry::decode(&sound, zone, salt), Ok(SAMPLE));
        assert!(SubEntry::decode(&sound, 4, salt).is_err(), "a copy in another zone");
        for bit in 0..64 {
            assert!(SubEntry::decode(&sound, zone, salt ^ 1 << bit).is_err(), "bit {bit}");
        }
        for at in 0..SUB_HEADER {
            let mut bytes = sound;
            bytes[at] ^= 8;
            assert!(SubEntry::decode(&bytes, zone, salt).is_err(), "byte {at}");
        }
    }

    /// Bug: recovery panicked on the greatest LSN there is, and on a stream that is not there.
    /// Cause: what a header says was believed once its checksum was right. Fix: this number has no
    /// next one and is refused here and in a floor; recovery looks at streams and seals first.
    #[test]
    fn the_greatest_lsn_is_none() {
        for (lsn, is_one) in [(LSN_MAX, false), (LSN_MAX - 1, true)] {
            let header = SubEntry { lsn, ..SAMPLE };
            assert_eq!(SubEntry::decode(&header.encode(3, 1), 3, 1).is_ok(), is_one);
        }
    }

    mod resume {
        use super::super::*;

        const SAMPLE: Resume = Resume { incarnation: 3, zone_generation: 4, stream: 0, salt: 5 };

        #[test]
        fn every_flipped_byte_is_found() {
            let sound = SAMPLE.encode(7, 9);
            assert_eq!(Resume::decode(&sound, 7, 9), Some(SAMPLE));
            assert_eq!(Resume::decode(&sound, 8, 9), None, "a copy in another zone");
            assert_eq!(Resume::decode(&sound, 7, 10), None, "another salt is in effect");
            for at in 0..RESUME {
                let mut bytes = sound.clone();
                bytes[at] ^= 1;
                assert_eq!(Resume::decode(&bytes, 7, 9), None, "byte {at}");
            }
        }
    }

    mod blobs {
        use std::cell::Cell;

        use super::super::super::tests::Fixture;
        use super::super::*;

        /// A later commit with a blob becomes durable and visible between a reader's look at the
        /// watermark and at the list, and removes the one that the reader would have found.
        #[test]
        fn a_blob_that_was_removed_in_between_is_not_taken_for_none() {
            let fixture = Fixture::new(true);
            let (blobs, at) = (fixture.committer.blobs, fixture.zones.geometry().zone(0) + 64);
            fixture.zones.add_live(0, 4);
            blobs.note(1, at, 0);
            let (asked, visible) = (Cell::new(0), Cell::new(1));
            let (lsn, last) = blobs.as_of(|| {
                let seen = visible.get();
                asked.set(asked.get() + 1);
                if asked.get() == 1 {
                    blobs.note(2, at + 64, 0);
                    visible.set(2);
                    blobs.note(3, at + 128, 2);
                }
                seen
            });
            assert_eq!((lsn, last), (2, Some(Noted { lsn: 2, at: at + 64 })));
            assert_eq!(asked.get(), 3, "the first moment, once more, and the second");
            assert_eq!(fixture.zones.live(0), 3, "one was let go");
            // What is noted and not visible is not seen, and lets nothing go.
            blobs.note(4, at + 192, 2);
            assert_eq!(blobs.as_of(|| 2).1, last);
            assert_eq!(blobs.as_of(|| 3).1, Some(Noted { lsn: 3, at: at + 128 }));
            assert_eq!(fixture.zones.live(0), 3);
        }

        #[test]
        fn without_any_there_is_none() {
            let fixture = Fixture::new(true);
            let blobs = fixture.committer.blobs;
            assert_eq!(blobs.as_of(|| 7), (7, None));
            fixture.zones.add_live(0, 1);
            blobs.note(9, fixture.zones.geometry().zone(0) + 64, 7);
            assert_eq!(blobs.as_of(|| 8), (8, None));
        }
    }
}
