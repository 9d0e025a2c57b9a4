//! Spilled runs: what a large commit wrote to one table, in extents that were written before its
//! LSN was known.
//!
//! The sequence numbers in these extents mean nothing; all of a run has that of its commit. Until
//! the drain has merged it into level 1, a run stands beside level 0, and D hides its records as
//! it hides those of level 0.
//!
//! Invariants:
//!
//! 1. A run has each key at most once.
//! 2. Its extents are sorted and disjoint, as those of a level.

use std::sync::Arc;

use super::LevelCursor;
use super::levels::Level;
use crate::base::error::Result;
use crate::base::record::{Cursor, LSN_MAX, Lsn};
use crate::mvcc::DrainedMap;
use crate::sstable::{BlockCache, Blocks, Described, Extent, Found, ReadAhead};

/// A committed run.
#[derive(Clone, Debug)]
pub(crate) struct Run<E = Arc<Extent>> {
    pub(crate) id: u64,
    /// Its commit.
    pub(crate) lsn: Lsn,
    /// What is not drained as a whole.
    pub(crate) extents: Level<E>,
    /// Whether its extents are laid out as those of levels are, and may become such.
    pub(crate) loaded: bool,
}

impl Run {
    /// The run, to read.
    pub(crate) fn as_read(&self) -> ReadRun<'_> {
        ReadRun { lsn: self.lsn, extents: &self.extents }
    }
}

impl<E: Described> Run<E> {
    /// The extents of which `drained` covers everything.
    pub(crate) fn covered<'a>(&'a self, drained: &'a DrainedMap) -> impl Iterator<Item = &'a E> {
        let is_covered = |extent: &&E| {
            let meta = extent.meta();
            drained.least_within(&meta.smallest_key, &meta.greatest_key) >= self.lsn
        };
        self.extents.extents().iter().filter(is_covered)
    }
}

/// A run with its LSN, as reads see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRun<'a> {
    pub(crate) lsn: Lsn,
    pub(crate) extents: &'a Level,
}

impl<'a> ReadRun<'a> {
    /// What the run says of `key`, if D does not cover it.
    ///
    /// # Errors
    ///
    /// As [`Extent::get`].
    pub(crate) fn get<'g>(
        &self,
        key: &[u8],
        drained: &DrainedMap,
        blocks: Blocks<'g>,
    ) -> Result<Option<Found<'g>>> {
        let Some(extent) = self.extents.find(key) else { return Ok(None) };
        if drained.get(key) >= self.lsn {
            return Ok(None);
        }
        let mut found = extent.get(key, LSN_MAX, blocks)?;
        found.iter_mut().for_each(|found| found.seq = self.lsn);
        Ok(found)
    }

    /// A cursor over what D does not cover, for the reader that `ahead` is of.
    pub(crate) fn cursor(
        &self,
        drained: &'a DrainedMap,
        cache: &Arc<BlockCache>,
        ahead: &Arc<ReadAhead>,
    ) -> impl Cursor + 'a {
        let extents = Arc::clone(self.extents.extents());
        let cursor = LevelCursor::new(extents, Arc::clone(cache), Arc::clone(ahead));
        drained.filter(cursor.of_run(self.lsn))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mvcc::KeyInterval;
    use crate::sstable::tests::{Entry, check_cursor, entries, sim_store, write_extent};

    const LSN: Lsn = 7;

    /// The first version of each key, in extents of at most `cut` keys.
    fn run(list: &[Entry], cut: usize) -> (Level, Vec<Entry>) {
        let (_, store) = sim_store();
        let keys: Vec<_> = list.chunk_by(|a, b| a.key == b.key).map(|e| e[0].clone()).collect();
        let extents = keys.chunks(cut).enumerate();
        let extents = extents.map(|(n, keys)| write_extent(&store, n as u64, keys)).collect();
        (Level::new(extents), keys)
    }

    proptest! {
        #[test]
        fn all_of_a_run_has_its_lsn_and_what_d_covers_is_hidden(
            list in entries(0..80),
            cut in 1usize..6,
            covered in prop::collection::vec((0u8..4, 1u64..12), 0..3),
            key in prop::collection::vec(0u8..4, 0..4),
            seq in 0u64..12,
        ) {
            let (extents, keys) = run(&list, cut);
            let mut drained = DrainedMap::default();
            for (start, seq) in covered {
                let interval = KeyInterval { start: vec![start], end: Some(vec![start + 1]) };
                drained.set(&interval, seq);
            }
            let counts = |e: &&Entry| drained.get(&e.key) < LSN;
            let shown: Vec<Entry> =
                keys.iter().filter(counts).map(|e| Entry { seq: LSN, ..e.clone() }).collect();
            let cache = BlockCache::new(1 << 20);
            let read = ReadRun { lsn: LSN, extents: &extents };
            let ahead = ReadAhead::for_user();
            check_cursor(&mut read.cursor(&drained, &cache, &ahead), &shown, &key, seq);
            let guard = crate::mvcc::pin();
            for entry in &keys {
                let found = read.get(&entry.key, &drained, Blocks::new(&cache, &guard)).unwrap();
                let want = shown.iter().find(|e| e.key == entry.key);
                let found = found.as_ref().map(|found| (found.seq, found.kind));
                prop_assert_eq!(found, want.map(|want| (LSN, want.kind)));
            }
            let whole = Run { id: 1, lsn: LSN, extents, loaded: false };
            for extent in whole.extents.extents().iter() {
                let is_covered = whole.covered(&drained).any(|e| e.meta().id == extent.meta().id);
                let inside = shown.iter().any(|e| extent.meta().covers(&e.key));
                prop_assert!(!(is_covered && inside), "what counts is kept");
            }
        }
    }
}
