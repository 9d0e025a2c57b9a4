//! Places of extents: in extent files, or in an object store.

use super::object::{LAST_EPOCH, ObjectId};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::{Reader, put_u32, put_u64};

/// Extents start at multiples of this.
pub(super) const UNIT: u64 = 16 * 1024;

/// The bit of a file number that says that the extent is an object.
const OBJECT: u32 = 1 << 31;

/// Where an extent lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    /// Number of the extent file; of an object, its epoch with the top bit set. Epochs with their
    /// own top bit set are pieces of the shared store.
    pub(crate) file: u32,
    /// Offset in it, a multiple of 16 KiB; of an object, its extent id, or the claim of a piece.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u32,
}

impl Location {
    /// Appends it, as descriptions in the journal have it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.file);
        put_u64(out, self.offset);
        put_u32(out, self.len);
    }

    /// Reads it; `None` if the bytes end first.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Location> {
        Some(Location { file: reader.u32()?, offset: reader.u64()?, len: reader.u32()? })
    }

    /// The length of an extent of these bytes.
    ///
    /// # Errors
    ///
    /// `Full` if it is beyond 4 GiB.
    pub(super) fn len_of(bytes: &[u8]) -> Result<u32> {
        u32::try_from(bytes.len()).map_err(|_| {
            let message = format!("an extent of {} bytes is beyond 4 GiB", bytes.len());
            Error::new(ErrorKind::Full, message)
        })
    }

    /// The place of an object.
    pub(crate) fn of_object(id: ObjectId, len: u32) -> Location {
        Location { file: OBJECT | id.epoch, offset: id.extent, len }
    }

    /// The object that it is; `None` for a place in an extent file.
    pub(crate) fn object(&self) -> Option<ObjectId> {
        let epoch = self.file & !OBJECT;
        (self.file != epoch).then_some(ObjectId { epoch, extent: self.offset })
    }

    /// Whether it is an object.
    pub(crate) fn is_object(&self) -> bool {
        self.file & OBJECT != 0
    }

    /// Whether an extent with this id can lie there: an object has the id in its name.
    pub(crate) fn can_hold(&self, extent: u64) -> bool {
        let fits = |id: ObjectId| {
            // A piece of the shared store has the name that its writer gave it.
            let is_own = (1..=LAST_EPOCH).contains(&id.epoch) && id.extent == extent;
            (is_own || id.shared().is_some()) && self.len > 0
        };
        self.object().is_none_or(fits)
    }

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
