//! Step 4: what was found is durable, and this opening's incarnation is on the media, before the
//! first ticket.

use std::collections::BTreeMap;

use crate::alloc::ZonePool;
use crate::commit::{Floor, RESUME, Recovered, Resume};
use crate::error::Result;
use crate::pm::{Lived, Region, Span, Superblock};
use crate::record::Lsn;

/// Writes all that recovery rests on again, durably, and then what this opening adds. Its LSNs are
/// above `lsn_after`.
pub(super) fn make_durable(
    region: &Region,
    (zones, recovered): (&ZonePool, &mut Recovered),
    superblock: &mut Superblock,
    (floor, lsn_after): (&mut Floor, Lsn),
) -> Result<()> {
    let before = (superblock.incarnations.current, floor.lsn);
    // What was read may have been in a cache only, left there by a process that was killed:
    // also that a zone is free, on which the list of incarnations is about to rest.
    let fixed = Span { at: 0, len: zones.geometry().zones_start() };
    let found = recovered.rewrite.iter().copied().chain([fixed]);
    region.persist(found.map(|span| region.rewrite(span)))?;
    region.persist(recovered.reseal.iter().map(|(zone, len)| zones.reseal(*zone, *len)))?;
    let used = recovered.incarnations();
    let incarnations = &mut superblock.incarnations;
    let has_records = |l: &Lived| used.range(l.first..=l.last).next().is_some();
    incarnations.begin_next(recovered.last, has_records);
    let resumes = resume_zones(zones, recovered, incarnations.current);
    let resume = || resumes.iter().map(|(at, line)| region.write(*at, line));
    if incarnations.is_long() {
        // What is dead must not be found any more once the joined list calls it alive.
        region.persist(resume())?;
        incarnations.join();
    }
    superblock.lsn_base = recovered.seen.max(superblock.lsn_base).max(lsn_after);
    superblock.write(region)?;
    floor.number += 1;
    floor.lsn = superblock.lsn_base;
    floor.incarnation = superblock.incarnations.current;
    debug_assert!(
        before.0 < superblock.incarnations.current,
        "each opening has a number of its own"
    );
    debug_assert!(before.1 <= floor.lsn, "the floor never falls");
    debug_assert!(recovered.last <= floor.lsn, "no LSN is given twice");
    let mut words: Vec<_> = resume().chain([floor.store(region)]).collect();
    for (stream, gidx) in recovered.gidx.iter().enumerate() {
        words.extend(gidx.map(|gidx| gidx.store(region, stream as u32)));
    }
    region.persist(words)?;
    Ok(())
}

/// Lines for the open zones that this opening goes on in: where each goes in the region, and its
/// bytes. Nothing that a crashed opening left behind them checks out any more.
fn resume_zones(
    zones: &ZonePool,
    recovered: &mut Recovered,
    incarnation: u64,
) -> Vec<(u64, Vec<u8>)> {
    let mut lines = Vec::new();
    let salts: BTreeMap<u32, u64> = recovered.open_salts.iter().copied().collect();
    for (stream, number) in recovered.streams.iter_mut().zip(0..) {
        // In a zone that is full nothing lies behind its tail.
        let Some(zone) = stream.zone.filter(|zone| stream.tail < zone.len) else { continue };
        let resume = Resume {
            incarnation,
            zone_generation: zones.generation(zone.number),
            stream: number,
            salt: zones.draw_salt(zone.number, incarnation),
        };
        let before = salts.get(&zone.number).copied().unwrap_or(0);
        let at = zones.geometry().zone(zone.number) + stream.tail;
        debug_assert!(stream.tail.is_multiple_of(RESUME as u64), "a tail is at a line");
        lines.push((at, resume.encode(zone.number, before)));
        stream.skip(RESUME as u64);
    }
    lines
}
