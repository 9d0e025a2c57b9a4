//! Commit groups as they lie in zones, in the order of their LSNs: the shipper reads here what the
//! shared store lacks (`docs/internals/shared-store.md`). The caller sees to it that zones stay.
//!
//! Thread safety: any thread reads. It reads each stream up to the tail that the publisher has of
//! it. The groups before a tail have finished their slots, and nothing writes there any more.

use std::collections::VecDeque;
use std::iter::Peekable;

use super::committer::Committer;
use super::group::Few;
use super::subentry::{Content, SUB_HEADER, SubEntry, Walk};
use crate::base::error::{Error, Mismatch, Result};
use crate::base::record::{Kind, Lsn};
use crate::memtable::{Record, records_in};
use crate::pm::Region;
use crate::pm::alloc::StreamZone;

/// A commit group.
#[derive(Debug)]
pub(crate) struct StoredGroup<'a> {
    pub(crate) lsn: Lsn,
    pub(crate) content: Content,
    region: &'a Region,
    parts: Few<StoredPart>,
}

/// What a group has in one stream: its place in the group, and where its records lie.
#[derive(Clone, Copy, Debug)]
struct StoredPart {
    index: u16,
    is_plain: bool,
    at: u64,
    len: u64,
}

impl<'a> StoredGroup<'a> {
    /// The records of each part.
    pub(crate) fn parts(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.parts.iter().map(|part| self.region.bytes(part.at, part.len))
    }

    /// Its records, part after part.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'a>> {
        let records = |part: &StoredPart| records_in(self.region, part.at, part.len);
        self.parts.iter().flat_map(records).map(|(_, record)| record)
    }

    /// Its records that are the engine's own, or delete ranges, and others beside these.
    pub(crate) fn records_beside_plain(&self) -> impl Iterator<Item = Record<'a>> {
        let parts = self.parts.iter().filter(|part| !part.is_plain);
        parts.flat_map(|part| records_in(self.region, part.at, part.len)).map(|(_, record)| record)
    }

    /// Whether some of its rows lie in extents, as runs.
    pub(crate) fn has_runs(&self) -> bool {
        self.records_beside_plain().any(|record| record.kind == Kind::SpilledRun)
    }

    /// Bytes of its records.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len).sum()
    }
}

/// Where a reader is in a stream.
#[derive(Clone, Copy, Debug)]
struct StreamPlace {
    zone: u32,
    generation: u32,
    at: u64,
    salt: u64,
}

/// Where a reader of groups has come to in each stream: so it looks at no header again and again.
#[derive(Debug, Default)]
pub(crate) struct StreamPlaces(Vec<Option<StreamPlace>>);

/// A stream as it is read.
struct StreamReader<'a> {
    walk: Walk<'a>,
    /// The zone of the walk.
    zone: StreamZone,
    /// Those behind it.
    zones: VecDeque<StreamZone>,
    /// The header at the walk's place.
    next: Option<SubEntry>,
}

/// Groups in the order of their LSNs. After an error there are none.
pub(crate) struct StoredGroups<'a> {
    committer: &'a Committer,
    streams: Vec<StreamReader<'a>>,
    /// The LSN behind that of the group before.
    next: Lsn,
    /// Whether groups that are not whole are passed over.
    passes_over: bool,
}

impl Committer {
    /// The groups from the LSN `from` on that are written. `places` are those of the reader before,
    /// whose first LSN was at most that one.
    pub(crate) fn stored_groups(
        &self,
        places: &mut StreamPlaces,
        from: Lsn,
    ) -> Result<StoredGroups<'_>> {
        let tails = self.publisher.tails();
        let mut zones = self.zones.zones_from(from).into_iter().peekable();
        let mut streams = Vec::with_capacity(tails.len());
        places.0.resize(tails.len(), None);
        for (stream, (tail, place)) in (0..).zip(tails.iter().zip(&mut places.0)) {
            let mut zones = of_stream(&mut zones, stream);
            // Nothing is written behind the tail. Where its zone is not there, all was read.
            let last = tail.and_then(|tail| zones.iter().position(|it| it.number == tail.zone));
            zones.truncate(last.map_or(0, |last| last + 1));
            if let (Some(tail), Some(last)) = (tail, zones.back_mut()) {
                last.end = tail.tail;
            }
            let Some(zone) = zones.pop_front() else {
                *place = None;
                continue;
            };
            let walk = Walk::new(&self.region, self.zones.geometry(), (zone.number, zone.header));
            let mut reader = StreamReader { walk, zone, zones, next: None };
            if let Some(before) = *place
                && (before.zone, before.generation) == (zone.number, zone.header.generation)
            {
                (reader.walk.at, reader.walk.salt) = (before.at, before.salt);
            }
            reader.look(self)?;
            while reader.next.is_some_and(|next| next.lsn < from) {
                reader.pass(self)?;
            }
            *place = Some(reader.place());
            streams.push(reader);
        }
        Ok(StoredGroups { committer: self, streams, next: from, passes_over: false })
    }
}

