//! What goes without a merge of levels: what is hidden, expired or superseded, and value extents to
//! empty.
//!
//! Delete-only compactions: extents of which range tombstones hide everything from every reader
//! are removed by an edit, unread. Choosing them is a pure function of a version.
//!
//! Source: the delete-only compactions of Pebble. There a compaction hints at extents once a range
//! tombstone has come to the disk. Here a tombstone counts wherever it lies, also in the region, if
//! the floor on the media covers it: then no power cut takes the tombstone and leaves the extents
//! away.
//!
//! What has expired as a whole goes as a whole, unread: choosing it is a pure function of a
//! version.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::choice::{Choice, Situation};
use super::shape::{ClaimedKeys, is_claimed};
use crate::base::error::Result;
use crate::base::record::Lsn;
use crate::mvcc::{KeyInterval, Tombstone, is_worth, union};
use crate::sstable::{Described, Extent, ValueMeta};
use crate::version::Version;

/// The most extents that one edit removes.
const MOST: usize = 256;

/// Extents, with their levels, that range tombstones hide as a whole from readers at `oldest` and
/// later: `hides` tells it of the keys and the newest record of one. None of those that other jobs
/// have claimed.
pub(crate) fn hidden<E: Described>(
    version: &Version<E>,
    hides: impl Fn(&KeyInterval, Lsn) -> Result<bool>,
    oldest: Lsn,
    busy: &[ClaimedKeys],
) -> Result<Vec<(u8, E)>> {
    let mut hidden = Vec::new();
    for (level, extent) in version.extents() {
        let (meta, keys) = (extent.meta(), extent.meta().interval());
        if hides(&keys, meta.greatest_seq)? && !is_claimed(busy, level, &keys) {
            debug_assert!(
                meta.greatest_seq < oldest,
                "what hides an extent from a reader is newer than it, and no newer than the reader"
            );
            hidden.push((level, extent.clone()));
        }
        if hidden.len() == MOST {
            break;
        }
    }
    Ok(hidden)
}

/// About how many records of extents range tombstones hide, counted in whole blocks, up to `most`.
/// Reads the block indexes of extents at the ends of tombstones. Where one would have to come from
/// an object store, half of its extent counts: drains wait for this.
pub(crate) fn hidden_records(
    version: &Version,
    tombstones: &[Arc<Tombstone>],
    most: u64,
) -> Result<u64> {
    let newest = tombstones.iter().map(|tombstone| tombstone.seq).max().unwrap_or(0);
    let mut records = 0;
    for keys in union(tombstones.iter().map(|tombstone| tombstone.interval.clone())) {
        let extents = version.levels.iter().flat_map(|level| level.overlapping(&keys));
        for extent in extents.filter(|extent: &&Arc<Extent>| extent.meta().smallest_seq < newest) {
            let is_known = keys.covers(&extent.meta().interval()) || extent.missing_end().is_none();
            records += match is_known {
                true => extent.records_within(&keys)?,
                false => extent.meta().records / 2,
            };
            if records >= most {
                return Ok(most);
            }
        }
    }
    Ok(records)
}

/// Extents, with their levels, whose newest record is at or below `expired`: for every reader they
/// hold nothing. What they hide below is older still. None of those that other jobs have claimed.
pub(crate) fn expired<E: Described>(
    version: &Version<E>,
    expired: Lsn,
    busy: &[ClaimedKeys],
) -> Vec<(u8, E)> {
    let is_gone = |(n, extent): &(u8, &E)| {
        let meta = extent.meta();
        meta.greatest_seq <= expired && !is_claimed(busy, *n, &meta.interval())
    };
    let gone = version.extents().filter(is_gone).take(MOST);
    let gone: Vec<(u8, E)> = gone.map(|(level, extent)| (level, extent.clone())).collect();
    debug_assert!(gone.iter().all(|(n, _)| *n > 0), "levels count from 1");
    gone
}

