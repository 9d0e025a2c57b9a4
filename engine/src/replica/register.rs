//! The register: the names of followers, and from which checkpoint on data is kept. One small
//! object that is read by its name and replaced by compare-and-swap.
//!
//! A list of objects may be old, so it does not show a follower that has just got its name. A read
//! of one object is never old.

use std::collections::BTreeSet;

use super::log::SharedLog;
use crate::error::{ErrorKind, Result};
use crate::record::{FORMAT, Reader, checksum, put_u32, put_u64, reads_format};
use crate::tier::{FailureKind, ObjectSpan, ObjectTag, PutWhen, RequestFailure};

const REGISTER: &str = "shared/register";
const MAGIC: &[u8; 8] = b"TERRREGS";

/// How often a change is tried that another one overtakes.
const TRIES: u32 = 8;

/// What it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Register {
    /// Data that only earlier checkpoints name may be deleted. It only grows.
    pub(crate) kept: u64,
    /// The followers, and the standbys.
    pub(crate) names: BTreeSet<String>,
}

impl Register {
    /// The bytes of the object.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, FORMAT);
        put_u32(&mut out, 0);
        put_u64(&mut out, self.kept);
        for name in &self.names {
            put_u32(&mut out, u32::try_from(name.len()).unwrap_or(u32::MAX));
            out.extend_from_slice(name.as_bytes());
        }
        let sum = checksum(&[u64::from(FORMAT)], &out[16..]);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// What the object says; `None` if it is no register that this version reads.
    pub(super) fn decode(bytes: &[u8]) -> Option<Register> {
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
        let (version, sum) = (reader.u32()?, reader.u32()?);
        let is_sound = sum == checksum(&[u64::from(version)], &bytes[16..]);
        if !is_sound || !reads_format(version) {
            return None;
        }
        let mut register = Register { kept: reader.u64()?, names: BTreeSet::new() };
        while !reader.is_empty() {
            let name = std::str::from_utf8(reader.bytes()?).ok()?.to_string();
            if register.names.last().is_some_and(|last| *last >= name) {
                return None;
            }
            register.names.insert(name);
        }
        Some(register)
    }
}

impl SharedLog {
    /// The register, with its tag; an empty one if there is none.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is none; `Unavailable` if the store does not answer.
    pub(crate) fn read_register(&self) -> Result<(Register, Option<ObjectTag>)> {
        let got = match self.client.get(REGISTER, ObjectSpan::Whole) {
            Err(failure) if failure.kind == FailureKind::Missing => {
                return Ok((Register::default(), None));
            }
            got => self.client.told("read the register of followers", REGISTER, got)?,
        };
        let register = Register::decode(&got.bytes)
            .ok_or_else(|| self.damage(REGISTER, "a register of followers".to_string()))?;
        Ok((register, Some(got.tag)))
    }

    /// Replaces the register that was read with `tag`; whether no other change came between.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer: it may have been done.
    pub(crate) fn replace_register(&self, to: &Register, tag: Option<ObjectTag>) -> Result<bool> {
        let when = tag.map_or(PutWhen::Absent, PutWhen::Tagged);
        match self.client.put(REGISTER, &to.encode(), &when) {
            Ok(_) => Ok(true),
            Err(failure) if failure.kind == FailureKind::Changed => Ok(false),
            Err(failure) => Err(self.client.error("write", REGISTER, failure)),
        }
    }

    /// Has the register have a name; from which checkpoint on data was kept then.
    ///
    /// # Errors
    ///
    /// As [`SharedLog::read_register`].
    pub(crate) fn enlist(&self, name: &str) -> Result<u64> {
        self.change_register(|register| register.names.insert(name.to_string()))
    }

    /// Has the register not have a name.
    ///
    /// # Errors
    ///
    /// As [`SharedLog::read_register`].
    pub(super) fn strike(&self, name: &str) -> Result<()> {
        self.change_register(|register| register.names.remove(name)).map(drop)
    }

    /// Changes the register, unless it is as wanted.
    fn change_register(&self, change: impl Fn(&mut Register) -> bool) -> Result<u64> {
        for _ in 0..TRIES {
            let (mut register, tag) = self.read_register()?;
            if !change(&mut register) || self.replace_register(&register, tag)? {
                return Ok(register.kept);
            }
        }
        let failure = RequestFailure::new(FailureKind::Changed, "others change it all the time");
        let error = self.client.error("write", REGISTER, failure);
        debug_assert_eq!(error.kind(), ErrorKind::Unavailable, "it may be tried again");
        Err(error)
    }
}
