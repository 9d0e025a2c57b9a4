//! Several keys at once. What they need of objects is asked for side by side, so that all of them
//! wait about as long as one.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{AsOf, get};
use crate::error::Result;
use crate::extent::{BlockCache, ComingPart, LookUpStep, MissingPart};
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

/// The values of several keys at a moment, in the order of the keys.
pub(crate) fn get_many<K: AsRef<[u8]>>(
    view: PinnedView<'_>,
    keys: &[K],
    as_of: AsOf,
) -> Result<Vec<Option<Bytes>>> {
    let mut values = Vec::with_capacity(keys.len());
    for some in side_by_side(keys, view.blocks.cache()) {
        fetch(view, some, as_of.lsn)?;
        for key in some {
            values.push(get(view, key.as_ref(), as_of)?);
        }
    }
    Ok(values)
}

/// As many keys at a time as may ask side by side.
pub(crate) fn side_by_side<'a, K>(
    keys: &'a [K],
    cache: &BlockCache,
) -> impl Iterator<Item = &'a [K]> + use<'a, K> {
    let most = usize::try_from(cache.capacity() / SHARE / BLOCK).unwrap_or(MOST);
    keys.chunks(most.clamp(1, MOST))
}

/// Brings to this machine what look-ups of these keys need of objects.
pub(crate) fn fetch<K: AsRef<[u8]>>(view: PinnedView<'_>, keys: &[K], at: Lsn) -> Result<()> {
    if keys.len() < 2 || !view.version.has_objects() {
        return Ok(());
    }
    let mut rest: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    for _ in 0..ROUNDS {
        let mut missing: BTreeMap<(u64, Option<usize>), MissingPart> = BTreeMap::new();
        let mut asking = Vec::new();
        for key in rest {
            if let LookUpStep::Asks(part) = step(view, key, at)? {
                missing.insert(part.place(), part);
                asking.push(key);
            }
        }
        if missing.is_empty() {
            break;
        }
        let coming = missing.into_values().map(MissingPart::ask).collect::<Result<Vec<_>>>()?;
        coming.into_iter().try_for_each(|part: ComingPart| part.keep(view.blocks.cache()))?;
        rest = asking;
    }
    Ok(())
}

/// The step that a look-up takes next.
fn step(PinnedView { view, blocks }: PinnedView<'_>, key: &[u8], at: Lsn) -> Result<LookUpStep> {
    let is_in_memory = view.active.get(key, at).is_some()
        || view.frozen.iter().any(|frozen| frozen.memtable.get(key, at).is_some())
        || view.level0.get(key, at, &view.version.drained)?.is_some();
    if is_in_memory {
        return Ok(LookUpStep::Ends);
    }
    view.version.step(key, at, blocks)
}
