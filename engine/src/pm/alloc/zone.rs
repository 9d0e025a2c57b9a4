//! A zone's header and its seal (`docs/format.md`, section 1).
//!
//! The zones of a region as an opening, or a salvage, finds them: index entries and headers.

use std::hash::{BuildHasher, Hasher};

use super::segments::{Pool, PoolEntry};
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::record::{Reader, checksum, put_u32, put_u64};
use crate::os::RandomKeys;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::pm::{Geometry, Region, Span};

/// Bytes of a zone before its first sub-entry.
pub(crate) const ZONE_HEADER: u64 = 64;

const MAGIC: &[u8; 4] = b"TZON";
/// The header without its seal.
const FIXED: usize = 48;

/// What a zone says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneHeader {
    pub(crate) generation: u32,
    pub(crate) stream: u32,
    /// The place in the stream's chain, from 1.
    pub(crate) ordinal: u64,
    /// The opening that linked the zone.
    pub(crate) incarnation: u64,
    /// How many units it takes, its own first one included.
    pub(crate) units: u32,
    /// Drawn when the zone was linked; seeds the checksums of its sub-entries.
    pub(crate) salt: u64,
}

impl ZoneHeader {
    /// The header's 64 bytes, unsealed.
    pub(crate) fn encode(&self, zone: u32) -> Vec<u8> {
        let mut body = Vec::with_capacity(ZONE_HEADER as usize);
        put_u32(&mut body, self.generation);
        put_u32(&mut body, self.stream);
        put_u64(&mut body, self.ordinal);
        put_u64(&mut body, self.incarnation);
        put_u32(&mut body, self.units);
        put_u64(&mut body, self.salt);
        body.resize(FIXED - 8, 0);
        let mut out = Vec::with_capacity(ZONE_HEADER as usize);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, checksum(&[u64::from(zone)], &body));
        out.extend_from_slice(&body);
        out.resize(ZONE_HEADER as usize, 0);
        out
    }

    /// Reads a header; what was expected and what was found if it does not check out.
    pub(crate) fn decode(bytes: &[u8], zone: u32) -> std::result::Result<ZoneHeader, Mismatch> {
        let short = || Mismatch::new("64 bytes", format!("{} bytes", bytes.len()));
        let mut r = Reader::new(bytes);
        let magic = r.take(4).ok_or_else(short)?;
        let sum = r.u32().ok_or_else(short)?;
        let body = bytes.get(8..FIXED).ok_or_else(short)?;
        if magic != MAGIC {
            return Err(Mismatch::new("the magic TZON", format!("{magic:02x?}")));
        }
        let computed = checksum(&[u64::from(zone)], body);
        if sum != computed {
            return Err(Mismatch::checksum(sum, computed));
        }
        let mut fields = || {
            Some(ZoneHeader {
                generation: r.u32()?,
                stream: r.u32()?,
                ordinal: r.u64()?,
                incarnation: r.u64()?,
                units: r.u32()?,
                salt: r.u64()?,
            })
        };
        fields().ok_or_else(short)
    }
}

/// The word that closes a zone: how many of its bytes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(pub(crate) u32);

impl Seal {
    /// Where the seal lies in a zone.
    pub(crate) const AT: u64 = FIXED as u64;

    /// The word on media.
    pub(crate) fn encode(self, zone: u32, generation: u32) -> u64 {
        debug_assert!(self.0 != 0, "a sealed zone has at least its header");
        u64::from(self.0) << 32 | u64::from(self.check(zone, generation))
    }

    /// The seal in a word: `None` while open; the expected and found checksum when damaged.
    pub(crate) fn decode(
        word: u64,
        zone: u32,
        generation: u32,
    ) -> std::result::Result<Option<Seal>, (u32, u32)> {
        if word == 0 {
            return Ok(None);
        }
        let seal = Seal((word >> 32) as u32);
        let (sum, computed) = (word as u32, seal.check(zone, generation));
        if sum == computed { Ok(Some(seal)) } else { Err((sum, computed)) }
    }

