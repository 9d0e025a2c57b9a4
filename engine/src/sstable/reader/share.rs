//! How much of an extent lies in an interval of keys.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Extent, Parts};
use crate::base::error::Result;
use crate::base::record::LSN_MAX;
use crate::mvcc::KeyInterval;
use crate::sstable::Blocks;
use crate::sstable::block::BlockCursor;

/// From so many whole blocks on, the blocks across the ends are not read: half of each is near
/// enough.
const EXACT_BELOW: usize = 8;

/// About how much there is: records, and bytes of their keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Estimate {
    pub(crate) fn add(&mut self, other: Estimate) {
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

impl Extent {
    /// About how much of it lies in `interval`. Blocks inside count by the bytes that they take.
    /// Of those across the ends the records are counted, if few blocks lie between them. It reads
    /// nothing for an interval that covers the extent, and nothing of an object store: what is not
    /// on this machine counts by half.
    ///
    /// # Errors
    ///
    /// As [`Extent::get`].
    pub(crate) fn share_in(
        self: &Arc<Self>,
        interval: &KeyInterval,
        blocks: Blocks<'_>,
    ) -> Result<Estimate> {
        let meta = self.meta();
        if interval.covers(&meta.interval()) {
            return Ok(Estimate { records: meta.records, bytes: meta.raw_bytes });
        }
        let half = Estimate { records: meta.records / 2, bytes: meta.raw_bytes / 2 };
        if self.missing_end().is_some() {
            return Ok(half);
        }
        let parts = self.borrowed_parts(blocks.pinned)?;
        let entries = parts.index.entries();
        let Some(from) = parts.index.find_key(&interval.start) else {
            return Ok(Estimate::default());
        };
        let to = interval.end.as_deref().and_then(|end| parts.index.find_key(end));
        let to = to.unwrap_or(entries.len() - 1);
        let cuts_first = interval.start > meta.smallest_key;
        // An end behind the last key cuts no block.
        let cuts_last = interval.end.as_deref().is_some_and(|end| end <= parts.index.last_key(to));
        let mut across = SmallVec::<[usize; 2]>::new();
        across.extend(cuts_first.then_some(from));
        across.extend((cuts_last && !(cuts_first && from == to)).then_some(to));
        let len = |n: &usize| u64::from(entries[*n].len);
        let whole = (from..=to).filter(|n| !across.contains(n));
        let (count, inside) = (whole.clone().count(), whole.map(|n| len(&n)).sum::<u64>());
        let all = u128::from(parts.index.blocks_end()).max(1);
        let share = |of: u64, part: u64| (u128::from(of) * u128::from(part) / all) as u64;
        let of_bytes = |part: u64| Estimate {
            records: share(meta.records, part),
            bytes: share(meta.raw_bytes, part),
        };
        if count >= EXACT_BELOW {
            return Ok(of_bytes(inside + across.iter().map(len).sum::<u64>() / 2));
        }
        let mut sum = of_bytes(inside);
        for n in across {
            sum.add(match self.has_at_hand(&parts, n, blocks.cache) {
                true => self.count_in(&parts, n, interval, blocks)?,
                false => of_bytes(len(&n) / 2),
            });
        }
        Ok(sum)
    }

    /// What block `n` has in `interval`.
    fn count_in(
        &self,
        parts: &Parts,
        n: usize,
        interval: &KeyInterval,
        blocks: Blocks<'_>,
    ) -> Result<Estimate> {
        let block = self.block(parts, n, blocks)?;
        let mut cursor = BlockCursor::new(&**block);
        let mut sum = Estimate::default();
        let mut step = cursor.seek(&interval.start, LSN_MAX);
        loop {
            step.map_err(|_| self.bad_entry(parts, n))?;
            let Some(entry) = cursor.entry().filter(|entry| interval.ends_after(entry.key)) else {
                return Ok(sum);
            };
            sum.add(Estimate { records: 1, bytes: entry.raw_len() });
            step = cursor.next();
        }
    }
}
