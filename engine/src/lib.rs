//! Terrace, a transactional LSM storage engine whose data is its log.

mod error;
mod limits;
mod mvcc;
mod os;
mod record;
mod tier;

pub use error::{Damage, Error, ErrorKind, Result};
