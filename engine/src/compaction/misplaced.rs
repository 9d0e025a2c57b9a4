//! Which extents change their tier: those of level 2 and deeper that do not lie where their table
//! has its cold levels. A pure function of a version.
//!
//! A table changes its tier at once, by its options; what it has follows, a few neighbours at a
//! time, in the time that nothing else needs. They are written again in their level, with their
//! blocks as they are. So each extent is chosen once: what comes out lies where it belongs.
//!
//! Where some of what belongs into objects may lie on this machine, it is what is read most. An
//! object that is read often comes back while there is room. Where there is none, an extent of this
//! machine that is read much less goes down first. What is there stays until then, so it is there
//! after a restart, which forgets how often extents were read.

use std::collections::BTreeSet;

use super::choice::{Choice, Situation, is_free};
use super::shape::Shape;
use crate::extent::Described;
use crate::levels::{LEVEL_2, Level, MAX_LEVELS, Version};

/// As many bytes at a time go to objects of so many extents.
const OBJECTS: usize = 2;

/// From so many reads on an object comes back. A read count halves with each 65,536 reads of the
/// database.
pub(super) const WARM: u32 = 64;

/// An extent goes down for an object that is read so many times as often.
const WARMER: u32 = 4;

/// The next neighbours that change their tier.
pub(super) fn pick_misplaced<E: Described>(
    version: &Version<E>,
    shape: &Shape,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let options = version.options;
    if shape.local_room.is_some() && shape.puts_objects(LEVEL_2, options) {
        return pick_by_reads(version, shape, now);
    }
    let most = (OBJECTS * shape.extent_bytes_of(true)) as u64;
    (LEVEL_2..=MAX_LEVELS).find_map(|level| {
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
            let few = rest[at..].iter().take_while(fits).count().max(1);
            let choice = again(version, level, &rest[at..at + few]);
            if is_free(&choice, now) {
                return Some(choice);
            }
            rest = &rest[at + few..];
        }
        None
    })
}

/// What goes down since too much is here, or comes back since it is read often.
fn pick_by_reads<E: Described>(
    version: &Version<E>,
    shape: &Shape,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let room = shape.local_room?;
    let cold = (LEVEL_2..=MAX_LEVELS).filter_map(|n| Some((n, version.level(n)?)));
    let all = cold.flat_map(|(n, level)| level.extents().iter().map(move |e| (n, e)));
    let all = all.filter(|(n, e)| is_free(&again(version, *n, std::slice::from_ref(*e)), now));
    let (objects, local): (Vec<_>, Vec<_>) = all.partition(|(_, e)| e.meta().location.is_object());
    let by_reads = |(_, e): &(u8, &E)| (e.read_frequency(), e.meta().id);
    let coldest = local.into_iter().min_by_key(by_reads);
    let choose = |(level, e): (u8, &E)| again(version, level, std::slice::from_ref(e));
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

/// Neighbours are written again in their level.
fn again<E: Described>(version: &Version<E>, level: u8, extents: &[E]) -> Choice<E> {
    let (inputs, overlap) = (vec![(level, extents.to_vec())], Vec::new());
    Choice::Merge { table: version.table, inputs, to: level, overlap, collects: BTreeSet::new() }
}

/// Bytes of a level that are not on the tier that is wanted.
fn misplaced_in<E: Described>(level: &Level<E>, wanted: bool) -> u64 {
    let objects = level.objects().1;
    if wanted { level.bytes() - objects } else { objects }
}

/// Bytes of extents that do not lie where they belong.
pub(crate) fn misplaced<E: Described>(version: &Version<E>, shape: &Shape) -> u64 {
    if let Some(room) = shape.local_room.filter(|_| shape.puts_objects(LEVEL_2, version.options)) {
        let excess = room.min(0).unsigned_abs();
        return excess.min(local_of(version));
    }
    let levels = (LEVEL_2..=MAX_LEVELS).filter_map(|n| Some((n, version.level(n)?)));
    levels.map(|(n, level)| misplaced_in(level, shape.puts_objects(n, version.options))).sum()
}

/// Bytes of the cold levels of a table that lie on this machine.
pub(crate) fn local_of<E: Described>(version: &Version<E>) -> u64 {
    let levels = (LEVEL_2..=MAX_LEVELS).filter_map(|n| version.level(n));
    levels.map(|level| misplaced_in(level, true)).sum()
}
