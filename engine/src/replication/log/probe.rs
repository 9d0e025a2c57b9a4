//! What `decoders` tries: the bytes as they are, and with their checksums made right.

use super::entry::{Entry, HEADER_LEN};
use super::registers::{FollowerPlace, Register};
use super::shared_log::LogHead;
use super::writer::Nonces;
use crate::base::record::{Sealable, mended};

/// Entries of the log, its head, followers, their register, and the claims that a directory knows.
pub(crate) fn entry(bytes: &[u8]) -> bool {
    let number = bytes.get(32..).and_then(|rest| rest.first_chunk().copied());
    let number = number.map_or(1, u64::from_le_bytes);
    let version = bytes.get(8..).and_then(|rest| rest.first_chunk().copied());
    let version = u64::from(version.map_or(0, u32::from_le_bytes));
    let body = mended(bytes, 16, (HEADER_LEN, bytes.len()), &[number]);
    let entry = mended(&body, 12, (16, HEADER_LEN), &[version, number]);
    let head = mended(bytes, 12, (16, bytes.len()), &[version]);
    let nonces = mended(bytes, 8, (12, bytes.len()), &[]);
    let mut accepted = false;
    for bytes in [bytes, &entry] {
        if let Ok(entry) = Entry::decode(bytes, number) {
            accepted = true;
            let again = entry.encode().map(|bytes| Entry::decode(&bytes, number));
            assert_eq!(again.ok().and_then(Result::ok).as_ref(), Some(&entry));
        }
    }
    for bytes in [bytes, &head] {
        if let Ok(head) = LogHead::decode(bytes) {
            accepted = true;
            assert_eq!(LogHead::decode(&head.encode()), Ok(head));
        }
    }
    accepted |= [bytes, &head].into_iter().any(|bytes| FollowerPlace::decode(bytes).is_ok());
    for bytes in [bytes, &head] {
        if let Ok(register) = Register::decode(bytes) {
            accepted = true;
            assert_eq!(Register::decode(&register.encode()), Ok(register));
        }
    }
    for bytes in [bytes, &nonces] {
        if let Some(nonces) = Nonces::decode(bytes) {
            accepted = true;
            assert_eq!(Nonces::decode(&nonces.encode()), Some(nonces));
        }
    }
    accepted
}
