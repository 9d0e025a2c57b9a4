//! A commit group, encoded and ready for its ticket. All that can fail in it fails here.

use smallvec::{SmallVec, smallvec};

use super::batch::{Batch, Homes};
use super::subentry::SUB_HEADER;
use crate::error::{Error, Result};
use crate::memtable::{Record, encode_record, set_seq};
use crate::pm::LINE;
use crate::record::{Kind, Lsn, SYSTEM_TABLE};

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

/// Where in a part's bytes a record lies, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) at: usize,
    /// Index into the group's homes; `None` for the engine's own records.
    pub(super) home: Option<usize>,
}

/// One or more operations that become durable together under one LSN.
pub(crate) struct Group {
    pub(super) homes: Homes,
    pub(super) parts: Few<Part>,
    /// Whether its records keep the sequence numbers that they have.
    pub(super) moved: bool,
}

/// The stream that all tables share.
pub(super) const SHARED_STREAM: u32 = 0;

impl Group {
    /// Encodes a batch.
    ///
    /// # Errors
    ///
    /// `Invalid` when the batch broke a limit or does not fit in a zone of `zone_size`.
    pub(crate) fn encode(batch: &Batch, zone_size: u64) -> Result<Group> {
        batch.check()?;
        let homes = batch.homes();
        let mut part = Part::with_capacity(SHARED_STREAM, batch.stored_len());
        for operation in &*batch.effective() {
            let table = homes[operation.target].table();
            part.records.push(Placed { at: part.bytes.len(), home: Some(operation.target) });
            let (key, value) = (batch.key(operation), batch.value(operation));
            encode_record(&mut part.bytes, table, operation.kind, key, value);
        }
        let part = part.closed();
        part.check(zone_size)?;
        Ok(Group { homes, parts: smallvec![part], moved: false })
    }

    /// Encodes one of the engine's own records.
    pub(crate) fn event(key: &[u8], value: &[u8]) -> Group {
        let mut part = Part::with_capacity(SHARED_STREAM, key.len() + value.len());
        part.records.push(Placed { at: part.bytes.len(), home: None });
        encode_record(&mut part.bytes, SYSTEM_TABLE, Kind::TableEvent, key, value);
        Group { homes: Homes::new(), parts: smallvec![part.closed()], moved: false }
    }

    /// Encodes copies of records, for the cleaner's `stream`. They keep their sequence numbers,
    /// and lie in the payload one behind the other in the order given. Together they fit in a
    /// zone: the caller takes less than half of one.
    pub(crate) fn moved(stream: u32, records: &[Record<'_>]) -> Group {
        let payload = records.iter().map(Record::stored_len).sum();
        let mut part = Part::with_capacity(stream, payload);
        for record in records {
            let at = part.bytes.len();
            part.records.push(Placed { at, home: None });
            encode_record(&mut part.bytes, record.table, record.kind, record.key, record.value);
            set_seq(&mut part.bytes[at..], record.seq);
        }
        Group { homes: Homes::new(), parts: smallvec![part.closed()], moved: true }
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
}

impl Part {
    fn with_capacity(stream: u32, payload: usize) -> Part {
        let mut bytes = Vec::with_capacity(SUB_HEADER + payload + LINE as usize);
        bytes.resize(SUB_HEADER, 0);
        Part { stream, bytes, payload_len: 0, records: Few::new() }
    }

    /// The part with its payload complete.
    fn closed(mut self) -> Part {
        self.payload_len = self.bytes.len() - SUB_HEADER;
        self.bytes.resize(self.bytes.len().next_multiple_of(LINE as usize), 0);
        self
    }

    /// The records.
    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[SUB_HEADER..SUB_HEADER + self.payload_len]
    }

    /// Bytes that the part takes in its zone.
    pub(super) fn zone_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn check(&self, zone_size: u64) -> Result<()> {
        let room = zone_size - crate::alloc::ZONE_HEADER;
        if self.zone_len() > room {
            return Err(Error::invalid(format!(
                "a batch of {} bytes does not fit in a zone of {room}; commit it in parts, or \
                 create the database with a larger pm_size",
                self.zone_len()
            )));
        }
        Ok(())
    }
}
