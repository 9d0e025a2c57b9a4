//! What one batch of the tour writes: the same real record into three tables at once, so that a
//! batch that is only partly there shows.
//!
//! | table | key | value |
//! |---|---|---|
//! | `ledger` | stamp | hash, record key, record value |
//! | `by_name` | record key, 0, stamp | hash |
//! | `latest` | record key | stamp, hash |
//!
//! `ledger` and `by_name` grow; `latest` is overwritten. In a round each record belongs to one
//! thread, so what `latest` must hold follows from `ledger`.

use terrace::{Database, Table, WriteBatch};

/// Threads of a child.
pub(crate) const THREADS: u32 = 8;

/// The largest record that takes part: the tour is about commits, not about large values.
pub(crate) const MAX_RECORD: usize = 8 * 1024;

const STAMP: usize = 12;

/// Which batch: a thread of a round, and its place among the thread's batches, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stamp {
    /// The round in the upper bits, the thread in the lowest eight.
    pub(crate) thread: u32,
    /// From 0, without gaps.
    pub(crate) sequence: u64,
}

impl Stamp {
    /// The name of a thread of a round.
    pub(crate) fn thread(round: u32, thread: u32) -> u32 {
        round << 8 | thread
    }

    /// Whether a child of the first `rounds` rounds has such a thread.
    pub(crate) fn is_possible(self, rounds: u32) -> bool {
        self.thread >> 8 < rounds && self.thread & 0xff < THREADS
    }

    /// The stamp as bytes that sort as it does.
    pub(crate) fn encode(self) -> [u8; STAMP] {
        let mut bytes = [0; STAMP];
        bytes[..4].copy_from_slice(&self.thread.to_be_bytes());
        bytes[4..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Stamp> {
        let (thread, sequence) = bytes.split_at_checked(4)?;
        Some(Stamp {
            thread: u32::from_be_bytes(thread.try_into().ok()?),
            sequence: u64::from_be_bytes(sequence.try_into().ok()?),
        })
    }
}

/// The tables that a batch goes into.
pub(crate) struct Tables {
    pub(crate) ledger: Table,
    pub(crate) by_name: Table,
    pub(crate) latest: Table,
}

impl Tables {
    /// Opens the tables; makes them the first time.
    pub(crate) fn open(database: &Database) -> terrace::Result<Tables> {
        Ok(Tables {
            ledger: database.table("ledger")?,
            by_name: database.table("by_name")?,
            latest: database.table("latest")?,
        })
    }

    /// The batch that writes a record under a stamp.
    pub(crate) fn batch(&self, stamp: Stamp, key: &[u8], value: &[u8]) -> WriteBatch {
        let hash = hash(stamp, key, value);
        let mut batch = WriteBatch::new();
        batch.put(&self.ledger, stamp.encode(), entry(hash, key, value));
        batch.put(&self.by_name, name(key, stamp), hash.to_le_bytes());
        batch.put(&self.latest, key, latest(stamp, hash));
        batch
    }
}

/// What a value of `ledger` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// The hash of a batch (FNV-1a, 64 bits), the same in every process.
pub(crate) fn hash(stamp: Stamp, key: &[u8], value: &[u8]) -> u64 {
    let length = (key.len() as u64).to_le_bytes();
    let parts: [&[u8]; 4] = [&stamp.encode(), &length, key, value];
    parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A value of `ledger`.
pub(crate) fn entry(hash: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    [&hash.to_le_bytes(), &length.to_le_bytes()[..], key, value].concat()
}

/// A key of `by_name`.
pub(crate) fn name(key: &[u8], stamp: Stamp) -> Vec<u8> {
    [key, &[0], &stamp.encode()].concat()
}

/// A value of `latest`.
pub(crate) fn latest(stamp: Stamp, hash: u64) -> Vec<u8> {
    [&stamp.encode()[..], &hash.to_le_bytes()].concat()
}

/// Reads a record of `ledger`.
pub(crate) fn read_ledger<'a>(key: &[u8], value: &'a [u8]) -> Option<(Stamp, Entry<'a>)> {
    let (hash, rest) = value.split_at_checked(8)?;
    let (length, rest) = rest.split_at_checked(4)?;
    let length = u32::from_le_bytes(length.try_into().ok()?);
    let (name, value) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let hash = u64::from_le_bytes(hash.try_into().ok()?);
    Some((Stamp::decode(key)?, Entry { hash, key: name, value }))
}

/// Reads a record of `by_name`: the stamp, the record's key, the hash.
pub(crate) fn read_name<'a>(key: &'a [u8], value: &[u8]) -> Option<(Stamp, &'a [u8], u64)> {
    let (name, stamp) = key.split_at_checked(key.len().checked_sub(STAMP)?)?;
    let name = name.strip_suffix(&[0])?;
    Some((Stamp::decode(stamp)?, name, u64::from_le_bytes(value.try_into().ok()?)))
}

/// Reads a value of `latest`.
pub(crate) fn read_latest(value: &[u8]) -> Option<(Stamp, u64)> {
    let (stamp, hash) = value.split_at_checked(STAMP)?;
    Some((Stamp::decode(stamp)?, u64::from_le_bytes(hash.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let stamp = Stamp { thread: Stamp::thread(2, 7), sequence: 9 };
        let value = entry(5, b"key", b"value");
        let found = read_ledger(&stamp.encode(), &value);
        assert_eq!(found, Some((stamp, Entry { hash: 5, key: b"key", value: b"value" })));
        let key = name(b"k\0ey", stamp);
        assert_eq!(read_name(&key, &5_u64.to_le_bytes()), Some((stamp, &b"k\0ey"[..], 5)));
        assert_eq!(read_latest(&latest(stamp, 5)), Some((stamp, 5)));
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(read_ledger(b"short", &entry(5, b"key", b"value")), None);
        assert_eq!(read_ledger(&[0; 12], &entry(5, b"key", b"")[..14]), None);
        assert_eq!(read_name(b"short", &[0; 8]), None);
        assert_eq!(read_latest(&[0; 19]), None);
    }

    #[test]
    fn only_threads_that_ran_are_possible() {
        let stamp = |round, thread| Stamp { thread: Stamp::thread(round, thread), sequence: 0 };
        assert!(stamp(1, THREADS - 1).is_possible(2));
        assert!(!stamp(1, THREADS).is_possible(2));
        assert!(!stamp(2, 0).is_possible(2));
    }

    #[test]
    fn hashes_differ() {
        let stamp = Stamp { thread: 0, sequence: 0 };
        assert_ne!(hash(stamp, b"ab", b"c"), hash(stamp, b"a", b"bc"));
        assert_ne!(hash(stamp, b"a", b"b"), hash(Stamp { thread: 0, sequence: 1 }, b"a", b"b"));
    }
}
