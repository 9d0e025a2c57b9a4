//! Who writes: an object that each opening for writing replaces, by compare-and-swap.
//!
//! The fence has the **epoch** of the last writer. An opening takes the next one, which is its
//! incarnation or more. Two copies of a database have the same incarnations, and never the same
//! epoch. Objects are named by the epoch, so writers never meet in a name. There is no lease and no
//! clock: a writer goes on until it finds another one's fence.
//!
//! A put of which the answer was lost may be found done, and may arrive later. Each fence has a
//! random number, by which a writer knows its own; and a late one fails, since the tag that it
//! compares is gone.

use std::fmt;

use super::client::{Client, TaggedValue};
use super::name::{LAST_EPOCH, ObjectNames};
use super::store::{Failure, FailureKind};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::{Reader, Sealable, put_bytes, put_u32, put_u64};

/// How often an opening tries again when other writers are faster.
const TRIES: usize = 16;

/// What the fence object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) epoch: u32,
    pub(crate) incarnation: u64,
    /// Tells two writers of the same epoch from each other while they compare and swap.
    pub(crate) nonce: [u8; 16],
    /// Process, program and machine, for messages.
    pub(crate) owner: String,
}

impl Sealable for Fence {
    const MAGIC: &'static [u8; 8] = b"TERRFENC";
    const WHAT: &'static str = "fence";

    fn encode_rest(&self, out: &mut Vec<u8>) {
        put_u32(out, self.epoch);
        put_u64(out, self.incarnation);
        out.extend_from_slice(&self.nonce);
        put_bytes(out, self.owner.as_bytes());
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Option<Fence> {
        let (epoch, incarnation) = (reader.u32()?, reader.u64()?);
        let nonce = reader.take(16)?.try_into().ok()?;
        let owner = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
        let is_sound = (1..=LAST_EPOCH).contains(&epoch);
        is_sound.then_some(Fence { epoch, incarnation, nonce, owner })
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (epoch {}, incarnation {})", self.owner, self.epoch, self.incarnation)
    }
}

/// A fence as it was found or written.
pub(crate) type PlacedFence = TaggedValue<Fence>;

/// The writer that asks for the fence.
#[derive(Clone, Debug)]
pub(crate) struct WriterClaim {
    pub(crate) incarnation: u64,
    pub(crate) nonce: [u8; 16],
    pub(crate) owner: String,
}

/// What an opening knows of the fence before it takes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    /// The fence of the opening before, if that is known: if it still stands, one request is
    /// enough.
    pub(crate) last: Option<PlacedFence>,
    /// Whether there must be one.
    pub(crate) is_there: bool,
}

/// Takes the fence over, from whichever writer has it.
///
/// # Errors
///
/// `Invalid` if there is none where there must be one: the store is another one. `Corrupt` if the
/// object is no fence; `Full` if there are no more epochs; `Unavailable` if the store does not
/// answer, or other writers are always faster.
pub(crate) fn take(
    client: &Client,
    names: &ObjectNames,
    claim: &WriterClaim,
    known: Before,
) -> Result<PlacedFence> {
    let name = names.fence();
    let mut before = known.last;
    for _ in 0..TRIES {
        if before.is_none() && known.is_there {
            before = Some(look(client, names)?.ok_or_else(|| no_fence(client, &name))?);
        }
        let fence = next(claim, before.as_ref().map(|placed| &placed.value))?;
        if let Some(tag) =
            client.replace_register(&name, &fence, before.map(|placed| placed.tag))?
        {
            return Ok(TaggedValue { value: fence, tag });
        }
        before = look(client, names)?;
        if let Some(own) = before.take_if(|found| found.value.nonce == claim.nonce) {
            return Ok(own);
        }
    }
    let cause = "other openings take it at the same time; have one process open the database";
    let failure = Failure::new(FailureKind::Away, cause);
    Err(client.error("take the fence", &name, failure))
}

/// Whether there is a fence: else the store is not the one that has the objects.
///
/// # Errors
///
/// `Invalid` if there is none; or as [`take`].
pub(crate) fn check_is_there(client: &Client, names: &ObjectNames) -> Result<()> {
    look(client, names)?.map(drop).ok_or_else(|| no_fence(client, &names.fence()))
}

fn no_fence(client: &Client, name: &str) -> Error {
    Error::invalid(format!(
        "the object store {} has no object {name}, and the journal names objects of this database: \
         is it the store that the database was opened with before?",
        client.address()
    ))
    .of_store()
}

/// The fence that an opening puts over `before`.
fn next(claim: &WriterClaim, before: Option<&Fence>) -> Result<Fence> {
    let least = before.map_or(1, |fence| u64::from(fence.epoch) + 1);
    let epoch =
        u32::try_from(claim.incarnation.max(least)).ok().filter(|epoch| *epoch <= LAST_EPOCH);
    let epoch = epoch.ok_or_else(|| {
        let message = format!(
            "the object store has no more epochs: {LAST_EPOCH} openings were made; copy the \
             database to a new one"
        );
        Error::new(ErrorKind::Full, message)
    })?;
    let WriterClaim { incarnation, nonce, owner } = claim.clone();
    Ok(Fence { epoch, incarnation, nonce, owner })
}

/// The fence that there is.
///
/// # Errors
///
/// As [`take`].
pub(crate) fn look(client: &Client, names: &ObjectNames) -> Result<Option<PlacedFence>> {
    client.read_register(&names.fence())
}

