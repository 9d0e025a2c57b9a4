//! Which compaction to run next. Pure functions of a version, of how often its extents are read,
//! and of what runs already.
//!
//! First go extents that are mostly tombstones. One that has something below it goes down, where
//! its tombstones take with them what they hide. One that has nothing below it is written again
//! without them, once no reader is older.
//!
//! Then value extents that are mostly dead, or many and small, are emptied (`hidden.rs`): what
//! makes space does not wait for what moves it.
//!
//! Then levels. A level is over-full when it has more bytes than its target; the target of level 1
//! is given, or follows from what is below it, and grows by the ratio from level to level. So two
//! levels are enough until level 2 outgrows its target; then level 3 opens by itself. Level 1 is
//! over-full too when drains are about to run out of sublevels that cannot become one.
//!
//! From level 1 goes an **input set**: neighbours in one sublevel with all that lies under them in
//! deeper ones. What level 2 has of their keys is written once for all sublevels, so an input set
//! takes as many neighbours as is cheapest. From deeper levels goes an extent at a time.
//!
//! Where drains are about to run out of sublevels, and level 1 has not the bytes that it may have,
//! these become one (`choice.rs`). At last versions that no reader needs any more go
//! (`hidden.rs`).
//!
//! An extent that overlaps nothing goes down by its name alone, unless its new level has another
//! compression. Then a compaction rewrites it there. Otherwise an extent that comes in the order of
//! its keys would keep the compression of level 1 for good.
//!
//! Of all that could go, that goes which has least under it for its bytes; what is read twice as
//! much is worth a step, so that it stays in level 1. Of equals the one that has been in the
//! database longest, by its id.
//!
//! Where values lie apart a level has few bytes, and many that it refers to. It is over-full also
//! when those are more than its target and than one part by the ratio of what deeper levels refer
//! to. Otherwise replaced values would stay as long as the keys above them find room. Moving
//! references costs little, so that is all it is held to.

use super::choice::{
    Choice, HEAVY, HEAVY_AT_REST, MOST_PLACES, Situation, hides_nothing, input_set, pick_intra_l1,
    send_down,
};
use super::hidden::{pick_superseded, pick_values};
use super::misplaced::pick_misplaced;
use super::shape::LAST_SUBLEVELS;
use crate::base::record::Lsn;
use crate::mvcc::KeyInterval;
use crate::sstable::{Described, ExtentMeta};
use crate::version::{LEVEL_2, MAX_LEVELS, SUBLEVELS, Version};

/// The compaction that `version` needs most, if it needs one that can run now.
pub(crate) fn pick<E: Described>(version: &Version<E>, now: &Situation<'_>) -> Option<Choice<E>> {
    pick_heavy(version, now)
        .or_else(|| pick_values(version, now))
        .or_else(|| has_too_many_sublevels(version).then(|| pick_intra_l1(version, now)).flatten())
        .or_else(|| pick_level(version, now))
        .or_else(|| pick_intra_l1(version, now))
        .or_else(|| pick_superseded(version, now))
        .or_else(|| pick_misplaced(version, now))
        .map(|choice| choice.compressed(now.shape, version.options))
        .inspect(|choice| {
            debug_assert!(now.allows(choice, version), "what is chosen can run now");
            debug_assert!(choice.extents().next().is_some(), "what is chosen has inputs");
        })
}

/// What rids the table of most tombstones.
fn pick_heavy<E: Described>(version: &Version<E>, now: &Situation<'_>) -> Option<Choice<E>> {
    // A range tombstone may hide any number of records: it goes down to them when there is time.
    let has_time_for =
        |n: u8, e: &E| now.rests && e.meta().tombstones > 0 && !hides_nothing(version, n, e);
    let share = if now.rests { HEAVY_AT_REST } else { HEAVY };
    let heavy = version.extents().filter(|(n, e)| {
        e.meta().deletes * share >= e.meta().records.max(1) || has_time_for(*n, e)
    });
    let choices = heavy.filter_map(|(n, extent)| {
        let choice = if hides_nothing(version, n, extent) {
            // All its tombstones go, or it would be chosen again and again.
            let done_with = extent.meta().greatest_seq <= now.oldest();
            done_with.then(|| Choice::again(version, n, std::slice::from_ref(extent)))
        } else {
            (n < MAX_LEVELS).then(|| send_down(version, n, extent))
        };
        choice.filter(|choice| now.allows(choice, version)).map(|choice| (extent.meta(), choice))
    });
    let most = |a: &ExtentMeta, b: &ExtentMeta| a.deletes.cmp(&b.deletes).then(b.id.cmp(&a.id));
    choices.max_by(|(a, _), (b, _)| most(a, b)).map(|(_, choice)| choice)
}

