//! Which extents change their tier: those of level 2 and deeper that do not lie where their table
//! has its cold levels, and those of level 1 that are pieces of a shared store, which a takeover
//! has named. A pure function of a version.
//!
//! A table changes its tier at once, by its options; what it has follows, a few neighbours at a
//! time, in the time that nothing else needs. They are written again in their level, with their
//! blocks as they are. So each extent is chosen once: what comes out lies where it belongs.
//!
//! Values that lie apart come to level 2 where they were written first, and follow then: an extent
//! is written again with its values on the right tier, as many as one job moves. So no merge has
//! more to send than its keys.
//!
//! Where some of what belongs into objects may lie on this machine, it is what is read most. An
//! object that is read often comes back while there is room. Where there is none, an extent of this
//! machine that is read much less goes down first. What is there stays until then, so it is there
//! after a restart, which forgets how often extents were read.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::choice::{Choice, Situation};
use super::shape::Shape;
use crate::sstable::{Described, ValueUse};
use crate::version::{LEVEL_2, Level, MAX_LEVELS, SUBLEVELS, Version};

/// As many bytes at a time go to objects of so many extents.
const OBJECTS: usize = 2;

/// From so many reads on an object comes back. A read count halves with each 65,536 reads of the
/// database.
pub(super) const WARM: u32 = 64;

/// An extent goes down for an object that is read so many times as often.
const WARMER: u32 = 4;

/// The most bytes of values that one job moves, but for those in the first value extent.
const MOST_VALUES: u64 = 64 << 20;

/// The next neighbours that change their tier, or values of an extent.
pub(super) fn pick_misplaced<E: Described>(
    version: &Version<E>,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let (shape, options) = (now.shape, version.options);
    if shape.stays_far {
        return None;
    }
    let of_keys = match shape.local_room.is_some() && shape.puts_objects(LEVEL_2, options) {
        true => pick_by_place(version, now, 1..=SUBLEVELS).or_else(|| pick_by_reads(version, now)),
        false => pick_by_place(version, now, 1..=MAX_LEVELS),
    };
    of_keys.or_else(|| pick_values(version, now))
}

fn pick_by_place<E: Described>(
    version: &Version<E>,
    now: &Situation<'_>,
    mut levels: RangeInclusive<u8>,
) -> Option<Choice<E>> {
    let (shape, options) = (now.shape, version.options);
    let most = (OBJECTS * shape.extent_bytes_of(true)) as u64;
    levels.find_map(|level| {
        let wanted = shape.puts_objects(level, options);
        let is_misplaced = |e: &&E| e.meta().location.is_object() != wanted;
        let level_now = version.level(level).filter(|l| misplaced_in(l, wanted) > 0)?;
        let mut rest: &[E] = level_now.extents();
        while let Some(at) = rest.iter().position(|e| is_misplaced(&e)) {
            let mut bytes = 0;
            let fits = |e: &&E| {
                bytes += u64::from(e.meta().location.len);
                is_misplaced(e) && bytes <= most
            };
            // As it is, an extent of the shared store stays the same one for checkpoints.
            let is_copy = !wanted && is_shared(&rest[at]);
            // Between two of a sublevel a drain may put an extent of its own meanwhile.
            let few = match is_copy || level <= SUBLEVELS {
                true => 1,
                false => rest[at..].iter().take_while(fits).count(),
            };
            let few = few.max(1);
            let again = Choice::again(version, level, &rest[at..at + few]);
            let choice = Choice { is_copy, ..again };
            if now.allows(&choice, version) {
                return Some(choice);
            }
            rest = &rest[at + few..];
        }
        None
    })
}

/// Whether an extent lies in the shared store, as a takeover finds it there.
fn is_shared<E: Described>(extent: &E) -> bool {
    extent.meta().location.object().is_some_and(|object| object.shared().is_some())
}

