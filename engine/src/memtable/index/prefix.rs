//! What the keys of a node have in common, kept once; and digests, which are the eight bytes that
//! follow, as a number that sorts as they do.
//!
//! Thread safety: guarded by the lock of the node.
//!
//! Invariants:
//!
//! 1. Every key of the node begins with the prefix.
//! 2. A digest is `slice(key, length of the prefix)`. If digests differ, they order as their keys
//!    do.
//!
//! Separators: what inner nodes know of the keys below them. They own their bytes, so that no
//! inner node ever depends on a record that may be gone.

use super::heap::{Heap, SpillLink};
use super::lock::{Optimistic, Version, VersionLock, Word, words};
use crate::base::record::{LSN_MAX, Lsn, common, slice};

/// The longest prefix that lies within the node.
pub(super) const INLINE: usize = 32;

/// Where a key stands to the keys of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before all of them.
    Before,
    /// It shares their prefix; then this is its digest.
    Within(u64),
    /// After all of them.
    After,
}

/// A node's prefix.
#[derive(Debug)]
pub(super) struct Prefix {
    len: Word,
    /// The bytes, big-endian, zeros behind the end, if there are few enough.
    inline: [Word; INLINE / 8],
    /// The bytes otherwise.
    long: SpillLink,
}

impl Default for Prefix {
    fn default() -> Prefix {
        Prefix { len: Word::default(), inline: words(), long: SpillLink::default() }
    }
}

impl Prefix {
    /// Its length.
    pub(super) fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// Where `key` stands. Holds if the version does; never reads what a version check has not
    /// shown to be there.
    #[inline(always)]
    pub(super) fn place(
        &self,
        key: &[u8],
        lock: &VersionLock,
        version: Version,
    ) -> Optimistic<Place> {
        let len = self.len();
        if len > INLINE {
            return self.place_long(key, lock, version);
        }
        let mut at = 0;
        for word in &self.inline[..len.div_ceil(8)] {
            let mask = u64::MAX << (8 * (8 - (len - at).min(8)));
            let (theirs, ours) = (word.get(), slice(key, at) & mask);
            if ours != theirs {
                return Ok(if ours < theirs { Place::Before } else { Place::After });
            }
            at += 8;
        }
        // The zeros behind the end of a short key may have passed for bytes of the prefix.
        Ok(if key.len() < len { Place::Before } else { Place::Within(slice(key, len)) })
    }

    #[cold]
    fn place_long(&self, key: &[u8], lock: &VersionLock, version: Version) -> Optimistic<Place> {
        let long = self.long.get();
        lock.check(version)?;
        // SAFETY: the check shows that the prefix was long and this link the node's at a moment
        // within the caller's epoch, which keeps what was linked then.
        let prefix = unsafe { &(*long).bytes };
        let shared = common(key, prefix);
        Ok(match (shared == prefix.len(), key.get(shared)) {
            (true, _) => Place::Within(slice(key, shared)),
            (false, Some(byte)) if *byte > prefix[shared] => Place::After,
            (false, _) => Place::Before,
        })
    }

    /// The bytes, for the holder of the lock.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let len = self.len();
        if len > INLINE {
            // SAFETY: the holder of the lock alone changes the link, which leads to a spill as
            // long as the prefix is long.
            return unsafe { &*self.long.get() }.bytes.to_vec();
        }
        let mut bytes: Vec<u8> =
            self.inline.iter().flat_map(|word| word.get().to_be_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    /// Becomes `bytes`. The caller holds the lock and updates the digests.
    pub(super) fn set(&self, bytes: &[u8], heap: Heap<'_>) {
        heap.retire_spill(self.long.get());
        self.long.set(std::ptr::null_mut());
        if bytes.len() > INLINE {
            self.long.set(heap.spill(bytes, 0));
        } else {
            for (i, word) in self.inline.iter().enumerate() {
                word.set(slice(bytes, 8 * i));
            }
        }
        self.len.set(bytes.len() as u64);
    }

    /// Shrinks to its first `len` bytes and brings the digests in line, which needs no keys: the
    /// bytes that leave the prefix move to the front of every digest.
    pub(super) fn shrink(&self, len: usize, digests: &[Word], heap: Heap<'_>) {
        let bytes = self.bytes();
        let (lead, by) = (slice(&bytes, len), 8 * (bytes.len() - len) as u32);
        for digest in digests {
            digest.set(lead | digest.get().checked_shr(by).unwrap_or(0));
        }
        self.set(&bytes[..len], heap);
    }

    /// Gives the memory back: the node is out of the tree.
    pub(super) fn retire(&self, heap: Heap<'_>) {
        heap.retire_spill(self.long.get());
    }
}

/// A place between two neighbouring versions: the left one is before it, the right one is at or
/// behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Separator {
    pub(crate) bytes: Vec<u8>,
    pub(crate) seq: Lsn,
}

