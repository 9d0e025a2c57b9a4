//! Recovery: which groups were committed. Pure of effects but for loading zones into the image.
//!
//! 1. Each zone in use is parsed from its header on: sub-entries of its generation, of a living
//!    incarnation, with ascending LSNs. The first that does not check out ends it.
//! 2. What lies before a stream's GIDX word was whole at the floor. If it does not check out now,
//!    that is corruption, and so is a bad payload at or below F. Neither is ever a truncation.
//! 3. From F (or the greatest LSN before a GIDX word, which was whole too) upward an LSN is
//!    committed while all its sub-entries are there and sound. The last one before the first gap is
//!    L*.
//! 4. A sub-entry says up to which LSN all was durable when it was written. So does the journal. If
//!    that is above L*, what ends at L* was damaged later: that is corruption.
//!
//! [`judge`] goes by these rules for an opening and for a salvage. Each thing that was durable and
//! does not check out is a doubt. An opening fails with the first one. A salvage reads on behind
//! it, and tells all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::floor::{Floor, Gidx};
use super::lsn_ranges::LsnRanges;
use super::sequencer::StreamTail;
use super::subentry::{Content, SUB_HEADER, SubEntry, Walk};
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::options::Failpoint;
use crate::base::record::{LSN_MAX, Lsn, SYSTEM_TABLE};
use crate::memtable::Record;
use crate::os::sync::atomic::{AtomicUsize, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::{HashMap, at_once};
use crate::pm::alloc::{Seal, ZONE_HEADER, Zone, ZoneScan};
use crate::pm::{Geometry, Incarnations, LINE, Region, Span};

/// A committed sub-entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) lsn: Lsn,
    /// Offset of the payload in the region.
    pub(crate) payload_at: u64,
    pub(crate) payload_len: u64,
    /// Records in it.
    pub(crate) records: u64,
    /// The smallest sequence number of a record: the LSN, but for moved records.
    pub(crate) oldest: Lsn,
    pub(crate) content: Content,
    /// Whether records of the engine's own are in it, which are of no table.
    pub(crate) has_own: bool,
    /// Whether the persistent index knows of all its records, and no memtable has to.
    pub(crate) is_merged: bool,
    incarnation: u64,
}

/// What recovery decided.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// L*: the last committed LSN.
    pub(crate) last: Lsn,
    /// The greatest LSN seen in any header, committed or not.
    pub(crate) seen: Lsn,
    /// Committed sub-entries, by zone.
    pub(crate) zones: Vec<(u32, Vec<Accepted>)>,
    /// Groups found above the floor and committed.
    pub(crate) above_floor: u64,
    /// Ranges above the floor that must be made durable again.
    pub(crate) rewrite: Vec<Span>,
    /// Where each stream goes on, by stream.
    pub(crate) streams: Vec<StreamTail>,
    /// Where each stream's committed records end, by stream.
    pub(crate) gidx: Vec<Option<Gidx>>,
    /// Zones whose seal is missing, longer than what was committed, or perhaps not durable:
    /// (zone, length).
    pub(crate) reseal: Vec<(u32, u64)>,
    /// Zones in which nothing was committed.
    pub(crate) empty: Vec<u32>,
    /// Zones without a seal, with the salt in effect at their tails.
    pub(crate) open_salts: Vec<(u32, u64)>,
}

impl Recovered {
    /// The incarnations of which records were accepted.
    pub(crate) fn incarnations(&self) -> BTreeSet<u64> {
        self.zones.iter().flat_map(|(_, a)| a).map(|a| a.incarnation).collect()
    }
}

/// What recovery looks at.
#[derive(Clone, Copy)]
pub(crate) struct Evidence<'a> {
    pub(crate) region: &'a Region,
    pub(crate) geometry: Geometry,
    pub(crate) floor: Floor,
    /// As [`VersionSet::durable`](crate::version::VersionSet::durable); 0 without a journal.
    pub(crate) durable: Lsn,
    pub(crate) incarnations: &'a Incarnations,
    /// The persistent index knows of the records of all tables up to here; 0 without one.
    pub(crate) merged: Lsn,
    pub(crate) scans: &'a [ZoneScan],
    /// By stream, for the streams that exist.
    pub(crate) gidx: &'a [Option<Gidx>],
    pub(crate) threads: usize,
    /// Told of the bytes of each zone that was read: an error ends it.
    pub(crate) did: &'a (dyn Fn(u64) -> Result<()> + Sync),
    /// Whether payloads are checked; always, but for a planted bug.
    pub(crate) check_payloads: bool,
    /// Another process writes meanwhile, and zones are read one after the other: what was durable
    /// when a sub-entry was written may lie in a zone that was read before.
    pub(crate) is_written: bool,
}

