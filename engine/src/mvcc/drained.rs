//! D, the drained map: key interval → the sequence number up to which level 0 has moved to level 1.
//!
//! D belongs to a version, and the journal edit that installs a drain's extents sets it. It makes a
//! drain atomic for readers and for recovery: a record of level 0 counts if and only if its
//! sequence number is greater than D of its key.
//!
//! Invariants:
//!
//! 1. The starts are strictly ascending, and neighbours differ in their sequence number.
//! 2. Keys before the first start have D = 0.

use super::{KeyInterval, is_from};
use crate::record::{Cursor, EntryRef, Filtered, Lsn};

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
    use super::*;
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
                prop_assert!(parts.windows(2).all(|w| w[0].end.as_ref() < Some(&w[1].start)));
                for (key, want) in array.iter().enumerate() {
                    let inside = parts.iter().any(|part| part.contains(&[key as u8]));
                    prop_assert_eq!(inside, *want < seq);
                }
            }
            prop_assert_eq!(DrainedMap::from_steps(map.steps().to_vec()), Some(map));
        }
    }
}
