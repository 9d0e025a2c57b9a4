//! Several keys at once. What they need of objects is asked for side by side, so that all of them
//! wait about as long as one.
//!
//! A key alone goes on to the next level once it knows that a block lacks it. Of several keys there
//! is nearly always one that a filter sent to a block in vain, and all would wait for its next one.
//! So each asks at once for the blocks of all levels that may have it.
//!
//! Values that lie apart from their keys, of several rows at a time. Those that are near each other
//! are read at once. Those in objects are asked for side by side, so all of them wait about as long
//! as one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::get::Lookup;
use super::{AsOf, find};
use crate::base::error::Result;
use crate::base::record::{ComingValues, Lsn, Reference, SeparatedValue};
use crate::memtable::Record;
use crate::read::view::PinnedView;
use crate::sstable::{BlockCache, ComingPart, Fetched, MissingPart};
use crate::version::MAX_LEVELS;

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
pub(crate) fn local<T>(
    view: PinnedView<'_>,
    read: impl FnOnce() -> Result<T>,
) -> Result<Option<T>> {
    if view.is_remote { Ok(None) } else { read().map(Some) }
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
pub(crate) fn fetch(
    cache: &BlockCache,
    before: &mut AskedParts,
    missing: impl Fn() -> Result<MissingParts>,
) -> Result<Fetched> {
    let (mut asked, mut brought) = (BTreeSet::new(), Fetched::default());
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

/// What look-ups of these keys ask for next, if they read only extents with records above `since`.
pub(crate) fn missing<K: AsRef<[u8]>>(
    view: PinnedView<'_>,
    keys: &[K],
    (since, at): (Lsn, Lsn),
) -> Result<MissingParts> {
    let mut missing = MissingParts::default();
    if !view.is_remote {
        return Ok(missing);
    }
    let ranges = view.range_tombstones();
    for key in keys.iter().map(AsRef::as_ref) {
        let mut ask = |part: MissingPart| drop(missing.0.insert(part.place(), part));
        let mut version = view.newest_in_memory(key, at)?;
        // Operands go on with what is older, which only its value needs.
        let is_open = |record: &&Record<'_>| since == 0 && record.entry().is_open_merge();
        while let Some(open) = version.as_ref().filter(is_open) {
            version = view.newest_in_memory(key, open.seq - 1)?;
        }
        if version.is_none() {
            view.version.ask(key, (since, at), (view.blocks, keys.len() > 1), &mut ask)?;
        }
        // A range tombstone in an object may hide what is found, wherever that is: also what
        // operands go on with.
        let found = version.map_or(0, |record| record.seq);
        let over = ranges.iter().flat_map(|r| r.missing_over(key, found.max(since)));
        over.for_each(&mut ask);
    }
    Ok(missing)
}

/// So many requests are under way at most,
const MOST_VALUES: usize = 256;

/// and about so many bytes, so that the caller's memory does not depend on how many values there
/// are beside those that it takes.
const MOST_BYTES: u64 = 32 << 20;

/// Sorts values by their places, reads them in this order, and gives each to `take` with the
/// caller's number for it.
pub(super) fn read_separated(
    values: &mut [(usize, SeparatedValue)],
    take: impl FnMut(usize, Bytes),
) -> Result<()> {
    values.sort_unstable_by_key(|(_, value)| (value.at.extent, value.at.offset));
    let mut under_way = ValuesUnderWay { asked: VecDeque::new(), bytes: 0, take };
    for of_one in values.chunk_by(|(_, a), (_, b)| a.at.extent == b.at.extent) {
        let places: Vec<Reference> = of_one.iter().map(|(_, value)| value.at).collect();
        let mut from = 0;
        while from < places.len() {
            let (count, coming) = of_one[from].1.from.clone().ask_values(&places[from..])?;
            debug_assert!(count > 0, "the first place is near itself");
            let to = from + count.max(1);
            under_way.add(&of_one[from..to], coming)?;
            from = to;
        }
    }
    under_way.wait_until(0, 0)
}

/// Values that are asked for together.
struct AskedValues {
    numbers: Vec<usize>,
    bytes: u64,
    coming: ComingValues,
}

/// What was asked for and is not here, the oldest first.
struct ValuesUnderWay<F> {
    asked: VecDeque<AskedValues>,
    bytes: u64,
    take: F,
}

impl<F: FnMut(usize, Bytes)> ValuesUnderWay<F> {
    fn add(&mut self, values: &[(usize, SeparatedValue)], coming: ComingValues) -> Result<()> {
        let numbers = values.iter().map(|(number, _)| *number).collect();
        let bytes = values.iter().map(|(_, value)| u64::from(value.at.len)).sum();
        self.bytes += bytes;
        self.asked.push_back(AskedValues { numbers, bytes, coming });
        self.wait_until(MOST_VALUES, MOST_BYTES)
    }

    /// Waits for the oldest until no more is under way than this.
    fn wait_until(&mut self, requests: usize, bytes: u64) -> Result<()> {
        while self.asked.len() > requests || self.bytes > bytes {
            let Some(oldest) = self.asked.pop_front() else { break };
            self.bytes -= oldest.bytes;
            let values = (oldest.coming)()?;
            debug_assert_eq!(values.len(), oldest.numbers.len(), "each place has a value");
            oldest.numbers.into_iter().zip(values).for_each(|(n, value)| (self.take)(n, value));
        }
        Ok(())
    }
}

/// What look-ups of several keys found, in the order of the keys.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// Without those that lie apart.
    values: Vec<Option<Bytes>>,
    /// Those, with their numbers.
    apart: Vec<(usize, SeparatedValue)>,
    /// Operands over a value that lies apart, with their numbers.
    merges: Vec<(usize, super::get::PendingMerge)>,
}

impl Lookups {
    /// For so many keys.
    pub(crate) fn with_capacity(keys: usize) -> Lookups {
        Lookups { values: Vec::with_capacity(keys), ..Lookups::default() }
    }

    /// The look-up of the next key.
    pub(crate) fn add(&mut self, found: Option<Lookup>) {
        let number = self.values.len();
        let (value, apart) = match found {
            None => (None, None),
            Some(Lookup::Here(value)) => (Some(value), None),
            Some(Lookup::Apart(value)) => (None, Some(value)),
            Some(Lookup::Over(value, operands)) => {
                self.merges.push((number, operands));
                (None, Some(value))
            }
        };
        self.values.push(value);
        self.apart.extend(apart.map(|value| (number, value)));
    }

    /// The values. Those that lie apart are read now.
    pub(crate) fn into_values(mut self) -> Result<Vec<Option<Bytes>>> {
        let values = &mut self.values;
        read_separated(&mut self.apart, |number, value| values[number] = Some(value))?;
        for (number, operands) in self.merges {
            debug_assert!(values[number].is_some(), "what lies below was read");
            values[number] = Some(operands.over(values[number].as_deref())?);
        }
        Ok(self.values)
    }
}