/// One zone, parsed.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) scan: ZoneScan,
    pub(super) entries: Vec<Entry>,
    holes: Vec<Hole>,
    /// Offset in the zone from which on nothing checks out, and why.
    end: u64,
    why: Mismatch,
}

/// What does not check out in front of the entry with the LSN `before`.
#[derive(Debug)]
struct Hole {
    damage: Damage,
    before: Lsn,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) header: SubEntry,
    /// Offset in the zone.
    at: u64,
    /// The salt in effect there.
    salt: u64,
    /// `None` if it is not sound.
    payload: Option<Payload>,
    /// Whether the persistent index knows of all its records: the payload was not looked at.
    is_merged: bool,
}

/// What records a sound payload has.
#[derive(Clone, Copy, Debug)]
struct Payload {
    /// The smallest sequence number.
    oldest: Lsn,
    has_own: bool,
}

impl Entry {
    pub(super) fn is_sound(&self) -> bool {
        self.payload.is_some()
    }

    /// Offset of its payload in its zone.
    pub(super) fn payload_at(&self) -> u64 {
        self.at + SUB_HEADER as u64
    }

    /// What is wrong with its payload.
    fn damage(&self, evidence: &Evidence<'_>, zone: u32) -> Damage {
        let at = evidence.geometry.zone(zone) + self.payload_at();
        let payload = evidence.region.bytes(at, u64::from(self.header.payload_len));
        let (stored, lsn) = (self.header.payload_sum, self.header.lsn);
        let found = match SubEntry::payload_sum(lsn, self.salt, payload) {
            sum if sum == stored => {
                Mismatch::new(format!("{} records that decode", self.header.records), "others")
            }
            sum => Mismatch::checksum(stored, sum),
        };
        evidence.region.damage(at, format!("payload of LSN {lsn}"), found)
    }
}

/// Decides what was committed.
pub(crate) fn recover(evidence: &Evidence<'_>) -> Result<Recovered> {
    let mut doubts = Vec::new();
    let judged = judge(evidence, false, &mut doubts)?;
    if let Some(first) = doubts.into_iter().next() {
        return Err(Error::corrupt(first));
    }
    let floor = Floor { lsn: judged.floor, ..evidence.floor };
    Ok(decide(&Evidence { floor, ..*evidence }, &judged.parsed, judged.last))
}

/// What the rules make of zones.
pub(super) struct Judged {
    /// By their streams and places there.
    pub(super) parsed: Vec<Parsed>,
    /// F, as [`floor_of`] has it.
    floor: Lsn,
    /// L*.
    pub(super) last: Lsn,
}

/// Goes by the rules; what was durable and does not check out goes to `doubts`. To read past
/// damage, each zone is searched line by line for the next header of this use of it. All that is
/// not sound is in doubt then, and without a floor all that is there counts.
pub(super) fn judge(
    evidence: &Evidence<'_>,
    reads_past: bool,
    doubts: &mut Vec<Damage>,
) -> Result<Judged> {
    doubts.extend(headers_that_cannot_be(evidence));
    let mut parsed = parse_all(evidence, reads_past)?;
    parsed.sort_by_key(|p| (p.scan.header.stream, p.scan.header.ordinal));
    let (floor, has_floor) = (floor_of(evidence, &parsed), evidence.floor != Floor::default());
    let is_known = floor > 0 || has_floor || !reads_past;
    let witness = Witness::of(evidence, &parsed);
    let durable = witness.durable.max(floor);
    let holes = parsed.iter_mut().flat_map(|zone| zone.holes.drain(..));
    doubts.extend(holes.map(|hole| told(hole.damage, hole.before - 1 <= durable)));
    doubts.extend(ends_before_tails(evidence, &parsed, reads_past));
    for zone in &parsed {
        for entry in zone.entries.iter().filter(|entry| !entry.is_sound()) {
            let was_durable = entry.header.lsn <= durable;
            if reads_past || was_durable {
                doubts.push(told(entry.damage(evidence, zone.scan.zone), was_durable));
            }
        }
    }
    let first = parsed.iter().flat_map(|p| &p.entries).map(|entry| entry.header.lsn).min();
    let from = if is_known { floor } else { first.map_or(durable, |first| first - 1) };
    let missing = missing(&parsed, from..=durable.max(from));
    doubts.extend((!missing.is_empty()).then(|| {
        let mut damage = witness.misses((evidence, &parsed), &missing);
        if !has_floor && reads_past {
            damage.got += ", or were released, or never given: the floor is lost";
        }
        damage
    }));
    let any_part = evidence.region.has(Failpoint::PublishedShift);
    let last = if is_known { walk(durable, &parsed, any_part) } else { LSN_MAX };
    Ok(Judged { parsed, floor, last })
}

