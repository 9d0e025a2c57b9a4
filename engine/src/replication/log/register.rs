//! The register: the names of followers, and from which checkpoint on data is kept. A list of
//! objects may be old, so it does not show a follower that has just got its name.

use std::collections::BTreeSet;

use super::shared_log::SharedLog;
use crate::error::{ErrorKind, Result};
use crate::record::{Reader, Sealable, put_bytes, put_u64};
use crate::tier::{FailureKind, ObjectTag, RequestFailure};

const REGISTER: &str = "shared/register";

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

impl Sealable for Register {
    const MAGIC: &'static [u8; 8] = b"TERRREGS";
    const WHAT: &'static str = "register of followers";

    fn encode_rest(&self, out: &mut Vec<u8>) {
        put_u64(out, self.kept);
        self.names.iter().for_each(|name| put_bytes(out, name.as_bytes()));
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Option<Register> {
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
    /// As [`ObjectClient::read_register`](crate::tier::ObjectClient::read_register).
    pub(crate) fn read_register(&self) -> Result<(Register, Option<ObjectTag>)> {
        let found = self.client.read_register(REGISTER)?;
        Ok(found.map_or_else(Default::default, |found| (found.value, Some(found.tag))))
    }

    /// Replaces the register that was read with `tag`; whether no other change came between.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer: it may have been done.
    pub(crate) fn replace_register(&self, to: &Register, tag: Option<ObjectTag>) -> Result<bool> {
        Ok(self.client.replace_register(REGISTER, to, tag)?.is_some())
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
