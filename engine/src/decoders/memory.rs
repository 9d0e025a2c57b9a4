//! The decoders of the region, and of a tree's.

use std::path::Path;

use crate::base::record::{Sealable, mended};
use crate::commit::{
    Evidence, Floor, Gidx, RESUME, Resume, SALT_AT, SUB_HEADER, SubEntry, readable, recover,
};
use crate::engine::TableEvent;
use crate::engine::open::Marker;
use crate::memtable::{Record, encode_record, set_seq};
use crate::pindex::{ForestSeal, Shape};
use crate::pm::alloc::{
    Pool, PoolEntry, Seal, SegmentHeader, StreamObject, ZONE_HEADER, ZoneHeader, ZoneScan,
};
use crate::pm::{Geometry, Incarnations, LINE, Media, Region, Superblock};
use terrace_testkit::Machine;

/// The number that the eight bytes at `at` are; 0 where there are fewer.
fn number(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

/// The format's version, the fifth half-word of a superblock: it seeds the checksum.
fn version(bytes: &[u8]) -> u64 {
    number(bytes, 8) & u64::from(u32::MAX)
}

pub(super) fn superblock(bytes: &[u8]) -> bool {
    let right = mended(bytes, 12, (16, bytes.len()), &[version(bytes)]);
    let pair = [bytes, &right].concat();
    drop(Superblock::read(&pair, Path::new("region")));
    let decoded = Superblock::decode(&right);
    if let Ok(superblock) = &decoded {
        assert_eq!(Superblock::decode(&superblock.encode()).as_ref(), Ok(superblock));
    }
    Superblock::decode(bytes).is_ok() || decoded.is_ok()
}

pub(super) fn floor(bytes: &[u8]) -> bool {
    let right = mended(bytes, 60, (0, 60), &[]);
    let decoded = Floor::decode(&right);
    if let Ok(floor) = &decoded {
        assert_eq!(Floor::decode(&floor.encode()).as_ref(), Ok(floor));
    }
    Floor::decode(bytes).is_ok() || decoded.is_ok()
}

pub(super) fn marker(bytes: &[u8]) -> bool {
    let right = mended(bytes, 8, (12, bytes.len()), &[]);
    let decoded = Marker::decode(&right);
    if let Some(marker) = &decoded {
        assert_eq!(Marker::decode(&marker.encode()).as_ref(), Some(marker));
    }
    Marker::decode(bytes).is_some() || decoded.is_some()
}

/// Index entries of pools, seals and GIDX words, one after the other.
pub(super) fn words(bytes: &[u8]) -> bool {
    let mut accepted = false;
    for at in (0..bytes.len()).step_by(8) {
        let word = number(bytes, at);
        let with = |sum: u32| word & !u64::from(u32::MAX) | u64::from(sum);
        for pool in [Pool::Streams, Pool::Zones, Pool::Objects] {
            let right =
                PoolEntry::decode(word, pool, 1).map_or_else(|(_, sum)| with(sum), |_| word);
            let entry = PoolEntry::decode(right, pool, 1);
            assert_eq!(entry.map(|entry| entry.encode(pool, 1)), Ok(right));
        }
        let right = Seal::decode(word, 1, 1).map_or_else(|(_, sum)| with(sum), |_| word);
        if let Ok(Some(seal)) = Seal::decode(right, 1, 1)
            && seal.0 != 0
        {
            assert_eq!(seal.encode(1, 1), right);
        }
        let right = Gidx::decode(word, 1).map_or_else(|(_, sum)| word & !0xff_ffff | sum, |_| word);
        if let Ok(Some(gidx)) = Gidx::decode(right, 1) {
            assert_eq!(gidx.encode(1), right);
            accepted = true;
        }
    }
    accepted
}

pub(super) fn stream_object(bytes: &[u8]) -> bool {
    let right = mended(bytes, 4, (8, bytes.len()), &[1]);
    let as_it_is = StreamObject::decode(bytes, 1).is_some();
    let decoded = StreamObject::decode(&right, 1);
    if let Some(object) = &decoded {
        let again = mended(&object.encode(), 4, (8, 64), &[1]);
        assert_eq!(StreamObject::decode(&again, 1).as_ref(), Some(object));
    }
    as_it_is || decoded.is_some()
}

pub(super) fn zone_header(bytes: &[u8]) -> bool {
    let right = mended(bytes, 4, (8, 48), &[1]);
    drop(ZoneHeader::decode(bytes, 1));
    let decoded = ZoneHeader::decode(&right, 1);
    if let Ok(header) = &decoded {
        assert_eq!(ZoneHeader::decode(&header.encode(1), 1).as_ref(), Ok(header));
    }
    decoded.is_ok()
}

pub(super) fn sub_entry(bytes: &[u8]) -> bool {
    // The salt that the header has the low bytes of.
    let salt = bytes.get(SALT_AT).map_or(0, |low| number(&[low, &[0; 2]].concat(), 0));
    let right = mended(bytes, 4, (8, SUB_HEADER), &[1 ^ salt]);
    drop(SubEntry::decode(bytes, 1, salt));
    let decoded = SubEntry::decode(&right, 1, salt);
    if let Ok(entry) = &decoded {
        assert_eq!(SubEntry::decode(&entry.encode(1, salt), 1, salt).as_ref(), Ok(entry));
    }
    decoded.is_ok()
}

/// The payload of a sub-entry: records one behind the other.
pub(super) fn records(bytes: &[u8]) -> bool {
    let (mut rest, mut found) = (bytes, 0);
    while let Some(record) = Record::decode(rest) {
        let mut again = Vec::new();
        encode_record(&mut again, record.table, record.kind, record.key, record.value);
        set_seq(&mut again, record.seq);
        assert_eq!(again.len(), record.stored_len());
        assert_eq!(Record::decode(&again), Some(record));
        found += 1;
        rest = rest.get(record.stored_len()..).unwrap_or_default();
    }
    found > 0
}

/// A zone from its header on, as recovery walks it: the only one of a region.
pub(super) fn zone(bytes: &[u8]) -> bool {
    let geometry = Geometry { unit: 128 << 10, zone_slots: 1, units: 1, target: 1 };
    let zone_at = geometry.zone(0);
    let content = mended_zone(&bytes[..bytes.len().min(geometry.unit as usize)]);
    let Ok(header) = ZoneHeader::decode(&content, 0) else { return false };
    // A scan lets no zone go beyond its region.
    let header = ZoneHeader { units: 1, ..header };
    let machine = Machine::with_memory();
    let Some(pm) = machine.make_memory(geometry.region_len()) else { return false };
    pm.store(zone_at, &content);
    let region = Region::new(Media::Simulated(pm), Path::new("region"), geometry.region_len());
    let Ok(region) = region else { return false };
    let word = number(&content, Seal::AT as usize);
    let with = |sum: u32| word & !u64::from(u32::MAX) | u64::from(sum);
    let seal = Seal::decode(word, 0, header.generation);
    let seal = seal.or_else(|(_, sum)| Seal::decode(with(sum), 0, header.generation));
    let seal = seal.ok().flatten();
    let incarnations = Incarnations { current: header.incarnation, earlier: Vec::new() };
    let scans = [ZoneScan { zone: 0, header, seal, in_use: true }];
    let tail = (content.len() as u64).next_multiple_of(LINE);
    let mut committed = 0;
    for gidx in [None, Some(Gidx { zone: 0, tail: ZONE_HEADER }), Some(Gidx { zone: 0, tail })] {
        let evidence = Evidence {
            region: &region,
            geometry,
            floor: Floor::default(),
            durable: 0,
            incarnations: &incarnations,
            merged: 0,
            scans: &scans,
            gidx: &[gidx],
            threads: 1,
            did: &|_| Ok(()),
            check_payloads: true,
            is_written: false,
        };
        drop(readable(&evidence, &mut Vec::new()));
        committed += recover(&evidence).map_or(0, |found| found.zones.len());
    }
    committed > 0
}

/// A zone with every checksum in it right, and its sub-entries of the zone's own generation and
/// stream.
fn mended_zone(bytes: &[u8]) -> Vec<u8> {
    let mut zone = mended(bytes, 4, (8, 48), &[0]);
    let mut at = ZONE_HEADER as usize;
    let mut salt = number(&zone, 36);
    while at + SUB_HEADER <= zone.len() {
        if zone[at..].starts_with(b"TRES") {
            salt = mend_resume(&mut zone, at, salt);
            at += RESUME;
            continue;
        }
        let (lsn, len) = (number(&zone, at + 8), number(&zone, at + 28) as u32 as usize);
        let (head, entry) = zone.split_at_mut(at);
        let end = SUB_HEADER.saturating_add(len).min(entry.len());
        let entry = &mut entry[..end];
        entry[24..28].copy_from_slice(&head[8..12]);
        entry[44..48].copy_from_slice(&head[12..16]);
        entry[SALT_AT].copy_from_slice(&salt.to_le_bytes()[..SALT_AT.len()]);
        let right = mended(entry, 32, (SUB_HEADER, end), &[lsn ^ salt]);
        entry.copy_from_slice(&mended(&right, 4, (8, SUB_HEADER), &[salt]));
        at = at.saturating_add(SUB_HEADER + len).next_multiple_of(LINE as usize);
    }
    zone
}

/// Makes a line in which an opening goes on right where `before` is the salt in effect: the salt
/// behind it.
fn mend_resume(zone: &mut [u8], at: usize, before: u64) -> u64 {
    let (header, line) = zone.split_at_mut(at);
    let line = &mut line[..RESUME];
    line[16..24].copy_from_slice(&header[8..16]);
    line[32..40].copy_from_slice(&before.to_le_bytes());
    let right = mended(line, 4, (8, RESUME), &[0]);
    line.copy_from_slice(&right);
    if let Some(resume) = Resume::decode(line, 0, before) {
        assert_eq!(Resume::decode(&resume.encode(0, before), 0, before), Some(resume));
    }
    number(line, 24)
}

/// The first byte is the key of the event's record, the rest its value.
pub(super) fn table_event(bytes: &[u8]) -> bool {
    let Some((key, value)) = bytes.split_at_checked(1) else { return false };
    let decoded = TableEvent::decode(key, value);
    if let Some(event) = &decoded {
        let (key, value) = event.encode();
        assert_eq!(TableEvent::decode(&key, &value).as_ref(), Some(event));
    }
    decoded.is_some()
}

/// The first line of a segment of a pool of objects.
pub(super) fn segment(bytes: &[u8]) -> bool {
    let right = mended(bytes, 4, (8, bytes.len()), &[4096]);
    let as_it_is = SegmentHeader::decode(bytes, 4096).is_some();
    let decoded = SegmentHeader::decode(&right, 4096);
    if let Some(header) = &decoded {
        let again = header.encode(4096);
        assert_eq!(SegmentHeader::decode(&again, 4096).as_ref(), Some(header));
    }
    as_it_is || decoded.is_some()
}

/// The superblock of a persistent index.
pub(super) fn tree(bytes: &[u8]) -> bool {
    let right = mended(bytes, 12, (16, bytes.len()), &[version(bytes)]);
    drop(Shape::decode(bytes, Path::new("tree")));
    let decoded = Shape::decode(&right, Path::new("tree"));
    if let Ok(shape) = &decoded {
        assert_eq!(Shape::decode(&shape.encode(), Path::new("tree")).ok().as_ref(), Some(shape));
    }
    decoded.is_ok()
}

/// The fixed page of a persistent index, with its seal.
pub(super) fn index_seal(bytes: &[u8]) -> bool {
    let path = Path::new("index");
    let right = ForestSeal::mended(bytes.to_vec());
    let as_it_is = ForestSeal::decode(bytes, path);
    let decoded = ForestSeal::decode(&right, path);
    if let Ok(Some(seal)) = &decoded {
        assert_eq!(
            ForestSeal::decode(&seal.encode(&right), path).ok().flatten().as_ref(),
            Some(seal)
        );
    }
    matches!(as_it_is, Ok(Some(_))) || matches!(decoded, Ok(Some(_)))
}
