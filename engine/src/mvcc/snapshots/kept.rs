//! How many versions are kept for readers alone, grouped by these readers. So an extent or a level
//! 0 knows when versions can go without looking at them again.

use super::Horizon;
use crate::record::Lsn;

/// The first and the last LSN at which some reader needs a version.
pub(crate) type Readers = (Lsn, Lsn);

/// The most groups of readers that are told apart. Beyond that neighbours are joined, and wait for
/// each other.
const MOST: usize = 32;

/// While there are writers, dropping versions is worth it if one in `WORTH` can go. Other versions
/// are written again anyway when their keys are, and at last when writers rest.
const WORTH: u64 = 8;

/// Whether it is worth going over `all` versions to drop the `obsolete` ones. `rests` says that no
/// thread writes.
pub(crate) fn is_worth(obsolete: u64, all: u64, rests: bool) -> bool {
    obsolete > 0 && (rests || obsolete.saturating_mul(WORTH) >= all)
}

/// How much is kept for which readers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptFor {
    /// Ascending, none of the same readers twice.
    groups: Vec<(Readers, u64)>,
}

impl KeptFor {
    /// Notes something that is kept for `readers`.
    pub(crate) fn add(&mut self, readers: Readers) {
        debug_assert!(readers.0 <= readers.1, "the first comes first");
        match self.groups.binary_search_by_key(&readers, |(of, _)| *of) {
            Ok(at) => self.groups[at].1 += 1,
            Err(at) => {
                self.groups.insert(at, (readers, 1));
                if self.groups.len() > MOST {
                    self.join_closest();
                }
            }
        }
    }

    /// Joins the two neighbours that are the fewest LSNs apart.
    fn join_closest(&mut self) {
        let joined =
            |pair: &[(Readers, u64)]| -> Readers { (pair[0].0.0, pair[0].0.1.max(pair[1].0.1)) };
        let lengths = self.groups.windows(2).map(joined).map(|(first, last)| last - first);
        let Some((at, _)) = lengths.enumerate().min_by_key(|(_, length)| *length) else { return };
        let together = (joined(&self.groups[at..]), self.groups[at].1 + self.groups[at + 1].1);
        self.groups.splice(at..at + 2, []);
        // It may be as long as one that is there.
        match self.groups.binary_search_by_key(&together.0, |(of, _)| *of) {
            Ok(at) => self.groups[at].1 += together.1,
            Err(at) => self.groups.insert(at, together),
        }
    }

    /// How much there is.
    pub(crate) fn count(&self) -> u64 {
        self.groups.iter().map(|(_, count)| count).sum()
    }

    /// How many versions no reader of `readers` needs. At least as many go when the records are
    /// looked at. `readers` ascend.
    pub(crate) fn obsolete(&self, readers: &[Lsn]) -> u64 {
        let is_left = |(first, last): Readers| {
            let at = readers.partition_point(|lsn| *lsn < first);
            readers.get(at).is_some_and(|lsn| *lsn <= last)
        };
        self.groups.iter().filter(|(of, _)| !is_left(*of)).map(|(_, count)| count).sum()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.groups.capacity() * size_of::<(Readers, u64)>()
    }
}

impl Horizon {
    /// The readers that see the version `seq` of a key, if any; its next newer version is `newer`.
    /// A version that is newer than the horizon has readers still to come.
    pub(crate) fn readers_of(&self, seq: Lsn, newer: Lsn) -> Option<Readers> {
        debug_assert!(seq < newer, "versions come newest first");
        if seq > self.newest() {
            return Some((seq, newer - 1));
        }
        let from = self.lsns.partition_point(|lsn| *lsn < seq);
        let to = self.lsns.partition_point(|lsn| *lsn < newer);
        self.between(from, to)
    }

    /// The readers at an LSN below `seq`, if any.
    pub(crate) fn readers_below(&self, seq: Lsn) -> Option<Readers> {
        self.between(0, self.lsns.partition_point(|lsn| *lsn < seq))
    }

    fn between(&self, from: usize, to: usize) -> Option<Readers> {
        let readers = self.lsns.get(from..to)?;
        Some((*readers.first()?, *readers.last()?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::mvcc::{SnapshotRegistry, Watermark};

    #[test]
    fn a_version_is_kept_for_those_who_see_it() {
        let visible = Arc::new(Watermark::new(10));
        let registry = SnapshotRegistry::new(Arc::clone(&visible));
        let _ten = registry.register();
        visible.raise(20);
        let _twenty = registry.register();
        visible.raise(30);
        let horizon = registry.horizon();
        assert_eq!(horizon.readers_of(5, 15), Some((10, 10)));
        assert_eq!(horizon.readers_of(5, 25), Some((10, 20)));
        assert_eq!(horizon.readers_of(11, 20), None);
        assert_eq!(horizon.readers_of(31, 40), Some((31, 39)), "later readers are unknown");
        assert_eq!((horizon.readers_below(10), horizon.readers_below(25)), (None, Some((10, 20))));
    }

    #[test]
    fn it_goes_group_by_group() {
        let mut kept = KeptFor::default();
        [(10, 10), (10, 20), (20, 20), (20, 20)].into_iter().for_each(|of| kept.add(of));
        assert_eq!((kept.count(), kept.obsolete(&[10, 20, 30])), (4, 0));
        assert_eq!(kept.obsolete(&[10, 30]), 2, "the reader at 20 alone kept two");
        assert_eq!(kept.obsolete(&[20, 30]), 1);
        assert_eq!(kept.obsolete(&[15, 30]), 3, "a reader in between counts as one of them");
        assert_eq!(kept.obsolete(&[30]), 4);
    }

    #[test]
    fn few_among_many_wait_until_nobody_writes() {
        assert!(!is_worth(0, 0, true));
        assert!(is_worth(1, 8, false) && !is_worth(1, 9, false) && is_worth(1, 9, true));
    }

    proptest! {
        /// However many groups there are, nothing is lost, and nothing goes too early; with the
        /// last reader all goes.
        #[test]
        fn groups_that_are_joined_wait_for_all_of_theirs(
            all in prop::collection::vec((1u64..500, 0u64..40), 0..200),
            readers in prop::collection::btree_set(1u64..600, 0..6),
        ) {
            let mut kept = KeptFor::default();
            all.iter().for_each(|(first, more)| kept.add((*first, first + more)));
            let readers: Vec<Lsn> = readers.into_iter().collect();
            let goes = |(first, more): &&(Lsn, Lsn)| {
                !readers.iter().any(|lsn| (*first..=first + more).contains(lsn))
            };
            prop_assert!(kept.groups.len() <= MOST);
            prop_assert!(kept.groups.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert_eq!(kept.count(), all.len() as u64);
            prop_assert!(kept.obsolete(&readers) <= all.iter().filter(goes).count() as u64);
            prop_assert_eq!(kept.obsolete(&[600]), all.len() as u64);
        }
    }
}
