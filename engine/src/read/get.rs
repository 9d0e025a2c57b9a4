//! One key.

use bytes::Bytes;

use crate::error::Result;
use crate::extent::{BlockCache, Found};
use crate::read::AsOf;
use crate::record::{Kind, Lsn};
use crate::view::View;

/// The value of `key` at a moment. The caller holds an epoch guard.
pub(crate) fn get(
    view: &View,
    cache: &BlockCache,
    key: &[u8],
    as_of: AsOf,
) -> Result<Option<Bytes>> {
    look_up(view, cache, (key, as_of), Bytes::copy_from_slice, Found::into_value)
}

/// Whether `key` has a value at a moment. A value that lies apart is not read. The caller holds an
/// epoch guard.
pub(crate) fn contains(view: &View, cache: &BlockCache, key: &[u8], as_of: AsOf) -> Result<bool> {
    let found = look_up(view, cache, (key, as_of), |_| (), |_| Ok(()))?;
    Ok(found.is_some())
}

/// What is wanted of the value of a key, from memory or from disk. The newest place that has a
/// version of the key decides (view invariant 1). The newest run is compared with what is in
/// memory.
fn look_up<T>(
    view: &View,
    cache: &BlockCache,
    (key, as_of): (&[u8], AsOf),
    from_memory: impl FnOnce(&[u8]) -> T,
    from_disk: impl FnOnce(Found) -> Result<T>,
) -> Result<Option<T>> {
    let at = as_of.lsn;
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
            let shown = found.kind == Kind::Put && !is_hidden(view, key, found.seq, as_of)?;
            return shown.then(|| from_disk(found)).transpose();
        }
    }
    if let Some(record) = in_memory {
        let shown = record.kind == Kind::Put && !is_hidden(view, key, record.seq, as_of)?;
        return Ok(shown.then(|| from_memory(record.value)));
    }
    match view.version.get(key, at, cache)? {
        Some(found) if found.kind == Kind::Put => {
            let shown = !is_hidden(view, key, found.seq, as_of)?;
            shown.then(|| from_disk(found)).transpose()
        }
        _ => Ok(None),
    }
}

/// Whether the version `seq` of `key`, the newest one, has expired or lies under a range tombstone.
fn is_hidden(view: &View, key: &[u8], seq: Lsn, as_of: AsOf) -> Result<bool> {
    if seq <= as_of.expired {
        return Ok(true);
    }
    match view.range_tombstones() {
        Some(ranges) => Ok(ranges.newest_over(key, as_of.lsn)? > seq),
        None => Ok(false),
    }
}
