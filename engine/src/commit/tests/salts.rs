//! What lies in a zone from before does not pass for a sub-entry, though all its numbers are right:
//! the values of an earlier use of the zone, and what a crashed opening has left behind its tail.
//! And a sub-entry tells of damage to those that were durable before it.

use super::super::subentry::{Content, SUB_HEADER, SubEntry};
use super::Fixture;
use super::rules::first_incarnation;
use crate::base::error::ErrorKind;
use crate::base::options::Durability::Durable;
use crate::base::record::{Kind, Lsn};
use crate::commit::subentry::{RESUME, Resume};
use crate::memtable::{RECORD_HEADER, encode_record, record_len, set_seq};
use crate::pm::LINE;
use crate::pm::alloc::ZONE_HEADER;
use terrace_testkit::Survive;

/// Bytes that a commit of one put takes in a zone: a key of one byte, and a value.
fn zone_len(value: usize) -> u64 {
    ((SUB_HEADER + record_len(1, value)) as u64).next_multiple_of(LINE)
}

/// Where in its zone the value of such a commit begins, which itself begins at `at`.
fn value_at(at: u64) -> u64 {
    at + (SUB_HEADER + RECORD_HEADER) as u64 + 1
}

/// A sub-entry of zone 0 that puts `f`, as a forger lays it out that takes `salt` for the one in
/// effect.
fn forged(lsn: Lsn, zone_generation: u32, salt: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    encode_record(&mut payload, 1, Kind::Put, b"f", b"forged");
    set_seq(&mut payload, lsn);
    let header = SubEntry {
        lsn,
        incarnation: 1,
        zone_generation,
        payload_len: payload.len() as u32,
        payload_sum: SubEntry::payload_sum(lsn, salt, &payload),
        count: 1,
        index: 0,
        records: 1,
        stream: 0,
        content: Content::Commit,
        is_plain: true,
        durable: 0,
    };
    let mut entry = header.encode(0, salt).to_vec();
    entry.extend_from_slice(&payload);
    entry
}

fn last_after_a_cut(fixture: &Fixture) -> Lsn {
    let after = fixture.machine.crash(Survive::Nothing);
    fixture.recover_on(&after, &first_incarnation()).unwrap().last
}

/// A value is laid out so that, once its zone is used again, a sub-entry that is in it follows on
/// the first one of the new use. The last LSN that recovery finds: 5 if it is not taken in.
fn last_with_a_forged_value(salted: bool, dax: bool) -> Lsn {
    let fixture = Fixture::new(dax);
    if !salted {
        fixture.without_salts();
    }
    const FIRST: usize = 50_000;
    let place = ZONE_HEADER + zone_len(FIRST);
    let inside = (place - value_at(ZONE_HEADER)) as usize;
    let (entry, mut value) = (forged(6, 1, 0), vec![b'x'; 60_000]);
    value[inside..inside + entry.len()].copy_from_slice(&entry);
    let put = |value: &[u8]| {
        let mut batch = super::super::Batch::default();
        batch.push(&fixture.target, Kind::Put, b"k", value);
        let pending = fixture.committer.enqueue(&mut &batch, Durable).unwrap();
        let zone = pending.zone;
        (zone, pending.wait().unwrap())
    };
    let long = vec![b'x'; 60_000];
    assert_eq!(
        [put(&value), put(&long), put(&long), put(&long)].map(|(zone, _)| zone),
        [0, 0, 1, 1]
    );
    let stored = fixture.region.bytes(fixture.zones.geometry().zone(0) + place, entry.len() as u64);
    assert_eq!(stored, entry, "it lies where the next sub-entry will be looked for");
    fixture.zones.sub_live(0, 2);
    let dead = fixture.zones.dead(fixture.committer.sync_floor().unwrap());
    assert_eq!(dead, [0]);
    fixture.committer.release(&fixture.committer.releasable(dead), || true).unwrap();
    assert_eq!(put(&[b'y'; FIRST]), (0, 5), "the zone is used again");
    last_after_a_cut(&fixture)
}

/// Bug: recovery took a part of a value for a commit. Cause: all that the checksums of a sub-entry
/// were seeded with could be known when the value was written. Fix: a salt, which is drawn when the
/// zone is linked.
#[test]
fn a_value_in_a_reused_zone_is_no_sub_entry() {
    for dax in [false, true] {
        assert_eq!(last_with_a_forged_value(true, dax), 5);
        assert_eq!(last_with_a_forged_value(false, dax), 6, "so the test finds it without salts");
    }
}