impl Separator {
    /// The shortest separator between two neighbours.
    pub(crate) fn between(left: (&[u8], Lsn), right: (&[u8], Lsn)) -> Separator {
        if left.0 == right.0 {
            debug_assert!(left.1 > right.1, "versions descend: {} and {}", left.1, right.1);
            return Separator { bytes: right.0.to_vec(), seq: right.1 };
        }
        let shared = common(left.0, right.0);
        Separator { bytes: right.0[..=shared].to_vec(), seq: LSN_MAX }
    }

    /// Whether the digest behind a prefix of `prefix` bytes says it all: then a key with the same
    /// digest lies at or behind the separator. So it is if the separator ends within the digest,
    /// and not on a zero, which could be the padding of a shorter key.
    pub(super) fn is_plain(&self, prefix: usize) -> bool {
        let rest = &self.bytes[prefix..];
        self.seq == LSN_MAX && rest.len() <= 8 && rest.last() != Some(&0)
    }

    /// The separator that a prefix and a digest say all of.
    pub(super) fn plain(prefix: &[u8], digest: u64) -> Separator {
        let digest_len = 8 - digest.trailing_zeros() as usize / 8;
        let mut bytes = prefix.to_vec();
        bytes.extend_from_slice(&digest.to_be_bytes()[..digest_len]);
        Separator { bytes, seq: LSN_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::index::heap::Taken;

    #[test]
    fn places_and_shrinking() {
        let (guard, memory) = (crossbeam_epoch::pin(), Taken::default());
        let heap = Heap::new(&guard, &memory);
        let lock = VersionLock::default();
        let version = lock.read().unwrap();
        for long in [0, 1, 7, 8, 9, 31, 32, 33, 100] {
            let prefix = Prefix::default();
            let bytes: Vec<u8> = (0..long).map(|i| (i % 3) as u8).collect();
            prefix.set(&bytes, heap);
            assert_eq!(prefix.bytes(), bytes);
            let place = |key: &[u8]| prefix.place(key, &lock, version).unwrap();
            let mut key = bytes.clone();
            key.extend_from_slice(b"12345678901");
            let digest = u64::from_be_bytes(*b"12345678");
            assert_eq!(place(&key), Place::Within(digest));
            for at in 0..long {
                assert_eq!(place(&bytes[..at]), Place::Before, "a prefix of the prefix");
                let mut other = key.clone();
                other[at] += 1;
                assert_eq!(place(&other), Place::After);
            }
            let word = Word::default();
            word.set(digest);
            let shorter = long / 2;
            prefix.shrink(shorter, std::slice::from_ref(&word), heap);
            assert_eq!(prefix.bytes(), &bytes[..shorter]);
            assert_eq!(word.get(), slice(&key, shorter));
            prefix.retire(heap);
        }
        assert_eq!(memory.bytes(), 0);
    }

    mod separator {
        use super::super::*;
        use crate::base::record::slice;

        #[test]
        fn short_between_neighbours() {
            let between = |a: &str, b: &str| {
                let separator = Separator::between((a.as_bytes(), 5), (b.as_bytes(), 4));
                (String::from_utf8(separator.bytes).unwrap(), separator.seq)
            };
            assert_eq!(between("abc", "abq12"), ("abq".into(), LSN_MAX));
            assert_eq!(between("", "a12"), ("a".into(), LSN_MAX));
            assert_eq!(between("ab", "abc12"), ("abc".into(), LSN_MAX));
            assert_eq!(between("ab", "ab"), ("ab".into(), 4));
        }

        #[test]
        fn plain_ones_come_back() {
            for (bytes, prefix, plain) in [
                (&b"abcdefgh"[..], 0, true),
                (b"abc", 3, true),
                (b"abc", 1, true),
                (b"ab\0", 1, false),
                (b"abcdefghi", 0, false),
                (b"abcdefghi", 1, true),
            ] {
                let separator = Separator { bytes: bytes.to_vec(), seq: LSN_MAX };
                assert_eq!(separator.is_plain(prefix), plain, "{bytes:?}");
                if plain {
                    let digest = slice(bytes, prefix);
                    assert_eq!(Separator::plain(&bytes[..prefix], digest), separator);
                }
            }
        }
    }
}
