//! References: what an extent's record has in the place of a value that lies apart.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use super::{Reader, put_u32, put_u64};
use crate::error::Result;

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
    fn is_far(&self) -> bool;

    /// The value at a place.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it does not check out; or on an I/O error.
    fn read_value(&self, at: &Reference) -> Result<Bytes>;

    /// Begins to read the first values at places that ascend: as many as lie near each other. How
    /// many these are, and what waits for them.
    ///
    /// # Errors
    ///
    /// As [`ReadValue::read_value`].
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
    ///
    /// # Errors
    ///
    /// As [`ReadValue::read_value`].
    pub(crate) fn read(&self) -> Result<Bytes> {
        self.from.read_value(&self.at)
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
}
