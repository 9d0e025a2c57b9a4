//! What has changed since a moment: how transactions see that they came too late.

use crate::error::Result;
use crate::extent::BlockCache;
use crate::read::KeyRange;
use crate::record::{Cursor, LSN_MAX, Lsn};
use crate::view::View;

/// The LSN of the newest version of `key`, be it a deletion. One that nobody needs may be gone; of
/// those above a registered snapshot none is. The caller holds an epoch guard.
pub(crate) fn newest(view: &View, cache: &BlockCache, key: &[u8]) -> Result<Option<Lsn>> {
    let in_memory = view
        .active
        .get(key, LSN_MAX)
        .or_else(|| view.frozen.iter().find_map(|f| f.memtable.get(key, LSN_MAX)))
        .or_else(|| view.level0.get(key, LSN_MAX, &view.version.drained));
    if view.has_runs() {
        let above = in_memory.as_ref().map_or(0, |record| record.seq);
        if let Some(found) = view.newest_in_runs(key, above, LSN_MAX, cache)? {
            return Ok(Some(found.seq));
        }
    }
    if let Some(record) = in_memory {
        return Ok(Some(record.seq));
    }
    Ok(view.version.get(key, LSN_MAX, cache)?.map(|found| found.seq))
}

/// A key of `range` that has a version above `since`, with its LSN. Walks the range up to there.
/// The caller holds an epoch guard.
pub(crate) fn changed(
    view: &View,
    cache: &std::sync::Arc<BlockCache>,
    range: &KeyRange,
    since: Lsn,
) -> Result<Option<(Vec<u8>, Lsn)>> {
    let mut cursor = view.cursor(cache);
    cursor.seek(range.start(), LSN_MAX)?;
    while let Some(entry) = cursor.entry().filter(|entry| range.below_upper(entry.key)) {
        if entry.seq > since && range.above_lower(entry.key) {
            return Ok(Some((entry.key.to_vec(), entry.seq)));
        }
        cursor.next()?;
    }
    Ok(None)
}