// Which extents to rid of what readers needed that are gone: versions that were superseded or
// hidden, deletes with nothing below them. Pure functions of a version.
//
// A merge notes with each extent how much it kept for which readers (`mvcc/snapshots.rs`).
// Of an extent that an opening found only the number is known; its readers went with the opening
// before. So nothing is read to choose. The extent with the most that goes is written again where
// it is, alone: what is cut finely is dropped or left in its place by later jobs more often. All
// that counted goes, so no extent is chosen twice for the same; the output keeps what is
// still needed, with the readers that it is for.
//
// An extent of which little goes waits until no writer writes. Otherwise a job would write each
// extent twice that was written under a short snapshot.

/// The extent with the most versions that no reader needs.
pub(super) fn pick_superseded<E: Described>(
    version: &Version<E>,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let some = version.extents().filter_map(|(n, e)| {
        Some((worth(e, now)?, Choice::again(version, n, std::slice::from_ref(e))))
    });
    let free = some.filter(|(_, choice)| now.allows(choice, version));
    let order = |(obsolete, choice): &(u64, Choice<E>)| (*obsolete, Reverse(choice.age()));
    free.max_by_key(order).map(|(_, choice)| choice)
}

/// How many records of an extent go, if that is worth it.
fn worth<E: Described>(extent: &E, now: &Situation<'_>) -> Option<u64> {
    let obsolete = extent.obsolete(now.readers);
    is_worth(obsolete, extent.meta().records, now.rests).then_some(obsolete)
}

