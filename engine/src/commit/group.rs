//! A commit group, encoded and ready for its ticket. All that can fail in it fails here.

use std::collections::{HashMap, HashSet};

use smallvec::{SmallVec, smallvec};

use super::batch::{Batch, Homes};
use super::subentry::SUB_HEADER;
use crate::error::{Error, Result};
use crate::memtable::{Record, encode_record, record_len, set_seq};
use crate::mvcc::KeyInterval;
use crate::pm::LINE;
use crate::record::{Kind, Lsn, SYSTEM_TABLE, encode_end};

/// Most groups have few of everything: no allocation for those.
pub(super) type Few<T> = SmallVec<[T; 2]>;

/// The records of a group that go to one stream.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) stream: u32,
    /// Room for the header, the payload, and zeros up to a whole line: as it goes to the zone.
    pub(super) bytes: Vec<u8>,
    payload_len: usize,
    pub(super) records: Few<Placed>,
}

/// Where in a part's bytes a record's key lies, and whose record it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) at: usize,
    /// Index into the group's homes; `None` for the engine's own records.
    pub(super) home: Option<usize>,
    key_len: usize,
    /// Bytes that it takes.
    pub(super) stored: usize,
    /// Which of the group's batches it came with.
    batch: u32,
}

/// One or more batches that become durable together under one LSN.
pub(crate) struct Group {
    pub(super) homes: Homes,
    pub(super) parts: Few<Part>,
    /// Whether its records keep the sequence numbers that they have.
    pub(super) moved: bool,
    /// Whether it has range deletes: then it is of one batch, in which their order was settled.
    has_ranges: bool,
    /// How many batches went into it.
    batches: u32,
    /// Whether it has a batch whose rows are not locked.
    pub(super) unlocked: bool,
}

/// The stream that all tables share which have none of their own.
pub(super) const SHARED_STREAM: u32 = 0;

impl Group {
    /// Encodes a batch.
    ///
    /// # Errors
    ///
    /// `Invalid` when the batch broke a limit or does not fit in the largest zone, of `largest`
    /// bytes.
    pub(crate) fn encode(batch: &Batch, largest: u64) -> Result<Group> {
        batch.check()?;
        let homes = batch.homes();
        let mut parts: Few<Part> = Few::new();
        let mut add = |target: usize, kind, key: &[u8], value: &[u8]| {
            let home = &homes[target];
            let part = part_of(&mut parts, home.stream(), batch.stored_len());
            part.records.push(Placed {
                at: part.bytes.len(),
                home: Some(target),
                key_len: key.len(),
                stored: record_len(key.len(), value.len()),
                batch: 0,
            });
            encode_record(&mut part.bytes, home.table(), kind, key, value);
        };
        let effective = batch.effective();
        for (target, KeyInterval { start, end }) in &effective.ranges {
            add(*target, Kind::RangeDelete, start, &encode_end(end.as_deref()));
        }
        for operation in &*effective.points {
            let (key, value) = (batch.key(operation), batch.value(operation));
            add(operation.target, operation.kind, key, value);
        }
        for part in &mut parts {
            part.close();
            part.check(largest)?;
        }
        let (has_ranges, unlocked) = (batch.has_ranges, batch.unlocked);
        Ok(Group { homes, parts, batches: 1, moved: false, has_ranges, unlocked })
    }

    /// Encodes one of the engine's own records.
    pub(crate) fn event(key: &[u8], value: &[u8]) -> Group {
        let mut part = Part::with_capacity(SHARED_STREAM, key.len() + value.len());
        let stored = record_len(key.len(), value.len());
        part.records.push(Placed {
            at: SUB_HEADER,
            home: None,
            key_len: key.len(),
            stored,
            batch: 0,
        });
        encode_record(&mut part.bytes, SYSTEM_TABLE, Kind::TableEvent, key, value);
        part.close();
        Group::of_the_engine(part, false)
    }

