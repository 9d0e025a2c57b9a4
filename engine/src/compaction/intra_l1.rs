//! Intra-L1 compactions: which sublevels of level 1 become one. A pure function of a version.
//!
//! Each round of drains takes a sublevel more wherever it has keys. A round is small beside what
//! level 1 may have. So sublevels would be used up long before its bytes are, and level 2 would be
//! written again for little. An intra-L1 compaction merges the sublevels that lie over some keys
//! into the deepest of them. It writes what they have and nothing of level 2, and makes room for as
//! many rounds.
//!
//! From the uppermost sublevel on it takes as many as cost the fewest bytes for each sublevel that
//! comes free. What was merged like that before is larger than what a round brings. It is left
//! alone until there is about as much above it, so a byte is merged a logarithmic number of times.
//! That is size-tiered compaction within a level ("Dostoevsky: Better Space-Time Trade-Offs for
//! LSM-Tree Based Key-Value Stores via Adaptive Removal of Superfluous Merging", SIGMOD 2018).
//!
//! An extent with clear sublevels right below it moves through them by its name.
//!
//! What other jobs work on is left alone. So above a compaction with objects, which may take long,
//! the sublevels that it spares become one again and again.

use std::collections::BTreeSet;

use super::choice::{Choice, MOST_PLACES, Situation, bytes, span};
use super::claimed::is_claimed;
use crate::extent::Described;
use crate::levels::{SUBLEVELS, Version};

/// Where there are so few sublevels left above some keys, they become one.
const FEW_LEFT: u8 = 4;

/// The fewest sublevels that come free.
const LEAST_ROOM: u8 = 3;

/// A compaction, and its bytes for each sublevel that comes free.
type Costly<E> = (u64, Choice<E>);

/// The compaction of the place with the fewest sublevels left; of several the one that costs least.
pub(super) fn pick_intra_l1<E: Described>(
    version: &Version<E>,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    (1..=FEW_LEFT.max(now.spared)).find_map(|first| {
        let extents = version.level(first).map_or(&[][..], |sublevel| sublevel.extents());
        // Out of sublevels that are spared, nothing gets down but into the others.
        let only_moves = first > FEW_LEFT;
        let step = if only_moves { 1 } else { extents.len().div_ceil(MOST_PLACES).max(1) };
        let choices = extents.iter().step_by(step).filter_map(|extent| {
            let choice = cheapest(version, (first, extent), now)?;
            let is_meant = !only_moves || matches!(choice.1, Choice::Move { .. });
            (is_meant && now.allows(&choice.1, version)).then_some(choice)
        });
        let least = choices.min_by_key(|(cost, choice)| (*cost, choice.age()));
        least.map(|(_, choice)| choice)
    })
}

/// What lies under an extent of sublevel `first` in others, as far down as is cheapest, and above
/// what is `busy`.
fn cheapest<E: Described>(
    version: &Version<E>,
    (first, extent): (u8, &E),
    now: &Situation<'_>,
) -> Option<Costly<E>> {
    let (mut keys, busy) = (extent.meta().interval(), now.busy);
    let (mut taken, mut sum) = (Vec::new(), 0);
    let mut least: Option<(u64, usize)> = None;
    let is_taken =
        |n: &u8| !version.overlapping(*n, &keys).is_empty() || is_claimed(busy, *n, &keys);
    let below = (first + 1..=SUBLEVELS).find(is_taken).unwrap_or(SUBLEVELS + 1);
    if below > first + 1 {
        let (table, from, to, extent) = (version.table, first, below - 1, extent.clone());
        debug_assert!(from < to && to <= SUBLEVELS, "an extent moves down within level 1");
        return Some((0, Choice::Move { table, from, to, extent }));
    }
    for n in first..=SUBLEVELS {
        let here = version.overlapping(n, &keys);
        if here.is_empty() {
            continue;
        }
        keys = keys.joined(&span(here.iter()));
        if (first..=n).any(|n| is_claimed(busy, n, &keys)) {
            break;
        }
        sum += bytes(here);
        taken.push((n, here));
        if sum > now.shape.job_bytes {
            break;
        }
        let room = n - first;
        if room < LEAST_ROOM {
            continue;
        }
        let cost = sum / u64::from(room);
        if least.is_none_or(|(other, _)| cost <= other) {
            least = Some((cost, taken.len()));
        }
    }
    let (cost, sublevels) = least?;
    let (to, overlap) = taken[sublevels - 1];
    debug_assert!(first < to && to <= SUBLEVELS, "sublevels become one within level 1");
    debug_assert!(sublevels > 1, "one sublevel alone stays as it is");
    let inputs = taken[..sublevels - 1].iter().map(|(n, here)| (*n, here.to_vec())).collect();
    let (table, overlap, collects) = (version.table, overlap.to_vec(), BTreeSet::new());
    Some((cost, Choice::Merge { table, inputs, to, overlap, collects }))
}
