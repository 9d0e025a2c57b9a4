//! The small objects beside the log that change.
//!
//! The **register** has the names of followers, and from which checkpoint on data is
//! kept: a list of objects may be old, so it does not show a follower that has just got its name.
//! Each follower that is registered has an object by its name, with how far it has come, and from
//! which checkpoint on it reads data of the store. The writer keeps the entries that they lack and
//! that data, up to a bound.

use std::collections::BTreeMap;
use std::time::Duration;

use super::shared_log::{READS_AT_ONCE, SharedLog};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::{Reader, Sealable, put_bytes, put_u64};
use crate::storage::{FailureKind, ObjectRead, ObjectSpan, ObjectTag, RequestFailure};

const REGISTER: &str = "shared/register";

/// How often a change is tried that another one overtakes: many readers may come at once. The first
/// pause is doubled so often at most.
const CHANGE_TRIES: u32 = 24;
const CHANGE_PAUSE: Duration = Duration::from_millis(10);
const CHANGE_DOUBLINGS: u32 = 6;

/// What it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Register {
    /// Data that only earlier checkpoints name may be deleted. It only grows.
    pub(crate) kept: u64,
    /// The writer whose collector has changed it last, by its claim. It only grows.
    pub(crate) claim: u64,
    /// The followers, and the standbys.
    pub(crate) names: BTreeMap<String, SignSeen>,
}

/// The last sign of a reader that starts, as a collector has read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignSeen {
    /// As [`FollowerPlace::beat`]; 0 if none was read.
    pub(crate) beat: u64,
    /// The newest checkpoint when a collection began that knew the sign; 0 in the one that has read
    /// it first.
    pub(crate) checkpoint: u64,
}

impl Sealable for Register {
    const MAGIC: &'static [u8; 8] = b"TERRREGS";
    const WHAT: &'static str = "register of followers";

    fn encode_rest(&self, out: &mut Vec<u8>) {
        [self.kept, self.claim].into_iter().for_each(|number| put_u64(out, number));
        for (name, seen) in &self.names {
            put_bytes(out, name.as_bytes());
            [seen.beat, seen.checkpoint].into_iter().for_each(|number| put_u64(out, number));
        }
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Option<Register> {
        let (kept, claim) = (reader.u64()?, reader.u64()?);
        let mut register = Register { kept, claim, names: BTreeMap::new() };
        while !reader.is_empty() {
            let name = std::str::from_utf8(reader.bytes()?).ok()?.to_string();
            if register.names.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return None;
            }
            let seen = SignSeen { beat: reader.u64()?, checkpoint: reader.u64()? };
            register.names.insert(name, seen);
        }
        Some(register)
    }
}

impl SharedLog {
    /// The register, with its tag; an empty one if there is none.
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
    pub(crate) fn enlist(&self, name: &str) -> Result<u64> {
        self.change_register(name, |names| {
            let is_new = !names.contains_key(name);
            names.entry(name.to_string()).or_default();
            is_new
        })
    }

    /// Has the register not have a name.
    pub(super) fn strike(&self, name: &str) -> Result<()> {
        self.change_register(name, |names| names.remove(name).is_some()).map(drop)
    }

    /// Changes the names of the register because of one, unless they are as wanted.
    fn change_register(
        &self,
        name: &str,
        change: impl Fn(&mut BTreeMap<String, SignSeen>) -> bool,
    ) -> Result<u64> {
        for tried in 0..CHANGE_TRIES {
            let (mut register, tag) = self.read_register()?;
            if !change(&mut register.names) || self.replace_register(&register, tag)? {
                return Ok(register.kept);
            }
            let pause = CHANGE_PAUSE * (1 << tried.min(CHANGE_DOUBLINGS));
            if !self.client.pause(pause, name) {
                return Err(Error::closed());
            }
        }
        let failure = RequestFailure::new(FailureKind::Changed, "others change it all the time");
        let error = self.client.error("write", REGISTER, failure);
        debug_assert_eq!(error.kind(), ErrorKind::Unavailable, "it may be tried again");
        Err(error)
    }
}

const FOLLOWERS: &str = "shared/followers/";

/// The longest name.
const MOST_NAME: usize = 64;

/// How often a put is tried that another one overtakes.
const PUT_TRIES: u32 = 4;

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

/// A name that the register has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegisteredReader {
    pub(crate) name: String,
    /// `None` if it has ended.
    pub(crate) place: Option<FollowerPlace>,
}

fn place_of(name: &str) -> String {
    format!("{FOLLOWERS}{name}")
}

fn object_of(name: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(is_plain) {
        return Err(Error::invalid(format!(
            "a follower is named by 1 to {MOST_NAME} letters, digits, \"-\", \"_\" and \".\", not \
             by {name:?}"
        )));
    }
    Ok(place_of(name))
}

impl SharedLog {
    /// Says how far the follower `name` is. The register may not have its name.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that is none; `Unavailable` if the store does not answer, or another
    /// node has the same name.
    pub(crate) fn register(&self, name: &str, place: FollowerPlace) -> Result<()> {
        let (object, bytes) = (object_of(name)?, place.encode());
        for _ in 0..PUT_TRIES {
            // Whatever is there is replaced.
            let before = match self.client.get(&object, ObjectSpan::Whole) {
                // Maybe a put of this call, of which the answer was lost.
                Ok(got) if got.bytes == bytes => return Ok(()),
                Err(failure) if failure.kind == FailureKind::Missing => None,
                got => Some(self.client.told("read", &object, got)?.tag),
            };
            if self.client.replace_register(&object, &place, before)?.is_some() {
                return Ok(());
            }
        }
        let failure = RequestFailure::new(FailureKind::Changed, "another node has the same name");
        Err(self.client.error("write", &object, failure))
    }

    /// Those that the register has, with how far each has come, if it is there.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer; `Closed` once the log is stopped.
    pub(crate) fn registered(&self, register: &Register) -> Result<Vec<RegisteredReader>> {
        let names: Vec<&String> = register.names.keys().collect();
        let mut found = Vec::with_capacity(names.len());
        for some in names.chunks(READS_AT_ONCE) {
            self.check_open()?;
            let begin = |name: &&String| self.client.begin_get(&place_of(name), ObjectSpan::Whole);
            let reads: Vec<ObjectRead> = some.iter().map(begin).collect();
            for (name, read) in some.iter().zip(reads) {
                let place = self.place_in(name, read)?;
                found.push(RegisteredReader { name: (*name).clone(), place });
            }
        }
        Ok(found)
    }

    /// How far the follower `name` is, if it is registered.
    pub(crate) fn place_of(&self, name: &str) -> Result<Option<FollowerPlace>> {
        self.place_in(name, self.client.begin_get(&place_of(name), ObjectSpan::Whole))
    }

    fn place_in(&self, name: &str, read: ObjectRead) -> Result<Option<FollowerPlace>> {
        let got = match read.finish(&self.client) {
            Err(failure) if failure.kind == FailureKind::Missing => return Ok(None),
            got => self.client.told("read", &place_of(name), got)?,
        };
        // Bytes of something else hold nothing back.
        Ok(FollowerPlace::decode(&got.bytes).ok())
    }

    /// Forgets one.
    pub(crate) fn unregister(&self, name: &str) -> Result<()> {
        let object = object_of(name)?;
        // One that registers meanwhile has its name in the register again with its next sign.
        self.strike(name)?;
        self.delete(&[object])
    }
}
