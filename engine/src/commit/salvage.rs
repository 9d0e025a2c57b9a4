//! Reads what can still be read of zones, past damage that an opening refuses, and says which of it
//! was committed.
//!
//! A gap of LSNs is what a power cut left, or damage. Up to the greatest LSN that a header, the
//! floor or a GIDX word calls durable it is damage: what is behind it counts, and the LSNs that are
//! missing are told. From there on an opening takes what lies in front of the first gap, and so
//! does a salvage.
//!
//! The payloads that recovery passed over, since the persistent index knows of their records:
//! looked at later, a zone at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use super::floor::Floor;
use super::recover::{
    Evidence, Parsed, Recovered, Witness, ends_before_tails, floor_of, headers_that_cannot_be,
    parse_entry, walk,
};
use super::subentry::{Content, SUB_HEADER, SubEntry, Walk};
use crate::base::error::{Damage, Mismatch, Result};
use crate::base::record::{LSN_MAX, Lsn};
use crate::pm::alloc::{ZONE_HEADER, ZoneHeader, ZoneScan};
use crate::pm::{Geometry, LINE, Region, Span};

/// What can be read of zones.
pub(crate) struct ReadableZones {
    /// The sound payloads of all zones in use, whether or not the groups that they belong to are
    /// whole.
    pub(crate) payloads: Vec<Payload>,
    /// The last LSN that was committed. What is above it lies behind a gap. Where neither the floor
    /// nor a GIDX word is there, nothing tells a gap from zones that were released, and it is the
    /// greatest LSN.
    pub(crate) last: Lsn,
}

/// A sound payload.
pub(crate) struct Payload {
    pub(crate) lsn: Lsn,
    /// Offset in the region.
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// Whether its records are those of a prepare, which count for no reader: what was prepared and
    /// committed is in the group of the verdict again.
    pub(crate) is_prepared: bool,
}

/// LSNs for people; ranges that ascend.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LsnRanges(Vec<RangeInclusive<Lsn>>);

impl LsnRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Extend<Lsn> for LsnRanges {
    /// Adds LSNs that ascend.
    fn extend<I: IntoIterator<Item = Lsn>>(&mut self, lsns: I) {
        for lsn in lsns {
            match self.0.last_mut().filter(|last| lsn <= last.end() + 1) {
                Some(last) => *last = *last.start()..=lsn,
                None => self.0.push(lsn..=lsn),
            }
        }
    }
}

impl fmt::Display for LsnRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        for (n, range) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            match (range.start(), range.end()) {
                (one, last) if one == last => write!(f, "{comma}{one}")?,
                (first, last) => write!(f, "{comma}{first} to {last}")?,
            }
        }
        match self.0.get(SHOWN..).and_then(|more| more.last()) {
            Some(last) => write!(f, " and others up to {}", last.end()),
            None => Ok(()),
        }
    }
}

/// Reads all zones in use. After damage the search goes on line by line for the next header of this
/// use of the zone.
pub(crate) fn readable(evidence: &Evidence<'_>, lost: &mut Vec<Damage>) -> Result<ReadableZones> {
    lost.extend(headers_that_cannot_be(evidence));
    let (mut payloads, mut parsed) = (Vec::new(), Vec::new());
    for scan in evidence.scans.iter().filter(|scan| scan.in_use) {
        parsed.push(zone(evidence, *scan, &mut payloads, lost)?);
    }
    lost.extend(ends_before_tails(evidence, &parsed));
    let (floor, has_floor) = (floor_of(evidence, &parsed), evidence.floor != Floor::default());
    let is_known = floor > 0 || has_floor;
    let first = parsed.iter().flat_map(|p| &p.entries).map(|entry| entry.header.lsn).min();
    let from = first.filter(|_| !is_known).map_or(floor, |first| first - 1);
    let witness = Witness::of(&parsed).filter(|witness| witness.durable > from);
    let durable = witness.map_or(floor, |witness| witness.durable);
    let missing = missing(&parsed, from..=durable.max(from));
    lost.extend(witness.filter(|_| !missing.is_empty()).map(|it| {
        let mut damage = it.misses(evidence, &missing.to_string());
        if !has_floor {
            damage.got += ", or were released, or never given: the floor is lost";
        }
        damage
    }));
    let last = if is_known { walk(durable, &parsed, false) } else { LSN_MAX };
    Ok(ReadableZones { payloads, last })
}

/// The LSNs behind the first one of a range of which not all headers are there. Those of unsound
/// payloads were told.
fn missing(parsed: &[Parsed], range: RangeInclusive<Lsn>) -> LsnRanges {
    let (floor, last) = range.into_inner();
    let mut parts: BTreeMap<Lsn, (u16, u16)> = BTreeMap::new();
    for header in parsed.iter().flat_map(|p| &p.entries).map(|entry| entry.header) {
        if header.lsn > floor && header.lsn <= last {
            parts.entry(header.lsn).or_insert((header.count, 0)).1 += 1;
        }
    }
    let whole = parts.iter().filter(|(_, (count, found))| count == found).map(|(lsn, _)| *lsn);
    let (mut ranges, mut next) = (Vec::new(), floor + 1);
    for lsn in whole.chain([last + 1]) {
        ranges.extend((next < lsn).then(|| next..=lsn - 1));
        next = lsn + 1;
    }
    LsnRanges(ranges)
}

