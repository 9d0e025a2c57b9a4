//! The semi-persistent memtable: records in zones of the region, an index over them in DRAM.

mod index;
mod records;
mod table;

pub(crate) use index::{Index, IndexCursor};
pub(crate) use records::{RECORD_HEADER, Record, encode_record, record_at, record_len, set_seq};
pub(crate) use table::{Memtable, RecordCursor};
