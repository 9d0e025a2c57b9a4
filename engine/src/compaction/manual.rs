//! The next job of a manual compaction: what takes some keys down to the last level that has any of
//! them. A pure function of a version.
//!
//! Extents of level 1 go first, with all that lies under them there; then a level at a time. At
//! last extents with nothing below them are written again where that drops deletes, or versions
//! that no reader needs. Each step takes an extent down, or rids one of what it is there for. What
//! is newer than the call is left out. So it comes to an end while writes go on.

use super::choice::{Choice, Situation, hides_nothing, input_set, send_down};
use crate::base::record::Lsn;
use crate::mvcc::KeyInterval;
use crate::sstable::Described;
use crate::version::{LEVEL_2, MAX_LEVELS, SUBLEVELS, Version};

/// What is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextManual<E> {
    Choice(Choice<E>),
    /// Other jobs are at work on its keys.
    Busy,
    /// All is done.
    Nothing,
}

/// The next job for `keys`, of what was committed up to `upto`.
pub(crate) fn pick_manual<E: Described>(
    version: &Version<E>,
    (keys, upto): (&KeyInterval, Lsn),
    now: &Situation<'_>,
) -> NextManual<E> {
    let is_meant = |extent: &&E| extent.meta().smallest_seq <= upto;
    let first = |n: u8| version.overlapping(n, keys).iter().find(is_meant);
    let of_sublevels = (1..=SUBLEVELS).find_map(|n| Some((n, first(n)?)));
    let choice = match of_sublevels {
        Some((n, extent)) if now.spared > 0 => Some(from_below(version, (n, extent), now.spared)),
        Some((n, extent)) => Some(input_set(version, n, extent.meta().interval())),
        None => {
            let has_some = |n: &u8| !version.overlapping(*n, keys).is_empty();
            let deepest = (LEVEL_2..=MAX_LEVELS).rev().find(has_some).unwrap_or(LEVEL_2);
            let next = (LEVEL_2..deepest).find_map(|n| Some((n, first(n)?)));
            next.map(|(n, extent)| send_down(version, n, extent))
        }
    };
    let choice = choice.or_else(|| pick_at_bottom(version, (keys, upto), now));
    match choice.map(|choice| choice.compressed(now.shape, version.options)) {
        Some(choice) if now.allows(&choice, version) => NextManual::Choice(choice),
        Some(_) => NextManual::Busy,
        // A job that has installed its edit is done only when its claim goes.
        None if now.busy.iter().any(|claim| claim.keys.overlaps(keys)) => NextManual::Busy,
        None => NextManual::Nothing,
    }
}

/// How an extent of sublevel `n`, or what lies under it, gets down where upper sublevels are
/// spared: the deepest goes first, into a sublevel that is not spared if it is in one that is.
fn from_below<'a, E: Described>(
    version: &'a Version<E>,
    (mut n, mut extent): (u8, &'a E),
    spared: u8,
) -> Choice<E> {
    while let Some((below, other)) = (n + 1..=SUBLEVELS).find_map(|below| {
        let under = version.overlapping(below, &extent.meta().interval());
        Some((below, under.first()?))
    }) {
        (n, extent) = (below, other);
    }
    if n > spared {
        return input_set(version, spared + 1, extent.meta().interval());
    }
    Choice::moved(version, (n, extent), SUBLEVELS)
}

/// An extent with nothing below it from which something goes.
fn pick_at_bottom<E: Described>(
    version: &Version<E>,
    (keys, upto): (&KeyInterval, Lsn),
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let is_worth = |(n, extent): &(u8, &E)| {
        let meta = extent.meta();
        let drops_deletes = meta.deletes > 0 && meta.greatest_seq <= now.oldest();
        meta.smallest_seq <= upto
            && meta.interval().overlaps(keys)
            && hides_nothing(version, *n, extent)
            && (drops_deletes || extent.obsolete(now.readers) > 0)
    };
    let (level, extent) = version.extents().find(is_worth)?;
    Some(Choice::again(version, level, std::slice::from_ref(extent)))
}
