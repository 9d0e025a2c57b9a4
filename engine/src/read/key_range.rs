//! Ranges of keys.
//!
//! What users name ranges of keys with.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::base::limits::MAX_KEY_LEN;
use crate::mvcc::{KeyInterval, after, is_from};

/// A range of keys with owned bounds.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// The range that Rust's range syntax describes.
    pub(crate) fn from_bounds(bounds: &impl KeyBounds) -> KeyRange {
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        KeyRange { lower: owned(bounds.lower()), upper: owned(bounds.upper()) }
    }

    /// All keys that begin with `prefix`.
    pub(crate) fn prefix(prefix: &[u8]) -> KeyRange {
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        let upper = match end.last_mut() {
            None => Bound::Unbounded,
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
        };
        KeyRange { lower: Bound::Included(prefix.to_vec()), upper }
    }

    /// The part of it from `key` on, or up to `key` if it is gone through from its end.
    pub(crate) fn part_from(&self, key: &[u8], is_reversed: bool) -> KeyRange {
        let KeyRange { mut lower, mut upper } = self.clone();
        match is_reversed {
            false if self.above_lower(key) => lower = Bound::Included(key.to_vec()),
            true if self.below_upper(key) => upper = Bound::Included(key.to_vec()),
            _ => {}
        }
        KeyRange { lower, upper }
    }

    /// The keys inside; `None` if no key can be.
    pub(crate) fn interval(&self) -> Option<KeyInterval> {
        let start = match &self.lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => next_key(key)?,
        };
        let end = match &self.upper {
            Bound::Unbounded => None,
            Bound::Excluded(key) => Some(key.clone()),
            Bound::Included(key) => next_key(key),
        };
        Some(KeyInterval { start, end }).filter(|interval| !interval.is_empty())
    }

    /// Both bounds.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.lower.as_ref().map(Vec::as_slice), self.upper.as_ref().map(Vec::as_slice))
    }

    /// Whether no key can lie inside.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a >= b
            }
            _ => false,
        }
    }

    /// Whether every key lies inside.
    pub(crate) fn is_everything(&self) -> bool {
        self.lower == Bound::Unbounded && self.upper == Bound::Unbounded
    }

    pub(crate) fn below_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
    }

    pub(crate) fn above_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => is_from(lower, key),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// The first key that may lie inside, for seeking.
    pub(crate) fn start(&self) -> &[u8] {
        match &self.lower {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        }
    }
}

impl From<KeyInterval> for KeyRange {
    fn from(KeyInterval { start, end }: KeyInterval) -> KeyRange {
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        KeyRange { lower: Bound::Included(start), upper }
    }
}

/// The least key within the limits that is greater; `None` if there is none.
fn next_key(key: &[u8]) -> Option<Vec<u8>> {
    if key.len() < MAX_KEY_LEN {
        return Some(after(key));
    }
    let last = key.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = key[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// A range of keys, as Rust writes ranges: `..`, `a..b`, `a..=b`, `a..`, `..b`, `..=b`, or a pair
/// of
/// [`Bound`]s; of anything that is bytes. Unlike [`RangeBounds`](std::ops::RangeBounds) it knows
/// the type of `..`, so a call over all keys names no type.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// use std::ops::Bound;
///
/// let table = db.table("t")?;
/// ["a", "b", "c"].iter().try_for_each(|key| table.put(key, ""))?;
/// assert_eq!(table.range(..).count(), 3);
/// assert_eq!(table.range("b"..).count(), 2);
/// assert_eq!(table.range((Bound::Excluded("a"), Bound::Excluded("c"))).count(), 1);
/// # Ok(())
/// # }
/// ```
pub trait KeyBounds {
    /// Where the range begins.
    fn lower(&self) -> Bound<&[u8]>;

    /// Where it ends.
    fn upper(&self) -> Bound<&[u8]>;
}

impl KeyBounds for RangeFull {
    fn lower(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    fn upper(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

impl<K: AsRef<[u8]>> KeyBounds for Range<K> {
    fn lower(&self) -> Bound<&[u8]> {
        Bound::Included(self.start.as_ref())
    }

    fn upper(&self) -> Bound<&[u8]> {
        Bound::Excluded(self.end.as_ref())
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeInclusive<K> {
    fn lower(&self) -> Bound<&[u8]> {
        Bound::Included(self.start().as_ref())
    }

    fn upper(&self) -> Bound<&[u8]> {
        Bound::Included(self.end().as_ref())
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeFrom<K> {
    fn lower(&self) -> Bound<&[u8]> {
        Bound::Included(self.start.as_ref())
    }

    fn upper(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeTo<K> {
    fn lower(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    fn upper(&self) -> Bound<&[u8]> {
        Bound::Excluded(self.end.as_ref())
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeToInclusive<K> {
    fn lower(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    fn upper(&self) -> Bound<&[u8]> {
        Bound::Included(self.end.as_ref())
    }
}

impl<K: AsRef<[u8]>> KeyBounds for (Bound<K>, Bound<K>) {
    fn lower(&self) -> Bound<&[u8]> {
        self.0.as_ref().map(AsRef::as_ref)
    }

    fn upper(&self) -> Bound<&[u8]> {
        self.1.as_ref().map(AsRef::as_ref)
    }
}

impl<B: KeyBounds + ?Sized> KeyBounds for &B {
    fn lower(&self) -> Bound<&[u8]> {
        (**self).lower()
    }

    fn upper(&self) -> Bound<&[u8]> {
        (**self).upper()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_where_they_should() {
        assert_eq!(KeyRange::prefix(b"ab").upper, Bound::Excluded(b"ac".to_vec()));
        assert_eq!(KeyRange::prefix(b"a\xff\xff").upper, Bound::Excluded(b"b".to_vec()));
        assert_eq!(KeyRange::prefix(b"\xff").upper, Bound::Unbounded);
        assert_eq!(KeyRange::prefix(b"").upper, Bound::Unbounded);
    }

    #[test]
    fn empty_ranges_are_seen() {
        let range = |lower, upper| KeyRange { lower, upper };
        let key = |k: &str| k.as_bytes().to_vec();
        assert!(range(Bound::Included(key("b")), Bound::Excluded(key("b"))).is_empty());
        assert!(range(Bound::Included(key("b")), Bound::Included(key("a"))).is_empty());
        assert!(!range(Bound::Included(key("b")), Bound::Included(key("b"))).is_empty());
        assert!(!range(Bound::Unbounded, Bound::Excluded(key("a"))).is_empty());
    }
}
