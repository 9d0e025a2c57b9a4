//! Separators: what inner nodes know of the keys below them. They own their bytes, so that no
//! inner node ever depends on a record that may be gone.

use crate::record::common;
use crate::record::{LSN_MAX, Lsn};

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
    use crate::record::slice;

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