    fn check(self, zone: u32, generation: u32) -> u32 {
        checksum(&[u64::from(zone), u64::from(generation), u64::from(self.0)], &[])
    }
}

// Salts: random numbers that no caller can predict. A salt seeds the checksums of a zone's
// sub-entries, so that bytes stored there before cannot pass for a sub-entry.
//
// Thread safety: any thread draws.

#[cfg(any(test, feature = "testing"))]
use crate::os::sync::atomic::AtomicBool;

/// Where salts come from: a hash, keyed by the system at random, of what is drawn for and of how
/// many were drawn.
#[derive(Debug, Default)]
pub(crate) struct Salts {
    keys: RandomKeys,
    drawn: AtomicU64,
    /// On a simulated machine, where every run must be the same: the hash has no key.
    #[cfg(any(test, feature = "testing"))]
    repeats: AtomicBool,
    /// Zones have none: a test shows what salts are for.
    #[cfg(any(test, feature = "testing"))]
    none: AtomicBool,
}

impl Salts {
    /// Draws a salt for opening `incarnation`; never 0, which means that there is none.
    pub(crate) fn draw(&self, incarnation: u64) -> u64 {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        #[cfg(any(test, feature = "testing"))]
        if self.none.load(Ordering::Relaxed) {
            return 0;
        }
        #[cfg(any(test, feature = "testing"))]
        if self.repeats.load(Ordering::Relaxed) {
            return hash(std::hash::DefaultHasher::new(), incarnation, number);
        }
        hash(self.keys.build_hasher(), incarnation, number)
    }

    /// Draws the same salts in every run from now on.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn repeat(&self) {
        self.repeats.store(true, Ordering::Relaxed);
    }

    /// Draws none from now on.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn draw_none(&self) {
        self.none.store(true, Ordering::Relaxed);
    }
}

fn hash(mut hasher: impl Hasher, incarnation: u64, number: u64) -> u64 {
    hasher.write_u64(incarnation);
    hasher.write_u64(number);
    hasher.finish().max(1)
}

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

/// A zone by its header alone: its entry and its seal are not read.
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

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: ZoneHeader =
        ZoneHeader { generation: 3, stream: 1, ordinal: 9, incarnation: 2, units: 4, salt: 5 };

    #[test]
    fn every_flipped_byte_of_the_header_is_found() {
        let sound = HEADER.encode(7);
        assert_eq!(ZoneHeader::decode(&sound, 7), Ok(HEADER));
        assert!(ZoneHeader::decode(&sound, 8).is_err(), "another zone's header");
        for at in 0..FIXED {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert!(ZoneHeader::decode(&bytes, 7).is_err(), "byte {at}");
        }
    }

    #[test]
    fn every_flipped_bit_of_the_seal_is_found() {
        let word = Seal(4096).encode(7, 3);
        assert_eq!(Seal::decode(word, 7, 3), Ok(Some(Seal(4096))));
        for bit in 0..64 {
            assert!(Seal::decode(word ^ 1 << bit, 7, 3).is_err(), "bit {bit}");
        }
        assert!(Seal::decode(word, 7, 4).is_err(), "the seal of an earlier generation");
    }

    mod salts {
        use super::super::*;

        #[test]
        fn salts_differ_and_those_of_a_simulated_machine_are_the_same_in_each_run() {
            let draw = |salts: Salts| [1, 1, 2].map(|incarnation| salts.draw(incarnation));
            let (one, other) = (draw(Salts::default()), draw(Salts::default()));
            assert!(one.iter().all(|salt| *salt != 0 && !other.contains(salt)));
            assert!(one[0] != one[1] && one[1] != one[2]);
            let repeated = || {
                let salts = Salts::default();
                salts.repeat();
                draw(salts)
            };
            assert_eq!(repeated(), repeated());
        }
    }
}
