//! Commit groups inside a segment, parts of commits that are too large for one, and prepared
//! transactions of a checkpoint (`docs/format.md`, "Shared store"). A part has rows that the writer
//! has in extents. They count for nothing until the segment behind them says so.

use crate::base::limits::check_prepared_id;
use crate::base::record::{Kind, Lsn, Reader, TableId, put_bytes, put_u32, put_u64};
use crate::memtable::{Record, encode_record};
use crate::storage::shared_name;

/// What the records of a shipped group are. The numbers are in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupKind {
    /// A commit's.
    Commit,
    /// Those of a transaction that is prepared: they count for no reader.
    Prepared,
    /// A large commit's, beside the rows that lie in so many parts: the entries before its own.
    Large(u32),
    /// Those of a transaction that is prepared, beside the rows that it has spilled, as those of a
    /// large commit.
    PreparedLarge(u32),
}

impl GroupKind {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            GroupKind::Commit => out.push(0),
            GroupKind::Prepared => out.push(2),
            GroupKind::Large(parts) => {
                out.push(3);
                put_u32(out, parts);
            }
            GroupKind::PreparedLarge(parts) => {
                out.push(4);
                put_u32(out, parts);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<GroupKind> {
        match reader.u8()? {
            0 => Some(GroupKind::Commit),
            2 => Some(GroupKind::Prepared),
            3 => reader.u32().filter(|parts| *parts > 0).map(GroupKind::Large),
            4 => reader.u32().filter(|parts| *parts > 0).map(GroupKind::PreparedLarge),
            _ => None,
        }
    }

    pub(crate) fn is_prepare(self) -> bool {
        matches!(self, GroupKind::Prepared | GroupKind::PreparedLarge(_))
    }

    /// How many entries before its own have its rows.
    pub(crate) fn parts(self) -> Option<u32> {
        match self {
            GroupKind::Commit | GroupKind::Prepared => None,
            GroupKind::Large(parts) | GroupKind::PreparedLarge(parts) => Some(parts),
        }
    }
}

/// A commit group as it was shipped: records of each stream that it went to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShippedGroup {
    pub(crate) lsn: Lsn,
    pub(crate) kind: GroupKind,
    pub(crate) parts: Vec<Vec<u8>>,
}

impl ShippedGroup {
    /// The records of all parts.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.parts.iter().flat_map(|part| records_of(part))
    }
}

/// The records that lie behind each other in `bytes`, up to the first that is not sound.
pub(crate) fn records_of(bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let record = Record::decode(bytes.get(at..).filter(|rest| !rest.is_empty())?)?;
        at += record.stored_len();
        Some(record)
    })
}

/// Whether bytes are nothing but sound records.
pub(super) fn are_records(bytes: &[u8]) -> bool {
    records_of(bytes).map(|record| record.stored_len()).sum::<usize>() == bytes.len()
}

/// Groups that are to be a segment, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentGroups {
    bytes: Vec<u8>,
}

impl SegmentGroups {
    /// None yet, in memory that had others.
    pub(crate) fn within(mut bytes: Vec<u8>) -> SegmentGroups {
        bytes.clear();
        SegmentGroups { bytes }
    }

    /// Appends a group, with the records of its parts.
    pub(crate) fn push<'a>(
        &mut self,
        group: (Lsn, GroupKind),
        parts: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        encode_group(&mut self.bytes, group, parts);
    }

    /// The body of the segment.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Appends a group.
pub(super) fn encode_group<'a>(
    out: &mut Vec<u8>,
    (lsn, kind): (Lsn, GroupKind),
    parts: impl ExactSizeIterator<Item = &'a [u8]>,
) {
    put_u64(out, lsn);
    kind.encode(out);
    out.extend_from_slice(&(parts.len() as u16).to_le_bytes());
    parts.for_each(|part| put_bytes(out, part));
}