    /// Encodes copies of records, for the cleaner's `stream`. They keep their sequence numbers,
    /// and lie in the payload one behind the other in the order given. Together they fit in a
    /// zone: the caller takes less than half of one.
    pub(crate) fn moved(stream: u32, records: &[Record<'_>]) -> Group {
        let payload = records.iter().map(Record::stored_len).sum();
        let mut part = Part::with_capacity(stream, payload);
        for record in records {
            let (at, stored) = (part.bytes.len(), record.stored_len());
            let key_len = record.key.len();
            part.records.push(Placed { at, home: None, key_len, stored, batch: 0 });
            encode_record(&mut part.bytes, record.table, record.kind, record.key, record.value);
            set_seq(&mut part.bytes[at..], record.seq);
        }
        part.close();
        Group::of_the_engine(part, true)
    }

    fn of_the_engine(part: Part, moved: bool) -> Group {
        let parts = smallvec![part];
        let (homes, unlocked) = (Homes::new(), false);
        Group { homes, parts, batches: 1, moved, has_ranges: false, unlocked }
    }

    /// Number of records.
    pub(crate) fn records(&self) -> u64 {
        self.parts.iter().map(|p| p.records.len() as u64).sum()
    }

    /// Writes the group's LSN into its records, but for moved ones.
    pub(super) fn number(&mut self, lsn: Lsn) {
        if self.moved {
            return;
        }
        for part in &mut self.parts {
            for record in &part.records {
                set_seq(&mut part.bytes[record.at..], lsn);
            }
        }
    }

    /// Whether `next` may go in the same group, which then has at most `most` bytes.
    pub(super) fn takes(&self, next: &Group, most: usize) -> bool {
        let bytes = |group: &Group| group.parts.iter().map(|p| p.bytes.len()).sum::<usize>();
        let are_batches = !self.homes.is_empty() && !next.homes.is_empty();
        let has_ranges = self.has_ranges || next.has_ranges;
        are_batches && !has_ranges && bytes(self) + bytes(next) <= most
    }

    /// Takes in the records of a group that came later; then [`Group::drop_superseded`].
    pub(super) fn absorb(&mut self, next: Group) {
        let homes: Few<usize> = next.homes.into_iter().map(|home| self.home(home)).collect();
        for part in next.parts {
            let own = part_of(&mut self.parts, part.stream, part.payload_len);
            own.open();
            let shift = own.bytes.len() - SUB_HEADER;
            own.bytes.extend_from_slice(part.payload());
            own.records.extend(part.records.into_iter().map(|record| Placed {
                at: record.at + shift,
                home: record.home.map(|home| homes[home]),
                batch: record.batch + self.batches,
                ..record
            }));
            own.close();
        }
        self.batches += next.batches;
        self.unlocked |= next.unlocked;
    }

    /// The index of a home, which is added if it is new.
    fn home(&mut self, home: std::sync::Arc<dyn super::Home>) -> usize {
        let known = self.homes.iter().position(|h| h.table() == home.table());
        known.unwrap_or_else(|| {
            self.homes.push(home);
            self.homes.len() - 1
        })
    }

    /// Of several records of a key, leaves the last that was absorbed: within one LSN a key of a
    /// table occurs once.
    pub(super) fn drop_superseded(&mut self) {
        if self.batches == 1 {
            return;
        }
        let mut superseded: Vec<(u32, usize, usize)> = Vec::new();
        let mut newest = HashMap::with_capacity(self.records() as usize);
        for (p, part) in self.parts.iter().enumerate() {
            for (r, record) in part.records.iter().enumerate() {
                let this = (record.batch, p, r);
                let best = newest.entry((record.home, part.key(record))).or_insert(this);
                if *best != this {
                    superseded.push(this.min(*best));
                    *best = this.max(*best);
                }
            }
        }
        for (p, part) in self.parts.iter_mut().enumerate() {
            let gone = superseded.iter().filter(|(_, of, _)| *of == p).map(|(_, _, r)| *r);
            part.remove(&gone.collect());
        }
        self.parts.retain(|part| !part.records.is_empty());
    }
}

fn part_of(parts: &mut Few<Part>, stream: u32, payload: usize) -> &mut Part {
    let known = parts.iter().position(|part| part.stream == stream);
    let at = known.unwrap_or_else(|| {
        parts.push(Part::with_capacity(stream, payload));
        parts.len() - 1
    });
    &mut parts[at]
}

impl Part {
    fn with_capacity(stream: u32, payload: usize) -> Part {
        let mut bytes = Vec::with_capacity(SUB_HEADER + payload + LINE as usize);
        bytes.resize(SUB_HEADER, 0);
        Part { stream, bytes, payload_len: 0, records: Few::new() }
    }

    /// Completes the payload.
    fn close(&mut self) {
        self.payload_len = self.bytes.len() - SUB_HEADER;
        self.bytes.resize(self.bytes.len().next_multiple_of(LINE as usize), 0);
    }

    /// Makes room behind the payload again.
    fn open(&mut self) {
        self.bytes.truncate(SUB_HEADER + self.payload_len);
    }

    /// The records.
    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[SUB_HEADER..SUB_HEADER + self.payload_len]
    }

    fn key(&self, record: &Placed) -> &[u8] {
        let at = record.at + crate::memtable::RECORD_HEADER;
        &self.bytes[at..at + record.key_len]
    }

    /// Removes records, given by index.
    fn remove(&mut self, gone: &HashSet<usize>) {
        if gone.is_empty() {
            return;
        }
        let mut kept = Part::with_capacity(self.stream, self.payload_len);
        for (r, record) in self.records.iter().enumerate() {
            if !gone.contains(&r) {
                kept.records.push(Placed { at: kept.bytes.len(), ..*record });
                kept.bytes.extend_from_slice(&self.bytes[record.at..record.at + record.stored]);
            }
        }
        kept.close();
        *self = kept;
    }

    /// Bytes that the part takes in its zone.
    pub(super) fn zone_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn check(&self, largest: u64) -> Result<()> {
        let room = largest - crate::alloc::ZONE_HEADER;
        if self.zone_len() > room {
            return Err(Error::invalid(format!(
                "a batch of {} bytes does not fit in the largest zone, which has room for {room}; \
                 commit it in parts, or create the database with a larger pm_size",
                self.zone_len()
            )));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("tables", &self.homes.len())
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}
