//! Which extents to rid of what readers needed that are gone: versions that were superseded or
//! hidden, deletes with nothing below them. Pure functions of a version.
//!
//! A merge notes with each extent how much it kept for which readers (`mvcc/snapshots/kept.rs`).
//! Of an extent that an opening found only the number is known; its readers went with the opening
//! before. So nothing is read to choose. The extent with the most that goes is written again where
//! it is, alone: what is cut finely is dropped or left in its place by later jobs more often. All
//! that counted goes, so no extent is chosen twice for the same; the output keeps what is
//! still needed, with the readers that it is for.
//!
//! An extent of which little goes waits until no writer writes. Otherwise a job would write each
//! extent twice that was written under a short snapshot.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::choice::{Choice, Situation};
use crate::extent::Described;
use crate::levels::Version;
use crate::mvcc::is_worth;

/// The extent with the most versions that no reader needs.
pub(super) fn pick_superseded<E: Described>(
    version: &Version<E>,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let some = version.extents().filter_map(|(n, e)| Some((worth(e, now)?, again(version, n, e))));
    let free = some.filter(|(_, choice)| now.allows(choice, version));
    let order = |(obsolete, choice): &(u64, Choice<E>)| (*obsolete, Reverse(choice.age()));
    free.max_by_key(order).map(|(_, choice)| choice)
}

/// How many records of an extent go, if that is worth it.
fn worth<E: Described>(extent: &E, now: &Situation<'_>) -> Option<u64> {
    let obsolete = extent.obsolete(now.readers);
    is_worth(obsolete, extent.meta().records, now.rests).then_some(obsolete)
}

/// An extent is written again in its level.
fn again<E: Described>(version: &Version<E>, level: u8, extent: &E) -> Choice<E> {
    let (inputs, overlap) = (vec![(level, vec![extent.clone()])], Vec::new());
    Choice::Merge { table: version.table, inputs, to: level, overlap, collects: BTreeSet::new() }
}