/// Takes the zones of a stream, which are the first ones.
fn of_stream(
    zones: &mut Peekable<impl Iterator<Item = StreamZone>>,
    stream: u32,
) -> VecDeque<StreamZone> {
    std::iter::from_fn(|| zones.next_if(|zone| zone.header.stream == stream)).collect()
}

impl<'a> StreamReader<'a> {
    fn place(&self) -> StreamPlace {
        let (zone, generation) = (self.zone.number, self.zone.header.generation);
        StreamPlace { zone, generation, at: self.walk.at, salt: self.walk.salt }
    }

    /// Goes on behind the next sub-entry.
    fn pass(&mut self, committer: &'a Committer) -> Result<()> {
        if let Some(next) = self.next.take() {
            self.walk.pass(next.payload_len);
        }
        self.look(committer)
    }

    /// Finds the next sub-entry. All that lies before the end of a zone is whole.
    fn look(&mut self, committer: &'a Committer) -> Result<()> {
        loop {
            self.walk.pass_resumes(self.zone.end);
            if self.walk.at < self.zone.end {
                break;
            }
            let Some(zone) = self.zones.pop_front() else { return Ok(()) };
            let geometry = committer.zones.geometry();
            self.walk = Walk::new(&committer.region, geometry, (zone.number, zone.header));
            self.zone = zone;
        }
        let is_own = |entry: &SubEntry| {
            let end = self.walk.at + SUB_HEADER as u64 + u64::from(entry.payload_len);
            entry.zone_generation == self.zone.header.generation && end <= self.zone.end
        };
        let found = self.walk.header();
        let other = || Mismatch::new("one of this use of the zone", "another one");
        let found = found.and_then(|entry| Some(entry).filter(is_own).ok_or_else(other));
        self.next = Some(found.map_err(|found| {
            let at = committer.zones.geometry().zone(self.zone.number) + self.walk.at;
            let what = format!("sub-entry in zone {}", self.zone.number);
            Error::corrupt(committer.region.damage(at, what, found))
        })?);
        Ok(())
    }

    /// The part that the next sub-entry is. Its payload is checked if it counts.
    fn part(&self, entry: &SubEntry, committer: &Committer) -> Result<StoredPart> {
        let zone_at = committer.zones.geometry().zone(self.zone.number);
        let (at, len) = (self.walk.at + SUB_HEADER as u64, u64::from(entry.payload_len));
        let sum = || SubEntry::payload_sum(entry.lsn, self.walk.salt, self.walk.bytes(at, len));
        if entry.content != Content::Moved && sum() != entry.payload_sum {
            let found = Mismatch::checksum(entry.payload_sum, sum());
            let what = format!("payload of LSN {}", entry.lsn);
            return Err(Error::corrupt(committer.region.damage(zone_at + at, what, found)));
        }
        let SubEntry { index, is_plain, .. } = *entry;
        Ok(StoredPart { index, is_plain, at: zone_at + at, len })
    }
}

impl<'a> StoredGroups<'a> {
    /// The same without groups that are not whole: some of their zones have gone.
    pub(crate) fn that_are_whole(self) -> StoredGroups<'a> {
        StoredGroups { passes_over: true, ..self }
    }

    /// The group of this LSN; `None` if it is passed over.
    fn group(&mut self, lsn: Lsn) -> Result<Option<StoredGroup<'a>>> {
        let (mut parts, mut of) = (Few::new(), None);
        for stream in &mut self.streams {
            if let Some(entry) = stream.next.filter(|entry| entry.lsn == lsn) {
                parts.push(stream.part(&entry, self.committer)?);
                of = Some(entry);
                stream.pass(self.committer)?;
            }
        }
        let Committer { region, incarnation, first, .. } = self.committer;
        let expected = self.next.max(*first);
        self.next = lsn + 1;
        // An opening gives each LSN. What earlier ones have given was looked at by this one.
        let is_whole = |entry: &SubEntry| {
            // One that only reads goes on with the incarnation that it finds.
            let is_own = entry.incarnation == *incarnation && lsn >= *first;
            let is_next = !is_own || lsn == expected;
            usize::from(entry.count) == parts.len() && is_next
        };
        let Some(entry) = of.filter(is_whole) else {
            if self.passes_over {
                return Ok(None);
            }
            let found =
                Mismatch::new("all of its sub-entries", format!("{} of LSN {lsn}", parts.len()));
            return Err(Error::corrupt(region.damage(0, format!("LSN {expected}"), found)));
        };
        parts.sort_by_key(|part: &StoredPart| part.index);
        Ok(Some(StoredGroup { lsn, content: entry.content, region, parts }))
    }
}

impl<'a> Iterator for StoredGroups<'a> {
    type Item = Result<StoredGroup<'a>>;

    fn next(&mut self) -> Option<Result<StoredGroup<'a>>> {
        loop {
            let lsns = self.streams.iter().filter_map(|stream| Some(stream.next?.lsn));
            let group = self.group(lsns.min()?);
            if group.is_err() {
                self.streams.clear();
            }
            if let Some(group) = group.transpose() {
                return Some(group);
            }
        }
    }
}
