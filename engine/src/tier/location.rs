//! Places in extent files.

/// Extents start at multiples of this.
pub(super) const UNIT: u64 = 16 * 1024;

/// Where an extent lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    /// Number of the extent file.
    pub(crate) file: u32,
    /// Offset in it, a multiple of 16 KiB.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u32,
}

impl Location {
    /// The first unit and the number of units; `None` for a place where no extent can lie.
    pub(super) fn units(&self) -> Option<(u64, u64)> {
        let sound = self.offset.is_multiple_of(UNIT) && self.len > 0;
        sound.then(|| (self.offset / UNIT, u64::from(self.len).div_ceil(UNIT)))
    }
}

/// How much space there is and how much of it extents hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceUse {
    pub(crate) files: u64,
    /// What the files take on the device, at most.
    pub(crate) file_bytes: u64,
    pub(crate) taken_bytes: u64,
    /// Free bytes that jobs under way may still take.
    pub(crate) reserved_bytes: u64,
    /// Bytes given back to the file system since the opening.
    pub(crate) returned_bytes: u64,
}
