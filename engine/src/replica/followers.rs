//! Followers that are registered: a small object for each, by name, with how far it has come. The
//! writer keeps the entries that they lack, up to a bound.

use super::log::SharedLog;
use crate::error::{Error, Result};
use crate::record::{FORMAT, Reader, checksum, put_u32, put_u64, reads_format};
use crate::tier::{FailureKind, ObjectSpan, PutWhen};

const PREFIX: &str = "shared/followers/";
const MAGIC: &[u8; 8] = b"TERRFOLL";

/// The longest name.
const MOST_NAME: usize = 64;

/// How often a put is tried that another one overtakes.
const TRIES: u32 = 4;

fn encode(entry: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put_u32(&mut out, FORMAT);
    put_u32(&mut out, 0);
    put_u64(&mut out, entry);
    let sum = checksum(&[u64::from(FORMAT)], &out[16..]);
    out[12..16].copy_from_slice(&sum.to_le_bytes());
    out
}

/// The last entry that a follower has applied; `None` for other bytes.
pub(super) fn decode(bytes: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
    let (version, sum) = (reader.u32()?, reader.u32()?);
    let is_sound = sum == checksum(&[u64::from(version)], &bytes[16..]);
    let entry = reader.u64()?;
    (is_sound && reads_format(version) && reader.is_empty()).then_some(entry)
}

fn object_of(name: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(is_plain) {
        return Err(Error::invalid(format!(
            "a follower is named by 1 to {MOST_NAME} letters, digits, \"-\", \"_\" and \".\", not \
             by {name:?}"
        )));
    }
    Ok(format!("{PREFIX}{name}"))
}

impl SharedLog {
    /// Says that the follower `name` has applied the log up to `entry`.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that is none; `Unavailable` if the store does not answer.
    pub(crate) fn register(&self, name: &str, entry: u64) -> Result<()> {
        let (object, bytes) = (object_of(name)?, encode(entry));
        for _ in 0..TRIES {
            let when = match self.client.get(&object, ObjectSpan::Whole) {
                Ok(got) if got.bytes == bytes => return Ok(()),
                Ok(got) => PutWhen::Tagged(got.tag),
                Err(failure) if failure.kind == FailureKind::Missing => PutWhen::Absent,
                Err(failure) => return Err(self.client.error("read", &object, failure)),
            };
            match self.client.put(&object, &bytes, &when) {
                Ok(_) => return Ok(()),
                Err(failure) if failure.kind == FailureKind::Changed => {}
                Err(failure) => return Err(self.client.error("write", &object, failure)),
            }
        }
        Ok(())
    }

    /// Those that are registered, with how far each has come.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer.
    pub(crate) fn registered(&self) -> Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for object in self.names(PREFIX, &|_| false)? {
            let got = match self.client.get(&object, ObjectSpan::Whole) {
                Err(failure) if failure.kind == FailureKind::Missing => continue,
                got => self.client.told("read", &object, got)?,
            };
            // Bytes of something else hold nothing back.
            if let (Some(name), Some(entry)) = (object.strip_prefix(PREFIX), decode(&got.bytes)) {
                found.push((name.to_string(), entry));
            }
        }
        Ok(found)
    }

    /// Forgets one.
    ///
    /// # Errors
    ///
    /// As [`SharedLog::register`].
    pub(crate) fn unregister(&self, name: &str) -> Result<()> {
        self.delete(&[object_of(name)?])
    }
}