fn zone(
    evidence: &Evidence<'_>,
    scan: ZoneScan,
    found: &mut Vec<Payload>,
    lost: &mut Vec<Damage>,
) -> Result<Parsed> {
    let zone_at = evidence.geometry.zone(scan.zone);
    let size = scan.len(evidence.geometry);
    let limit = scan.seal.map_or(size, |seal| u64::from(seal.0).min(size));
    evidence.region.load(Span { at: zone_at, len: limit })?;
    let mut walk = Walk::new(evidence.region, evidence.geometry, (scan.zone, scan.header));
    let (mut hole, mut parsed) = (None, Parsed::at(scan, limit));
    loop {
        // Where the line is lost in which an opening went on, what lies behind it is lost too.
        walk.pass_resumes(limit);
        let at = walk.at;
        if at + SUB_HEADER as u64 > limit {
            break;
        }
        // Without the entries before it, an entry is judged by itself.
        let alone = Parsed::at(scan, at);
        match parse_entry(evidence, &alone, &walk, limit) {
            Ok(entry) => {
                lost.extend(hole.take());
                let len = u64::from(entry.header.payload_len);
                if entry.is_sound() {
                    let at = zone_at + at + SUB_HEADER as u64;
                    let is_prepared = entry.header.content == Content::Prepared;
                    found.push(Payload { lsn: entry.header.lsn, at, len, is_prepared });
                } else {
                    lost.push(entry.damage(evidence, scan.zone));
                }
                walk.pass(entry.header.payload_len);
                parsed.entries.push(entry);
            }
            Err(why) => {
                let what = || format!("sub-entry in zone {}", scan.zone);
                hole.get_or_insert_with(|| evidence.region.damage(zone_at + at, what(), why));
                walk.at += LINE;
            }
        }
    }
    // A sealed zone ends with an entry. An open one has nothing behind its last, which the floor
    // may have seen.
    let named = evidence.gidx.iter().flatten().find(|named| named.zone == scan.zone);
    let tail = zone_at + named.map_or(0, |named| named.tail);
    lost.extend(hole.filter(|hole| scan.seal.is_some() || hole.offset < tail));
    Ok(parsed)
}

/// What was passed over in a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// The zone.
    pub(crate) zone: u32,
    /// Offset in the region behind the last payload of it.
    end: u64,
}

impl Recovered {
    /// The zones in which something was passed over.
    pub(crate) fn passed_over(&self) -> Vec<Passed> {
        let passed = |(zone, accepted): &(u32, Vec<super::Accepted>)| {
            let last = accepted.iter().rfind(|entry| entry.is_merged)?;
            Some(Passed { zone: *zone, end: last.payload_at + last.payload_len })
        };
        self.zones.iter().filter_map(passed).collect()
    }
}

impl Passed {
    /// What is wrong with it. The headers, which recovery has read, say where payloads are; those
    /// of commits up to `merged` that are plain were passed over.
    pub(crate) fn damage(self, region: &Region, geometry: Geometry, merged: Lsn) -> Option<Damage> {
        let named =
            |offset, what: String, found: Mismatch| Some(region.damage(offset, what, found));
        let zone_at = geometry.zone(self.zone);
        let header = match ZoneHeader::decode(region.bytes(zone_at, ZONE_HEADER), self.zone) {
            Ok(header) => header,
            Err(found) => return named(zone_at, format!("header of zone {}", self.zone), found),
        };
        let mut walk = Walk::new(region, geometry, (self.zone, header));
        let end = self.end - zone_at;
        while walk.at < end {
            walk.pass_resumes(end);
            let header = match walk.header() {
                Ok(header) => header,
                Err(found) => {
                    let what = format!("sub-entry in zone {}", self.zone);
                    return named(zone_at + walk.at, what, found);
                }
            };
            let payload_at = walk.at + SUB_HEADER as u64;
            let is_merged = header.is_plain && header.content == Content::Commit;
            if is_merged && header.lsn <= merged {
                let payload = walk.bytes(payload_at, u64::from(header.payload_len));
                let sum = SubEntry::payload_sum(header.lsn, walk.salt, payload);
                if sum != header.payload_sum {
                    let what = format!("payload of LSN {}", header.lsn);
                    let found = Mismatch::checksum(header.payload_sum, sum);
                    return named(zone_at + payload_at, what, found);
                }
            }
            walk.pass(header.payload_len);
        }
        None
    }
}