// Which value extents to empty: those of which less than half is referred to, and small ones where
// there are many. Pure functions of a version.
//
// What is live of each is known exactly, by the lists of the extents that refer to it. Of those
// that are mostly dead, the one with the most dead bytes is emptied first. A
// compaction rewrites an extent that refers to it, in place. It copies the extent's values out of
// this value extent, and out of others that are mostly dead. The next pick finds the next extent.
// The copies are all live, so the work ends. Each emptied value extent frees more than it costs.
//
// Small drains write small value extents, which take a unit each, and a place in lists that the
// journal has. Once an extent refers to many of them, they are written together: a value about
// once for each time that their number grows by as much.

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
    let ranks: HashMap<u64, usize> = dead.iter().copied().zip(0..).collect();
    let of_extents = version.extents().flat_map(|(n, extent)| {
        let ranks = extent.meta().values.iter().filter_map(|one| ranks.get(&one.of.id));
        ranks.map(move |rank| (*rank, n, extent))
    });
    let mut refers: Vec<_> = of_extents.collect();
    refers.sort_by_key(|(rank, ..)| *rank);
    refers.into_iter().find_map(|(rank, n, extent)| {
        let choice = |collects| rewrite(version, n, extent, collects);
        // A list of all that it empties costs more than the question.
        let may_be = now.allows(&choice(BTreeSet::from([dead[rank]])), version);
        let choice = may_be.then(|| choice(collected(extent, dead[rank], &dead)))?;
        now.allows(&choice, version).then_some(choice)
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
    Choice { collects, ..Choice::again(version, level, std::slice::from_ref(extent)) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::Fragments;
    use crate::mvcc::{SnapshotRegistry, Watermark};
    use crate::sstable::ExtentMeta;
    use crate::storage::Location;
    use crate::version::Level;

    fn extent(id: u64, from: &str, to: &str, greatest_seq: Lsn) -> Arc<ExtentMeta> {
        Arc::new(ExtentMeta {
            id,
            location: Location { file: 1, offset: id << 21, len: 1 << 20 },
            records: 100,
            deletes: 0,
            tombstones: 0,
            smallest_seq: 1,
            greatest_seq,
            raw_bytes: 1000,
            smallest_key: from.into(),
            greatest_key: to.into(),
            footer_checksum: 0,
            one_seq: false,
            kept: 0,
            values: [].into(),
        })
    }

    fn tombstone(from: &str, to: Option<&str>, seq: Lsn) -> Arc<Tombstone> {
        let interval = KeyInterval { start: from.into(), end: to.map(Into::into) };
        Arc::new(Tombstone::new(interval, seq))
    }

    #[test]
    fn extents_go_that_are_hidden_from_everybody() {
        let first = vec![extent(1, "a", "c", 20), extent(2, "d", "f", 10)];
        let second = vec![extent(3, "a", "b", 9), extent(4, "e", "x", 10), extent(5, "y", "z", 11)];
        let levels = vec![Level::new(first), Level::default(), Level::new(second)];
        let version = Version { levels, ..Version::empty(1) };
        let visible = Arc::new(Watermark::new(12));
        let registry = SnapshotRegistry::new(Arc::clone(&visible));
        let gone = |tombstones: &[Arc<Tombstone>], busy: &[ClaimedKeys]| -> Vec<u64> {
            let horizon = registry.horizon();
            let (ranges, oldest) = (Fragments::new(tombstones, &horizon), horizon.oldest());
            let hides = |keys: &KeyInterval, seq| Ok(ranges.hide(keys, seq, oldest));
            let gone = hidden(&version, hides, oldest, busy).unwrap_or_default();
            gone.into_iter().map(|(_, extent)| extent.id).collect()
        };
        assert_eq!(gone(&[], &[]), [0; 0]);
        let all = [tombstone("", None, 12)];
        assert_eq!(gone(&all, &[]), [2, 3, 4, 5], "the first has a newer record");
        let busy = |levels| [ClaimedKeys::new(KeyInterval::closed(b"f", b"g"), levels)];
        assert_eq!(gone(&all, &busy((1, 3))), [3, 5]);
        assert_eq!(gone(&all, &busy((2, 3))), [2, 3, 5], "a job works below 2");
        // Two that meet hide what neither does alone, and a gap between two does not.
        let halves = [tombstone("d", Some("k"), 11), tombstone("k", Some("y"), 12)];
        assert_eq!(gone(&halves, &[]), [2, 4]);
        let apart = [tombstone("d", Some("k"), 11), tombstone("l", Some("y"), 12)];
        assert_eq!(gone(&apart, &[]), [2]);
        assert_eq!(gone(&[tombstone("d", Some("f"), 12)], &[]), [0; 0], "an end is not inside");
        // Of the same number nothing is hidden, and nothing from a reader that is older.
        assert_eq!(gone(&[tombstone("d", None, 10)], &[]), [0; 0]);
        assert_eq!(gone(&[tombstone("", None, 13)], &[]), [0; 0], "no reader sees it yet");
        let held = registry.register();
        visible.raise(14);
        assert_eq!(gone(&[tombstone("", None, 13)], &[]), [0; 0], "a snapshot does not see it");
        drop(held);
        assert_eq!(gone(&[tombstone("", None, 13)], &[]), [2, 3, 4, 5]);
    }

    mod expire {

        use super::super::*;
        use super::extent;
        use crate::mvcc::KeyInterval;
        use crate::version::Level;

        #[test]
        fn extents_go_once_their_newest_record_has_expired() {
            let first = vec![extent(1, "a", "c", 20), extent(2, "d", "f", 10)];
            let second =
                vec![extent(3, "a", "b", 9), extent(4, "e", "x", 10), extent(5, "y", "z", 11)];
            let levels = vec![Level::new(first), Level::default(), Level::new(second)];
            let version = Version { levels, ..Version::empty(1) };
            let gone = |at: Lsn, busy: &[ClaimedKeys]| -> Vec<(u8, u64)> {
                expired(&version, at, busy).into_iter().map(|(n, extent)| (n, extent.id)).collect()
            };
            assert_eq!(gone(8, &[]), []);
            assert_eq!(gone(10, &[]), [(1, 2), (3, 3), (3, 4)]);
            let busy = |levels| [ClaimedKeys::new(KeyInterval::closed(b"f", b"g"), levels)];
            assert_eq!(gone(10, &busy((1, 3))), [(3, 3)]);
            assert_eq!(gone(10, &busy((2, 3))), [(1, 2), (3, 3)], "a job works below 2");
        }
    }
}
