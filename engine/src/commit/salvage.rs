//! Reads what can still be read of zones, past damage that an opening refuses, and says which of it
//! was committed.
//!
//! A gap of LSNs is what a power cut left, or damage. Up to the greatest LSN that a header, the
//! floor, a GIDX word or the journal calls durable it is damage: what is behind it counts, and the
//! LSNs that are missing are told. From there on an opening takes what lies in front of the first
//! gap, and so does a salvage.
//!
//! The payloads that recovery passed over, since the persistent index knows of their records:
//! looked at later, a zone at a time.

use super::recover::{Evidence, Judged, Recovered, judge};
use super::subentry::{Content, SUB_HEADER, SubEntry, Walk};
use crate::base::error::{Damage, Mismatch, Result};
use crate::base::record::Lsn;
use crate::pm::alloc::{ZONE_HEADER, ZoneHeader, ZoneScan};
use crate::pm::{Geometry, Region};

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

/// Reads all zones in use, past damage.
pub(crate) fn readable(evidence: &Evidence<'_>, lost: &mut Vec<Damage>) -> Result<ReadableZones> {
    let Judged { parsed, last, .. } = judge(evidence, true, lost)?;
    let mut payloads = Vec::new();
    for zone in &parsed {
        let zone_at = evidence.geometry.zone(zone.scan.zone);
        payloads.extend(zone.entries.iter().filter(|e| e.is_sound()).map(|entry| Payload {
            lsn: entry.header.lsn,
            at: zone_at + entry.payload_at(),
            len: u64::from(entry.header.payload_len),
            is_prepared: entry.header.content == Content::Prepared,
        }));
    }
    Ok(ReadableZones { payloads, last })
}

/// The bytes of the zones that recovery reads.
pub(crate) fn bytes_to_read(scans: &[ZoneScan], geometry: Geometry) -> u64 {
    scans.iter().filter(|scan| scan.in_use).map(|scan| scan.len(geometry)).sum()
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
