//! Intervals of keys, as drains, compactions, range deletes and locks know them.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::base::record::{Cursor, EntryRef, Filtered, Lsn};

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

/// The bounds of all keys up to one.
fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

/// Disjoint intervals that are not empty, with keys between any two. A key is looked for in a
/// logarithm of their number.
#[derive(Clone, Debug, Default)]
pub(crate) struct IntervalSet(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl IntervalSet {
    /// Adds the keys of an interval, which is not empty. Returns those that it is joined with:
    /// they are gone, and it begins and ends as they did if it would have begun later or ended
    /// earlier.
    pub(crate) fn insert(&mut self, interval: &KeyInterval) -> Vec<KeyInterval> {
        debug_assert!(!interval.is_empty(), "a set has no interval without keys");
        let (mut joined, mut gone) = (interval.clone(), Vec::new());
        loop {
            let last = self.touching(&joined).next();
            let Some(near) = last else { break };
            self.0.remove(&near.start);
            joined = joined.joined(&near);
            gone.push(near);
        }
        self.0.insert(joined.start, joined.end);
        gone
    }

    /// Those that have keys of `interval`, or end or begin where that begins or ends, the last one
    /// first.
    pub(crate) fn touching(&self, interval: &KeyInterval) -> impl Iterator<Item = KeyInterval> {
        let upper = interval.end.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let touches = |end: &Option<Vec<u8>>| end.as_ref().is_none_or(|end| *end >= interval.start);
        let from_last = self.0.range::<[u8], _>((Bound::Unbounded, upper)).rev();
        from_last
            .take_while(move |(_, end)| touches(end))
            .map(|(start, end)| KeyInterval { start: start.clone(), end: end.clone() })
    }

    /// The one that `key` lies in.
    pub(crate) fn find(&self, key: &[u8]) -> Option<KeyInterval> {
        let (start, end) = self.0.range::<[u8], _>(up_to(key)).next_back()?;
        let inside = end.as_deref().is_none_or(|end| key < end);
        inside.then(|| KeyInterval { start: start.clone(), end: end.clone() })
    }

    /// The last one that begins before `key`.
    pub(crate) fn last_before(&self, key: &[u8]) -> Option<KeyInterval> {
        let before = (Bound::Unbounded, Bound::Excluded(key));
        let (start, end) = self.0.range::<[u8], _>(before).next_back()?;
        Some(KeyInterval { start: start.clone(), end: end.clone() })
    }

    /// Whether `key` lies in one of them.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let before = self.0.range::<[u8], _>(up_to(key)).next_back();
        before.is_some_and(|(_, end)| end.as_deref().is_none_or(|end| key < end))
    }

    /// Whether one of them has all keys of `interval`, which is not empty.
    pub(crate) fn covers(&self, interval: &KeyInterval) -> bool {
        self.find(&interval.start).is_some_and(|one| one.covers(interval))
    }

    /// Whether one of them has keys of `interval`.
    pub(crate) fn overlaps(&self, interval: &KeyInterval) -> bool {
        let end = interval.end.as_deref();
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        let last = self.0.range::<[u8], _>((Bound::Unbounded, upper)).next_back();
        let reaches = |end: &Option<Vec<u8>>| end.as_ref().is_none_or(|end| *end > interval.start);
        !interval.is_empty() && last.is_some_and(|(_, end)| reaches(end))
    }

    /// The keys of `interval` that none of them has, in order.
    pub(crate) fn gaps(&self, interval: &KeyInterval) -> Vec<KeyInterval> {
        let (mut gaps, mut rest) = (Vec::new(), interval.clone());
        let later = (Bound::Excluded(interval.start.as_slice()), Bound::Unbounded);
        let later = self.0.range::<[u8], _>(later).map(|(start, end)| (start.clone(), end.clone()));
        let first = self.find(&interval.start).map(|one| (one.start, one.end));
        for (start, end) in first.into_iter().chain(later) {
            if !interval.ends_after(&start) {
                break;
            }
            if rest.start < start {
                gaps.push(KeyInterval { start: rest.start, end: Some(start) });
            }
            let Some(end) = end else { return gaps };
            rest = KeyInterval { start: end, end: rest.end };
        }
        gaps.extend(Some(rest).filter(|rest| !rest.is_empty()));
        gaps
    }

    /// Takes out the one that begins at `start`.
    pub(crate) fn remove(&mut self, start: &[u8]) -> Option<KeyInterval> {
        let (start, end) = self.0.remove_entry(start)?;
        Some(KeyInterval { start, end })
    }

    /// Takes a key out of the one that it lies in, of which the rest stays.
    pub(crate) fn remove_key(&mut self, key: &[u8]) {
        let Some(KeyInterval { start, end }) = self.find(key) else { return };
        self.0.remove(&start);
        let before = KeyInterval { start, end: Some(key.to_vec()) };
        let behind = KeyInterval { start: after(key), end };
        let rest = [before, behind].into_iter().filter(|part| !part.is_empty());
        self.0.extend(rest.map(|part| (part.start, part.end)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = KeyInterval> {
        let interval = |(start, end): (&Vec<u8>, &Option<Vec<u8>>)| KeyInterval {
            start: start.clone(),
            end: end.clone(),
        };
        self.0.iter().map(interval)
    }
}

// D, the drained map: key interval → the sequence number up to which level 0 has moved to level 1.
//
// D belongs to a version, and the journal edit that installs a drain's extents sets it. It makes a
// drain atomic for readers and for recovery: a record of level 0 counts if and only if its
// sequence number is greater than D of its key.
//
// Invariants:
//
// 1. The starts are strictly ascending, and neighbours differ in their sequence number.
// 2. Keys before the first start have D = 0.

/// The drained map of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrainedMap {
    /// (start of an interval, D from there to the next start).
    steps: Vec<(Vec<u8>, Lsn)>,
}

impl DrainedMap {
    /// D of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Lsn {
        match self.steps.partition_point(|(start, _)| is_from(start, key)) {
            0 => 0,
            n => self.steps[n - 1].1,
        }
    }

    /// The records of `inner` that D does not cover.
    pub(crate) fn filter<'a, C: Cursor + 'a>(&'a self, inner: C) -> impl Cursor + 'a {
        Filtered { inner, hides: |entry: &EntryRef<'_>| entry.seq <= self.get(entry.key) }
    }

    /// The smallest D of the keys from `first` to `last`.
    pub(crate) fn least_within(&self, first: &[u8], last: &[u8]) -> Lsn {
        let behind = self.steps.partition_point(|(start, _)| start.as_slice() <= first);
        let inside = self.steps[behind..].iter().take_while(|(start, _)| start.as_slice() <= last);
        inside.map(|(_, seq)| *seq).fold(self.get(first), Lsn::min)
    }

    /// Sets D of every key in `interval` to `seq`, in place. Linear in the number of steps.
    pub(crate) fn set(&mut self, interval: &KeyInterval, seq: Lsn) {
        let after = interval.end.as_ref().map(|end| (end.clone(), self.get(end)));
        let mut steps = Vec::with_capacity(self.steps.len() + 2);
        steps.extend(self.steps.iter().filter(|(s, _)| *s < interval.start).cloned());
        steps.push((interval.start.clone(), seq));
        if let Some((end, seq_after)) = after {
            steps.push((end.clone(), seq_after));
            steps.extend(self.steps.iter().filter(|(s, _)| *s > end).cloned());
        }
        self.steps = steps;
        self.normalise();
    }

    /// The parts of `interval` in which D is below `seq`, in order: what is not drained of a range
    /// delete with that sequence number.
    pub(crate) fn undrained(&self, interval: &KeyInterval, seq: Lsn) -> Vec<KeyInterval> {
        let behind = self.steps.partition_point(|(start, _)| *start <= interval.start);
        let inside =
            self.steps[behind..].iter().take_while(|(start, _)| interval.ends_after(start));
        let steps = [(&interval.start, self.get(&interval.start))];
        let steps = steps.into_iter().chain(inside.map(|(start, seq)| (start, *seq)));
        let mut parts: Vec<KeyInterval> = Vec::new();
        let mut open: Option<Vec<u8>> = None;
        for (start, drained) in steps {
            match (drained < seq, &open) {
                (true, None) => open = Some(start.clone()),
                (false, Some(_)) => parts.extend(
                    open.take().map(|from| KeyInterval { start: from, end: Some(start.clone()) }),
                ),
                _ => {}
            }
        }
        parts.extend(open.map(|start| KeyInterval { start, end: interval.end.clone() }));
        parts
    }

    /// The first key of `interval` at `from` or behind it in which D is below `seq`.
    pub(crate) fn first_undrained<'a>(
        &'a self,
        interval: &'a KeyInterval,
        from: &'a [u8],
        seq: Lsn,
    ) -> Option<&'a [u8]> {
        let from = from.max(&interval.start);
        if self.get(from) < seq {
            return interval.ends_after(from).then_some(from);
        }
        let behind = self.steps.partition_point(|(start, _)| start.as_slice() <= from);
        let inside = self.steps[behind..].iter().take_while(|(key, _)| interval.ends_after(key));
        inside.map(|(key, at)| (key.as_slice(), at)).find(|(_, at)| **at < seq).map(|(key, _)| key)
    }

    /// Forgets every step below `oldest_live`, the smallest sequence number that any zone still
    /// holds on the media. It changes no answer, since no record is left to which the step applies.
    /// It keeps the map as small as one drain round.
    pub(crate) fn forget_below(&mut self, oldest_live: Lsn) {
        for (_, seq) in &mut self.steps {
            if *seq < oldest_live {
                *seq = 0;
            }
        }
        self.normalise();
    }

    /// Sets D of each key to `seq` where it is below that.
    pub(crate) fn raise(&mut self, seq: Lsn) {
        if self.steps.first().is_none_or(|(start, _)| !start.is_empty()) {
            self.steps.insert(0, (Vec::new(), 0));
        }
        self.steps.iter_mut().for_each(|(_, at)| *at = (*at).max(seq));
        self.normalise();
    }

    /// The steps, for the journal.
    pub(crate) fn steps(&self) -> &[(Vec<u8>, Lsn)] {
        &self.steps
    }

    /// A map from the journal's steps; `None` if they break invariant 1.
    pub(crate) fn from_steps(steps: Vec<(Vec<u8>, Lsn)>) -> Option<DrainedMap> {
        let sound = steps.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 != w[1].1);
        sound.then_some(DrainedMap { steps })
    }

    fn normalise(&mut self) {
        let mut last = 0;
        self.steps.retain(|(_, seq)| {
            let keep = *seq != last;
            last = *seq;
            keep
        });
        debug_assert!(self.steps.windows(2).all(|w| w[0].0 < w[1].0), "invariant 1");
    }
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

        /// Against the plain list of what was added and not undone.
        #[test]
        fn a_set_has_what_was_added(
            steps in prop::collection::vec((interval(), any::<bool>()), 0..12),
            asked in interval(),
            key in prop::collection::vec(0u8..3, 0..4),
        ) {
            let (mut set, mut list) = (IntervalSet::default(), Vec::new());
            for (one, is_undone) in steps.into_iter().filter(|(one, _)| !one.is_empty()) {
                let before: Vec<_> = set.iter().collect();
                let gone = set.insert(&one);
                if is_undone {
                    let joined = set.find(&one.start).map(|joined| joined.start);
                    prop_assert!(joined.and_then(|start| set.remove(&start)).is_some());
                    gone.iter().for_each(|gone| drop(set.insert(gone)));
                    prop_assert_eq!(set.iter().collect::<Vec<_>>(), before);
                } else {
                    list.push(one);
                }
            }
            prop_assert_eq!(set.contains(&key), list.iter().any(|one| one.contains(&key)));
            prop_assert_eq!(set.find(&key).is_some(), set.contains(&key));
            let overlaps = list.iter().any(|one| one.intersection(&asked).is_some());
            prop_assert_eq!(set.overlaps(&asked), overlaps && !asked.is_empty());
            let all = union(list.iter().cloned());
            if !asked.is_empty() {
                prop_assert_eq!(set.covers(&asked), all.iter().any(|one| one.covers(&asked)));
            }
            let gaps = set.gaps(&asked);
            let is_in_gap = gaps.iter().any(|gap| gap.contains(&key));
            prop_assert_eq!(is_in_gap, asked.contains(&key) && !set.contains(&key));
            prop_assert!(gaps.iter().all(|gap| !gap.is_empty()));
            prop_assert_eq!(&set.iter().collect::<Vec<_>>(), &all);
            prop_assert_eq!(set.len(), set.iter().count());
            let (contains_asked, before) = (set.contains(&asked.start), set.contains(&key));
            set.remove_key(&asked.start);
            prop_assert!(!set.contains(&asked.start));
            prop_assert!(key == asked.start || set.contains(&key) == before);
            prop_assert!(contains_asked || set.iter().collect::<Vec<_>>() == all);
            prop_assert!(set.iter().all(|one| !one.is_empty()));
        }
    }

    mod drained {
        use super::super::*;
        use proptest::prelude::*;

        fn interval(start: u8, end: Option<u8>) -> KeyInterval {
            KeyInterval { start: vec![start], end: end.map(|e| vec![e]) }
        }

        #[test]
        fn empty_map_has_drained_nothing() {
            assert_eq!(DrainedMap::default().get(b"anything"), 0);
        }

        proptest! {
            #[test]
            fn agrees_with_an_array(
                sets in prop::collection::vec((0u8..20, 1u8..20, 1u64..6, any::<bool>()), 0..40)
            ) {
                let mut map = DrainedMap::default();
                let mut array = [0u64; 64];
                for (start, len, seq, open) in sets {
                    let end = start + len;
                    map.set(&interval(start, (!open).then_some(end)), seq);
                    for (key, slot) in array.iter_mut().enumerate() {
                        if key >= start.into() && (open || key < end.into()) {
                            *slot = seq;
                        }
                    }
                }
                for (key, want) in array.iter().enumerate() {
                    prop_assert_eq!(map.get(&[key as u8]), *want);
                    let least = array[key..].iter().take(9).min().copied().unwrap_or_default();
                    let last = array[key..].len().min(9) + key - 1;
                    prop_assert_eq!(map.least_within(&[key as u8], &[last as u8]), least);
                }
                let all = KeyInterval::all();
                for seq in 0..7 {
                    let parts = map.undrained(&all, seq);
                    for from in (0..40).map(|from| [from]) {
                        let own = interval(10, Some(30));
                        let rest = own.intersection(&interval(from[0], None));
                        let parts = rest.map(|rest| map.undrained(&rest, seq)).unwrap_or_default();
                        let first = parts.into_iter().next();
                        let found = map.first_undrained(&own, &from, seq).map(<[u8]>::to_vec);
                        prop_assert_eq!(found, first.map(|part| part.start));
                    }
                    prop_assert!(parts.windows(2).all(|w| w[0].end.as_ref() < Some(&w[1].start)));
                    for (key, want) in array.iter().enumerate() {
                        let inside = parts.iter().any(|part| part.contains(&[key as u8]));
                        prop_assert_eq!(inside, *want < seq);
                    }
                }
                for seq in 0..7 {
                    let mut raised = map.clone();
                    raised.raise(seq);
                    for (key, want) in array.iter().enumerate() {
                        prop_assert_eq!(raised.get(&[key as u8]), seq.max(*want));
                    }
                    prop_assert_eq!(raised.get(b""), seq);
                    prop_assert!(DrainedMap::from_steps(raised.steps().to_vec()).is_some());
                }
                prop_assert_eq!(DrainedMap::from_steps(map.steps().to_vec()), Some(map));
            }
        }
    }
}
