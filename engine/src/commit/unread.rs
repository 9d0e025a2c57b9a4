//! The payloads that recovery passed over, since the persistent index knows of their records:
//! looked at later, a zone at a time.

use super::recover::Recovered;
use super::subentry::{Content, SUB_HEADER, SubEntry, Walk};
use crate::alloc::{ZONE_HEADER, ZoneHeader};
use crate::error::{Damage, Mismatch};
use crate::pm::{Geometry, Region};
use crate::record::Lsn;

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
