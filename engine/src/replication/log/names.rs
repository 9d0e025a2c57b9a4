//! The names of objects of a shared log.

use crate::tier::{SHARED_DATA, shared_name};

pub(super) const PREFIX: &str = "shared/log/";

/// The name of entry `number`.
pub(crate) fn entry_name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The name of a piece of data: which claim sent it, and which of its pieces it is.
pub(crate) fn data_name(claim: u64, number: u32) -> String {
    shared_name(claim, number)
}

/// The piece of data of a name.
pub(crate) fn data_number(name: &str) -> Option<(u64, u32)> {
    let (claim, number) = name.strip_prefix(SHARED_DATA)?.split_once('-')?;
    let found = (u64::from_str_radix(claim, 16).ok()?, u32::from_str_radix(number, 16).ok()?);
    (data_name(found.0, found.1) == name).then_some(found)
}
