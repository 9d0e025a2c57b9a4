//! One key.

use bytes::Bytes;

use crate::error::Result;
use crate::extent::BlockCache;
use crate::memtable::Record;
use crate::record::{Kind, Lsn};
use crate::view::View;

/// The value of `key` as of `at`, from the newest place that knows of it (view invariant 1); the
/// newest run is held against what is in memory. The caller holds an epoch guard.
pub(crate) fn get(view: &View, cache: &BlockCache, key: &[u8], at: Lsn) -> Result<Option<Bytes>> {
    let in_memory = view
        .active
        .get(key, at)
        .or_else(|| view.frozen.iter().find_map(|f| f.memtable.get(key, at)))
        .or_else(|| view.level0.get(key, at, &view.version.drained));
    if view.has_runs() {
        let above = in_memory.as_ref().map_or(0, |record| record.seq);
        if let Some(found) = view.newest_in_runs(key, above, at, cache)? {
            return Ok((found.kind == Kind::Put).then_some(found.value));
        }
    }
    if let Some(record) = in_memory {
        return Ok(value_of(&record));
    }
    let found = view.version.get(key, at, cache)?;
    Ok(found.filter(|f| f.kind == Kind::Put).map(|f| f.value))
}

fn value_of(record: &Record<'_>) -> Option<Bytes> {
    (record.kind == Kind::Put).then(|| Bytes::copy_from_slice(record.value))
}