/// The groups of a segment, whose LSNs go up from `first` to `last`; `None` for other bytes.
pub(super) fn decode_groups(bytes: &[u8], first: Lsn, last: Lsn) -> Option<Vec<ShippedGroup>> {
    let (mut reader, mut groups) = (Reader::new(bytes), Vec::new());
    let (mut next, mut is_behind_large) = (first, false);
    while !reader.is_empty() {
        let (lsn, kind) = (reader.u64()?, GroupKind::decode(&mut reader)?);
        let parts = reader.u16()?;
        let parts = (0..parts).map(|_| reader.bytes().filter(|part| are_records(part)));
        let parts: Vec<Vec<u8>> =
            parts.map(|part| part.map(<[u8]>::to_vec)).collect::<Option<_>>()?;
        let group = ShippedGroup { lsn, kind, parts };
        let is_in_order = (next..=last).contains(&lsn);
        // A run lies in extents of its writer. Parts before the entry have its rows.
        let is_whole = group.records().all(|record| record.kind != Kind::SpilledRun);
        let is_large = kind.parts().is_some();
        let has_its_place = groups.is_empty() || !is_large && !is_behind_large;
        is_behind_large = is_large;
        let is_prepare = group.records().next().is_some_and(|first| first.kind == Kind::Prepare);
        if !is_in_order || !is_whole || !has_its_place || is_prepare != kind.is_prepare() {
            return None;
        }
        next = lsn + 1;
        groups.push(group);
    }
    Some(groups)
}

/// What the rows of a part are. The numbers are in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum PartKind {
    /// A commit's that fits in no zone.
    Written = 0,
    /// A bulk load's, which has laid them out.
    Loaded = 1,
    /// Those that a transaction has spilled which is prepared: they count for no reader.
    Prepared = 2,
}

impl PartKind {
    fn of(n: u32) -> Option<PartKind> {
        use PartKind::{Loaded, Prepared, Written};
        [Written, Loaded, Prepared].into_iter().find(|kind| *kind as u32 == n)
    }
}

/// Rows of one run of a large commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LargePart {
    /// That of the commit.
    pub(crate) lsn: Lsn,
    /// Its place among the parts of the commit, from 0.
    pub(crate) index: u32,
    /// Which of the commit's runs it is of, from 0.
    pub(crate) run: u32,
    /// By the writer's number.
    pub(crate) table: TableId,
    pub(crate) kind: PartKind,
    /// Records of the table, by their keys. No key comes twice in a run.
    pub(crate) records: Vec<u8>,
}

impl LargePart {
    /// Adds a row, of which the key is greater than all before.
    pub(crate) fn add(&mut self, kind: Kind, key: &[u8], value: &[u8]) {
        encode_record(&mut self.records, self.table, kind, key, value);
    }

    /// Its rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Record<'_>> {
        records_of(&self.records)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.lsn);
        for field in [self.index, self.run, self.table, self.kind as u32] {
            put_u32(out, field);
        }
        out.extend_from_slice(&self.records);
    }

    /// Reads one that comes after the LSN `last`; `None` for other bytes.
    pub(super) fn decode(bytes: &[u8], last: Lsn) -> Option<LargePart> {
        let mut reader = Reader::new(bytes);
        let (lsn, index, run, table) = (reader.u64()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let kind = PartKind::of(reader.u32()?)?;
        let records = bytes.get(24..)?.to_vec();
        let part = LargePart { lsn, index, run, table, kind, records };
        (lsn > last && run <= index && part.is_sound()).then_some(part)
    }

    fn is_sound(&self) -> bool {
        let (mut len, mut before): (usize, Option<&[u8]>) = (0, None);
        for row in self.rows() {
            let is_row = matches!(row.kind, Kind::Put | Kind::Delete | Kind::Merge);
            if !is_row || row.table != self.table || before.is_some_and(|key| key >= row.key) {
                return false;
            }
            (len, before) = (len + row.stored_len(), Some(row.key));
        }
        len > 0 && len == self.records.len()
    }
}

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
        shared_name(self.claim, self.number)
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
