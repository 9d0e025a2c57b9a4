//! Commit groups inside a segment (`docs/format.md`, "Shared store").

use crate::memtable::Record;
use crate::record::{Kind, Lsn, Reader, put_bytes, put_u64};

/// What the records of a shipped group are. The numbers are in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum GroupKind {
    /// A commit's.
    Commit = 0,
    /// Those of a transaction that is prepared: they count for no reader.
    Prepared = 2,
}

impl GroupKind {
    fn from_u8(n: u8) -> Option<GroupKind> {
        [GroupKind::Commit, GroupKind::Prepared].into_iter().find(|kind| *kind as u8 == n)
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

/// Appends a group.
pub(crate) fn encode_group<'a>(
    out: &mut Vec<u8>,
    (lsn, kind): (Lsn, GroupKind),
    parts: impl ExactSizeIterator<Item = &'a [u8]>,
) {
    put_u64(out, lsn);
    out.push(kind as u8);
    out.extend_from_slice(&(parts.len() as u16).to_le_bytes());
    parts.for_each(|part| put_bytes(out, part));
}

/// The groups of a segment, whose LSNs go up from `first` to `last`; `None` for other bytes.
pub(super) fn decode_groups(bytes: &[u8], first: Lsn, last: Lsn) -> Option<Vec<ShippedGroup>> {
    let (mut reader, mut groups) = (Reader::new(bytes), Vec::new());
    let mut next = first;
    while !reader.is_empty() {
        let (lsn, kind) = (reader.u64()?, GroupKind::from_u8(reader.u8()?)?);
        let parts = reader.u16()?;
        let parts = (0..parts).map(|_| reader.bytes().filter(|part| are_records(part)));
        let parts: Vec<Vec<u8>> =
            parts.map(|part| part.map(<[u8]>::to_vec)).collect::<Option<_>>()?;
        let group = ShippedGroup { lsn, kind, parts };
        let is_in_order = (next..=last).contains(&lsn);
        // A run lies in extents of its writer: a checkpoint ships it.
        let is_whole = group.records().all(|record| record.kind != Kind::SpilledRun);
        let is_prepare = group.records().next().is_some_and(|first| first.kind == Kind::Prepare);
        if !is_in_order || !is_whole || is_prepare != (kind == GroupKind::Prepared) {
            return None;
        }
        next = lsn + 1;
        groups.push(group);
    }
    Some(groups)
}
