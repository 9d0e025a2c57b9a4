//! The head of a backup set in an object store: which backups it has, and which caller wrote last.
//!
//! A caller that changes the set replaces the head by compare-and-swap, first to get an epoch, then
//! with what it has changed. The second replacement fails if another caller has got an epoch
//! meanwhile.
//! Nothing else decides what the set has. There is no lease and no clock.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::{Reader, Sealable, put_bytes, put_u32, put_u64};
use crate::storage::{
    FailureKind, LAST_EPOCH, ObjectClient, ObjectTag, RequestFailure, TaggedValue,
};

/// How often a caller tries again when others are faster.
const TRIES: u32 = 16;

/// The object that is the head.
pub(super) const NAME: &str = "backups/set";

/// What the head says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetHead {
    /// Of the database that all backups are of.
    pub(super) database_id: [u8; 16],
    /// Of the caller that wrote it. Objects have it in their names.
    pub(super) epoch: u32,
    /// Tells callers with the same epoch from each other while they compare and swap.
    pub(super) nonce: [u8; 16],
    /// The numbers of its backups, ascending.
    pub(super) numbers: Vec<u64>,
    /// Process, program and machine of the caller, for messages.
    pub(super) owner: String,
}

impl Sealable for SetHead {
    const MAGIC: &'static [u8; 8] = b"TERRBSET";
    const WHAT: &'static str = "head of a backup set";

    fn encode_rest(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.database_id);
        put_u32(out, self.epoch);
        out.extend_from_slice(&self.nonce);
        put_u32(out, self.numbers.len() as u32);
        self.numbers.iter().for_each(|number| put_u64(out, *number));
        put_bytes(out, self.owner.as_bytes());
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Option<SetHead> {
        let database_id = reader.take(16)?.try_into().ok()?;
        let (epoch, nonce) = (reader.u32()?, reader.take(16)?.try_into().ok()?);
        let mut numbers = Vec::new();
        for _ in 0..reader.u32()? {
            numbers.push(reader.u64()?);
        }
        let owner = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
        let are_sound = numbers.is_sorted_by(|a, b| a < b)
            && numbers.iter().all(|number| (1..=u64::from(epoch)).contains(number));
        let is_sound = (1..=LAST_EPOCH).contains(&epoch) && are_sound;
        is_sound.then_some(SetHead { database_id, epoch, nonce, numbers, owner })
    }
}

/// The head that there is; `None` if there is no set.
pub(super) fn look(client: &ObjectClient) -> Result<Option<TaggedValue<SetHead>>> {
    client.read_register(NAME)
}

/// Gets the next epoch of the set, which is made where there is none.
///
/// # Errors
///
/// `Invalid` if its backups are of another database; `Full` if there are no more epochs;
/// `Unavailable` if others are always faster; or as [`look`].
pub(super) fn take(
    client: &ObjectClient,
    database_id: Option<[u8; 16]>,
    (nonce, owner): ([u8; 16], &str),
) -> Result<TaggedValue<SetHead>> {
    let address = client.address();
    for _ in 0..TRIES {
        let before = look(client)?;
        let known = before.as_ref().map(|before| before.value.database_id);
        let database_id = match (known, database_id) {
            (Some(known), None) => known,
            (None, None) => return Err(no_backups(&address)),
            (Some(known), Some(own)) if known != own => return Err(of_another(&address)),
            (_, Some(own)) => own,
        };
        let epoch = before.as_ref().map_or(1, |before| before.value.epoch + 1);
        if epoch > LAST_EPOCH {
            let message = format!("the backup set {address} was changed {LAST_EPOCH} times");
            return Err(Error::new(ErrorKind::Full, message));
        }
        let numbers = before.as_ref().map_or(Vec::new(), |before| before.value.numbers.clone());
        let head = SetHead { database_id, epoch, nonce, numbers, owner: owner.to_string() };
        if let Some(placed) = put(client, head, before.map(|before| before.tag))? {
            return Ok(placed);
        }
    }
    let cause = "other callers change the set at the same time; have one of them do so";
    let failure = RequestFailure::new(FailureKind::Away, cause);
    Err(client.error("write the head of the backups", NAME, failure))
}

