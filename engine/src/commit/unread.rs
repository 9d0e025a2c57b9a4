//! The payloads that recovery passed over, since the persistent index knows of their records:
//! looked at later, a zone at a time.

use super::recover::Recovered;
use super::subentry::{Content, SUB_HEADER, SubEntry};
use crate::alloc::ZONE_HEADER;
use crate::error::Damage;
use crate::pm::{Geometry, LINE, Region};
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
        let named = |offset, what: String, (expected, got): (String, String)| {
            let file = region.path().to_path_buf();
            Some(Damage { tier: "pm", file, offset, what, expected, got })
        };
        let mut at = geometry.zone(self.zone) + ZONE_HEADER;
        while at < self.end {
            let header = SubEntry::decode(region.bytes(at, SUB_HEADER as u64), self.zone);
            let header = match header {
                Ok(header) => header,
                Err(found) => {
                    return named(at, format!("sub-entry in zone {}", self.zone), found);
                }
            };
            let payload_at = at + SUB_HEADER as u64;
            let is_merged = header.is_plain && header.content == Content::Commit;
            if is_merged && header.lsn <= merged {
                let payload = region.bytes(payload_at, u64::from(header.payload_len));
                let sum = SubEntry::payload_sum(header.lsn, payload);
                if sum != header.payload_sum {
                    let what = format!("payload of LSN {}", header.lsn);
                    let expected = format!("checksum {:08x}", header.payload_sum);
                    return named(payload_at, what, (expected, format!("{sum:08x}")));
                }
            }
            at = (payload_at + u64::from(header.payload_len)).next_multiple_of(LINE);
        }
        None
    }
}
