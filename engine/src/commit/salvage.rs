//! Reads what can still be read of zones, past damage that an opening refuses.

use super::recover::{Evidence, Parsed, damage_of, parse_entry};
use super::subentry::{Content, SUB_HEADER, Walk};
use crate::alloc::ZoneScan;
use crate::error::{Damage, Result};
use crate::pm::{LINE, Span};

/// A sound payload.
pub(crate) struct Payload {
    /// Offset in the region.
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// Whether its records are those of a prepare, which count for no reader: what was prepared and
    /// committed is in the group of the verdict again.
    pub(crate) is_prepared: bool,
}

/// The sound payloads of all zones in use, whether or not the groups that they belong to are whole.
/// After damage the search goes on line by line for the next header of this use of the zone.
///
/// # Errors
///
/// The region cannot be read.
pub(crate) fn readable(evidence: &Evidence<'_>, lost: &mut Vec<Damage>) -> Result<Vec<Payload>> {
    let mut found = Vec::new();
    for scan in evidence.scans.iter().filter(|scan| scan.in_use) {
        zone(evidence, *scan, &mut found, lost)?;
    }
    Ok(found)
}

fn zone(
    evidence: &Evidence<'_>,
    scan: ZoneScan,
    found: &mut Vec<Payload>,
    lost: &mut Vec<Damage>,
) -> Result<()> {
    let zone_at = evidence.geometry.zone(scan.zone);
    let size = scan.len(evidence.geometry);
    let limit = scan.seal.map_or(size, |seal| u64::from(seal.0).min(size));
    evidence.region.load(Span { at: zone_at, len: limit })?;
    let mut walk = Walk::new(evidence.region, evidence.geometry, (scan.zone, scan.header));
    let mut hole = None;
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
                    found.push(Payload { at, len, is_prepared });
                } else {
                    let what = format!("payload of LSN {}", entry.header.lsn);
                    let place = zone_at + at + SUB_HEADER as u64;
                    let found = entry.found(evidence, scan.zone);
                    lost.push(damage_of(evidence, place, what, found));
                }
                walk.pass(entry.header.payload_len);
            }
            Err(why) => {
                let what = || format!("sub-entry in zone {}", scan.zone);
                hole.get_or_insert_with(|| damage_of(evidence, zone_at + at, what(), why));
                walk.at += LINE;
            }
        }
    }
    // A sealed zone ends with an entry. An open one has nothing behind its last, which the floor
    // may have seen.
    let named = evidence.gidx.iter().flatten().find(|named| named.zone == scan.zone);
    let tail = zone_at + named.map_or(0, |named| named.tail);
    lost.extend(hole.filter(|hole| scan.seal.is_some() || hole.offset < tail));
    Ok(())
}
