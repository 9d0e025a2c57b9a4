//! Which extents to rid of what readers needed that are gone: versions that were superseded or
//! hidden, deletes with nothing below them. Pure functions of a version.
//!
//! A merge notes with each extent how much it kept for which readers (`mvcc/snapshots/kept.rs`).
//! Of an extent that an opening found only the number is known; its readers went with the opening
//! before. So nothing is read to choose. The extent with the most that goes is written again where
//! it is, with neighbours of which the same is true, or it might leave small ones behind. All that
//! counted goes, so no extent is chosen twice for the same; in what comes out that is kept which is
//! still needed, with whom it is for.
//!
//! An extent of which little goes waits until nobody writes: else each one that a short snapshot
//! saw written would be written twice.

use std::collections::BTreeSet;

use super::pick::{Choice, Shape, Situation, bytes, is_free};
use crate::extent::Described;
use crate::levels::Version;
use crate::mvcc::is_worth;

/// What rids the table of most that nobody needs.
pub(super) fn pick_superseded<E: Described>(
    version: &Version<E>,
    shape: &Shape,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let some = version.extents().filter_map(|(n, e)| Some((worth(e, now)?, n, e)));
    let free = some.filter(|(_, n, e)| is_free(&again(version, *n, &[(*e).clone()]), now));
    // Of equals the older one.
    let order = |(needless, _, e): &(u64, u8, &E)| (*needless, std::cmp::Reverse(e.meta().id));
    let (_, n, first) = free.max_by_key(order)?;
    let behind = version.level(n)?.extents().iter();
    let behind = behind.skip_while(|e| e.meta().id != first.meta().id).skip(1);
    let mut extents = vec![first.clone()];
    for next in behind.take_while(|next| worth(*next, now).is_some()) {
        extents.push(next.clone());
        let too_much = bytes(&extents) > shape.job_bytes;
        if too_much || !is_free(&again(version, n, &extents), now) {
            extents.pop();
            break;
        }
    }
    Some(again(version, n, &extents))
}

/// How many records of an extent go, if that is worth it.
fn worth<E: Described>(extent: &E, now: &Situation<'_>) -> Option<u64> {
    let needless = extent.needless(now.readers);
    is_worth(needless, extent.meta().records, now.rests).then_some(needless)
}

/// Neighbours are written again in their level.
fn again<E: Described>(version: &Version<E>, level: u8, extents: &[E]) -> Choice<E> {
    let (inputs, overlap) = (vec![(level, extents.to_vec())], Vec::new());
    Choice::Merge { table: version.table, inputs, to: level, overlap, collects: BTreeSet::new() }
}
