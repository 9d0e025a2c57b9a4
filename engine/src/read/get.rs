//! One key.

use bytes::Bytes;

use crate::error::Result;
use crate::extent::{BlockCache, Found};
use crate::read::AsOf;
use crate::record::{Kind, Lsn};
use crate::view::View;

/// What a look-up makes of the version that it finds.
trait Wanted {
    type Made;

    /// Of a value in memory.
    fn of_memory(self, value: &[u8]) -> Self::Made;

    /// Of a value on disk.
    fn of_disk(self, found: Found) -> Result<Self::Made>;
}

/// A copy of the value, or a share of the block that has it.
struct OwnedValue;

impl Wanted for OwnedValue {
    type Made = Bytes;

    fn of_memory(self, value: &[u8]) -> Bytes {
        Bytes::copy_from_slice(value)
    }

    fn of_disk(self, found: Found) -> Result<Bytes> {
        found.into_value()
    }
}

/// Nothing but that there is one.
struct OnlyPresence;

impl Wanted for OnlyPresence {
    type Made = ();

    fn of_memory(self, _value: &[u8]) {}

    fn of_disk(self, _found: Found) -> Result<()> {
        Ok(())
    }
}

/// What a closure makes of the value.
struct LentValue<F>(F);

impl<T, F: FnOnce(&[u8]) -> T> Wanted for LentValue<F> {
    type Made = T;

    fn of_memory(self, value: &[u8]) -> T {
        self.0(value)
    }

    fn of_disk(self, found: Found) -> Result<T> {
        found.lend(self.0)
    }
}

/// The value of `key` at a moment. The caller holds an epoch guard.
pub(crate) fn get(
    view: &View,
    cache: &BlockCache,
    key: &[u8],
    as_of: AsOf,
) -> Result<Option<Bytes>> {
    look_up(view, cache, (key, as_of), OwnedValue)
}

/// What `f` makes of the value of `key` at a moment. It runs once at most, under the epoch guard
/// that the caller holds, and is lent the bytes where they lie.
pub(crate) fn lend<T>(
    view: &View,
    cache: &BlockCache,
    at: (&[u8], AsOf),
    f: impl FnOnce(&[u8]) -> T,
) -> Result<Option<T>> {
    look_up(view, cache, at, LentValue(f))
}

/// Whether `key` has a value at a moment. A value that lies apart is not read. The caller holds an
/// epoch guard.
pub(crate) fn contains(view: &View, cache: &BlockCache, key: &[u8], as_of: AsOf) -> Result<bool> {
    Ok(look_up(view, cache, (key, as_of), OnlyPresence)?.is_some())
}

/// What is wanted of the value of a key, from memory or from disk. The newest place that has a
/// version of the key decides (view invariant 1). The newest run is compared with what is in
/// memory.
fn look_up<W: Wanted>(
    view: &View,
    cache: &BlockCache,
    (key, as_of): (&[u8], AsOf),
    wanted: W,
) -> Result<Option<W::Made>> {
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
            return shown.then(|| wanted.of_disk(found)).transpose();
        }
    }
    if let Some(record) = in_memory {
        let shown = record.kind == Kind::Put && !is_hidden(view, key, record.seq, as_of)?;
        return Ok(shown.then(|| wanted.of_memory(record.value)));
    }
    match view.version.get(key, at, cache)? {
        Some(found) if found.kind == Kind::Put => {
            let shown = !is_hidden(view, key, found.seq, as_of)?;
            shown.then(|| wanted.of_disk(found)).transpose()
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
