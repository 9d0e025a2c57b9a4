//! Range tombstones in a merge, cut where one begins or ends. Each piece of the keys has a list of
//! sequence numbers. The list holds only those that some reader needs.
//!
//! Source: fragmented range tombstones, as LSM engines write them into their files. Here the
//! horizon cuts the lists at once, so a thousand overlapping tombstones stay a thousand pieces.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::record::Lsn;
use crate::mvcc::{Horizon, KeyInterval, Tombstone, Tombstones};
use crate::sstable::Extent;
use crate::version::{Level, Op, Version};

/// A piece of the keys under range tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    interval: KeyInterval,
    /// The newest first.
    seqs: Vec<Lsn>,
}

/// Range tombstones as disjoint pieces, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fragments {
    pieces: Vec<Piece>,
}

impl Fragments {
    /// What `tombstones` are to the readers of `horizon`.
    pub(crate) fn new(tombstones: &[Arc<Tombstone>], horizon: &Horizon) -> Fragments {
        let starts = tombstones.iter().map(|t| (t.interval.start.as_slice(), true, t.seq));
        let ends =
            tombstones.iter().filter_map(|t| Some((t.interval.end.as_deref()?, false, t.seq)));
        let mut edges: Vec<_> = starts.chain(ends).collect();
        edges.sort_unstable();
        let mut open: BTreeMap<Lsn, usize> = BTreeMap::new();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut groups = edges.chunk_by(|a, b| a.0 == b.0).peekable();
        while let Some(group) = groups.next() {
            for (_, starts, seq) in group {
                let count = open.entry(*seq).or_default();
                // One tombstone of a commit may end where another one starts: ends sort before
                // starts.
                *count = if *starts { *count + 1 } else { *count - 1 };
            }
            open.retain(|_, count| *count > 0);
            let end = groups.peek().map(|next| next[0].0.to_vec());
            push(
                &mut pieces,
                KeyInterval { start: group[0].0.to_vec(), end },
                read(&open, horizon),
            );
        }
        Fragments { pieces }
    }

    /// Whether every key of `interval` lies under a tombstone that is newer than `older` and not
    /// newer than `at`, be it one or several side by side. `at` is where a reader of the horizon
    /// is, or later.
    pub(crate) fn hide(&self, interval: &KeyInterval, older: Lsn, at: Lsn) -> bool {
        let from = self.pieces.partition_point(|piece| !piece.interval.ends_after(&interval.start));
        let mut reached = interval.start.as_slice();
        for Piece { interval: piece, seqs } in &self.pieces[from..] {
            if piece.start.as_slice() > reached
                || !seqs.iter().any(|s| (older + 1..=at).contains(s))
            {
                return false;
            }
            match (&piece.end, &interval.end) {
                (None, _) => return true,
                (Some(end), Some(last)) if end >= last => return true,
                (Some(end), _) => reached = end,
            }
        }
        false
    }

    /// A walk along ascending keys.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk { rest: &self.pieces }
    }

    /// What is worth writing. A tombstone hides nothing if every reader sees it and, as `is_bottom`
    /// says of its interval, no deeper level has anything there.
    pub(crate) fn to_write(
        &self,
        horizon: &Horizon,
        is_bottom: impl Fn(&KeyInterval) -> bool,
    ) -> Fragments {
        let mut pieces = Vec::with_capacity(self.pieces.len());
        for Piece { interval, seqs } in &self.pieces {
            let settled = || seqs.iter().any(|seq| *seq <= horizon.oldest());
            let drops = settled() && is_bottom(interval);
            let keeps = |seq: &Lsn| !drops || *seq > horizon.oldest();
            push(&mut pieces, interval.clone(), seqs.iter().copied().filter(keeps).collect());
        }
        Fragments { pieces }
    }

    /// Removes and returns everything up to and including `last`. A piece that reaches further is
    /// cut there.
    pub(crate) fn take_up_to(&mut self, last: &[u8]) -> Vec<Arc<Tombstone>> {
        let upto = KeyInterval::closed(&[], last);
        let whole = self.pieces.partition_point(|piece| upto.covers(&piece.interval));
        let mut taken: Vec<Piece> = self.pieces.drain(..whole).collect();
        if let Some(first) = self.pieces.first_mut()
            && let Some(interval) = first.interval.intersection(&upto)
        {
            first.interval.start = upto.end.unwrap_or_default();
            taken.push(Piece { interval, seqs: first.seqs.clone() });
        }
        let each = |Piece { interval, seqs }: Piece| {
            seqs.into_iter().map(move |seq| Arc::new(Tombstone::new(interval.clone(), seq)))
        };
        taken.into_iter().flat_map(each).collect()
    }
}

