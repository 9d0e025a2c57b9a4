//! Followers that are registered: a small object for each, by name, with how far it has come, and
//! from which checkpoint on it reads data of the store. The writer keeps the entries that they lack
//! and that data, up to a bound. The register has their names ([`register`](super::register)).

use super::register::Register;
use super::shared_log::SharedLog;
use crate::error::{Error, Result};
use crate::record::{Reader, Sealable, put_u64};
use crate::tier::{FailureKind, ObjectSpan, RequestFailure};

const PREFIX: &str = "shared/followers/";

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
    /// A node that has not come to the end of the log yet counts up, so that the writer knows that
    /// it is on its way; 0 once it has come there.
    pub(crate) beat: u64,
}

impl Sealable for FollowerPlace {
    const MAGIC: &'static [u8; 8] = b"TERRFOLL";
    const WHAT: &'static str = "place of a follower";

    fn encode_rest(&self, out: &mut Vec<u8>) {
        [self.entry, self.base, self.beat].into_iter().for_each(|number| put_u64(out, number));
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Option<FollowerPlace> {
        Some(FollowerPlace { entry: reader.u64()?, base: reader.u64()?, beat: reader.u64()? })
    }
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
    /// Says how far the follower `name` is; whether it was not known before. Then the register may
    /// not have its name.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that is none; `Unavailable` if the store does not answer, or another
    /// node has the same name.
    pub(crate) fn register(&self, name: &str, place: FollowerPlace) -> Result<bool> {
        let (object, bytes) = (object_of(name)?, place.encode());
        for _ in 0..TRIES {
            // Whatever is there is replaced.
            let before = match self.client.get(&object, ObjectSpan::Whole) {
                Ok(got) if got.bytes == bytes => return Ok(false),
                Err(failure) if failure.kind == FailureKind::Missing => None,
                got => Some(self.client.told("read", &object, got)?.tag),
            };
            let is_new = before.is_none();
            if self.client.replace_register(&object, &place, before)?.is_some() {
                return Ok(is_new);
            }
        }
        let failure = RequestFailure::new(FailureKind::Changed, "another node has the same name");
        Err(self.client.error("write", &object, failure))
    }

    /// Those that the register has, with how far each has come.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer; `Closed` once the log is stopped.
    pub(crate) fn registered(&self, register: &Register) -> Result<Vec<(String, FollowerPlace)>> {
        let mut found = Vec::new();
        for name in &register.names {
            self.check_open()?;
            found.extend(self.place_of(name)?.map(|place| (name.clone(), place)));
        }
        Ok(found)
    }

    /// How far the follower `name` is, if it is registered.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer.
    pub(crate) fn place_of(&self, name: &str) -> Result<Option<FollowerPlace>> {
        let object = format!("{PREFIX}{name}");
        let got = match self.client.get(&object, ObjectSpan::Whole) {
            Err(failure) if failure.kind == FailureKind::Missing => return Ok(None),
            got => self.client.told("read", &object, got)?,
        };
        // Bytes of something else hold nothing back.
        Ok(FollowerPlace::decode(&got.bytes).ok())
    }

    /// Forgets one.
    ///
    /// # Errors
    ///
    /// As [`SharedLog::register`].
    pub(crate) fn unregister(&self, name: &str) -> Result<()> {
        let object = object_of(name)?;
        // Of one that registers meanwhile both stay, or it finds the object missing and enlists.
        self.strike(name)?;
        self.delete(&[object])
    }
}
