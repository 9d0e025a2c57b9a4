//! Several keys at once. What they need of objects is asked for side by side, so that all of them
//! wait about as long as one.
//!
//! A key alone goes on to the next level once it knows that a block lacks it. Of several keys there
//! is nearly always one that a filter sent to a block in vain, and all would wait for its next one.
//! So each asks at once for the blocks of all levels that may have it.

use std::collections::{BTreeMap, BTreeSet};

use super::{AsOf, Lookups, find};
use crate::error::Result;
use crate::extent::{BlockCache, Brought, ComingPart, MissingPart};
use crate::levels::MAX_LEVELS;
use crate::record::Lsn;
use crate::view::PinnedView;

/// So many look-ups ask side by side at most.
const MOST: usize = 256;

/// Blocks of look-ups that ask side by side take one part in so many of the cache, so that none is
/// evicted before it is read.
const SHARE: u64 = 4;

/// A look-up asks for an end and a block in a level, seldom in more than one level.
const ROUNDS: usize = 2 * MAX_LEVELS as usize;

/// What look-ups of several keys at a moment find, in the order of the keys.
pub(crate) fn find_many<K: AsRef<[u8]>>(
    view: PinnedView<'_>,
    keys: &[K],
    as_of: AsOf,
) -> Result<Lookups> {
    let mut found = Lookups::with_capacity(keys.len());
    for key in keys {
        found.add(find(view, key.as_ref(), as_of)?);
    }
    Ok(found)
}

/// What `read` makes of a view; `None` if it may need something of objects.
pub(crate) fn near<T>(view: PinnedView<'_>, read: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    if view.is_far { Ok(None) } else { read().map(Some) }
}

/// Keys of which all is asked for before the first of them is looked up.
pub(crate) fn together<K>(keys: &[K]) -> impl Iterator<Item = &[K]> {
    keys.chunks(MOST)
}

/// As many keys at a time as have room in the cache for their blocks, which have so many bytes.
pub(crate) fn side_by_side<'a, K>(
    keys: &'a [K],
    (cache, block_size): (&BlockCache, u32),
) -> impl Iterator<Item = &'a [K]> + use<'a, K> {
    let most = cache.capacity() / SHARE / u64::from(block_size.max(1));
    let most = usize::try_from(most).unwrap_or(MOST);
    keys.chunks(most.clamp(1, MOST))
}

/// What look-ups lack on this machine, each part once.
#[derive(Debug, Default)]
pub(crate) struct MissingParts(BTreeMap<(u64, Option<usize>), MissingPart>);

/// What was asked for on behalf of keys that are looked up later.
#[derive(Debug, Default)]
pub(crate) struct AskedParts(BTreeMap<(u64, Option<usize>), ComingPart>);

/// Asks for what look-ups lack, as far as it may be held until they come to it: what has no room
/// in the cache together is on its way together.
///
/// # Errors
///
/// As [`bring`].
pub(crate) fn ask_ahead(cache: &BlockCache, missing: MissingParts) -> Result<AskedParts> {
    let mut asked = AskedParts::default();
    for (place, part) in missing.0 {
        let Some(coming) = part.ask_ahead(cache)? else { break };
        asked.0.insert(place, coming);
    }
    Ok(asked)
}

/// Brings what look-ups lack, in rounds, as `missing` says it, beside what was asked for before.
/// What the cache has no room for is held for the look-ups too, and not asked for again.
///
/// # Errors
///
/// Those of `missing`; `Corrupt` if an object is lost or damaged; `Unavailable` if the store does
/// not answer.
pub(crate) fn bring(
    cache: &BlockCache,
    before: &mut AskedParts,
    missing: impl Fn() -> Result<MissingParts>,
) -> Result<Brought> {
    let (mut asked, mut brought) = (BTreeSet::new(), Brought::default());
    for _ in 0..ROUNDS {
        let mut missing = missing()?;
        missing.0.retain(|place, _| asked.insert(*place));
        if missing.0.is_empty() {
            break;
        }
        let ask = |(place, part): (_, MissingPart)| match before.0.remove(&place) {
            Some(coming) => Ok(coming),
            None => part.ask(),
        };
        let coming = missing.0.into_iter().map(ask).collect::<Result<Vec<_>>>()?;
        coming.into_iter().try_for_each(|part: ComingPart| part.keep(cache, &mut brought))?;
    }
    Ok(brought)
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
    let ranges = view.range_tombstones();
    for key in keys.iter().map(AsRef::as_ref) {
        let mut ask = |part: MissingPart| drop(missing.0.insert(part.place(), part));
        let in_memory = view.newest_in_memory(key, at)?.map(|record| record.seq);
        if in_memory.is_none() {
            view.version.ask(key, at, (view.blocks, keys.len() > 1), &mut ask)?;
        }
        // A range tombstone in an object may hide what is found, wherever that is.
        let over = ranges.iter().flat_map(|r| r.missing_over(key, in_memory.unwrap_or(0)));
        over.for_each(&mut ask);
    }
    Ok(missing)
}
