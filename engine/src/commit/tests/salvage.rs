//! What a salvage reads of damaged zones: each damage is told, and the last LSN that was committed
//! does not depend on damage elsewhere.

use std::path::Path;

use super::super::floor::{Floor, Gidx};
use super::super::lsn_ranges::LsnRanges;
use super::super::recover::{Evidence, recover};
use super::super::salvage::{ReadableZones, readable};
use super::super::subentry::SUB_HEADER;
use super::Fixture;
use super::rules::first_incarnation;
use crate::base::error::{Damage, ErrorKind, Result};
use crate::base::options::Durability::{self, Durable, Relaxed};
use crate::base::record::{Kind, LSN_MAX, Lsn};
use crate::pm::alloc::{StreamPool, ZonePool};

/// Two tables on streams of their own.
struct TwoStreams {
    fixture: Fixture,
    second: super::Slot,
}

impl TwoStreams {
    fn new() -> TwoStreams {
        let fixture = Fixture::new(false);
        let (_, second) = fixture.second_table();
        TwoStreams { fixture, second }
    }

    fn commit(&self, stream: u32, durability: Durability) -> Lsn {
        self.commit_value(stream, durability, b"a value")
    }

    fn commit_value(&self, stream: u32, durability: Durability, value: &[u8]) -> Lsn {
        let mut batch = self.fixture.batch(&[]);
        let target = if stream == 0 { &self.fixture.target } else { &self.second };
        batch.push(target, Kind::Put, b"key", value);
        self.fixture.committer.commit(&mut &batch, durability).unwrap()
    }

    /// Flips a bit of the header of an LSN, or of its payload.
    fn damage(&self, lsn: Lsn, behind: u64) {
        let region = self.fixture.machine.contents(Path::new("region"));
        let is_header =
            |line: &&[u8]| line.starts_with(b"TSUB") && line[8..16] == lsn.to_le_bytes();
        let at = region.chunks(64).position(|line| is_header(&line)).unwrap() as u64 * 64;
        self.fixture.machine.corrupt(Path::new("region"), at + behind, 1);
    }

    /// What a salvage reads, and what of it is lost.
    fn readable(&self, knows_floor: bool) -> (ReadableZones, Vec<Damage>) {
        self.judged(knows_floor, 0).0
    }

    /// The same where the journal knows that all up to `durable` was durable; and the last LSN of
    /// an opening.
    fn judged(
        &self,
        knows_floor: bool,
        durable: Lsn,
    ) -> ((ReadableZones, Vec<Damage>), Result<Lsn>) {
        self.with_evidence((knows_floor, durable), |evidence, mut lost| {
            let found = readable(evidence, &mut lost).unwrap();
            ((found, lost), recover(evidence).map(|recovered| recovered.last))
        })
    }

