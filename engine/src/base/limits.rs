//! The documented limits. Going past one is [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge)
//! with both numbers in the message; nothing is cut short in silence.

use crate::base::error::{Error, ErrorKind, Result};

/// Longest key, in bytes (64 KiB). The empty key is a key like any other.
pub const MAX_KEY_LEN: usize = 64 * 1024;

/// Longest value, in bytes (1 MiB).
///
/// One that does not fit in the region's largest zone (an eighth of the region, see
/// [`Options::pm_size`](crate::Options::pm_size)) is written to an extent.
pub const MAX_VALUE_LEN: usize = 1024 * 1024;

/// Longest table name, in bytes of UTF-8.
pub const MAX_TABLE_NAME_LEN: usize = 255;

/// Most operations in one write batch.
pub const MAX_BATCH_OPERATIONS: usize = 1 << 20;

/// Longest name of a prepared transaction, in bytes; an XA identifier takes up to 140 with its
/// format and its lengths. The shortest has one byte.
pub const MAX_PREPARED_ID_LEN: usize = 140;

/// Longest blob of a commit, in bytes (4 KiB).
pub const MAX_BLOB_LEN: usize = 4 * 1024;

/// The length of the region's list of earlier openings at which an opening wipes what is dead and
/// joins them into one entry. So the list never becomes too long, and no caller meets a limit.
pub(crate) const LONG_LIST: usize = 128;

/// Smallest region, in bytes (2 MiB).
pub const MIN_PM_SIZE: u64 = 2 * 1024 * 1024;

/// Largest region, in bytes (64 GiB: 16,384 units of 4 MiB).
pub const MAX_PM_SIZE: u64 = 64 * 1024 * 1024 * 1024;

/// Bytes that the region of a new database has, if no option says how many (8 MiB).
pub(crate) const PM_INITIAL_SIZE: u64 = 8 * 1024 * 1024;

/// The most shards of a [`PerCore`](crate::PerCore).
pub const MAX_SHARDS: usize = 1024;

/// Fails for what is longer than its limit.
pub(crate) fn check_len(what: &str, len: usize, limit: usize) -> Result<()> {
    if len > limit {
        let message = format!("a {what} of {len} bytes is too long: the limit is {limit} bytes");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    check_len("key", key.len(), MAX_KEY_LEN)
}

pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    check_len("value", value.len(), MAX_VALUE_LEN)
}

pub(crate) fn check_prepared_id(id: &[u8]) -> Result<()> {
    if id.is_empty() {
        return Err(Error::invalid("a prepared transaction needs a name of at least one byte"));
    }
    check_len("name of a prepared transaction", id.len(), MAX_PREPARED_ID_LEN)
}

pub(crate) fn check_blob(blob: &[u8]) -> Result<()> {
    check_len("blob", blob.len(), MAX_BLOB_LEN)
}

pub(crate) fn check_table_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("a table needs a name of at least one byte"));
    }
    check_len("table name", name.len(), MAX_TABLE_NAME_LEN)?;
    if name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "the table name {name:?} holds a control character; use printable ones"
        )));
    }
    Ok(())
}
