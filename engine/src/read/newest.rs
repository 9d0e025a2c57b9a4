//! Which keys have changed since a moment: by this a transaction finds a conflict.

use crate::error::Result;
use crate::extent::{BlockCache, ReadAhead};
use crate::read::KeyRange;
use crate::record::{Cursor, LSN_MAX, Lsn};
use crate::view::{PinnedView, View};

/// The LSN of the newest version of `key`, deletions included. A version that no reader needs may
/// be gone. No version above a registered snapshot is gone, with one exception: a range delete of a
/// key that was not there at the snapshot and is not there now.
pub(crate) fn newest(
    PinnedView { view, blocks }: PinnedView<'_>,
    key: &[u8],
) -> Result<Option<Lsn>> {
    let in_memory = view.newest_in_memory(key, LSN_MAX)?;
    let above = in_memory.as_ref().map_or(0, |record| record.seq);
    let in_runs = match view.has_runs() {
        true => view.newest_in_runs(key, above, LSN_MAX, blocks)?.map(|found| found.seq),
        false => None,
    };
    let version = match in_runs.or(in_memory.map(|record| record.seq)) {
        Some(seq) => Some(seq),
        None => view.version.get(key, LSN_MAX, blocks)?.map(|found| found.seq),
    };
    let Some(ranges) = view.range_tombstones() else { return Ok(version) };
    let over = Some(ranges.newest_over(key, LSN_MAX)?).filter(|seq| *seq > 0);
    Ok(version.max(over))
}

/// A key of `range` with a version above `since`, and the version's LSN. A range tombstone counts
/// as a version. The range is walked up to that key. The caller holds an epoch guard.
pub(crate) fn changed(
    view: &View,
    cache: &std::sync::Arc<BlockCache>,
    range: &KeyRange,
    since: Lsn,
) -> Result<Option<(Vec<u8>, Lsn)>> {
    if let Some(ranges) = view.range_tombstones()
        && let Some(interval) = range.interval()
        && let Some(newer) = ranges.newer_in(&interval, since)?
    {
        return Ok(Some(newer));
    }
    let mut cursor = view.cursor(cache, &ReadAhead::for_user());
    cursor.seek(range.start(), LSN_MAX)?;
    while let Some(entry) = cursor.entry().filter(|entry| range.below_upper(entry.key)) {
        if entry.seq > since && range.above_lower(entry.key) {
            return Ok(Some((entry.key.to_vec(), entry.seq)));
        }
        cursor.next()?;
    }
    Ok(None)
}