/// Above what was durable a power cut leaves the same as damage, so that is told in doubt.
fn told(mut damage: Damage, was_durable: bool) -> Damage {
    damage.got += if was_durable { "" } else { ", or it was never committed" };
    damage
}

/// F, or the greatest LSN that lies before its stream's GIDX word: it was whole at the floor that
/// the word was written with, and so was every smaller one. The newer floor slot may be damaged,
/// and zones above the older one released since.
fn floor_of(evidence: &Evidence<'_>, parsed: &[Parsed]) -> Lsn {
    let before = |p: &&Parsed| {
        let gidx = evidence.gidx.get(p.scan.header.stream as usize).copied().flatten();
        gidx.is_some_and(|gidx| gidx.zone == p.scan.zone)
    };
    let named = parsed.iter().filter(before).flat_map(|p| {
        let gidx = evidence.gidx[p.scan.header.stream as usize];
        p.entries.iter().filter(move |e| gidx.is_some_and(|gidx| e.at < gidx.tail))
    });
    named.map(|e| e.header.lsn).fold(evidence.floor.lsn, Lsn::max)
}

/// Headers and seals that say what cannot be, though their checksums are right.
fn headers_that_cannot_be(evidence: &Evidence<'_>) -> impl Iterator<Item = Damage> {
    evidence.scans.iter().filter(|scan| scan.in_use).filter_map(|scan| {
        let zone_at = evidence.geometry.zone(scan.zone);
        let (streams, stream) = (evidence.gidx.len(), scan.header.stream);
        if stream as usize >= streams {
            let expected = format!("one of {streams} streams");
            let found = Mismatch::new(expected, format!("stream {stream}"));
            let what = format!("header of zone {}", scan.zone);
            return Some(evidence.region.damage(zone_at, what, found));
        }
        let possible = ZONE_HEADER..=scan.len(evidence.geometry);
        if let Some(Seal(len)) = scan.seal
            && !possible.contains(&u64::from(len))
        {
            let expected = format!("{} to {} bytes", possible.start(), possible.end());
            let (at, found) = (zone_at + Seal::AT, Mismatch::new(expected, len.to_string()));
            return Some(evidence.region.damage(at, format!("seal of zone {}", scan.zone), found));
        }
        None
    })
}

fn parse_all(evidence: &Evidence<'_>, reads_past: bool) -> Result<Vec<Parsed>> {
    let in_use: Vec<ZoneScan> = evidence.scans.iter().copied().filter(|s| s.in_use).collect();
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(in_use.len()));
    at_once(evidence.threads.min(in_use.len()), || {
        while let Some(scan) = in_use.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Once it has ended, nothing more is read.
            let parsed = (evidence.did)(0).and_then(|()| parse(evidence, *scan, reads_past));
            let told = (evidence.did)(scan.len(evidence.geometry));
            results.lock().push(told.and(parsed));
        }
    });
    results.into_inner().into_iter().collect()
}