/// A crashed opening has left a forged sub-entry behind the tail of an open zone, with the salt in
/// effect; the next opening's first commit ends where it lies. The last LSN that recovery finds.
fn last_with_a_forged_tail(resumes: bool, dax: bool) -> Lsn {
    let fixture = Fixture::new(dax);
    assert_eq!(fixture.commit(&[("a", "1")]), 1);
    let (zones, region) = (&fixture.zones, &fixture.region);
    let (before, generation) = (zones.salt(0), zones.generation(0));
    let (tail, zone_at) =
        (fixture.committer.sequencer.lock().streams[0].tail, zones.geometry().zone(0));
    let line = if resumes { RESUME as u64 } else { 0 };
    let place = zone_at + tail + line + zone_len(1);
    region.persist([region.write(place, &forged(3, generation, before))]).unwrap();
    if resumes {
        let salt = zones.draw_salt(0, 2);
        let resume = Resume { incarnation: 1, zone_generation: generation, stream: 0, salt };
        let bytes = resume.encode(0, before);
        region.persist([region.write(zone_at + tail, &bytes)]).unwrap();
        fixture.committer.sequencer.lock().streams[0].skip(line);
    }
    assert_eq!(fixture.commit(&[("b", "2")]), 2);
    last_after_a_cut(&fixture)
}

#[test]
fn what_a_crashed_opening_left_is_no_sub_entry_of_the_next_one() {
    for dax in [false, true] {
        assert_eq!(last_with_a_forged_tail(true, dax), 2);
        assert_eq!(last_with_a_forged_tail(false, dax), 3, "so the test finds it without the line");
    }
}

/// LSNs ascend in a zone. What lies behind a sub-entry and has its LSN, as a crashed opening that
/// gave the LSN again may have left it, is no second part of the commit: the commit would have more
/// parts than it says, and recovery would end before it.
#[test]
fn an_lsn_that_lies_twice_in_a_zone_counts_once() {
    for dax in [false, true] {
        let fixture = Fixture::new(dax);
        assert_eq!(fixture.commit(&[("a", "1")]), 1);
        let (zones, region) = (&fixture.zones, &fixture.region);
        let tail = fixture.committer.sequencer.lock().streams[0].tail;
        let again = forged(1, zones.generation(0), zones.salt(0));
        region.persist([region.write(zones.geometry().zone(0) + tail, &again)]).unwrap();
        let recovered = fixture.recover_on(&fixture.machine, &first_incarnation()).unwrap();
        let lsns: Vec<Lsn> = recovered.zones[0].1.iter().map(|entry| entry.lsn).collect();
        assert_eq!((recovered.last, lsns), (1, vec![1]));
    }
}

/// Bug: damage to an acknowledged commit above the floor was taken for the end of what was written,
/// and all from there on was dropped in silence. Cause: nothing above the floor said what had been
/// durable. Fix: each sub-entry does.
#[test]
fn damage_to_a_durable_commit_above_the_floor_is_reported() {
    for dax in [false, true] {
        let fixture = Fixture::new(dax);
        let put = |_| {
            let pending =
                fixture.committer.enqueue(&mut &fixture.batch(&[("k", "value")]), Durable);
            let pending = pending.unwrap();
            let at = pending.records_at;
            pending.wait().unwrap();
            at
        };
        let places: Vec<u64> = (0..5).map(put).collect();
        let flip = |at: u64| {
            let byte = fixture.region.bytes(at, 1)[0];
            fixture.region.persist([fixture.region.write(at, &[byte ^ 1])]).unwrap();
        };
        // The last one may as well be the torn end of a run that no caller was told of.
        flip(places[4] + 24);
        assert_eq!(last_after_a_cut(&fixture), 4);
        // The last one that was durable, and one before it.
        for (damaged, lsn) in [(places[3], "LSN 4"), (places[2], "LSN 3")] {
            flip(damaged + 24);
            let error = fixture.recover_on(&fixture.machine, &first_incarnation()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let damage = error.damage().unwrap();
            assert_eq!(damage.offset, damaged, "{error}");
            assert!(damage.what.contains(lsn), "{error}");
            flip(damaged + 24);
        }
    }
}
