//! Lookup and range, on a view.
//!
//! About how much lies in a range.

mod buffered;
mod get;
mod key_range;
mod many;
mod rows;
mod scan;
pub(crate) mod view;

use crate::base::error::Result;
use crate::base::record::{Cursor, LSN_MAX, Lsn};
use crate::level0::Size;
use crate::memtable::Memtable;
use crate::read::view::PinnedView;
use crate::sstable::Estimate;

pub(crate) use buffered::{BufferedCursor, clip};
pub(crate) use get::{
    LentValue, Looked, Lookup, borrow_local, contains, find, find_change, get, lend, newest_above,
};
pub use key_range::KeyBounds;
pub(crate) use key_range::KeyRange;
pub(crate) use many::{
    AskedParts, Lookups, MissingParts, ask_ahead, fetch, find_many, local, missing, side_by_side,
    together,
};
pub(crate) use rows::{Chunk, FrozenRows, Rows};
pub(crate) use scan::rows;

/// The moment as of which something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsOf {
    /// The last commit that is seen.
    pub(crate) lsn: Lsn,
    /// Everything at or below it has expired, as if it were deleted.
    pub(crate) expired: Lsn,
}

/// Records walked one by one in memory before the rest is guessed.
const WALK: u64 = 4096;

/// Estimates what `range` holds. Extents inside it count whole, and those across its ends by their
/// blocks. In memory up to a few thousand records are counted, beyond that half of all (all of
/// them, for the range of all keys). Extents that a range delete in memory hides, and those of
/// which all has expired, do not count. Versions and deletes count as records.
///
/// It reads the block index of each extent across an end, and the block there if the range has few
/// in that extent.
pub(crate) fn estimate(view: PinnedView<'_>, range: &KeyRange, as_of: AsOf) -> Result<Estimate> {
    let mut sum = Estimate::default();
    for memtable in view.frozen.iter().map(|f| &f.memtable).chain([&view.active]) {
        sum.add(in_memtable(memtable, range));
    }
    let Size { records, bytes } = view.level0.size();
    let mut cursor = view.level0.cursor(&view.version.drained);
    sum.add(walk(&mut *cursor, range, Estimate { records, bytes }));
    let Some(interval) = range.interval() else { return Ok(sum) };
    let ranges = view.range_tombstones();
    let on_disk = view.version.levels.iter().flat_map(|level| level.overlapping(&interval));
    let in_levels = on_disk.map(|extent| (extent, extent.meta().greatest_seq));
    let in_runs = view.runs().flat_map(|run| {
        run.extents.overlapping(&interval).iter().map(move |extent| (extent, run.lsn))
    });
    for (extent, newest) in in_levels.chain(in_runs) {
        let meta = extent.meta();
        let is_hidden = ranges.as_ref().is_some_and(|r| r.hide(&meta.interval(), newest));
        if is_hidden || newest <= as_of.expired {
            continue;
        }
        sum.add(extent.share_in(&interval, view.blocks)?);
    }
    Ok(sum)
}

fn in_memtable(memtable: &Memtable, range: &KeyRange) -> Estimate {
    let all = Estimate { records: memtable.records(), bytes: memtable.bytes() };
    walk(&mut memtable.cursor(), range, all)
}

fn walk(cursor: &mut dyn Cursor, range: &KeyRange, all: Estimate) -> Estimate {
    if range.is_everything() {
        return all;
    }
    let mut seen = Estimate::default();
    if cursor.seek(range.start(), LSN_MAX).is_err() {
        return seen;
    }
    while let Some(entry) = cursor.entry() {
        if !range.below_upper(entry.key) {
            return seen;
        }
        if seen.records == WALK {
            let records = seen.records.max(all.records / 2);
            return Estimate { records, bytes: seen.bytes.max(all.bytes / 2) };
        }
        seen.records += 1;
        seen.bytes += (entry.key.len() + entry.value.len()) as u64;
        if cursor.next().is_err() {
            return seen;
        }
    }
    seen
}
