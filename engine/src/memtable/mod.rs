//! The semi-persistent memtable: records in zones of the region, an index over them in DRAM.

mod index;
mod rebuild;
mod records;
mod table;

/// The index over records of the region.
pub(crate) type Index = index::Index<crate::pm::Region>;
/// A position in an [`Index`].
pub(crate) type IndexCursor<'a> = index::IndexCursor<'a, crate::pm::Region>;

pub(crate) use index::{Held, Records, Restart, Separator, Version, VersionLock};
pub(crate) use rebuild::{Found, Rebuilt, rebuild};
pub(crate) use records::{
    RECORD_HEADER, RECORD_KIND, Record, encode_record, record_at, record_len, records_in, set_seq,
};
pub(crate) use table::{Memtable, RecordCursor};
