//! Trivial moves: which extents of level 1 move down, unread, in the edit of a compaction. A pure
//! function of a version.
//!
//! While a compaction merges extents of level 1, drains put columns over them, into ever higher
//! sublevels. Once the extents are gone, the columns lie over nothing, and each would keep later
//! ones from all sublevels below it. So the edit of the compaction moves them down by name, as deep
//! as sublevels are clear. Order is kept: nothing passes what it has keys in common with, nor the
//! sublevel that the compaction wrote to.

use std::collections::BTreeSet;

use super::choice::{Choice, span};
use super::claimed::{ClaimedKeys, is_claimed};
use crate::extent::{Described, ExtentMeta};
use crate::levels::{Edit, Op, SUBLEVELS, Version};

/// The operations that move extents of sublevels down to where `done`, a choice of extents that
/// `version` still has, makes room, but for what is `busy`.
pub(crate) fn trivial_moves<E: Described>(
    version: &Version<E>,
    done: &Choice<E>,
    busy: &[ClaimedKeys],
) -> Edit<E> {
    let removed = done.leaving();
    if removed.is_empty() {
        return Edit { ops: Vec::new() };
    }
    let gone: BTreeSet<u64> = removed.iter().map(|extent| extent.meta().id).collect();
    let (keys, table) = (span(removed.iter()), version.table);
    let (filled, output) = (done.to(), done.interval());
    let left = |n: u8| {
        let extents = version.level(n).map_or(&[][..], |sublevel| sublevel.extents());
        extents.iter().filter(|e| !gone.contains(&e.meta().id)).cloned().collect::<Vec<_>>()
    };
    // The uppermost first.
    let mut sublevels: Vec<Vec<E>> = (1..=SUBLEVELS).map(left).collect();
    let mut ops = Vec::new();
    // What an intra-L1 compaction writes to is merged with it.
    for from in (1..SUBLEVELS.min(filled)).rev() {
        for extent in version.overlapping(from, &keys) {
            let own = extent.meta();
            let keys = own.interval();
            let stays = gone.contains(&own.id) || is_claimed(busy, from, &keys);
            let lies_over = output.overlaps(&keys);
            let is_clear = |(n, sublevel): &(u8, &Vec<E>)| {
                let is_filled = *n == filled && lies_over;
                let is_clear = !is_filled && !is_claimed(busy, *n, &keys);
                is_clear && !sublevel.iter().any(|other| meet(own, other.meta()))
            };
            let below = (from + 1..).zip(&sublevels[usize::from(from)..]);
            let depth = if stays { 0 } else { below.take_while(is_clear).count() };
            if depth > 0 {
                let to = from + depth as u8;
                debug_assert!(to <= SUBLEVELS, "a trivial move stays within level 1");
                debug_assert!(version.table == table, "a compaction is of one table");
                sublevels[usize::from(from) - 1].retain(|other| other.meta().id != own.id);
                sublevels[usize::from(to) - 1].push(extent.clone());
                ops.push(Op::MoveExtent { table, from, to, id: own.id });
            }
        }
    }
    Edit { ops }
}

/// Whether two extents may have keys in common.
fn meet(a: &ExtentMeta, b: &ExtentMeta) -> bool {
    a.smallest_key <= b.greatest_key && b.smallest_key <= a.greatest_key
}