/// Whether the fence is still the writer's own.
///
/// # Errors
///
/// `Fenced`, naming the other writer, if it is not; or as [`take`].
pub(crate) fn confirm(client: &Client, names: &ObjectNames, own: &Fence) -> Result<()> {
    match look(client, names)? {
        Some(found) if found.value.nonce == own.nonce => Ok(()),
        found => {
            let by =
                found.map_or("no opening: its fence is gone".to_string(), |f| f.value.to_string());
            let message = format!(
                "another opening took the object store {} over from this one (epoch {}); it \
                 belongs to {by}; close this database, and open one copy of it alone",
                client.address(),
                own.epoch
            );
            Err(Error::new(ErrorKind::Fenced, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::storage::object::client::Patience;
    use crate::storage::object::clock::StepTimer;
    use crate::storage::object::memory::{Effect, MemoryServer};

    fn client(server: &Arc<MemoryServer>) -> Client {
        let timer = Arc::new(StepTimer::default());
        Client::new(Arc::new(server.client()), timer, Patience::default())
    }

    fn claim(incarnation: u64, nonce: u8) -> WriterClaim {
        WriterClaim { incarnation, nonce: [nonce; 16], owner: format!("writer {nonce}") }
    }

    #[test]
    fn a_fence_round_trips_and_no_byte_of_it_is_ignored() {
        let fence = next(&claim(7, 3), None).unwrap();
        let bytes = fence.encode();
        assert_eq!(Fence::decode(&bytes), Ok(fence));
        for at in 0..bytes.len() {
            assert!(Fence::decode(&bytes[..at]).is_err());
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(Fence::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn each_writer_has_an_epoch_of_its_own_also_copies_of_one_database() {
        let server = MemoryServer::new();
        let names = ObjectNames::of([1; 16]);
        let first = take(&client(&server), &names, &claim(5, 1), Before::default()).unwrap();
        assert_eq!(first.value.epoch, 5, "the incarnation");
        let copy = take(&client(&server), &names, &claim(5, 2), Before::default()).unwrap();
        assert_eq!(copy.value.epoch, 6);
        let later = take(&client(&server), &names, &claim(9, 3), Before::default()).unwrap();
        assert_eq!(later.value.epoch, 9);
        let refused =
            take(&client(&server), &names, &claim(u64::from(LAST_EPOCH) + 1, 4), Before::default());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Full);
    }

    #[test]
    fn a_writer_that_is_fenced_off_hears_by_whom() {
        let server = MemoryServer::new();
        let names = ObjectNames::of([1; 16]);
        let (one, two) = (client(&server), client(&server));
        let own = take(&one, &names, &claim(5, 1), Before::default()).unwrap();
        confirm(&one, &names, &own.value).unwrap();
        take(&two, &names, &claim(5, 2), Before::default()).unwrap();
        let message = confirm(&one, &names, &own.value).unwrap_err().to_string();
        assert!(message.contains("writer 2 (epoch 6, incarnation 5)"), "{message}");
        server.lose(&names.fence());
        confirm(&two, &names, &own.value).unwrap_err();
    }

    #[test]
    fn the_opening_after_a_known_fence_needs_one_request() {
        let server = MemoryServer::new();
        let names = ObjectNames::of([1; 16]);
        let first = take(&client(&server), &names, &claim(5, 1), Before::default()).unwrap();
        let before = server.requests();
        let next = take(
            &client(&server),
            &names,
            &claim(6, 2),
            Before { last: Some(first.clone()), is_there: false },
        )
        .unwrap();
        assert_eq!((server.requests() - before, next.value.epoch), (1, 6));
        // What it knows is old: it finds out.
        let last = take(
            &client(&server),
            &names,
            &claim(6, 3),
            Before { last: Some(first), is_there: false },
        )
        .unwrap();
        assert_eq!(last.value.epoch, 7);
    }

    #[test]
    fn a_fence_is_taken_once_whatever_becomes_of_each_request() {
        let effects = [
            Effect::LoseRequest,
            Effect::LoseAnswer,
            Effect::Delay(0),
            Effect::Delay(1),
            Effect::Delay(2),
            Effect::Repeat(0),
            Effect::Repeat(1),
            Effect::Fail(FailureKind::Throttled),
        ];
        for at in 3..7 {
            for effect in effects {
                let server = MemoryServer::new();
                let names = ObjectNames::of([1; 16]);
                let other = client(&server);
                take(&other, &names, &claim(5, 1), Before::default()).unwrap();
                server.plan(at, effect);
                let own = client(&server);
                let placed = take(&own, &names, &claim(6, 2), Before::default()).unwrap();
                server.deliver();
                confirm(&own, &names, &placed.value).unwrap();
                let stands = look(&own, &names).unwrap();
                assert_eq!(stands, Some(placed), "{effect:?} at {at}");
            }
        }
    }

    #[test]
    fn an_object_that_is_no_fence_is_damage() {
        let server = MemoryServer::new();
        let names = ObjectNames::of([1; 16]);
        take(&client(&server), &names, &claim(5, 1), Before::default()).unwrap();
        server.damage(&names.fence(), 20);
        let error = take(&client(&server), &names, &claim(6, 2), Before::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&names.fence()), "{error}");
    }
}