/// Says which backups the set has from now on.
///
/// # Errors
///
/// `Busy` if another caller has got an epoch since `held`: nothing has changed then. Or the
/// store does not answer: it may have changed.
pub(super) fn replace(
    client: &ObjectClient,
    held: TaggedValue<SetHead>,
    numbers: Vec<u64>,
) -> Result<TaggedValue<SetHead>> {
    debug_assert!(numbers.is_sorted_by(|a, b| a < b), "backups have ascending numbers");
    let TaggedValue { value: head, tag } = held;
    let placed = put(client, SetHead { numbers, ..head }, Some(tag))?;
    placed.map_or_else(|| Err(changed(client)), Ok)
}

/// Puts a head over one with a tag; `None` if there is another one.
fn put(
    client: &ObjectClient,
    head: SetHead,
    before: Option<ObjectTag>,
) -> Result<Option<TaggedValue<SetHead>>> {
    if let Some(tag) = client.replace_register(NAME, &head, before)? {
        return Ok(Some(TaggedValue { value: head, tag }));
    }
    // It may be what an attempt of this call has written.
    Ok(look(client)?.filter(|found| found.value == head))
}

/// There is no set.
pub(super) fn no_backups(address: &str) -> Error {
    Error::invalid(format!("there are no backups in {address}"))
}

fn of_another(address: &str) -> Error {
    Error::invalid(format!("the backups in {address} are of another database; name another place"))
}

fn changed(client: &ObjectClient) -> Error {
    let found = look(client).ok().flatten();
    let by = found.map_or_else(|| "another caller".to_string(), |found| found.value.owner);
    let message = format!(
        "the backups in {} were changed meanwhile by {by}; have one caller at a time change them, \
         and make the call again",
        client.address()
    );
    Error::new(ErrorKind::Busy, message)
}

/// What `decoders` tries: the bytes as they are, and with their checksum made right.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn probe(bytes: &[u8]) -> bool {
    drop(SetHead::decode(bytes));
    let version = bytes.get(8..).and_then(|rest| rest.first_chunk().copied());
    let version = u64::from(version.map_or(0, u32::from_le_bytes));
    let right = crate::base::record::mended(bytes, 12, (16, bytes.len()), &[version]);
    let decoded = SetHead::decode(&right);
    if let Ok(head) = &decoded {
        assert_eq!(SetHead::decode(&head.encode()).as_ref(), Ok(head));
    }
    decoded.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::record::SealRefused;

    fn sample() -> SetHead {
        SetHead {
            database_id: [7; 16],
            epoch: 9,
            nonce: [3; 16],
            numbers: vec![1, 4, 9],
            owner: "process 1".into(),
        }
    }

    #[test]
    fn round_trips_and_finds_every_flipped_bit() {
        let none = SetHead { numbers: Vec::new(), owner: String::new(), ..sample() };
        assert_eq!(SetHead::decode(&none.encode()), Ok(none));
        let bytes = sample().encode();
        assert_eq!(SetHead::decode(&bytes), Ok(sample()));
        for i in 0..bytes.len() {
            assert!(SetHead::decode(&bytes[..i]).is_err());
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[i] ^= 1 << bit;
                assert!(SetHead::decode(&bad).is_err(), "byte {i}, bit {bit}");
            }
        }
    }

    #[test]
    fn what_cannot_be_a_head_is_refused() {
        let twice = SetHead { numbers: vec![2, 2], ..sample() };
        let later = SetHead { numbers: vec![10], ..sample() };
        let none = SetHead { epoch: 0, numbers: Vec::new(), ..sample() };
        for head in [twice, later, none] {
            let refused = SetHead::decode(&head.encode());
            assert!(matches!(refused, Err(SealRefused::Damaged(_))));
        }
    }
}
