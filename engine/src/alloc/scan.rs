//! The zones of a region as an opening, or a salvage, finds them: index entries and headers.

use super::pool::{Pool, PoolEntry};
use super::zone::{Seal, ZONE_HEADER, ZoneHeader};
use crate::error::{Damage, Error, Mismatch, Result};
use crate::pm::{Geometry, Region, Span};
use crate::record::Reader;

/// A taken zone as the scan at open finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneScan {
    pub(crate) zone: u32,
    pub(crate) header: ZoneHeader,
    pub(crate) seal: Option<Seal>,
    pub(crate) in_use: bool,
}

impl ZoneScan {
    /// Its bytes.
    pub(crate) fn len(&self, geometry: Geometry) -> u64 {
        geometry.zone_len(self.header.units)
    }
}

/// What there is in a region.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By unit.
    pub(super) entries: Vec<PoolEntry>,
    pub(super) zones: Vec<ZoneScan>,
    /// Taken entries without a sound header, from an opening that was cut while linking.
    pub(super) leaks: Vec<u32>,
    /// Units that no zone and no other owner has.
    pub(super) free: Vec<u32>,
}

/// Reads the index, and the headers of the taken zones.
///
/// A zone in use says which units are its own. Any other unit stands for itself: if its entry says
/// that it is taken, it was about to be linked, and its header may be one that an earlier try left,
/// which had other units. So it is let go as one unit, and those behind it by themselves.
///
/// # Errors
///
/// `Corrupt` when an entry is damaged, or the header or seal of a zone in use, or when zones
/// overlap.
pub(super) fn scan(region: &Region, geometry: Geometry) -> Result<Found> {
    let entries = (0..geometry.zone_slots).map(|zone| read_entry(region, zone));
    let mut found = Found { entries: entries.collect::<Result<_>>()?, ..Found::default() };
    let mut end = 0;
    for zone in 0..geometry.units {
        let entry = found.entries[zone as usize];
        if zone < end {
            if entry.persistent {
                let what = format!("index entry of zone {zone}");
                let wrong = Mismatch::new("a free unit, since a zone goes over it", "a zone");
                return Err(Error::corrupt(region.damage(Geometry::zone_entry(zone), what, wrong)));
            }
            continue;
        }
        if !entry.persistent {
            found.free.push(zone);
            continue;
        }
        match read_header(region, geometry, zone, entry)? {
            Some(scan) => {
                end = zone + scan.header.units;
                found.zones.push(scan);
            }
            None => found.leaks.push(zone),
        }
    }
    Ok(found)
}

/// The zones in use whose headers can be read, for a salvage; what cannot goes to `lost`.
///
/// # Errors
///
/// The region cannot be read.
pub(super) fn scan_readable(
    region: &Region,
    geometry: Geometry,
    lost: &mut Vec<Damage>,
) -> Result<Vec<ZoneScan>> {
    let mut scans: Vec<ZoneScan> = Vec::new();
    for zone in 0..geometry.units {
        let is_within = scans.last().is_some_and(|s| zone < s.zone + s.header.units);
        let scan = read_entry(region, zone).and_then(|entry| match entry.persistent {
            true => read_header(region, geometry, zone, entry),
            false => Ok(None),
        });
        match scan {
            Ok(scan) if !is_within => scans.extend(scan.filter(|scan| scan.in_use)),
            Ok(_) => {}
            Err(error) => {
                let Some(damage) = error.damage() else { return Err(error) };
                lost.push(damage.clone());
                // What lies inside of a zone is an older one's header at best.
                if !is_within {
                    scans.extend(unsealed(region, geometry, zone));
                }
            }
        }
    }
    Ok(scans)
}

fn read_entry(region: &Region, zone: u32) -> Result<PoolEntry> {
    let at = Geometry::zone_entry(zone);
    PoolEntry::decode(region.word(at), Pool::Zones, zone).map_err(|(sum, computed)| {
        let what = format!("index entry of zone {zone}");
        Error::corrupt(region.damage(at, what, Mismatch::checksum(sum, computed)))
    })
}

/// A header that is sound by itself, of a zone that can be.
fn decode_header(
    header: &[u8],
    geometry: Geometry,
    zone: u32,
) -> std::result::Result<ZoneHeader, Mismatch> {
    let header = ZoneHeader::decode(header, zone)?;
    let units = header.units;
    let can_be = units.is_power_of_two()
        && zone.is_multiple_of(units)
        && zone.checked_add(units).is_some_and(|end| end <= geometry.units);
    if can_be {
        return Ok(header);
    }
    let expected = format!("a zone of a power of two, inside {} units", geometry.units);
    Err(Mismatch::new(expected, format!("{units}")))
}

/// A zone as its header alone speaks of it, whatever its entry and its seal say.
fn unsealed(region: &Region, geometry: Geometry, zone: u32) -> Option<ZoneScan> {
    let header = region.peek(Span { at: geometry.zone(zone), len: ZONE_HEADER }).ok()?;
    let header = decode_header(&header, geometry, zone).ok()?;
    Some(ZoneScan { zone, header, seal: None, in_use: true })
}

/// The header of a taken zone; `None` when it leaked.
fn read_header(
    region: &Region,
    geometry: Geometry,
    zone: u32,
    entry: PoolEntry,
) -> Result<Option<ZoneScan>> {
    let at = geometry.zone(zone);
    let bytes = region.peek(Span { at, len: ZONE_HEADER })?;
    let header = decode_header(&bytes, geometry, zone).and_then(|header| {
        if header.generation == entry.generation {
            return Ok(header);
        }
        let [expected, got] = [entry.generation, header.generation];
        Err(Mismatch::new(format!("generation {expected}"), format!("generation {got}")))
    });
    let header = match header {
        Ok(header) if entry.in_use => header,
        Ok(header) => ZoneHeader { units: 1, ..header },
        Err(_) if !entry.in_use => return Ok(None),
        Err(found) => {
            let what = format!("header of zone {zone}");
            return Err(Error::corrupt(region.damage(at, what, found)));
        }
    };
    let word = Reader::new(&bytes[Seal::AT as usize..]).u64().unwrap_or_default();
    let seal = match Seal::decode(word, zone, entry.generation) {
        Ok(seal) => seal,
        // The header's line was torn behind what its checksum covers: this is the seal that an
        // earlier use of the zone left.
        Err(_) if !entry.in_use => return Ok(None),
        Err((sum, computed)) => {
            let (what, found) = (format!("seal of zone {zone}"), Mismatch::checksum(sum, computed));
            return Err(Error::corrupt(region.damage(at + Seal::AT, what, found)));
        }
    };
    Ok(Some(ZoneScan { zone, header, seal, in_use: entry.in_use }))
}
