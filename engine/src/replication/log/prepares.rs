//! Prepared transactions in entries of the log (`docs/format.md`, "Shared store").

use super::groups::{are_records, records_of};
use super::names::data_name;
use crate::limits::check_prepared_id;
use crate::record::{Kind, Lsn, Reader, put_bytes, put_u32, put_u64};

/// An object with data: which claim sent it, which of its pieces it is, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DataPiece {
    pub(crate) claim: u64,
    pub(crate) number: u32,
    pub(crate) len: u32,
}

/// A transaction that was prepared and open at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedPrepare {
    pub(crate) lsn: Lsn,
    /// Its records, as in a zone.
    pub(crate) records: Vec<u8>,
    /// Records of the rows that it has spilled.
    pub(crate) pieces: Vec<DataPiece>,
}

/// The first record of a prepare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrepareHead<'a> {
    /// The transaction's name.
    pub(crate) id: &'a [u8],
    /// Locks beyond those on what it has written.
    pub(crate) locks: u32,
}

impl DataPiece {
    /// The name of the object.
    pub(crate) fn name(&self) -> String {
        data_name(self.claim, self.number)
    }
}

impl<'a> PrepareHead<'a> {
    /// That of a prepare's records; `None` for other bytes.
    pub(crate) fn of(records: &'a [u8]) -> Option<PrepareHead<'a>> {
        let first = records_of(records).next()?;
        let mut counts = Reader::new(first.value);
        // How many keys and ranges it has written, with one for each run, and then its locks.
        let (_, locks) = (counts.u32()?, counts.u32()?);
        let is_sound = first.kind == Kind::Prepare && check_prepared_id(first.key).is_ok();
        (is_sound && counts.is_empty()).then_some(PrepareHead { id: first.key, locks })
    }
}

impl SharedPrepare {
    /// Appends its bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.lsn);
        put_bytes(out, &self.records);
        put_u32(out, self.pieces.len() as u32);
        for DataPiece { claim, number, len } in &self.pieces {
            put_u64(out, *claim);
            put_u32(out, *number);
            put_u32(out, *len);
        }
    }

    /// Reads one; `None` for other bytes.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<SharedPrepare> {
        let (lsn, records) = (reader.u64()?, reader.bytes()?.to_vec());
        let pieces = reader.u32()?;
        let piece = |reader: &mut Reader<'_>| {
            let (claim, number, len) = (reader.u64()?, reader.u32()?, reader.u32()?);
            Some(DataPiece { claim, number, len })
        };
        let pieces = (0..pieces).map(|_| piece(reader)).collect::<Option<Vec<_>>>()?;
        let prepare = SharedPrepare { lsn, records, pieces };
        prepare.is_sound().then_some(prepare)
    }

    fn is_sound(&self) -> bool {
        let has_runs = records_of(&self.records).any(|record| record.kind == Kind::SpilledRun);
        PrepareHead::of(&self.records).is_some()
            && are_records(&self.records)
            && has_runs != self.pieces.is_empty()
    }
}