/// What takes bytes out of the level that is fullest for its target.
fn pick_level<E: Described>(version: &Version<E>, now: &Situation<'_>) -> Option<Choice<E>> {
    let shape = now.shape;
    let mut full = Vec::new();
    let sublevels = shape.fullness_in_bytes(version);
    let from = match (now.spared, has_too_many_sublevels(version)) {
        (0, true) => 1..=LAST_SUBLEVELS,
        (spared, _) => spared + 1..=SUBLEVELS,
    };
    if sublevels > 1.0 || has_too_many_sublevels(version) {
        full.push((sublevels.max(1.0), SUBLEVELS));
    }
    for n in LEVEL_2..MAX_LEVELS {
        let level = version.level(n).map_or((0, 0), |level| (level.bytes(), level.referred()));
        let fullness = shape.fullness_of(level, n, shape.target_of(n, version), version);
        if fullness > 1.0 {
            full.push((fullness, n));
        }
    }
    // Of equals the upper one: what comes down later passes it anyway.
    full.sort_by(|(a, n), (b, m)| b.total_cmp(a).then(n.cmp(m)));
    full.into_iter().find_map(|(_, n)| match n {
        SUBLEVELS => best(from.clone().flat_map(|sublevel| input_sets(version, sublevel, now))),
        _ => best(singles(version, n, now)),
    })
}

/// Whether drains have come up to the last sublevels.
fn has_too_many_sublevels<E: Described>(version: &Version<E>) -> bool {
    version.levels.iter().take(usize::from(LAST_SUBLEVELS)).any(|sublevel| !sublevel.is_empty())
}

/// Each extent of a level below the sublevels, on its way down.
fn singles<'a, E: Described>(
    version: &'a Version<E>,
    n: u8,
    now: &'a Situation<'_>,
) -> impl Iterator<Item = Choice<E>> + 'a {
    let extents = version.level(n).map_or(&[][..], |level| level.extents());
    let choices = extents.iter().map(move |extent| send_down(version, n, extent));
    choices.filter(|choice| now.allows(choice, version))
}

/// Input sets that begin with an extent of a sublevel, each as wide as is best.
fn input_sets<'a, E: Described>(
    version: &'a Version<E>,
    sublevel: u8,
    now: &'a Situation<'_>,
) -> impl Iterator<Item = Choice<E>> + 'a {
    let extents = version.level(sublevel).map_or(&[][..], |level| level.extents());
    let step = extents.len().div_ceil(MOST_PLACES).max(1);
    extents.iter().step_by(step).filter_map(move |first| {
        let keys = first.meta().interval();
        let mut best = input_set(version, sublevel, keys.clone());
        if !now.allows(&best, version) {
            return None;
        }
        let rest = KeyInterval { start: keys.end.clone()?, end: None };
        let beside = version.overlapping(SUBLEVELS, &rest);
        let mut next = 0;
        while next < beside.len() && !best.is_move {
            let wider_keys = keys.joined(&beside[next].meta().interval());
            let wider = input_set(version, now.spared + 1, wider_keys);
            let (down, again) = wider.bytes();
            if down + again > now.shape.job_bytes || !now.allows(&wider, version) {
                break;
            }
            if wider.cost() <= best.cost() {
                best = wider;
            }
            next += 1 + next / 2;
        }
        Some(best)
    })
}

/// What has least under it for its bytes and its read frequency.
fn best<E: Described>(choices: impl Iterator<Item = Choice<E>>) -> Option<Choice<E>> {
    let all = choices.map(|choice| (choice.cost(), choice.age(), choice));
    let least = all.min_by(|(a, age, _), (b, other, _)| a.total_cmp(b).then(age.cmp(other)));
    least.map(|(_, _, choice)| choice)
}

// The next job of a manual compaction: what takes some keys down to the last level that has any of
// them. A pure function of a version.
//
// Extents of level 1 go first, with all that lies under them there; then a level at a time. At
// last extents with nothing below them are written again where that drops deletes, or versions
// that no reader needs. Each step takes an extent down, or rids one of what it is there for. What
// is newer than the call is left out. So it comes to an end while writes go on.

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

#[cfg(test)]
mod tests;
