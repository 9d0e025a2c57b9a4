//! Intervals of keys, as drains, compactions and range deletes know them.

/// Whether `start` ≤ `key`. An empty start is not compared: an empty `Vec` has an address at which
/// nothing is mapped. The C library compares by loads that leave out what lies behind the end, and
/// some processors take a microsecond for one that would have faulted. So it was in look-ups of
/// level 0 and steps of walks over it, whose map of what was drained begins at the empty key.
#[inline]
pub(crate) fn is_from(start: &[u8], key: &[u8]) -> bool {
    start.is_empty() || start <= key
}

/// A half-open interval of keys; `end == None` means "to the last key".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyInterval {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl KeyInterval {
    /// Every key.
    pub(crate) fn all() -> KeyInterval {
        KeyInterval { start: Vec::new(), end: None }
    }

    /// The keys from `start` up to and including `last`.
    pub(crate) fn closed(start: &[u8], last: &[u8]) -> KeyInterval {
        KeyInterval { start: start.to_vec(), end: Some(after(last)) }
    }

    /// Whether `key` lies inside.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        is_from(&self.start, key) && self.ends_after(key)
    }

    /// Whether it ends behind `key`, wherever it starts.
    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }

    /// Whether no key lies inside.
    pub(crate) fn is_empty(&self) -> bool {
        !self.ends_after(&self.start)
    }

    /// Whether all of `other` lies inside.
    pub(crate) fn covers(&self, other: &KeyInterval) -> bool {
        let ends_later = match (&self.end, &other.end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(other)) => end >= other,
        };
        self.start <= other.start && ends_later
    }

    /// Whether some key lies in both.
    pub(crate) fn overlaps(&self, other: &KeyInterval) -> bool {
        let starts_before =
            |a: &KeyInterval, b: &KeyInterval| b.end.as_ref().is_none_or(|end| a.start < *end);
        starts_before(self, other) && starts_before(other, self)
    }

    /// From the first key of both to the last one.
    pub(crate) fn joined(&self, other: &KeyInterval) -> KeyInterval {
        // No end is the last end of all.
        let end = self.end.as_ref().zip(other.end.as_ref()).map(|(a, b)| a.max(b).clone());
        KeyInterval { start: self.start.as_slice().min(&other.start).to_vec(), end }
    }

    /// What both have; `None` if they have nothing in common.
    pub(crate) fn intersection(&self, other: &KeyInterval) -> Option<KeyInterval> {
        let start = (&self.start).max(&other.start).clone();
        let end = match (&self.end, &other.end) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (one, other) => one.as_ref().or(other.as_ref()).cloned(),
        };
        let both = KeyInterval { start, end };
        (!both.is_empty()).then_some(both)
    }

    /// An upper bound of the keys inside. If the end is the first key after some key, as at cuts
    /// between extents, it is that key. Else it is the end itself. `None` without an end.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        let end = self.end.as_deref()?;
        Some(end.strip_suffix(&[0]).unwrap_or(end))
    }
}

/// The first key after `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The same keys as disjoint intervals, in order, with keys between them.
pub(crate) fn union(intervals: impl IntoIterator<Item = KeyInterval>) -> Vec<KeyInterval> {
    let mut intervals: Vec<_> = intervals.into_iter().collect();
    intervals.sort_by(|a, b| a.start.cmp(&b.start));
    let mut union: Vec<KeyInterval> = Vec::with_capacity(intervals.len());
    for next in intervals {
        match union.last_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| *end >= next.start) => {
                // No end is the last end of all.
                last.end = last.end.take().zip(next.end).map(|(a, b)| a.max(b));
            }
            _ => union.push(next),
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_interval_begins_with_its_start_and_the_empty_start_is_before_all() {
        for (start, key, is) in
            [("", "", true), ("", "a", true), ("b", "a", false), ("b", "", false)]
        {
            assert_eq!(is_from(start.as_bytes(), key.as_bytes()), is, "{start:?} {key:?}");
        }
        assert!(is_from(b"b", b"b") && is_from(b"b", b"c"));
    }

    fn interval() -> impl Strategy<Value = KeyInterval> {
        let key = || prop::collection::vec(0u8..3, 0..3);
        (key(), prop::option::of(key())).prop_map(|(start, end)| KeyInterval { start, end })
    }

    proptest! {
        #[test]
        fn are_sets_of_keys(
            a in interval(),
            b in interval(),
            key in prop::collection::vec(0u8..3, 0..4),
        ) {
            let (in_a, in_b) = (a.contains(&key), b.contains(&key));
            let both = a.intersection(&b);
            prop_assert_eq!(both.is_some_and(|both| both.contains(&key)), in_a && in_b);
            prop_assert!(!(a.is_empty() && in_a));
            prop_assert!(!a.covers(&b) || !in_b || in_a);
            prop_assert!(!in_a || a.last_key().is_none_or(|last| key.as_slice() <= last));
            let union = union([&b, &a].into_iter().filter(|one| !one.is_empty()).cloned());
            prop_assert_eq!(union.iter().any(|one| one.contains(&key)), in_a || in_b);
            let apart = |w: &[KeyInterval]| w[0].end.as_ref().is_some_and(|end| *end < w[1].start);
            prop_assert!(union.windows(2).all(apart));
            let closed = KeyInterval::closed(&a.start, &key);
            prop_assert_eq!(closed.contains(&key), a.start <= key);
            prop_assert!(!closed.contains(&after(&key)));
            prop_assert_eq!(closed.last_key(), Some(key.as_slice()));
        }
    }
}