/// Adds a piece, or extends the one before it if both have the same sequence numbers.
fn push(pieces: &mut Vec<Piece>, interval: KeyInterval, seqs: Vec<Lsn>) {
    if seqs.is_empty() {
        return;
    }
    match pieces.last_mut() {
        Some(last) if last.seqs == seqs && last.interval.end.as_ref() == Some(&interval.start) => {
            last.interval.end = interval.end;
        }
        _ => pieces.push(Piece { interval, seqs }),
    }
}

/// Those of `open` that some reader needs: the newest one for each reader, and all that are newer
/// than the horizon. The newest first.
fn read(open: &BTreeMap<Lsn, usize>, horizon: &Horizon) -> Vec<Lsn> {
    let newer = open.range(horizon.newest() + 1..).map(|(seq, _)| *seq);
    let newest_for = |lsn: &Lsn| open.range(..=lsn).next_back().map(|(seq, _)| *seq);
    let mut seqs: Vec<Lsn> = horizon.readers().iter().filter_map(newest_for).chain(newer).collect();
    seqs.sort_unstable_by(|a, b| b.cmp(a));
    seqs.dedup();
    seqs
}

/// A position among pieces.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    rest: &'a [Piece],
}

impl Walk<'_> {
    /// The oldest tombstone that hides a version `seq` of `key`. Keys come in ascending order.
    pub(crate) fn hidden_by(&mut self, key: &[u8], seq: Lsn) -> Option<Lsn> {
        while let [first, rest @ ..] = self.rest
            && !first.interval.ends_after(key)
        {
            self.rest = rest;
        }
        let over = self.rest.first().filter(|piece| piece.interval.contains(key))?;
        over.seqs.iter().rev().copied().find(|newer| *newer > seq)
    }
}

// The range tombstones of a merge, and what they make superfluous below.
//
// A range tombstone that every reader sees hides older extents from every reader. The merge's
// edit removes extents that lie under one as a whole, in any level, unread. What is left below
// decides how long the tombstone is kept.

/// Range tombstones on their way into a level.
#[derive(Debug)]
pub(crate) struct Ranges<'a> {
    pub(super) version: &'a Version,
    /// The level that they go to.
    pub(super) to: u8,
    /// All that come in.
    pub(crate) tombstones: Vec<Arc<Tombstone>>,
    /// Extents of the target level, or of a deeper one, that they hide from every reader.
    hidden: Vec<(u8, Arc<Extent>)>,
}

impl<'a> Ranges<'a> {
    /// Tombstones from above on their way into level `to`. They remove nothing of what other jobs
    /// work on: `is_claimed` tells keys of a level.
    pub(crate) fn new(
        version: &'a Version,
        to: u8,
        above: Vec<Arc<Tombstone>>,
        horizon: &Horizon,
        is_claimed: impl Fn(u8, &KeyInterval) -> bool,
    ) -> Ranges<'a> {
        let set: Tombstones = above.iter().cloned().collect();
        let mut ranges = Ranges { version, to, tombstones: above, hidden: Vec::new() };
        let Some(reach) = reach(&ranges.tombstones) else { return ranges };
        for (n, level) in levels(version, to) {
            let is_hidden = |extent: &&Arc<Extent>| {
                let (meta, keys) = (extent.meta(), extent.meta().interval());
                set.hide(&keys, meta.greatest_seq, horizon.oldest()) && !is_claimed(n, &keys)
            };
            let hidden = level.overlapping(&reach).iter().filter(is_hidden);
            ranges.hidden.extend(hidden.map(|extent| (n, Arc::clone(extent))));
        }
        ranges
    }

    fn is_hidden(&self, extent: &Arc<Extent>) -> bool {
        self.hidden.iter().any(|(_, hidden)| Arc::ptr_eq(hidden, extent))
    }

    /// Those of `extents` that have to be read.
    pub(crate) fn without_hidden(&self, extents: &[Arc<Extent>]) -> Vec<Arc<Extent>> {
        extents.iter().filter(|extent| !self.is_hidden(extent)).cloned().collect()
    }

    /// The operations that remove the hidden extents.
    pub(crate) fn remove_hidden(&self) -> impl Iterator<Item = Op> {
        let table = self.version.table;
        let ids = self.hidden.iter().map(|(level, extent)| (*level, extent.meta().id));
        ids.map(move |(level, id)| Op::RemoveExtent { table, level, id })
    }

    /// Whether nothing of `interval` is left in a level deeper than the one that is written.
    pub(crate) fn is_bottom(&self, interval: &KeyInterval) -> bool {
        let clear = |level: &Level| level.overlapping(interval).iter().all(|e| self.is_hidden(e));
        levels(self.version, self.to + 1).all(|(_, level)| clear(level))
    }

    /// The last key of what is left in deeper levels.
    pub(crate) fn last_below(&self) -> Option<&[u8]> {
        let left = |(_, level): (u8, &'a Level)| {
            let mut extents = level.extents().iter().rev();
            extents.find(|extent| !self.is_hidden(extent)).map(|e| e.meta().greatest_key.as_slice())
        };
        levels(self.version, self.to + 1).filter_map(left).max()
    }
}

