//! What users name ranges of keys with.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

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