    fn with_evidence<T>(
        &self,
        (knows_floor, durable): (bool, Lsn),
        judge: impl FnOnce(&Evidence<'_>, Vec<Damage>) -> T,
    ) -> T {
        let region = self.fixture.region_on(&self.fixture.machine);
        let geometry = self.fixture.zones.geometry();
        let mut lost = Vec::new();
        let scans = ZonePool::scan_readable(&region, geometry, &mut lost).unwrap();
        let streams = StreamPool::scan(&region).unwrap();
        let gidx = streams.iter().map(|s| Gidx::load(&region, s.stream).unwrap());
        let gidx: Vec<_> = gidx.collect();
        let (floor, _) = Floor::load(&region).unwrap();
        let evidence = Evidence {
            region: &region,
            geometry,
            floor: if knows_floor { floor } else { Floor::default() },
            durable,
            incarnations: &first_incarnation(),
            merged: 0,
            scans: &scans,
            gidx: &gidx,
            threads: 1,
            did: &|_| Ok(()),
            check_payloads: true,
            is_written: false,
        };
        judge(&evidence, lost)
    }
}

/// A reader beside the writer reads one zone after the other. What a sub-entry knows to be durable
/// may have come to another zone after that was read. What the journal knows was there before.
#[test]
fn beside_a_writer_only_the_journal_says_what_was_durable() {
    let streams = TwoStreams::new();
    for stream in [0, 1, 0, 0] {
        streams.commit(stream, Durable);
    }
    streams.damage(2, HEADER);
    let last = |durable, is_written| {
        streams.with_evidence((true, durable), |evidence, _| {
            let found = recover(&Evidence { is_written, ..*evidence });
            found.map(|recovered| recovered.last).map_err(|e| e.kind())
        })
    };
    let corrupt = Err(ErrorKind::Corrupt);
    assert_eq!((last(0, false), last(0, true), last(4, true)), (corrupt, Ok(1), corrupt));
}

const HEADER: u64 = 20;
const PAYLOAD: u64 = SUB_HEADER as u64 + 4;

fn whats(lost: &[Damage]) -> Vec<&str> {
    lost.iter().map(|lost| lost.what.as_str()).collect()
}

/// Bug: acknowledged commits vanished, and the report spoke of other damage alone. Cause: what says
/// that an LSN was durable was asked by recovery, which ends with the first damage. Fix: a salvage
/// asks it, also beside other damage.
#[test]
fn a_durable_lsn_that_is_missing_is_told_beside_other_damage() {
    let streams = TwoStreams::new();
    for stream in [0, 1, 0, 0] {
        streams.commit(stream, Durable);
    }
    // It ends the zone of its stream.
    streams.damage(2, HEADER);
    let durable = "LSN 2, which was durable when LSN 4 was written,";
    assert_eq!(whats(&streams.readable(true).1), [durable]);
    streams.damage(1, PAYLOAD);
    let (found, lost) = streams.readable(true);
    assert_eq!(whats(&lost), ["payload of LSN 1", durable]);
    let lsns: Vec<Lsn> = found.payloads.iter().map(|payload| payload.lsn).collect();
    assert_eq!((found.last, lsns), (4, vec![3, 4]));
}

/// Bug: what an opening takes for never committed decided in a salvage. Cause: where the region was
/// damaged, or its floor lost, it was not known up to where LSNs were committed. Fix: the salvage
/// walks them itself, from what was durable on.
#[test]
fn what_lies_behind_a_gap_is_not_committed_whatever_else_is_damaged() {
    let streams = TwoStreams::new();
    streams.commit(0, Durable);
    streams.commit(1, Durable);
    for stream in [0, 1, 0] {
        streams.commit(stream, Relaxed);
    }
    assert_eq!(streams.readable(true).0.last, 5);
    for (damaged, behind) in [(3, PAYLOAD), (1, PAYLOAD), (1, HEADER)] {
        streams.damage(damaged, behind);
        let (found, lost) = streams.readable(true);
        assert_eq!(found.last, 2, "{lost:?}");
        let above = found.payloads.iter().filter(|payload| payload.lsn > found.last);
        assert_eq!(above.count(), 2);
    }
    // Nothing says which zones were released.
    assert_eq!(streams.readable(false).0.last, LSN_MAX);
    // A later header says that they were durable.
    streams.commit(0, Durable);
    streams.commit(1, Durable);
    let (found, lost) = streams.readable(true);
    assert_eq!(found.last, 7, "{lost:?}");
    // Without a floor GIDX words say how far it was.
    streams.fixture.committer.sync_floor().unwrap();
    streams.commit(0, Relaxed);
    streams.commit(1, Relaxed);
    streams.damage(8, PAYLOAD);
    for knows_floor in [true, false] {
        assert_eq!(streams.readable(knows_floor).0.last, 7);
    }
}

/// Bug: without a floor a salvage told of no LSN that was missing, or took one for lost that was
/// released or never given. Cause: without anything that says how far it was it did not ask. Fix:
/// it asks from the first LSN that is there, and tells of it in doubt.
#[test]
fn without_a_floor_what_is_missing_is_told_in_doubt() {
    let streams = TwoStreams::new();
    for stream in [0, 1, 0, 0] {
        streams.commit(stream, Durable);
    }
    let doubt = "the floor is lost";
    assert_eq!(whats(&streams.readable(false).1), [""; 0]);
    // It ends the zone of its stream.
    streams.damage(2, HEADER);
    for knows_floor in [true, false] {
        let (found, lost) = streams.readable(knows_floor);
        assert_eq!(whats(&lost), ["LSN 2, which was durable when LSN 4 was written,"]);
        assert_eq!(lost[0].got.contains(doubt), !knows_floor, "{lost:?}");
        assert_eq!(found.last, if knows_floor { 4 } else { LSN_MAX });
    }
    // GIDX words say how far it was, but not what was never given behind that.
    let streams = TwoStreams::new();
    streams.commit(0, Durable);
    streams.commit(1, Durable);
    streams.fixture.committer.sync_floor().unwrap();
    for stream in [0, 1, 1] {
        streams.commit(stream, Durable);
    }
    streams.damage(3, HEADER);
    let (found, lost) = streams.readable(false);
    assert_eq!(whats(&lost), ["LSN 3, which was durable when LSN 5 was written,"]);
    assert!(lost[0].got.contains(doubt) && found.last == 5, "{lost:?}");
}

/// Bug: a salvage after a power cut told of damage where nothing was damaged. Cause: a commit that
/// was never acknowledged is torn by a cut, and its header or its payload does not check out. Fix:
/// above what was durable it says that it may never have been committed.
#[test]
fn what_a_power_cut_has_torn_may_never_have_been_committed() {
    let streams = TwoStreams::new();
    for stream in [0, 1, 0] {
        streams.commit(stream, Durable);
    }
    streams.commit(1, Relaxed);
    streams.commit(1, Relaxed);
    for (lsn, behind) in [(5, PAYLOAD), (4, HEADER), (2, PAYLOAD), (1, HEADER)] {
        streams.damage(lsn, behind);
    }
    let (_, lost) = streams.readable(true);
    let may_be: Vec<_> = lost.iter().map(|lost| lost.got.contains("never committed")).collect();
    assert_eq!(
        whats(&lost),
        [
            "sub-entry in zone 0",
            "sub-entry in zone 1",
            "payload of LSN 2",
            "payload of LSN 5",
            "LSN 1, which was durable when LSN 5 was written,"
        ]
    );
    assert_eq!(may_be, [false, true, false, true, false]);
}

/// Bug: a torn commit at the end of a sealed zone was told as lost for certain. Cause: what another
/// stream had made durable since the zone's commit before it counted. Fix: all that a seal alone
/// speaks of is told in doubt.
#[test]
fn a_torn_end_of_a_sealed_zone_may_never_have_been_committed() {
    let streams = TwoStreams::new();
    let fill = |lsn| assert_eq!(streams.commit_value(1, Relaxed, &[7; 60_000]), lsn);
    fill(1);
    streams.commit(0, Durable);
    streams.commit(0, Durable);
    fill(4);
    // It goes into the next zone.
    fill(5);
    streams.damage(4, HEADER);
    let (found, lost) = streams.readable(true);
    assert_eq!((found.last, whats(&lost)), (3, vec!["sub-entry in zone 0"]));
    assert!(lost[0].got.contains("never committed"), "{lost:?}");
}

/// Bug: a durable commit was lost, and no line of a report told. An opening cut it off, with what
/// the journal had of later ones. Cause: it was relaxed, alone in its stream, and its header was
/// damaged. No later header says that it was durable, and the journal was not asked. Fix: what the
/// journal knows to be durable is asked for by both.
#[test]
fn a_relaxed_commit_that_the_journal_knows_to_be_durable_is_told() {
    let streams = TwoStreams::new();
    streams.commit(0, Durable);
    streams.commit(1, Relaxed);
    streams.commit(0, Durable);
    streams.damage(2, HEADER);
    let ((found, lost), opened) = streams.judged(true, 0);
    assert_eq!((found.last, whats(&lost), opened.unwrap()), (1, vec![], 1));
    let told = "LSN 2, which was durable when an edit of the journal was made,";
    let ((found, lost), opened) = streams.judged(true, 3);
    assert_eq!((found.last, whats(&lost)), (3, vec![told]));
    assert_eq!(opened.unwrap_err().damage().unwrap().what, told);
}

#[test]
fn ranges_of_lsns_are_short() {
    let shown = |lsns: &[Lsn]| {
        let mut ranges = LsnRanges::default();
        ranges.extend(lsns.iter().copied());
        ranges.to_string()
    };
    assert_eq!(shown(&[]), "");
    assert_eq!(shown(&[4]), "4");
    assert_eq!(shown(&[4, 5, 6, 8, 10, 11]), "4 to 6, 8, 10 to 11");
    let many: Vec<Lsn> = (0..40).map(|n| 2 * n).collect();
    assert!(shown(&many).ends_with(", 28, 30 and others up to 78"), "{}", shown(&many));
}
