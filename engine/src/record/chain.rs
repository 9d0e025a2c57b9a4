//! Operands on their way to a value: what a record of [`Kind::Merge`](super::Kind::Merge) has in
//! the place of a value (`docs/format.md`, section 1).

use super::{Reader, put_bytes};
use crate::limits::MAX_VALUE_LEN;

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

#[cfg(test)]
mod tests {
    use super::*;

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