fn parse(evidence: &Evidence<'_>, scan: ZoneScan, reads_past: bool) -> Result<Parsed> {
    let (zone_at, size) = (evidence.geometry.zone(scan.zone), scan.len(evidence.geometry));
    let limit = scan.seal.map_or(size, |seal| u64::from(seal.0).min(size));
    evidence.region.load(Span { at: zone_at, len: limit })?;
    let (mut entries, mut holes, mut hole) = (Vec::<Entry>::new(), Vec::new(), None);
    let mut walk = Walk::new(evidence.region, evidence.geometry, (scan.zone, scan.header));
    loop {
        // Where the line is lost in which an opening went on, what lies behind it is lost too.
        walk.pass_resumes(limit);
        if walk.at + SUB_HEADER as u64 > limit {
            break;
        }
        // Without the entries before it, an entry is judged by itself.
        let previous = entries.last().filter(|_| !reads_past).map_or(0, |e| e.header.lsn);
        match parse_entry(evidence, &scan, &walk, (limit, previous)) {
            Ok(entry) => {
                holes.extend(hole.take().map(|(at, why)| {
                    let damage = damaged_entry(evidence, &scan, at, why);
                    Hole { damage, before: entry.header.lsn }
                }));
                walk.pass(entry.header.payload_len);
                entries.push(entry);
            }
            Err(why) => {
                hole.get_or_insert((walk.at, why));
                if !reads_past {
                    break;
                }
                walk.at += LINE;
            }
        }
    }
    let whole = (walk.at, Mismatch::new("a sub-entry", "the end of the zone"));
    let (end, why) = hole.unwrap_or(whole);
    Ok(Parsed { scan, entries, holes, end, why })
}

/// What does not check out at an offset of a zone.
fn damaged_entry(evidence: &Evidence<'_>, scan: &ZoneScan, at: u64, why: Mismatch) -> Damage {
    let what = format!("sub-entry in zone {}", scan.zone);
    evidence.region.damage(evidence.geometry.zone(scan.zone) + at, what, why)
}

fn parse_entry(
    evidence: &Evidence<'_>,
    scan: &ZoneScan,
    walk: &Walk<'_>,
    (limit, previous): (u64, Lsn),
) -> std::result::Result<Entry, Mismatch> {
    let (at, salt) = (walk.at, walk.salt);
    let header = walk.header()?;
    let payload_at = at + SUB_HEADER as u64;
    let wrong = |what: &str, got: String| Err(Mismatch::new(what, got));
    if header.zone_generation != scan.header.generation || header.stream != scan.header.stream {
        return wrong("a sub-entry of this zone's generation", "an older one".into());
    }
    let is_alive = evidence.incarnations.alive(header.incarnation, header.lsn);
    if !is_alive && !evidence.region.has(Failpoint::AcceptOldIncarnation) {
        return wrong("a living sub-entry", format!("one of incarnation {}", header.incarnation));
    }
    if header.lsn <= previous || header.index >= header.count {
        return wrong(&format!("an LSN above {previous}"), format!("LSN {}", header.lsn));
    }
    if payload_at + u64::from(header.payload_len) > limit {
        return wrong("a payload inside the zone", format!("{} bytes", header.payload_len));
    }
    let merged = evidence.merged.min(evidence.floor.lsn);
    let is_merged = header.is_plain && header.content == Content::Commit && header.lsn <= merged;
    let payload = || walk.bytes(payload_at, u64::from(header.payload_len));
    let payload = if is_merged || !evidence.check_payloads {
        Some(Payload { oldest: header.lsn, has_own: !is_merged })
    } else if SubEntry::payload_sum(header.lsn, salt, payload()) == header.payload_sum {
        payload_of(&header, payload())
    } else {
        None
    };
    Ok(Entry { header, at, salt, payload, is_merged })
}

/// What a payload has, if it holds the records that the header speaks of.
fn payload_of(header: &SubEntry, mut payload: &[u8]) -> Option<Payload> {
    let mut found = Payload { oldest: header.lsn, has_own: false };
    for _ in 0..header.records {
        let record = Record::decode(payload)?;
        if record.seq != header.lsn
            && !(header.content == Content::Moved && record.seq < header.lsn)
        {
            return None;
        }
        found.oldest = found.oldest.min(record.seq);
        found.has_own |= record.table == SYSTEM_TABLE;
        payload = payload.get(record.stored_len()..)?;
    }
    payload.is_empty().then_some(found)
}

