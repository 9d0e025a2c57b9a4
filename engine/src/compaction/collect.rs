//! Which value extents to empty: those of which less than half is referred to. A pure function of a
//! version.
//!
//! What is live of each is known exactly, by the lists of the extents that refer to it. Of those that
//! are mostly dead, the one with the most dead bytes is emptied first: an extent that refers to it is
//! written again where it is, and with it its values in this one, and in others that are mostly dead
//! too. The next pick finds the next such extent. What is written anew is all live, so there is an
//! end; and each emptied one gives back more than it cost.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::pick::{Choice, Situation, is_free};
use crate::extent::Described;
use crate::levels::Version;

/// The most bytes of values that one job writes anew, but for those in the first value extent.
const MOST_BYTES: u64 = 8 * 1024 * 1024;

/// What makes the most space of what dead values take.
pub(super) fn pick_values<E: Described>(
    version: &Version<E>,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let live = version.live_values();
    let dead = live.values().filter_map(|(of, live)| {
        let all = u64::from(of.values_end());
        (2 * live < all).then(|| (Reverse(all - live), of.id))
    });
    let mut dead: Vec<_> = dead.collect();
    dead.sort_unstable();
    let dead: Vec<u64> = dead.into_iter().map(|(_, id)| id).collect();
    dead.iter().find_map(|first| {
        let extents = (1u8..)
            .zip(&version.levels)
            .flat_map(|(n, level)| level.extents().iter().map(move |extent| (n, extent)));
        let refers = |(_, extent): &(u8, &E)| bytes_of(*extent, *first).is_some();
        let choices = extents.filter(refers).map(|(n, extent)| Choice::Merge {
            table: version.table,
            from: n,
            to: n,
            inputs: vec![extent.clone()],
            overlap: Vec::new(),
            collects: collected(extent, *first, &dead),
        });
        choices.into_iter().find(|choice| is_free(choice, now))
    })
}

/// Bytes that an extent refers to in a value extent.
fn bytes_of<E: Described>(extent: &E, id: u64) -> Option<u64> {
    let values = &extent.meta().values;
    let found = values.binary_search_by_key(&id, |one| one.of.id).ok()?;
    Some(values[found].bytes)
}

/// Value extents that are emptied as far as an extent refers to them: the first one, and others as
/// far as the bytes go.
fn collected<E: Described>(extent: &E, first: u64, dead: &[u64]) -> BTreeSet<u64> {
    let mut ids = BTreeSet::from([first]);
    let mut bytes = 0;
    for (id, more) in dead.iter().filter_map(|id| Some((*id, bytes_of(extent, *id)?))) {
        if bytes + more <= MOST_BYTES && ids.insert(id) {
            bytes += more;
        }
    }
    ids
}
