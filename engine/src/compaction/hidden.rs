//! Delete-only compactions: extents of which range tombstones hide everything from every reader
//! are removed by an edit, unread. Choosing them is a pure function of a version.
//!
//! Source: the delete-only compactions of Pebble. There a compaction hints at extents once a range
//! tombstone has come to the disk. Here a tombstone counts wherever it lies, also in the region, if
//! the floor on the media covers it: then no power cut takes the tombstone and leaves the extents
//! away.

use std::sync::Arc;

use super::claimed::{ClaimedKeys, is_claimed};
use crate::error::Result;
use crate::extent::{Described, Extent};
use crate::levels::Version;
use crate::mvcc::{KeyInterval, Tombstone, union};
use crate::record::Lsn;

/// The most extents that one edit removes.
const MOST: usize = 256;

/// Extents, with their levels, that range tombstones hide as a whole from readers at `oldest` and
/// later: `hides` tells it of the keys and the newest record of one. None of those that other jobs
/// have claimed.
///
/// # Errors
///
/// Those of `hides`.
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
///
/// # Errors
///
/// Those of reading.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::ExtentMeta;
    use crate::levels::Level;
    use crate::merge::Fragments;
    use crate::mvcc::{SnapshotRegistry, Watermark};
    use crate::tier::Location;

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
}