/// Rule 2, of what GIDX words say was whole: zones that are not there, or that end before it. A
/// sealed zone ends with an entry. Behind a GIDX word a cut may have left its seal without its end,
/// which is in doubt only for a reader past damage.
fn ends_before_tails(evidence: &Evidence<'_>, parsed: &[Parsed], reads_past: bool) -> Vec<Damage> {
    let mut damages = Vec::new();
    for (stream, gidx) in evidence.gidx.iter().enumerate() {
        let of_stream = |p: &&Parsed| p.scan.header.stream as usize == stream;
        let find = |gidx: &Gidx| {
            let named = parsed.iter().filter(of_stream).find(|p| p.scan.zone == gidx.zone);
            named.map(|named| (named.scan.header.ordinal, gidx.tail))
        };
        let named = gidx.as_ref().and_then(find);
        if let (Some(gidx), None) = (gidx, named) {
            let expected = format!("zone {} in stream {stream}", gidx.zone);
            let found = Mismatch::new(expected, "no such zone");
            let what = format!("GIDX word of stream {stream}");
            damages.push(evidence.region.damage(Geometry::gidx(stream as u32), what, found));
        }
        for zone in parsed.iter().filter(of_stream) {
            let seal = zone.scan.seal.map(|seal| u64::from(seal.0));
            let (is_before, tail) = named.map_or((false, 0), |(ordinal, tail)| {
                match zone.scan.header.ordinal.cmp(&ordinal) {
                    std::cmp::Ordering::Less => (true, 0),
                    std::cmp::Ordering::Equal => (false, tail),
                    std::cmp::Ordering::Greater => (false, 0),
                }
            });
            damages.extend((is_before && seal.is_none()).then(|| unsealed(evidence, zone)));
            let whole_until = seal.filter(|_| is_before || reads_past).unwrap_or(tail);
            if zone.end < whole_until {
                let damage = damaged_entry(evidence, &zone.scan, zone.end, zone.why.clone());
                damages.push(told(damage, is_before || zone.end < tail));
            }
        }
    }
    damages
}

fn unsealed(evidence: &Evidence<'_>, zone: &Parsed) -> Damage {
    let at = evidence.geometry.zone(zone.scan.zone) + Seal::AT;
    let what = format!("seal of zone {}", zone.scan.zone);
    evidence.region.damage(at, what, Mismatch::new("a seal", "none"))
}

/// Rule 3.
fn walk(floor: Lsn, parsed: &[Parsed], any_part: bool) -> Lsn {
    let mut parts: HashMap<Lsn, (u16, u16)> = HashMap::default();
    for entry in parsed.iter().flat_map(|p| &p.entries) {
        if entry.header.lsn > floor && entry.is_sound() {
            let (_, found) = parts.entry(entry.header.lsn).or_insert((entry.header.count, 0));
            *found += 1;
        }
    }
    let whole = |lsn: &Lsn| parts.get(lsn).is_some_and(|(count, found)| any_part || count == found);
    (floor + 1..).take_while(whole).last().unwrap_or(floor)
}

/// Rule 4: the LSNs behind the first one of a range of which not all headers are there.
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

/// What says up to which LSN all was durable.
struct Witness {
    durable: Lsn,
    /// Offset in the region; `None` for the journal.
    at: Option<u64>,
    when: String,
}

impl Witness {
    /// The one that says the most: a sub-entry, or the journal.
    fn of(evidence: &Evidence<'_>, parsed: &[Parsed]) -> Witness {
        let entries = parsed.iter().flat_map(|p| p.entries.iter().map(|e| (p.scan.zone, e)));
        let newest = entries.max_by_key(|(_, entry)| entry.header.durable);
        let counts = |durable| !evidence.is_written && durable >= evidence.durable;
        let newest = newest.filter(|(_, entry)| counts(entry.header.durable));
        let (durable, at, when) = match newest {
            Some((zone, Entry { header, at, .. })) => {
                let when = format!("LSN {} was written", header.lsn);
                (header.durable, Some(evidence.geometry.zone(zone) + at), when)
            }
            None => (evidence.durable, None, "an edit of the journal was made".into()),
        };
        Witness { durable, at, when }
    }

