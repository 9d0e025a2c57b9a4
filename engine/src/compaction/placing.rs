//! Which extents of bulk loads become extents of levels by their names alone. A pure function of a
//! version, of what level 0 has, and of what jobs work on.
//!
//! An extent of a load goes as deep as it can: above the first level that it has keys in common
//! with, or to the last one. There all its records have the load's LSN, and the edit that says so
//! sets D of its keys to it. D says that everything up to there is in levels, so nothing else of
//! these keys may be on its way: no record of level 0 up to that LSN, and no older run. What is
//! newer stays above. With extents go the keys between them, so that D keeps few steps; an extent
//! that has to be merged is left to the drain. So is one of rows far apart, which has too much of a
//! level below it. The drain cuts it. As it is, one job would take along all that lies under it.

use std::sync::Arc;

use super::{CarriedOver, ClaimedKeys};
use crate::base::error::Result;
use crate::base::record::{Lsn, TableId};
use crate::mvcc::{KeyInterval, after};
use crate::sstable::{Described, Extent, ExtentMeta};
use crate::version::{Edit, LEVEL_2, Op, Run, Version};

/// The last level of a table that has no deeper one.
const USUAL_DEPTH: usize = LEVEL_2 as usize;

/// The most extents that one edit moves.
const MOST_EXTENTS: usize = 256;

/// Extents of a load, in order, with their levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placing<E = Arc<Extent>> {
    run: u64,
    lsn: Lsn,
    /// From the first key to the last.
    interval: KeyInterval,
    extents: Vec<(u8, E)>,
}

impl<E: Described> Placing<E> {
    /// The edit that does it.
    pub(crate) fn edit(&self, table: TableId) -> Edit<E> {
        let (run, interval) = (self.run, self.interval.clone());
        let mut levels: Vec<u8> = self.extents.iter().map(|(level, _)| *level).collect();
        levels.sort_unstable();
        levels.dedup();
        let move_to = |level: u8| {
            let of_level = self.extents.iter().filter(|(of, _)| *of == level);
            let ids = of_level.map(|(_, extent)| extent.meta().id).collect();
            Op::MoveFromRun { table, run, level, ids }
        };
        let mut ops: Vec<Op<E>> = levels.into_iter().map(move_to).collect();
        ops.push(Op::Drained { table, seq: self.lsn, interval });
        Edit { ops }
    }

    /// The deepest level that it uses.
    pub(crate) fn deepest(&self) -> u8 {
        self.extents.iter().map(|(level, _)| *level).max().unwrap_or(0)
    }

    /// What need not be written again.
    pub(crate) fn carried_over(&self) -> CarriedOver {
        CarriedOver::extents(self.extents.iter().map(|(_, extent)| extent))
    }
}

/// The next extents of loads at or below `upto` that can be placed, the oldest load's first.
/// `is_empty` says whether level 0 has nothing of some keys up to an LSN that is not drained;
/// `busy` is what other jobs work on, whose keys are left alone in all levels. A level may have
/// `most_under` bytes under an extent that is placed.
pub(crate) fn place<E: Described>(
    version: &Version<E>,
    (upto, most_under): (Lsn, u64),
    busy: &[ClaimedKeys],
    is_empty: &dyn Fn(&KeyInterval, Lsn) -> Result<bool>,
) -> Result<Option<Placing<E>>> {
    let loads = version.runs.iter().rev().filter(|run| run.loaded && run.lsn <= upto);
    let is_free = |run: &Run<E>, keys: &KeyInterval| {
        let older = |other: &&Arc<Run<E>>| other.id != run.id && other.lsn <= run.lsn;
        let mut older = version.runs.iter().filter(older);
        let is_free = !busy.iter().any(|busy| busy.keys.overlaps(keys))
            && version.drained.undrained(keys, run.lsn) == [keys.clone()]
            && older.all(|other| other.extents.overlapping(keys).is_empty());
        Ok(is_free && is_empty(keys, run.lsn)?)
    };
    for run in loads {
        let placing = place_some(version, run, most_under, &|keys| is_free(run, keys))?;
        debug_assert!(
            placing.as_ref().is_none_or(|placing| placing.lsn <= upto),
            "what is placed is at or below what may be drained"
        );
        if placing.is_some() {
            return Ok(placing);
        }
    }
    Ok(None)
}

