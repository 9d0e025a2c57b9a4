//! How much level 0 holds, what it no longer keeps, and how far a count of it came.

use crate::record::Lsn;

/// Records and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) records: u64,
    /// Bytes that the records take in the region.
    pub(crate) bytes: u64,
}

impl std::ops::Add for Size {
    type Output = Size;

    fn add(self, other: Size) -> Size {
        Size { records: self.records + other.records, bytes: self.bytes + other.bytes }
    }
}

/// What level 0 no longer keeps in the region. The caller gives the space back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// Offsets of records in zones, each of which no longer counts in its zone.
    pub(crate) records: Vec<u64>,
}

impl Released {
    /// Adds what another removal released.
    pub(crate) fn absorb(&mut self, other: Released) {
        self.records.extend(other.records);
    }
}

/// How far a count of live records came.
#[derive(Debug)]
pub(crate) struct LiveCount {
    /// The smallest sequence number in the part; the greatest there is if the part had none.
    pub(crate) oldest: Lsn,
    /// The first key that is left.
    pub(crate) next: Option<Vec<u8>>,
}
