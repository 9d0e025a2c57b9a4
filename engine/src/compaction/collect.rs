//! Which value extents to empty: those of which less than half is referred to, and small ones where
//! there are many. Pure functions of a version.
//!
//! What is live of each is known exactly, by the lists of the extents that refer to it. Of those
//! that are mostly dead, the one with the most dead bytes is emptied first. An extent that refers
//! to it is written again where it is. With it go its values in this one, and in others that are
//! mostly dead too. The next pick finds the next such extent. What is written anew is all live, so
//! there is an end; and each emptied one gives back more than it cost.
//!
//! Small drains write small value extents, which take a unit each, and a place in lists that the
//! journal has. Once an extent refers to many of them, they are written together: a value about
//! once for each time that their number grows by as much.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::choice::{Choice, Situation};
use crate::extent::{Described, ValueMeta};
use crate::levels::Version;

/// The most bytes of values that one job writes anew, but for those in the first value extent.
const MOST_BYTES: u64 = 8 * 1024 * 1024;

/// So many small value extents of one extent are written together; small is less than one part of
/// so many of the size at which they are cut.
const MANY: usize = 64;
const SMALL: usize = 4;

/// Which values to write anew, if any.
pub(super) fn pick_values<E: Described>(
    version: &Version<E>,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    pick_dead(version, now).or_else(|| pick_small(version, now))
}

/// What makes the most space of what dead values take.
fn pick_dead<E: Described>(version: &Version<E>, now: &Situation<'_>) -> Option<Choice<E>> {
    let live = version.live_values();
    let dead = live.values().filter_map(|(of, live)| {
        let all = u64::from(of.values_end());
        (2 * live < all && now.work.may_read(&of.location)).then(|| (Reverse(all - live), of.id))
    });
    let mut dead: Vec<_> = dead.collect();
    dead.sort_unstable();
    let dead: Vec<u64> = dead.into_iter().map(|(_, id)| id).collect();
    dead.iter().find_map(|first| {
        let refers = |(_, extent): &(u8, &E)| bytes_of(*extent, *first).is_some();
        let choices = version.extents().filter(refers);
        let choices = choices.map(|(n, e)| rewrite(version, n, e, collected(e, *first, &dead)));
        choices.into_iter().find(|choice| now.allows(choice, version))
    })
}

/// The first extent that refers to many small value extents, and the smallest of those.
fn pick_small<E: Described>(version: &Version<E>, now: &Situation<'_>) -> Option<Choice<E>> {
    let choices = version.extents().filter_map(|(n, extent)| {
        let small = |of: &ValueMeta| {
            (of.values_end() as usize) < now.shape.extent_bytes / SMALL
                && now.work.may_read(&of.location)
        };
        let listed = extent.meta().values.iter().filter(|one| small(&one.of));
        let mut small: Vec<(u64, u64)> = listed.map(|one| (one.bytes, one.of.id)).collect();
        if small.len() < MANY {
            return None;
        }
        small.sort_unstable();
        let ids: Vec<u64> = small.into_iter().map(|(_, id)| id).collect();
        Some(rewrite(version, n, extent, collected(extent, ids[0], &ids)))
    });
    choices.into_iter().find(|choice| now.allows(choice, version))
}

/// An extent is written again in its level, and with it some of its values.
fn rewrite<E: Described>(
    version: &Version<E>,
    level: u8,
    extent: &E,
    collects: BTreeSet<u64>,
) -> Choice<E> {
    let (inputs, overlap) = (vec![(level, vec![extent.clone()])], Vec::new());
    Choice::Merge { table: version.table, inputs, to: level, overlap, collects }
}

/// Bytes that an extent refers to in a value extent.
fn bytes_of<E: Described>(extent: &E, id: u64) -> Option<u64> {
    let values = &extent.meta().values;
    let found = values.binary_search_by_key(&id, |one| one.of.id).ok()?;
    Some(values[found].bytes)
}

/// Value extents that are emptied as far as an extent refers to them: the first one, and of
/// `others` as many as the bytes go.
fn collected<E: Described>(extent: &E, first: u64, others: &[u64]) -> BTreeSet<u64> {
    let mut ids = BTreeSet::from([first]);
    let mut bytes = 0;
    for (id, more) in others.iter().filter_map(|id| Some((*id, bytes_of(extent, *id)?))) {
        if bytes + more <= MOST_BYTES && ids.insert(id) {
            bytes += more;
        }
    }
    ids
}
