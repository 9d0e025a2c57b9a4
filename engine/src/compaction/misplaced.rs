//! Which extents change their tier: those of level 2 and deeper that do not lie where their table
//! has its cold levels. A pure function of a version.
//!
//! A table changes its tier at once, by its options; what it has follows, a few neighbours at a
//! time, in the time that nothing else needs. They are written again in their level, with their
//! blocks as they are. So each extent is chosen once: what comes out lies where it belongs.

use std::collections::BTreeSet;

use super::pick::{Choice, Shape, Situation, is_free};
use crate::extent::Described;
use crate::levels::{LEVEL_2, Level, MAX_LEVELS, Version};

/// As many bytes at a time go to objects of so many extents.
const OBJECTS: usize = 2;

/// The next neighbours that change their tier.
pub(super) fn pick_misplaced<E: Described>(
    version: &Version<E>,
    shape: &Shape,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let options = version.options;
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
    let levels = (LEVEL_2..=MAX_LEVELS).filter_map(|n| Some((n, version.level(n)?)));
    levels.map(|(n, level)| misplaced_in(level, shape.puts_objects(n, version.options))).sum()
}