/// The first extent that refers to values on another tier than they are to lie on, and as many of
/// these as one job moves. An extent has the place of its values in its level's, wherever it lies
/// itself.
fn pick_values<E: Described>(version: &Version<E>, now: &Situation<'_>) -> Option<Choice<E>> {
    (1..=MAX_LEVELS).find_map(|level| {
        let wanted = now.shape.puts_objects(level, version.options);
        let level_now = version.level(level).filter(|l| misplaced_values_in(l, wanted) > 0)?;
        level_now.extents().iter().find_map(|extent| {
            let listed = extent.meta().values.iter();
            let mut misplaced = listed.filter(|one| one.of.location.is_object() != wanted);
            let mut bytes = 0;
            let fits = |one: &&ValueUse| {
                let is_first = bytes == 0;
                bytes += one.bytes;
                is_first || bytes <= MOST_VALUES
            };
            let collects: BTreeSet<u64> =
                misplaced.by_ref().take_while(fits).map(|one| one.of.id).collect();
            let own = Choice::again(version, level, std::slice::from_ref(extent));
            let choice = Choice { collects, ..own };
            (!choice.collects.is_empty() && now.allows(&choice, version)).then_some(choice)
        })
    })
}

/// What goes down since too much is here, or comes back since it is read often.
fn pick_by_reads<E: Described>(version: &Version<E>, now: &Situation<'_>) -> Option<Choice<E>> {
    let room = now.shape.local_room?;
    let cold = (LEVEL_2..=MAX_LEVELS).filter_map(|n| Some((n, version.level(n)?)));
    let all = cold.flat_map(|(n, level)| level.extents().iter().map(move |e| (n, e)));
    let all = all.filter(|(n, e)| {
        now.allows(&Choice::again(version, *n, std::slice::from_ref(*e)), version)
    });
    let (objects, local): (Vec<_>, Vec<_>) = all.partition(|(_, e)| e.meta().location.is_object());
    let by_reads = |(_, e): &(u8, &E)| (e.read_frequency(), e.meta().id);
    let coldest = local.into_iter().min_by_key(by_reads);
    let choose = |(level, e): (u8, &E)| Choice::again(version, level, std::slice::from_ref(e));
    if room < 0 {
        return coldest.map(choose);
    }
    let warmest = objects.into_iter().max_by_key(by_reads)?;
    let (reads, len) = (warmest.1.read_frequency(), i64::from(warmest.1.meta().location.len));
    if reads < WARM {
        return None;
    }
    if len <= room {
        return Some(choose(warmest));
    }
    coldest.filter(|(_, e)| e.read_frequency().saturating_mul(WARMER) <= reads).map(choose)
}

/// Bytes of a level that are not on the tier that is wanted.
fn misplaced_in<E: Described>(level: &Level<E>, wanted: bool) -> u64 {
    let objects = level.objects().1;
    if wanted { level.bytes() - objects } else { objects }
}

/// Bytes of values that the extents of a level refer to on a tier that is not wanted.
fn misplaced_values_in<E: Described>(level: &Level<E>, wanted: bool) -> u64 {
    let objects = level.referred_objects();
    if wanted { level.referred() - objects } else { objects }
}

/// Bytes of extents and of values that do not lie where they belong.
pub(crate) fn misplaced<E: Described>(version: &Version<E>, shape: &Shape) -> u64 {
    if shape.stays_far {
        return 0;
    }
    let all = (1..=MAX_LEVELS).filter_map(|n| Some((n, version.level(n)?)));
    let values =
        all.map(|(n, level)| misplaced_values_in(level, shape.puts_objects(n, version.options)));
    values.sum::<u64>() + misplaced_extents(version, shape)
}

fn misplaced_extents<E: Described>(version: &Version<E>, shape: &Shape) -> u64 {
    if let Some(room) = shape.local_room.filter(|_| shape.puts_objects(LEVEL_2, version.options)) {
        let excess = room.min(0).unsigned_abs();
        return excess.min(local_of(version));
    }
    let levels = (1..=MAX_LEVELS).filter_map(|n| Some((n, version.level(n)?)));
    levels.map(|(n, level)| misplaced_in(level, shape.puts_objects(n, version.options))).sum()
}

/// Bytes of the cold levels of a table that lie on this machine.
pub(crate) fn local_of<E: Described>(version: &Version<E>) -> u64 {
    let levels = (LEVEL_2..=MAX_LEVELS).filter_map(|n| version.level(n));
    levels.map(|level| misplaced_in(level, true)).sum()
}
