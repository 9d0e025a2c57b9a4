//! Names of objects: which database, which writer, which extent.
//!
//! ```text
//! <database id>/fence                       who writes
//! <database id>/<epoch>/<extent id>         an extent
//! backups/<epoch>/<extent id>               an extent of a backup set
//! shared/extents/<claim>-<piece>            an extent of the shared store
//! ```
//!
//! The database id has 32 hexadecimal digits, the epoch 8 and the extent id 16, so names are in
//! the order of their numbers. An epoch is taken by one writer ([`fence`](super::fence)), and a
//! writer gives an extent id once. So a name is never used for other bytes, also when two copies of
//! a database write to one store.

use crate::base::error::{Error, Result};

/// The greatest epoch. An extent's place in the journal has 31 bits for it, and one of them says
/// that the rest is the number of a piece of the shared store.
pub(crate) const LAST_EPOCH: u32 = SHARED - 1;

const SHARED: u32 = 1 << 30;

/// What names of pieces of the shared store begin with.
pub(crate) const SHARED_DATA: &str = "shared/extents/";

/// Pieces of a claim in the shared store have lower numbers.
pub(crate) const SHARED_PIECES: u32 = SHARED;

/// An extent that is an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    /// The writer that made it.
    pub(crate) epoch: u32,
    /// The extent.
    pub(crate) extent: u64,
}

impl ObjectId {
    /// A piece of the shared store: its writer's claim, and its number.
    pub(crate) fn of_shared(claim: u64, piece: u32) -> ObjectId {
        debug_assert!(claim > 0 && piece < SHARED_PIECES, "a writer gives no other names");
        ObjectId { epoch: SHARED | piece, extent: claim }
    }

    /// The claim and the number, if it is a piece of the shared store.
    pub(crate) fn shared(self) -> Option<(u64, u32)> {
        (self.epoch & SHARED != 0 && self.extent > 0).then_some((self.extent, self.epoch & !SHARED))
    }
}

/// The name of a piece of the shared store.
pub(crate) fn shared_name(claim: u64, piece: u32) -> String {
    format!("{SHARED_DATA}{claim:016x}-{piece:08x}")
}

/// Gives the objects of one database their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectNames {
    prefix: String,
}

impl ObjectNames {
    /// The names of a database's objects.
    pub(crate) fn of(database_id: [u8; 16]) -> ObjectNames {
        let digits: String = database_id.iter().map(|byte| format!("{byte:02x}")).collect();
        ObjectNames { prefix: format!("{digits}/") }
    }

    /// The names of a backup set's objects.
    pub(crate) fn of_backups() -> ObjectNames {
        ObjectNames { prefix: "backups/".to_string() }
    }

    /// What all names begin with; it ends with a slash.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The object that says who writes.
    pub(crate) fn fence(&self) -> String {
        format!("{}fence", self.prefix)
    }

    /// An extent's name.
    pub(crate) fn extent(&self, id: ObjectId) -> String {
        if let Some((claim, piece)) = id.shared() {
            return shared_name(claim, piece);
        }
        debug_assert!(id.epoch > 0 && id.epoch <= LAST_EPOCH, "epochs are counted from 1");
        format!("{}{:08x}/{:016x}", self.prefix, id.epoch, id.extent)
    }

    /// The extent of a name; `None` for any other object.
    pub(crate) fn parse(&self, name: &str) -> Option<ObjectId> {
        let (epoch, extent) = name.strip_prefix(&self.prefix)?.split_once('/')?;
        let id = ObjectId {
            epoch: u32::from_str_radix(epoch, 16).ok()?,
            extent: u64::from_str_radix(extent, 16).ok()?,
        };
        let is_epoch = (1..=LAST_EPOCH).contains(&id.epoch);
        (is_epoch && self.extent(id) == name).then_some(id)
    }
}

/// Refuses a name that not every store takes as it is.
///
/// # Errors
///
/// `Invalid` if it has other characters than lower-case letters, digits, `-` and single slashes
/// between them.
pub(crate) fn check(name: &str) -> Result<()> {
    let is_plain = |part: &str| {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        !part.is_empty() && part.bytes().all(plain)
    };
    if name.split('/').all(is_plain) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name:?} is no name of an object: use a-z, 0-9, - and /")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_extent_and_no_other_name_does() {
        let names = ObjectNames::of([0xAB; 16]);
        let id = ObjectId { epoch: 7, extent: 0x1234 };
        let name = names.extent(id);
        assert_eq!(name, format!("{}/00000007/0000000000001234", "ab".repeat(16)));
        check(&name).unwrap();
        check(&names.fence()).unwrap();
        assert_eq!(names.parse(&name), Some(id));
        let others = [
            names.fence(),
            name.to_uppercase(),
            name[1..].to_string(),
            format!("{name}0"),
            name.replace("00000007", "7"),
            name.replace("00000007", "00000000"),
            name.replace("00000007", "80000000"),
            name.replace("00000007", "40000000"),
            shared_name(7, 0x1234),
            ObjectNames::of([0xAC; 16]).extent(id),
        ];
        for other in others {
            assert_eq!(names.parse(&other), None, "{other}");
        }
    }

    #[test]
    fn a_piece_of_the_shared_store_has_the_name_that_its_writer_gave() {
        let names = ObjectNames::of([0xAB; 16]);
        for (claim, piece) in [(1, 0), (7, 0x12), (1 << 39, SHARED_PIECES - 1)] {
            let id = ObjectId::of_shared(claim, piece);
            assert_eq!(id.shared(), Some((claim, piece)));
            assert_eq!(names.extent(id), shared_name(claim, piece));
            check(&names.extent(id)).unwrap();
        }
        for epoch in [1, LAST_EPOCH] {
            assert_eq!(ObjectId { epoch, extent: 9 }.shared(), None);
        }
    }

    #[test]
    fn names_are_ordered_as_their_numbers_are() {
        let names = ObjectNames::of([1; 16]);
        let mut ids = [
            ObjectId { epoch: 16, extent: 2 },
            ObjectId { epoch: 2, extent: 300 },
            ObjectId { epoch: 2, extent: 31 },
            ObjectId { epoch: LAST_EPOCH, extent: u64::MAX },
        ];
        ids.sort();
        let sorted: Vec<String> = ids.iter().map(|id| names.extent(*id)).collect();
        assert!(sorted.is_sorted());
    }

    #[test]
    fn a_name_that_some_store_would_change_is_refused() {
        for bad in ["", "/a", "a/", "a//b", "A", "a.b", "a b", "ä", "a%2fb"] {
            check(bad).unwrap_err();
        }
    }
}
