//! The semi-persistent memtable: records in zones of the region, an index over them in DRAM.

mod index;
mod records;
mod table;

pub(crate) use index::Index;
pub(crate) use records::{Record, encode_record, record_at, record_len, set_seq};
pub(crate) use table::{Memtable, RecordCursor};