/// The first extents of a load that can be placed together.
fn place_some<E: Described>(
    version: &Version<E>,
    run: &Run<E>,
    most_under: u64,
    is_free: &dyn Fn(&KeyInterval) -> Result<bool>,
) -> Result<Option<Placing<E>>> {
    let mut placing: Option<Placing<E>> = None;
    for extent in run.extents.extents().iter() {
        let meta = extent.meta();
        let before = placing.as_ref().and_then(|placing| placing.interval.end.clone());
        let start = before.unwrap_or_else(|| meta.smallest_key.clone());
        let keys = KeyInterval { start, end: Some(after(&meta.greatest_key)) };
        let level = match deepest(version, meta, most_under) {
            Some(level) if is_free(&keys)? => Some(level),
            _ => None,
        };
        match (&mut placing, level) {
            (None, None) => {}
            (None, Some(level)) => {
                debug_assert!(level > 0, "levels count from 1");
                let extents = vec![(level, extent.clone())];
                placing = Some(Placing { run: run.id, lsn: run.lsn, interval: keys, extents });
            }
            (Some(placing), Some(level)) if placing.extents.len() < MOST_EXTENTS => {
                debug_assert!(placing.interval.end <= keys.end, "extents of a load go up");
                placing.interval.end = keys.end;
                placing.extents.push((level, extent.clone()));
            }
            (Some(_), _) => break,
        }
    }
    Ok(placing)
}

