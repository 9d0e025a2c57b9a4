//! Terrace, a transactional LSM storage engine whose data is its log.

mod cache;
mod compaction;
mod error;
mod extent;
mod levels;
mod limits;
mod merge;
mod mvcc;
mod os;
mod record;
mod tier;

pub use error::{Damage, Error, ErrorKind, Result};
