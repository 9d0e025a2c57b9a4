//! Followers that are registered: a small object for each, by name, with how far it has come, and
//! from which checkpoint on it reads data of the store. The writer keeps the entries that they lack
//! and that data, up to a bound.

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

/// How far a registered follower is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FollowerPlace {
    /// The last entry that it has applied.
    pub(crate) entry: u64,
    /// The oldest checkpoint of which it reads data in the store; 0 if it has all data itself.
    pub(crate) base: u64,
}

fn encode(FollowerPlace { entry, base }: FollowerPlace) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put_u32(&mut out, FORMAT);
    put_u32(&mut out, 0);
    put_u64(&mut out, entry);
    put_u64(&mut out, base);
    let sum = checksum(&[u64::from(FORMAT)], &out[16..]);
    out[12..16].copy_from_slice(&sum.to_le_bytes());
    out
}

/// How far a follower is; `None` for other bytes.
pub(super) fn decode(bytes: &[u8]) -> Option<FollowerPlace> {
    let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
    let (version, sum) = (reader.u32()?, reader.u32()?);
    let is_sound = sum == checksum(&[u64::from(version)], &bytes[16..]);
    let entry = reader.u64()?;
    // Earlier versions had the entry alone.
    let base = if reader.is_empty() { 0 } else { reader.u64()? };
    let place = FollowerPlace { entry, base };
    (is_sound && reads_format(version) && reader.is_empty()).then_some(place)
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
    /// Says how far the follower `name` is.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that is none; `Unavailable` if the store does not answer.
    pub(crate) fn register(&self, name: &str, place: FollowerPlace) -> Result<()> {
        let (object, bytes) = (object_of(name)?, encode(place));
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
    pub(crate) fn registered(&self) -> Result<Vec<(String, FollowerPlace)>> {
        let mut found = Vec::new();
        for object in self.names(PREFIX, &|_| false)? {
            let got = match self.client.get(&object, ObjectSpan::Whole) {
                Err(failure) if failure.kind == FailureKind::Missing => continue,
                got => self.client.told("read", &object, got)?,
            };
            // Bytes of something else hold nothing back.
            if let (Some(name), Some(place)) = (object.strip_prefix(PREFIX), decode(&got.bytes)) {
                found.push((name.to_string(), place));
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