/// The deepest level that an extent can be put into, if there is one.
fn deepest<E: Described>(version: &Version<E>, meta: &ExtentMeta, most_under: u64) -> Option<u8> {
    let (first, last) = (&meta.smallest_key, &meta.greatest_key);
    let len = |extent: &E| u64::from(extent.meta().location.len);
    let mut under =
        version.levels.iter().map(|l| l.overlapping_closed(first, last).iter().map(len).sum());
    if under.clone().any(|bytes: u64| bytes > most_under) {
        return None;
    }
    let free = under.position(|bytes| bytes > 0).unwrap_or(version.levels.len());
    let deepest = if free == version.levels.len() { free.max(USUAL_DEPTH) } else { free };
    u8::try_from(deepest).ok().filter(|level| *level > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Location;
    use crate::version::{Level, SUBLEVELS, known_as};

    type Meta = Arc<ExtentMeta>;

    /// `id:first-last`, a key a letter.
    fn extents(words: &str) -> Level<Meta> {
        let extent = |word: &str| {
            let (id, keys) = word.split_once(':').unwrap();
            let (first, last) = keys.split_once('-').unwrap();
            let id = id.parse().unwrap();
            Arc::new(ExtentMeta {
                id,
                location: Location { file: 1, offset: id << 21, len: 100 },
                records: 10,
                deletes: 0,
                tombstones: 0,
                smallest_seq: 1,
                greatest_seq: 1,
                one_seq: false,
                kept: 0,
                raw_bytes: 90,
                smallest_key: first.into(),
                greatest_key: last.into(),
                footer_checksum: 0,
                values: [].into(),
            })
        };
        Level::new(words.split_whitespace().map(extent).collect())
    }

    /// What is placed of runs (LSN, whether loaded, extents) over levels (from the deepest
    /// sublevel, or from the uppermost where there are many), when level 0 has records (key, LSN),
    /// D is 12 for some keys, and some are busy.
    fn placed(
        runs: &[(Lsn, bool, &str)],
        levels: &[&str],
        level0: &[(&str, Lsn)],
        (drained, busy): (&str, &str),
    ) -> String {
        let run = |(lsn, loaded, words): &(Lsn, bool, &str)| {
            let (id, extents) = (100 + lsn, extents(words));
            Arc::new(Run { id, lsn: *lsn, extents, loaded: *loaded })
        };
        let is_short = levels.len() < usize::from(SUBLEVELS);
        let above = if is_short { usize::from(SUBLEVELS) - 1 } else { 0 };
        let levels = std::iter::repeat_n(&"", above).chain(levels);
        let levels = levels.map(|words| extents(words)).collect();
        let runs = runs.iter().rev().map(run).collect();
        let keys = |word: &str| {
            word.split_once('-').map(|(a, b)| KeyInterval::closed(a.as_ref(), b.as_ref()))
        };
        let mut version = Version { levels, runs, ..Version::empty(1) };
        if let Some(drained) = keys(drained) {
            version.drained.set(&drained, 12);
        }
        let busy: Vec<_> = keys(busy).into_iter().map(ClaimedKeys::in_all_levels).collect();
        let is_empty = |keys: &KeyInterval, upto: Lsn| {
            Ok(!level0.iter().any(|(key, lsn)| *lsn <= upto && keys.contains(key.as_bytes())))
        };
        let Some(placing) = place(&version, (20, 250), &busy, &is_empty).unwrap() else {
            return "nothing".into();
        };
        let of = |(level, extent): &(u8, Meta)| format!("{} to {}", extent.id, known_as(*level));
        let extents: Vec<String> = placing.extents.iter().map(of).collect();
        let Edit { ops } = placing.edit(1);
        let Some(Op::Drained { seq, interval, .. }) = ops.last() else { panic!("{ops:?}") };
        let moved = ops.iter().map(|op| match op {
            Op::MoveFromRun { ids, .. } => ids.len(),
            _ => 0,
        });
        assert_eq!(moved.sum::<usize>(), extents.len());
        let (start, end) = (&interval.start, interval.last_key().unwrap());
        format!("{}, D {}-{} {seq}", extents.join(", "), start.escape_ascii(), end.escape_ascii())
    }

    #[test]
    fn extents_of_loads_go_as_deep_as_nothing_is_in_their_way() {
        let load = &[(9, true, "1:a-c 2:e-g 3:i-k")][..];
        let none = ("", "");
        let all = "1 to 2, 2 to 2, 3 to 2, D a-k 9";
        assert_eq!(placed(load, &[], &[], none), all);
        assert_eq!(placed(load, &["", "", "7:x-z"], &[], none), all.replace(" to 2", " to 3"));
        // Newer records stay above, also between the extents.
        assert_eq!(placed(load, &[], &[("b", 10), ("d", 11)], none), all);
        // Older ones are in the way, and older ones between extents part them.
        assert_eq!(placed(load, &[], &[("b", 9)], none), "2 to 2, 3 to 2, D e-k 9");
        assert_eq!(placed(load, &[], &[("d", 3)], none), "1 to 2, D a-c 9");
        // Above what they overlap; what overlaps level 1 is for the drain.
        assert_eq!(placed(load, &["", "", "7:b-f"], &[], none), "1 to 2, 2 to 2, 3 to 3, D a-k 9");
        assert_eq!(placed(load, &["7:f-f 8:j-l"], &[], none), "1 to 2, 2 to 1, 3 to 1, D a-k 9");
        // One key in common is enough, at either end.
        let ends = &["", "", "7:c-d 8:k-l"];
        assert_eq!(placed(load, ends, &[], none), "1 to 2, 2 to 3, 3 to 2, D a-k 9");
        let mut full = vec![""; usize::from(SUBLEVELS) + 1];
        full[0] = "7:f-f";
        full[usize::from(SUBLEVELS) - 1] = "8:b-b";
        full[usize::from(SUBLEVELS)] = "9:j-l";
        assert_eq!(placed(load, &full, &[], none), "1 to 1, D a-c 9");
        full[0] = "7:a-z";
        assert_eq!(placed(load, &full, &[], none), "nothing");
        // Drained in part, and keys of another job.
        assert_eq!(placed(load, &[], &[], ("c-e", "")), "3 to 2, D i-k 9");
        assert_eq!(placed(load, &[], &[], ("", "g-h")), "1 to 2, D a-c 9");
    }

    /// Bug: a load of rows far apart became an extent above all of a table, and one job had to
    /// rewrite the table. Cause: extents of loads are cut by their size alone, and only whether a
    /// level overlaps one was asked. Fix: the drain merges it, and cuts it.
    #[test]
    fn an_extent_over_much_of_a_level_is_for_the_drain() {
        let (none, level2) = (("", ""), ["", "", "5:a-b 6:e-f 7:h-i"]);
        assert_eq!(placed(&[(9, true, "1:a-f")], &level2, &[], none), "1 to 2, D a-f 9");
        assert_eq!(placed(&[(9, true, "1:a-z")], &level2, &[], none), "nothing");
        assert_eq!(placed(&[(9, true, "1:a-h 2:x-z")], &level2, &[], none), "2 to 3, D x-z 9");
    }

    #[test]
    fn loads_wait_for_older_runs_and_other_runs_are_not_placed() {
        let none = ("", "");
        let two = &[(7, false, "1:b-f"), (9, true, "2:a-c 3:h-k")][..];
        assert_eq!(placed(two, &[], &[], none), "3 to 2, D h-k 9");
        let newer = &[(9, true, "2:a-c 3:h-k"), (11, false, "1:b-f")][..];
        assert_eq!(placed(newer, &[], &[], none), "2 to 2, 3 to 2, D a-k 9");
        let both = &[(7, true, "1:a-c"), (9, true, "2:a-c")][..];
        assert_eq!(placed(both, &[], &[], none), "1 to 2, D a-c 7");
        assert_eq!(placed(&[(21, true, "1:a-c")], &[], &[], none), "nothing", "beyond `upto`");
    }
}