/// The levels from `from` on, with their numbers.
fn levels(version: &Version, from: u8) -> impl Iterator<Item = (u8, &Level)> {
    (1..).zip(&version.levels).skip(usize::from(from) - 1)
}

/// The keys that the tombstones are within.
fn reach(tombstones: &[Arc<Tombstone>]) -> Option<KeyInterval> {
    let start = tombstones.iter().map(|t| &t.interval.start).min()?.clone();
    let ends = tombstones.iter().map(|t| t.interval.end.as_ref());
    // An interval without an end ends last.
    let end = ends.reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten().cloned();
    Some(KeyInterval { start, end })
}

/// The range tombstones of some extents. Reads only those that have any.
pub(super) fn tombstones_of(extents: &[Arc<Extent>]) -> Result<Vec<Arc<Tombstone>>> {
    let mut all = Vec::new();
    for extent in extents.iter().filter(|extent| extent.meta().tombstones > 0) {
        all.extend(extent.tombstones()?.iter().cloned());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mvcc::{SnapshotRegistry, Watermark, tombstones};

    proptest! {
        #[test]
        fn readers_see_no_difference(
            list in tombstones(0..25),
            mut snapshots in prop::collection::vec(0u64..14, 0..3),
            newest in 0u64..14,
            mut keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..4), 1..20),
            cuts in prop::collection::vec(prop::collection::vec(0u8..4, 0..4), 0..3),
        ) {
            snapshots.retain(|lsn| *lsn <= newest);
            snapshots.sort_unstable();
            keys.sort();
            let visible = Arc::new(Watermark::new(0));
            let registry = SnapshotRegistry::new(Arc::clone(&visible));
            let register = |lsn: &Lsn| {
                visible.raise(*lsn);
                registry.register()
            };
            let held: Vec<_> = snapshots.iter().map(register).collect();
            visible.raise(newest);
            let horizon = registry.horizon();
            let readers = || snapshots.iter().copied().chain(newest..15);
            let newest_over = |list: &[Arc<Tombstone>], key: &[u8], at: Lsn| {
                let over = list.iter().filter(|t| t.seq <= at && t.interval.contains(key));
                over.map(|t| t.seq).max()
            };

            let fragments = Fragments::new(&list, &horizon);
            let mut walk = fragments.walk();
            for key in &keys {
                for at in readers() {
                    // A version just below the tombstone that the reader sees.
                    let Some(over) = newest_over(&list, key, at) else { continue };
                    let hidden = walk.hidden_by(key, over - 1);
                    prop_assert_eq!(hidden, Some(over));
                }
            }

            let mut unwritten = fragments.to_write(&horizon, |_| false);
            let mut written = Vec::new();
            for last in cuts.iter().chain([&vec![9]]) {
                let part = unwritten.take_up_to(last);
                let inside = |t: &Arc<Tombstone>| t.interval.last_key() <= Some(last);
                prop_assert!(part.iter().all(inside), "{part:?} up to {last:?}");
                written.extend(part);
            }
            for key in &keys {
                for at in readers() {
                    prop_assert_eq!(newest_over(&written, key, at), newest_over(&list, key, at));
                }
            }
            let bottom = fragments.to_write(&horizon, |_| true).take_up_to(&[9]);
            prop_assert!(bottom.iter().all(|t| t.seq > horizon.oldest()));
            drop(held);
        }
    }

    #[test]
    fn a_thousand_over_each_other_are_one_or_stay_a_thousand() {
        let until = |n: u64| KeyInterval { start: vec![], end: Some(n.to_be_bytes().to_vec()) };
        let horizon = SnapshotRegistry::new(Arc::new(Watermark::new(2000))).horizon();
        let written = |seq: fn(u64) -> u64| {
            let one = |n| Arc::new(Tombstone::new(until(n), seq(n)));
            let list: Vec<_> = (1..=1000).map(one).collect();
            Fragments::new(&list, &horizon).take_up_to(&[0xff])
        };
        // As a queue is cut off at its front: the last one hides what the others do.
        assert_eq!(written(|n| n).len(), 1);
        let stairs = written(|n| 1001 - n);
        assert_eq!(stairs.len(), 1000);
        let meets = |w: &[Arc<Tombstone>]| w[0].interval.end.as_ref() == Some(&w[1].interval.start);
        assert!(stairs.windows(2).all(meets));
    }
}