    /// Damage to LSNs that were durable.
    fn misses(&self, (evidence, parsed): (&Evidence<'_>, &[Parsed]), lsns: &LsnRanges) -> Damage {
        let what = format!("LSN {lsns}, which was durable when {},", self.when);
        let found = Mismatch::new("all of its sub-entries", "some that are damaged or missing");
        // What the journal speaks of lay behind one of the last entries that there are.
        let last = |zone: &Parsed| zone.entries.last().map(|entry| entry.header.lsn);
        let behind = parsed.iter().max_by_key(|zone| last(zone));
        let end = behind.map(|zone| evidence.geometry.zone(zone.scan.zone) + zone.end);
        evidence.region.damage(self.at.or(end).unwrap_or(0), what, found)
    }
}

fn decide(evidence: &Evidence<'_>, parsed: &[Parsed], last: Lsn) -> Recovered {
    let mut recovered = Recovered {
        last,
        seen: last,
        zones: Vec::with_capacity(parsed.len()),
        above_floor: last - evidence.floor.lsn,
        rewrite: Vec::new(),
        streams: vec![StreamTail::default(); evidence.gidx.len()],
        gidx: vec![None; evidence.gidx.len()],
        reseal: Vec::new(),
        empty: Vec::new(),
        open_salts: Vec::new(),
    };
    let named = named_ordinals(evidence, parsed);
    // Zones come in order of stream and ordinal, so the last with something in it stays open.
    for zone in parsed {
        let header = &zone.scan.header;
        let seal_is_durable = header.ordinal < named[header.stream as usize];
        decide_zone(evidence, zone, (last, seal_is_durable), &mut recovered);
    }
    let unused = evidence.scans.iter().filter(|s| !s.in_use).map(|s| s.zone);
    recovered.empty.extend(unused);
    // All tables begin on the shared stream.
    for stream in recovered.streams.iter_mut().skip(1) {
        stream.idle = true;
        if let Some(left_open) = stream.zone.take() {
            recovered.reseal.push((left_open.number, stream.tail));
        }
    }
    recovered
}

/// Per stream, the place in its chain of the zone that the GIDX word names. Seals of earlier zones
/// were durable at the floor; a later one may be in a cache only, left there by a killed process.
fn named_ordinals(evidence: &Evidence<'_>, parsed: &[Parsed]) -> Vec<u64> {
    let mut ordinals = vec![0; evidence.gidx.len()];
    for Parsed { scan, .. } in parsed {
        let stream = scan.header.stream as usize;
        let gidx = evidence.gidx.get(stream).copied().flatten();
        if gidx.is_some_and(|gidx| gidx.zone == scan.zone) {
            ordinals[stream] = scan.header.ordinal;
        }
    }
    ordinals
}

fn decide_zone(
    evidence: &Evidence<'_>,
    parsed: &Parsed,
    (last, seal_is_durable): (Lsn, bool),
    recovered: &mut Recovered,
) {
    let scan = &parsed.scan;
    let zone_at = evidence.geometry.zone(scan.zone);
    recovered.seen = recovered.seen.max(parsed.entries.last().map_or(0, |e| e.header.lsn));
    let kept: Vec<&Entry> = parsed.entries.iter().take_while(|e| e.header.lsn <= last).collect();
    let Some(newest) = kept.last() else {
        recovered.empty.push(scan.zone);
        return;
    };
    let stored = SUB_HEADER as u64 + u64::from(newest.header.payload_len);
    let tail = newest.at + stored.next_multiple_of(LINE);
    if let Some(entry) = kept.iter().find(|e| e.header.lsn > evidence.floor.lsn) {
        recovered.rewrite.push(Span { at: zone_at + entry.at, len: tail - entry.at });
    }
    recovered.zones.push((scan.zone, kept.iter().map(|e| accepted(e, zone_at)).collect()));
    if scan.seal.is_some_and(|seal| u64::from(seal.0) != tail || !seal_is_durable) {
        recovered.reseal.push((scan.zone, tail));
    }
    let stream = scan.header.stream as usize;
    let zone = Zone { number: scan.zone, len: scan.len(evidence.geometry) };
    let open = scan.seal.is_none().then_some(zone);
    recovered.open_salts.extend(open.map(|zone| (zone.number, newest.salt)));
    let header = &scan.header;
    let resumed = StreamTail::resumed(open, header.units, tail, header.ordinal, newest.header.lsn);
    let before = std::mem::replace(&mut recovered.streams[stream], resumed);
    if let Some(left_open) = before.zone {
        recovered.reseal.push((left_open.number, before.tail));
    }
    recovered.gidx[stream] = Some(Gidx { zone: scan.zone, tail });
}

fn accepted(entry: &Entry, zone_at: u64) -> Accepted {
    // One that is not sound lies above what was committed: nothing to be told from a table's.
    let payload = entry.payload.unwrap_or(Payload { oldest: entry.header.lsn, has_own: true });
    Accepted {
        lsn: entry.header.lsn,
        payload_at: zone_at + entry.at + SUB_HEADER as u64,
        payload_len: u64::from(entry.header.payload_len),
        records: u64::from(entry.header.records),
        oldest: payload.oldest,
        content: entry.header.content,
        has_own: payload.has_own,
        is_merged: entry.is_merged,
        incarnation: entry.header.incarnation,
    }
}
