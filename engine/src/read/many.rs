//! Several keys at once. What they need of objects is asked for side by side, so that all of them
//! wait about as long as one.
//!
//! A key alone goes on to the next level once it knows that a block lacks it. Of several keys there
//! is nearly always one that a filter sent to a block in vain, and all would wait for its next one.
//! So each asks at once for the blocks of all levels that may have it.

use std::collections::{BTreeMap, BTreeSet};

use super::{AsOf, Lookups, find};
use crate::error::Result;
use crate::extent::{BlockCache, ComingPart, MissingPart};
use crate::levels::MAX_LEVELS;
use crate::record::Lsn;
use crate::view::PinnedView;

/// So many look-ups ask side by side at most.
const MOST: usize = 256;

/// Blocks of look-ups that ask side by side take one part in so many of the cache, so that none is
/// evicted before it is read.
const SHARE: u64 = 4;

/// About the bytes of a block.
const BLOCK: u64 = 32 * 1024;

/// A look-up asks for an end and a block in a level, seldom in more than one level.
const ROUNDS: usize = 2 * MAX_LEVELS as usize;

/// What look-ups of several keys at a moment find, in the order of the keys.
pub(crate) fn find_many<K: AsRef<[u8]>>(
    view: PinnedView<'_>,
    keys: &[K],
    as_of: AsOf,
) -> Result<Lookups> {
    let mut found = Lookups::with_capacity(keys.len());
    keys.iter().try_for_each(|key| {
        found.add(find(view, key.as_ref(), as_of)?);
        Ok(())
    })?;
    Ok(found)
}

/// What `read` makes of a view; `None` if it may need something of objects.
pub(crate) fn near<T>(view: PinnedView<'_>, read: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    if view.is_far { Ok(None) } else { read().map(Some) }
}

/// As many keys at a time as may ask side by side.
pub(crate) fn side_by_side<'a, K>(
    keys: &'a [K],
    cache: &BlockCache,
) -> impl Iterator<Item = &'a [K]> + use<'a, K> {
    let most = usize::try_from(cache.capacity() / SHARE / BLOCK).unwrap_or(MOST);
    keys.chunks(most.clamp(1, MOST))
}

/// What look-ups lack on this machine, each part once.
#[derive(Debug, Default)]
pub(crate) struct MissingParts(BTreeMap<(u64, Option<usize>), MissingPart>);

/// Brings what look-ups lack, in rounds, as `missing` says it. What found no room in the cache is
/// not asked for again: its look-up reads it by itself.
///
/// # Errors
///
/// Those of `missing`; `Corrupt` if an object is lost or damaged; `Unavailable` if the store does
/// not answer.
pub(crate) fn bring(cache: &BlockCache, missing: impl Fn() -> Result<MissingParts>) -> Result<()> {
    let mut asked = BTreeSet::new();
    for _ in 0..ROUNDS {
        let mut missing = missing()?;
        missing.0.retain(|place, _| asked.insert(*place));
        if missing.0.is_empty() {
            break;
        }
        let parts = missing.0.into_values();
        let coming = parts.map(MissingPart::ask).collect::<Result<Vec<_>>>()?;
        coming.into_iter().try_for_each(|part: ComingPart| part.keep(cache))?;
    }
    Ok(())
}

/// What look-ups of these keys ask for next.
pub(crate) fn missing<K: AsRef<[u8]>>(
    view: PinnedView<'_>,
    keys: &[K],
    at: Lsn,
) -> Result<MissingParts> {
    let mut missing = MissingParts::default();
    if !view.is_far {
        return Ok(missing);
    }
    for key in keys.iter().map(AsRef::as_ref) {
        if !is_in_memory(view, key, at)? {
            let ask = |part: MissingPart| drop(missing.0.insert(part.place(), part));
            view.version.ask(key, at, (view.blocks, keys.len() > 1), ask)?;
        }
    }
    Ok(missing)
}

/// Whether memory has what a look-up finds.
fn is_in_memory(PinnedView { view, .. }: PinnedView<'_>, key: &[u8], at: Lsn) -> Result<bool> {
    Ok(view.active.get(key, at).is_some()
        || view.frozen.iter().any(|frozen| frozen.memtable.get(key, at).is_some())
        || view.level0.get(key, at, &view.version.drained)?.is_some())
}
