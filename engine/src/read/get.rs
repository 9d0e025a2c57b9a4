//! One key.

use bytes::Bytes;

use crate::error::Result;
use crate::extent::BlockCache;
use crate::record::{Kind, Lsn};
use crate::view::View;

/// The value of `key` as of `at`, from the newest place that knows of it (view invariant 1); the
/// newest run is held against what is in memory. The caller holds an epoch guard.
pub(crate) fn get(view: &View, cache: &BlockCache, key: &[u8], at: Lsn) -> Result<Option<Bytes>> {
    let in_memory = view
        .active
        .get(key, at)
        .or_else(|| view.frozen.iter().find_map(|f| f.memtable.get(key, at)));
    let in_memory = match in_memory {
        None => view.level0.get(key, at, &view.version.drained)?,
        found => found,
    };
    if view.has_runs() {
        let above = in_memory.as_ref().map_or(0, |record| record.seq);
        if let Some(found) = view.newest_in_runs(key, above, at, cache)? {
            let shown = found.kind == Kind::Put && !is_hidden(view, key, found.seq, at)?;
            return Ok(shown.then_some(found.value));
        }
    }
    if let Some(record) = in_memory {
        let shown = record.kind == Kind::Put && !is_hidden(view, key, record.seq, at)?;
        return Ok(shown.then(|| Bytes::copy_from_slice(record.value)));
    }
    match view.version.get(key, at, cache)? {
        Some(found) if found.kind == Kind::Put => {
            Ok((!is_hidden(view, key, found.seq, at)?).then_some(found.value))
        }
        _ => Ok(None),
    }
}

/// Whether a range tombstone hides the version `seq` of `key` from a read at `at`.
fn is_hidden(view: &View, key: &[u8], seq: Lsn, at: Lsn) -> Result<bool> {
    match view.range_tombstones() {
        Some(ranges) => Ok(ranges.newest_over(key, at)? > seq),
        None => Ok(false),
    }
}
