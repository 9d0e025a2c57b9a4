//! References: what an extent's record has in the place of a value that lies apart.
//!
//! Operands on their way to a value: what a record of [`Kind::Merge`](super::Kind::Merge) has in
//! the place of a value (`docs/format.md`, section 1).
//!
//! What the journal says of a row table of level 0.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use super::{Lsn, Reader, put_bytes, put_u32, put_u64};
use crate::base::error::Result;
use crate::base::limits::MAX_VALUE_LEN;

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The value extent.
    pub(crate) extent: u64,
    pub(crate) offset: u32,
    /// Bytes there, the header included.
    pub(crate) len: u32,
    /// Bytes of the value.
    pub(crate) value_len: u32,
    /// The checksum that is there: ties the record to these bytes and no others.
    pub(crate) checksum: u32,
}

impl Reference {
    /// Bytes of every reference.
    pub(crate) const LEN: usize = 24;

    /// The bytes of `docs/format.md`.
    pub(crate) fn encode(&self) -> [u8; Reference::LEN] {
        let mut out = Vec::with_capacity(Reference::LEN);
        put_u64(&mut out, self.extent);
        for field in [self.offset, self.len, self.value_len, self.checksum] {
            put_u32(&mut out, field);
        }
        let mut reference = [0; Reference::LEN];
        reference.copy_from_slice(&out);
        reference
    }

    /// Reads a reference; `None` if the bytes are not as many as it has.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Reference> {
        let mut reader = Reader::new(bytes);
        let reference = Reference {
            extent: reader.u64()?,
            offset: reader.u32()?,
            len: reader.u32()?,
            value_len: reader.u32()?,
            checksum: reader.u32()?,
        };
        reader.is_empty().then_some(reference)
    }
}

/// Where values are read from.
pub(crate) trait ReadValue: Debug + Send + Sync {
    /// Whether it takes a request to an object store.
    fn is_remote(&self) -> bool;

    /// The value at a place.
    fn read_value(&self, at: &Reference) -> Result<Bytes>;

    /// Begins to read the first values at places that ascend: as many as lie near each other. How
    /// many these are, and what waits for them.
    fn ask_values(self: Arc<Self>, places: &[Reference]) -> Result<(usize, ComingValues)>;
}

/// Waits for values that are on their way. Those in files are read then.
pub(crate) type ComingValues = Box<dyn FnOnce() -> Result<Vec<Bytes>>>;

/// A value that lies apart, still to be read. It holds the space that the value is in.
#[derive(Clone, Debug)]
pub(crate) struct SeparatedValue {
    pub(crate) from: Arc<dyn ReadValue>,
    pub(crate) at: Reference,
}

impl SeparatedValue {
    /// The value.
    pub(crate) fn read(&self) -> Result<Bytes> {
        self.from.read_value(&self.at)
    }
}

/// What the operands of a record are merged with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainBase<'a> {
    /// The next older version of the key, if there is one.
    Below,
    /// Nothing: the key has no value before them.
    None,
    /// This value.
    Value(&'a [u8]),
}

/// The operands of one record, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperandList<'a> {
    pub(crate) base: ChainBase<'a>,
    /// About how many records of operands in a row the region has of the key, this one included:
    /// by this a writer sees that it is time to merge them. A hint.
    pub(crate) depth: u8,
    /// Each behind its length, the oldest first.
    encoded: &'a [u8],
}

/// Bytes before base and operands.
const HEAD: usize = 2;

impl<'a> OperandList<'a> {
    /// Reads the operands of a record; `None` if there are none.
    pub(crate) fn decode(value: &'a [u8]) -> Option<OperandList<'a>> {
        let mut reader = Reader::new(value);
        let (tag, depth) = (reader.u8()?, reader.u8()?);
        let base = match tag {
            0 => ChainBase::Below,
            1 => ChainBase::None,
            2 => ChainBase::Value(reader.bytes()?),
            _ => return None,
        };
        let encoded = reader.rest();
        let mut operands = Reader::new(encoded);
        operands.bytes()?;
        while !operands.is_empty() {
            operands.bytes()?;
        }
        Some(OperandList { base, depth, encoded })
    }

    /// The operands, the oldest first.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::new(self.encoded);
        std::iter::from_fn(move || reader.bytes())
    }

    /// Whether it goes on with the next older version.
    pub(crate) fn is_open(&self) -> bool {
        self.base == ChainBase::Below
    }
}

/// Whether the value of a record of operands says that they go on with the next older version.
pub(crate) fn is_open(value: &[u8]) -> bool {
    value.first() == Some(&0)
}

