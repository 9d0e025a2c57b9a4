//! What every layer speaks of: numbers, kinds, entries, and the one cursor interface.

mod cursor;
mod decode;
mod merging;
mod reference;

pub(crate) use cursor::{Cursor, EntryRef, Filtered};
pub(crate) use decode::{
    Checksum, FORMAT, Reader, SealRefused, Sealable, checksum, decode_end, encode_end,
    other_format, put_bytes, put_u32, put_u64, put_varint, varint, varint_len,
};
pub(crate) use merging::{MergingCursor, common, slice};
pub(crate) use reference::{
    ChainBase, ComingValues, MAX_OPERAND_LEN, OperandList, ReadValue, Reference, RowTable,
    SeparatedValue, chain_len, encode_chain, is_open as is_open_chain, set_depth,
};

#[cfg(any(test, feature = "testing"))]
pub(crate) use decode::mended;

/// The number of a commit group, and the sequence number of its records.
///
/// LSNs are dense within one incarnation and never go back. 0 is before everything.
pub(crate) type Lsn = u64;

/// The greatest LSN; a read at it sees everything published.
pub(crate) const LSN_MAX: Lsn = Lsn::MAX;

/// A table's number, never reused within a database. 0 is the engine's own stream of events.
pub(crate) type TableId = u32;

/// The table id of the engine's own records (table events).
pub(crate) const SYSTEM_TABLE: TableId = 0;

/// What a record says of its key. The numbers are on media: see `docs/format.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The key has this value.
    Put = 1,
    /// The key is gone.
    Delete = 2,
    /// The keys from this one on are gone, up to the end that the value names.
    RangeDelete = 3,
    /// A transaction is prepared under the key; it is in the same sub-entry (system table only).
    Prepare = 4,
    /// The transaction that was prepared at an LSN is committed here (system table only).
    CommitPrepared = 5,
    /// The transaction that was prepared at an LSN is rolled back (system table only).
    RollBackPrepared = 6,
    /// A run of the commit is in extents that the journal has (system table only).
    SpilledRun = 7,
    /// The key has a value that lies apart: see [`Reference`] (extents only).
    Reference = 8,
    /// Operands of the key, still to be merged: see [`OperandList`].
    Merge = 9,
    /// A table was created, dropped, renamed or truncated (system table only).
    TableEvent = 16,
    /// The opaque blob of a commit (system table only).
    Blob = 17,
    /// A prepared transaction holds a lock on the key, or on a range from it on.
    Lock = 18,
}

impl Kind {
    /// The kind with this number on media, if this version knows it.
    pub(crate) fn from_u8(n: u8) -> Option<Kind> {
        match n {
            1 => Some(Kind::Put),
            2 => Some(Kind::Delete),
            3 => Some(Kind::RangeDelete),
            4 => Some(Kind::Prepare),
            5 => Some(Kind::CommitPrepared),
            6 => Some(Kind::RollBackPrepared),
            7 => Some(Kind::SpilledRun),
            8 => Some(Kind::Reference),
            9 => Some(Kind::Merge),
            16 => Some(Kind::TableEvent),
            17 => Some(Kind::Blob),
            18 => Some(Kind::Lock),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
