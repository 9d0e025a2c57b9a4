//! Commit groups inside a segment (`docs/format.md`, "Shared store").

use crate::memtable::Record;
use crate::record::{Kind, Lsn, Reader, put_bytes, put_u32, put_u64};

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

    fn is_prepare(self) -> bool {
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
    /// Appends a group, of which the parts are encoded: the length of each, and its records.
    pub(crate) fn push(&mut self, (lsn, kind): (Lsn, GroupKind), count: u16, parts: &[u8]) {
        begin_group(&mut self.bytes, (lsn, kind), count);
        self.bytes.extend_from_slice(parts);
    }

    /// The body of the segment.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn begin_group(out: &mut Vec<u8>, (lsn, kind): (Lsn, GroupKind), parts: u16) {
    put_u64(out, lsn);
    kind.encode(out);
    out.extend_from_slice(&parts.to_le_bytes());
}

/// Appends a group.
pub(super) fn encode_group<'a>(
    out: &mut Vec<u8>,
    (lsn, kind): (Lsn, GroupKind),
    parts: impl ExactSizeIterator<Item = &'a [u8]>,
) {
    begin_group(out, (lsn, kind), parts.len() as u16);
    parts.for_each(|part| put_bytes(out, part));
}

/// The groups of a segment, whose LSNs go up from `first` to `last`; `None` for other bytes.
pub(super) fn decode_groups(bytes: &[u8], first: Lsn, last: Lsn) -> Option<Vec<ShippedGroup>> {
    let (mut reader, mut groups) = (Reader::new(bytes), Vec::new());
    let mut next = first;
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
        let has_its_place = groups.is_empty() || kind.parts().is_none();
        let is_prepare = group.records().next().is_some_and(|first| first.kind == Kind::Prepare);
        if !is_in_order || !is_whole || !has_its_place || is_prepare != kind.is_prepare() {
            return None;
        }
        next = lsn + 1;
        groups.push(group);
    }
    Some(groups)
}
