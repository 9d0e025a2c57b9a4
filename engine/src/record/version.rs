//! The version of the on-media format. Each file says which one it was written in.

/// The one that is written.
pub(crate) const FORMAT: u32 = 5;

/// The oldest that is read. Every one since then only added: kinds, operations, lines, and fields
/// that were zero before. One exception: a fence of version 5 that is not sealed. None was
/// released, and a store that has one is refused as damaged.
const OLDEST: u32 = 1;

/// Whether this version of Terrace reads what was written as `version`.
pub(crate) fn reads_format(version: u32) -> bool {
    (OLDEST..=FORMAT).contains(&version)
}
