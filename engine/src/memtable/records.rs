//! Records as they lie in a zone (`docs/format.md`, section 1).

use std::sync::Arc;

use super::index::Records;
use crate::base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::base::memory::Gauge;
use crate::base::record::{EntryRef, Kind, Lsn, OperandList, Reader, TableId, decode_end};
use crate::mvcc::{KeyInterval, Tombstone};
use crate::pm::Region;

/// Bytes before a record's key.
pub(crate) const RECORD_HEADER: usize = 24;

/// Where the byte of a record's kind lies in its header.
pub(crate) const RECORD_KIND: usize = 20;

/// A record in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) seq: Lsn,
    pub(crate) table: TableId,
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record as cursors show it.
    pub(crate) fn entry(self) -> EntryRef<'a> {
        EntryRef { key: self.key, seq: self.seq, kind: self.kind, value: self.value }
    }

    /// Decodes the record at the head of `bytes`; `None` if there is no sound one.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Record<'a>> {
        let mut r = Reader::new(bytes);
        let (seq, table) = (r.u64()?, r.u32()?);
        let (key_len, value_len) = (r.u32()? as usize, r.u32()? as usize);
        let kind = Kind::from_u8(r.u8()?).filter(|kind| *kind != Kind::Reference)?;
        if r.take(3)? != [0; 3] || key_len > MAX_KEY_LEN || value_len > MAX_VALUE_LEN {
            return None;
        }
        let (key, value) = (r.take(key_len)?, r.take(value_len)?);
        match kind {
            Kind::RangeDelete => drop(decode_end(key, value)?),
            Kind::Merge => drop(OperandList::decode(value)?),
            _ => {}
        }
        Some(Record { seq, table, kind, key, value })
    }

    /// The range tombstone that the record at `at` is; `None` if it is something else.
    pub(crate) fn tombstone(&self, at: u64) -> Option<Arc<Tombstone>> {
        if self.kind != Kind::RangeDelete {
            return None;
        }
        let end = decode_end(self.key, self.value)?.map(<[u8]>::to_vec);
        let interval = KeyInterval { start: self.key.to_vec(), end };
        Some(Arc::new(Tombstone::of_record(interval, self.seq, at)))
    }

    /// Whether it has operands that go on with the next older version of its key.
    pub(crate) fn is_open_merge(&self) -> bool {
        self.entry().is_open_merge()
    }

    /// Bytes that the record takes in a zone.
    pub(crate) fn stored_len(&self) -> usize {
        record_len(self.key.len(), self.value.len())
    }
}

/// Bytes that a record with such a key and value takes in a zone.
pub(crate) fn record_len(key: usize, value: usize) -> usize {
    (RECORD_HEADER + key + value).next_multiple_of(8)
}

/// Appends a record whose sequence number is not known yet.
pub(crate) fn encode_record(
    out: &mut Vec<u8>,
    table: TableId,
    kind: Kind,
    key: &[u8],
    value: &[u8],
) {
    debug_assert!(out.len().is_multiple_of(8), "records are aligned to 8 bytes");
    let mut header = [0; RECORD_HEADER];
    header[8..12].copy_from_slice(&table.to_le_bytes());
    header[12..16].copy_from_slice(&(key.len() as u32).to_le_bytes());
    header[16..20].copy_from_slice(&(value.len() as u32).to_le_bytes());
    header[RECORD_KIND] = kind as u8;
    out.reserve(record_len(key.len(), value.len()));
    out.extend_from_slice(&header);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(8), 0);
}

/// Sets the sequence number of the encoded record at the head of `bytes`.
pub(crate) fn set_seq(bytes: &mut [u8], seq: Lsn) {
    bytes[..8].copy_from_slice(&seq.to_le_bytes());
}

/// The record at an offset that an index holds, hence was checked and published.
#[inline]
pub(crate) fn record_at(region: &Region, at: u64) -> Record<'_> {
    let header = region.bytes(at, RECORD_HEADER as u64);
    let (Some(seq), Some(fields)) = (header.first_chunk(), header[8..].first_chunk::<13>()) else {
        unreachable!("a header has its fields")
    };
    let field = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| fields[i + n]));
    let (key_len, value_len) = (u64::from(field(4)), u64::from(field(8)));
    // Checked before it was indexed, and not written since (region invariant 1).
    let kind = Kind::from_u8(fields[12]);
    let kind =
        kind.unwrap_or_else(|| panic!("invariant: offset {at} of the region holds a record"));
    let body = region.bytes(at + RECORD_HEADER as u64, key_len + value_len);
    let (key, value) = body.split_at(key_len as usize);
    Record { seq: Lsn::from_le_bytes(*seq), table: field(0), kind, key, value }
}

/// The records that lie one behind the other in `len` bytes from `at` on, with their offsets; up to
/// the first that is not sound.
pub(crate) fn records_in(
    region: &Region,
    at: u64,
    len: u64,
) -> impl Iterator<Item = (u64, Record<'_>)> {
    let (mut at, end) = (at, at + len);
    std::iter::from_fn(move || {
        let record = (at < end).then(|| Record::decode(region.bytes(at, end - at)))??;
        let found = (at, record);
        at += record.stored_len() as u64;
        Some(found)
    })
}

/// The index keeps no keys; it finds them here.
impl Records for Region {
    #[inline]
    fn locate(&self, at: u64) -> (&[u8], Lsn) {
        let header = self.bytes(at, RECORD_HEADER as u64);
        let (seq, len) = (header.first_chunk::<8>(), header[12..].first_chunk::<4>());
        let (Some(seq), Some(len)) = (seq, len) else { unreachable!("a header has its fields") };
        let key = self.bytes(at + RECORD_HEADER as u64, u64::from(u32::from_le_bytes(*len)));
        (key, Lsn::from_le_bytes(*seq))
    }

    #[inline]
    fn prefetch(&self, at: u64) {
        self.prefetch(at);
    }

    fn gauge(&self) -> Arc<Gauge> {
        Arc::clone(self.indexes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::record::encode_end;

    #[test]
    fn round_trip_and_short_input() {
        let mut bytes = Vec::new();
        encode_record(&mut bytes, 3, Kind::Put, b"key", b"value");
        set_seq(&mut bytes, 99);
        let record = Record::decode(&bytes).unwrap();
        assert_eq!(
            record,
            Record { seq: 99, table: 3, kind: Kind::Put, key: b"key", value: b"value" }
        );
        assert_eq!(record.stored_len(), bytes.len());
        for len in 0..RECORD_HEADER + 8 {
            assert_eq!(Record::decode(&bytes[..len]), None, "{len} bytes");
        }
        assert!(record.tombstone(0).is_none());
    }

    #[test]
    fn range_deletes_have_an_end_behind_their_start_or_none() {
        let decoded = |key: &[u8], value: &[u8]| {
            let mut bytes = Vec::new();
            encode_record(&mut bytes, 3, Kind::RangeDelete, key, value);
            let tombstone = Record::decode(&bytes)?.tombstone(8);
            Some(tombstone.map(|t| (t.at(), t.interval.start.clone(), t.interval.end.clone())))
        };
        let until = |end: &str| Some(Some((8, b"b".to_vec(), Some(end.into()))));
        assert_eq!(decoded(b"b", &encode_end(Some(b"c"))), until("c"));
        assert_eq!(decoded(b"b", &encode_end(None)), Some(Some((8, b"b".to_vec(), None))));
        let nonsense: [&[u8]; 6] = [b"", b"\0x", b"\x01", b"\x01b", b"\x01a", b"\x02c"];
        assert!(nonsense.iter().all(|value| decoded(b"b", value).is_none()));
    }
}