/// The bytes of a record with these operands, the oldest first.
pub(crate) fn encode_chain<'a>(
    base: ChainBase<'_>,
    depth: u8,
    operands: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.push(match base {
        ChainBase::Below => 0,
        ChainBase::None => 1,
        ChainBase::Value(_) => 2,
    });
    out.push(depth);
    if let ChainBase::Value(value) = base {
        put_bytes(&mut out, value);
    }
    operands.for_each(|operand| put_bytes(&mut out, operand));
    debug_assert!(OperandList::decode(&out).is_some(), "a record of operands has one");
    out
}

/// Sets the depth of a record of operands.
pub(crate) fn set_depth(record: &mut [u8], depth: u8) {
    if let Some(byte) = record.get_mut(1) {
        *byte = depth;
    }
}

/// Bytes of a record with a base of so many bytes, or none, and operands of so many each.
pub(crate) fn chain_len(base: Option<usize>, operands: impl Iterator<Item = usize>) -> usize {
    HEAD + base.map_or(0, |len| 4 + len) + operands.map(|len| 4 + len).sum::<usize>()
}

/// The longest operand.
pub(crate) const MAX_OPERAND_LEN: usize = MAX_VALUE_LEN - HEAD - 4;

/// A row table: the records of one frozen memtable, sorted, in pages of the region. Its directory
/// says where all the rest of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowTable {
    /// Its number, of those of extents: never reused.
    pub(crate) id: u64,
    /// The first page of the directory, and how many there are in a row.
    pub(crate) page: u32,
    pub(crate) pages: u32,
    /// The checksum that the directory carries.
    pub(crate) checksum: u32,
    /// It has every record of its table above `after`, and up to `upto`, that a read may find.
    pub(crate) after: Lsn,
    pub(crate) upto: Lsn,
    /// No record of it has a smaller sequence number.
    pub(crate) oldest: Lsn,
}

impl RowTable {
    /// The fields of `docs/format.md`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id);
        [self.page, self.pages, self.checksum].iter().for_each(|field| put_u32(out, *field));
        [self.after, self.upto, self.oldest].iter().for_each(|field| put_u64(out, *field));
    }

    /// Reads the fields; `None` if they are not those of a row table.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<RowTable> {
        let row = RowTable {
            id: reader.u64()?,
            page: reader.u32()?,
            pages: reader.u32()?,
            checksum: reader.u32()?,
            after: reader.u64()?,
            upto: reader.u64()?,
            oldest: reader.u64()?,
        };
        let is_sound = row.id > 0
            && row.pages > 0
            && row.page.checked_add(row.pages).is_some()
            && row.after < row.oldest
            && row.oldest <= row.upto;
        is_sound.then_some(row)
    }

    /// Whether the record with this sequence number is in it, if it counts at all.
    pub(crate) fn has(&self, seq: Lsn) -> bool {
        self.after < seq && seq <= self.upto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_takes_all_of_its_bytes() {
        let at = Reference { extent: 1 << 40, offset: 7, len: 900, value_len: 4000, checksum: 99 };
        let bytes = at.encode();
        assert_eq!(Reference::decode(&bytes), Some(at));
        assert_eq!(Reference::decode(&bytes[1..]), None);
        assert_eq!(Reference::decode(&[&bytes[..], &[0]].concat()), None);
        for i in 0..bytes.len() {
            let mut other = bytes;
            other[i] ^= 1;
            assert_ne!(Reference::decode(&other), Some(at), "no byte is ignored");
        }
    }

    mod chain {
        use super::super::*;

        #[test]
        fn operands_round_trip_and_nothing_else_is_read() {
            let operands = [&b"one"[..], b"", b"three"];
            for base in [ChainBase::Below, ChainBase::None, ChainBase::Value(b"base")] {
                let bytes = encode_chain(base, 7, operands.into_iter());
                let chain = OperandList::decode(&bytes).unwrap();
                assert_eq!((chain.base, chain.depth), (base, 7));
                assert!(chain.operands().eq(operands));
                assert_eq!(chain.is_open(), is_open(&bytes));
                let len = match base {
                    ChainBase::Value(value) => Some(value.len()),
                    _ => None,
                };
                assert_eq!(chain_len(len, operands.iter().map(|o| o.len())), bytes.len());
                assert_eq!(OperandList::decode(&bytes[..bytes.len() - 1]), None);
                assert_eq!(OperandList::decode(&[&bytes[..], &[1]].concat()), None);
            }
            for bad in [&b""[..], b"\0", b"\0\0", b"\x03\0\0\0\0\0", b"\x02\0\x09\0\0\0"] {
                assert_eq!(OperandList::decode(bad), None, "{bad:?}");
            }
        }
    }
}
