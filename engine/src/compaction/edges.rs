//! Where extents of sublevels begin and end. Pure functions of a version.
//!
//! An input set takes along all that lies under it, and what one sublevel has beside the edges of
//! the next makes it wider. So sublevels keep the edges that others have: a column ends, and an
//! extent is cut, where the fewest extents of sublevels have keys on both sides. An edge that some
//! extents have is one for those that come later. Edges stay where they are although what lies
//! below is written again. Fragmented LSM-trees keep such edges as guards ("PebblesDB: Building
//! Key-Value Stores using Fragmented Log-Structured Merge Trees", SOSP 2017).
//!
//! Between two edges there is about a **cell**: so many bytes of what lies below as a quarter of a
//! job reads. A few records far apart would else take all of it along when they go down.

use std::cmp::Ordering;

use super::shape::Shape;
use crate::extent::Described;
use crate::levels::{LEVEL_2, SUBLEVELS, Version};
use crate::mvcc::{KeyInterval, after};

/// Keys before which extents of level `n` are cut, a cell apart, give or take half of one.
pub(super) fn cuts<E: Described>(
    version: &Version<E>,
    n: u8,
    keys: &KeyInterval,
    shape: &Shape,
) -> Vec<Vec<u8>> {
    let cell = (shape.job_bytes / 4).max(1);
    let (least, most) = (cell.div_ceil(2), cell + cell / 2);
    let mut edges = ends(version, n, (n + 1).max(LEVEL_2), keys);
    // Where they are in the level below.
    let mut whole = 0;
    for (_, at) in &mut edges {
        whole += *at;
        *at = whole;
    }
    let (mut cuts, mut last) = (Vec::new(), 0);
    loop {
        let behind = |at: u64| at.saturating_sub(last);
        edges.drain(..edges.partition_point(|(_, at)| behind(*at) < least));
        let near = edges.partition_point(|(_, at)| behind(*at) <= most).max(1);
        let is_good =
            |(key, at): &&(Vec<u8>, u64)| (across(version, n, key), behind(*at).abs_diff(cell));
        match edges.iter().take(near).min_by_key(is_good) {
            Some((key, at)) if whole - at >= least => {
                last = *at;
                cuts.push(key.clone());
            }
            _ => {
                debug_assert!(cuts.is_sorted(), "cuts ascend");
                return cuts;
            }
        }
    }
}

/// Where a column may end.
pub(super) struct ColumnEnds<'a> {
    /// It ends after this one,
    pub(super) least: &'a KeyInterval,
    /// near this one,
    pub(super) usual: &'a KeyInterval,
    /// and no later than this one.
    pub(super) wide: &'a KeyInterval,
}

/// Where a column of sublevel `n` ends best.
pub(super) fn best_end<E: Described>(
    version: &Version<E>,
    n: u8,
    ColumnEnds { least, usual, wide }: ColumnEnds<'_>,
    is_fine: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let is_past = |end: &[u8], other: &KeyInterval| {
        other.end.as_ref().is_some_and(|other| end > other.as_slice())
    };
    let ends = ends(version, n, LEVEL_2, wide).into_iter().map(|(key, _)| key);
    let near = ends.filter(|key| is_past(key, least) && !is_past(key, wide) && is_fine(key));
    let by_across = near.map(|key| (across(version, n, &key), is_past(&key, usual), key));
    // Of those that are as good the last one before the usual end, or else the first one behind.
    let best = by_across.reduce(|a, b| match (b.0, b.1).cmp(&(a.0, a.1)) {
        Ordering::Less => b,
        Ordering::Equal if !b.1 => b,
        _ => a,
    });
    best.map(|(_, _, key)| key)
}

/// Behind which keys of `keys` an extent ends, in a sublevel or `below`, ascending, with the bytes
/// that this one has there since the one before.
fn ends<E: Described>(
    version: &Version<E>,
    n: u8,
    below: u8,
    keys: &KeyInterval,
) -> Vec<(Vec<u8>, u64)> {
    let of = |level: u8| {
        let extents = version.overlapping(level, keys).iter().map(Described::meta);
        extents.map(move |meta| {
            let bytes = if level == below { u64::from(meta.location.len) } else { 0 };
            (after(&meta.greatest_key), bytes)
        })
    };
    let sublevels = (1..=SUBLEVELS).filter(|_| n <= SUBLEVELS);
    let mut ends: Vec<_> = sublevels.chain([below]).flat_map(of).collect();
    ends.sort_unstable();
    ends.dedup_by(|b, a| {
        let is_same = a.0 == b.0;
        a.1 += if is_same { b.1 } else { 0 };
        is_same
    });
    ends
}

/// How many extents of sublevels have keys on both sides of an edge in level `n`.
fn across<E: Described>(version: &Version<E>, n: u8, edge: &[u8]) -> usize {
    let sublevels = if n <= SUBLEVELS { usize::from(SUBLEVELS) } else { 0 };
    let has_both = |extent: &E| extent.meta().smallest_key.as_slice() < edge;
    let sublevels = version.levels.iter().take(sublevels);
    sublevels.filter(|sublevel| sublevel.find(edge).is_some_and(has_both)).count()
}
