//! The bounds of nodes that do not fit a word, in persistent memory.
//!
//! A bound takes an object of the smallest of sixteen or so sizes that holds it, from a pool for
//! each. Like nodes they are taken without a log. A bound is durable with its pool entry before a
//! node has it, and a scan finds what a cut leaves in between.
//!
//! Thread safety: every method takes `&self`. A bound is never written after it was linked, and
//! its memory is used again only when every epoch has ended that began before it was released.

use std::sync::Arc;

use super::node_writer::NodeWriter;
use crate::alloc::{ObjectPool, Segments};
use crate::error::{Error, Result};
use crate::mvcc::defer;
use crate::pm::{LINE, Region};
use crate::record::{Lsn, put_u64};

/// Bytes before a bound's key: its length, its sequence number.
const HEADER: u64 = 16;

/// The first of the heap's pools among those of a region, one for each size.
const FIRST_POOL: u32 = 2;

/// Bounds in a region, by offset.
#[derive(Debug)]
pub(crate) struct Heap {
    region: Arc<Region>,
    /// By size, the smallest first.
    pools: Arc<[(u32, ObjectPool)]>,
}

/// The sizes of objects: 1, 2, 3, 4, 6, 8, 12… lines, as far as two fit in a segment.
fn sizes(segment: u64) -> impl Iterator<Item = u32> {
    let most = (segment - 4 * LINE) / 2;
    let sizes = (0..).flat_map(|n: u32| [LINE << n, (LINE << n) / 2 * 3]);
    // One line and a half is none.
    let sizes = sizes.filter(|size| size.is_multiple_of(LINE));
    sizes.take_while(move |size| *size <= most).map(|size| size as u32)
}

/// The pool of bounds with keys of so many bytes.
fn pool_for(pools: &[(u32, ObjectPool)], len: u64) -> Option<&ObjectPool> {
    let fits = |(size, _): &&(u32, ObjectPool)| HEADER + len <= u64::from(*size);
    pools.iter().find(fits).map(|(_, pool)| pool)
}

impl Heap {
    /// The heap in a region's segments.
    pub(crate) fn open(region: &Arc<Region>, segments: &Arc<dyn Segments>) -> Heap {
        let open = |(number, size)| (size, ObjectPool::open(region, segments, number, size));
        let pools = (FIRST_POOL..).zip(sizes(segments.len())).map(open).collect();
        Heap { region: Arc::clone(region), pools }
    }

    /// Writes a bound, to be made durable by the writer. The caller links it after that.
    ///
    /// # Errors
    ///
    /// `Invalid` when it is too long, `Full`.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn write(&self, writer: &mut NodeWriter<'_>, key: &[u8], seq: Lsn) -> Result<u64> {
        let len = key.len() as u64;
        let pool = pool_for(&self.pools, len).ok_or_else(|| {
            Error::invalid(format!("a bound of {len} bytes is too long for the persistent index"))
        })?;
        let mut bytes = Vec::with_capacity((HEADER + len) as usize);
        put_u64(&mut bytes, len);
        put_u64(&mut bytes, seq);
        bytes.extend_from_slice(key);
        let at = pool.get()?;
        let taken = pool.commit(at)?;
        writer.also(taken);
        writer.also(self.region.write(at, &bytes));
        Ok(at)
    }

    /// The bound at an offset that a tree holds: key and sequence number. The caller has pinned an
    /// epoch, or owns the tree.
    pub(crate) fn read(&self, at: u64) -> (&[u8], Lsn) {
        let len = self.region.word(at);
        debug_assert!(pool_for(&self.pools, len).is_some(), "offset {at} holds a bound");
        (self.region.bytes(at + HEADER, len), self.region.word(at + 8))
    }

    /// Frees a bound that nothing on the media refers to any more. On the media it is free at
    /// once; other threads get it when no reader can see it any more.
    ///
    /// # Errors
    ///
    /// As [`ObjectPool::free`].
    pub(crate) fn release(&self, at: u64) -> Result<()> {
        let len = self.region.word(at);
        let Some(pool) = pool_for(&self.pools, len) else { unreachable!("it was written here") };
        pool.free(at)?;
        let pools = Arc::clone(&self.pools);
        defer(move || {
            if let Some(pool) = pool_for(&pools, len) {
                pool.put_back(at);
            }
        });
        Ok(())
    }

    /// Releases every bound that `is_reached` does not know; how many. No other thread may use the
    /// heap meanwhile.
    ///
    /// # Errors
    ///
    /// As [`ObjectPool::scan`].
    pub(crate) fn scan(&self, is_reached: impl Fn(u64) -> bool) -> Result<u64> {
        let scans = self.pools.iter().map(|(_, pool)| Ok(pool.scan(&is_reached)?.leaked));
        scans.sum()
    }

    /// How many bytes the pools' segments take.
    pub(crate) fn bytes(&self) -> u64 {
        self.pools.iter().map(|(_, pool)| pool.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_a_half_at_most() {
        let sizes: Vec<u32> = sizes(64 * 1024).map(|size| size / LINE as u32).collect();
        assert_eq!(sizes, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384]);
    }
}
