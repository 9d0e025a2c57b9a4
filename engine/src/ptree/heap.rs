//! Byte strings of any length in persistent memory: entries of trees, and the bounds of nodes that
//! do not fit a word.
//!
//! An entry takes an object of the smallest of sixteen or so sizes that holds it, from a pool for
//! each. Like nodes they are taken without a log. An entry is durable with its pool entry before
//! the owner links it, and a scan finds what a cut leaves in between.
//!
//! Thread safety: every method takes `&self`. An entry is never written after it was linked, and
//! its memory is used again only when every epoch has ended that began before it was released.

use std::sync::Arc;

use super::node_writer::NodeWriter;
use crate::alloc::{ObjectPool, Segments};
use crate::error::{Error, Result};
use crate::memtable::Records;
use crate::mvcc::defer;
use crate::pm::{LINE, Region};
use crate::record::{Lsn, put_u32, put_u64};

/// Bytes before an entry's key: lengths of key and value, sequence number.
const HEADER: u64 = 16;

/// Entries in a region, by offset.
#[derive(Clone, Debug)]
pub(crate) struct Heap {
    region: Arc<Region>,
    /// By size, the smallest first.
    pools: Arc<[(u32, ObjectPool)]>,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Lsn,
    pub(crate) value: &'a [u8],
}

/// The sizes of objects: 1, 2, 3, 4, 6, 8, 12… lines, as far as two fit in a segment.
fn sizes(segment: u64) -> impl Iterator<Item = u32> {
    let most = (segment - 4 * LINE) / 2;
    let sizes = (0..).flat_map(|n: u32| [LINE << n, (LINE << n) / 2 * 3]);
    // One line and a half is none.
    let sizes = sizes.filter(|size| size.is_multiple_of(LINE));
    sizes.take_while(move |size| *size <= most).map(|size| size as u32)
}

impl Heap {
    /// The heap in a region's segments, whose pools are numbered from `first` on.
    pub(crate) fn open(region: &Arc<Region>, segments: &Arc<dyn Segments>, first: u32) -> Heap {
        let open = |(number, size)| (size, ObjectPool::open(region, segments, number, size));
        let pools = (first..).zip(sizes(segments.len())).map(open).collect();
        Heap { region: Arc::clone(region), pools }
    }

    /// How many bytes of key and value an entry may have.
    pub(crate) fn most(&self) -> u64 {
        self.pools.last().map_or(0, |(size, _)| u64::from(*size)) - HEADER
    }

    /// The pool of entries with so many bytes of key and value.
    fn pool(&self, len: u64) -> Option<&ObjectPool> {
        let fits = |(size, _): &&(u32, ObjectPool)| HEADER + len <= u64::from(*size);
        self.pools.iter().find(fits).map(|(_, pool)| pool)
    }

    /// Writes an entry, to be made durable by the writer. The caller links it after that.
    ///
    /// # Errors
    ///
    /// `Invalid` when it is too long, `Full`.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn write(&self, writer: &mut NodeWriter<'_>, entry: Stored<'_>) -> Result<u64> {
        let len = entry.key.len() as u64 + entry.value.len() as u64;
        let pool = self.pool(len).ok_or_else(|| {
            Error::invalid(format!(
                "an entry of {len} bytes is too long for this tree: key and value have {} together",
                self.most()
            ))
        })?;
        let mut bytes = Vec::with_capacity((HEADER + len) as usize);
        put_u32(&mut bytes, entry.key.len() as u32);
        put_u32(&mut bytes, entry.value.len() as u32);
        put_u64(&mut bytes, entry.seq);
        bytes.extend_from_slice(entry.key);
        bytes.extend_from_slice(entry.value);
        let at = pool.get()?;
        let taken = pool.commit(at)?;
        writer.also(taken);
        writer.also(self.region.write(at, &bytes));
        Ok(at)
    }

    /// The entry at an offset that a tree holds. The caller has pinned an epoch, or owns the tree.
    pub(crate) fn read(&self, at: u64) -> Stored<'_> {
        let lens = self.region.word(at);
        let (key_len, value_len) = (lens & u64::from(u32::MAX), lens >> 32);
        debug_assert!(key_len + value_len <= self.most(), "offset {at} holds an entry");
        let bytes = self.region.bytes(at + HEADER, key_len + value_len);
        let (key, value) = bytes.split_at(key_len as usize);
        Stored { key, seq: self.region.word(at + 8), value }
    }

    /// Frees an entry that nothing on the media refers to any more. On the media it is free at
    /// once; other threads get it when no reader can see it any more.
    ///
    /// # Errors
    ///
    /// As [`ObjectPool::free`].
    pub(crate) fn release(&self, at: u64) -> Result<()> {
        let entry = self.read(at);
        let len = entry.key.len() as u64 + entry.value.len() as u64;
        let Some(pool) = self.pool(len) else { unreachable!("it was written here") };
        pool.free(at)?;
        let pools = Arc::clone(&self.pools);
        defer(move || {
            let fits = |(size, _): &&(u32, ObjectPool)| HEADER + len <= u64::from(*size);
            if let Some((_, pool)) = pools.iter().find(fits) {
                pool.put_back(at);
            }
        });
        Ok(())
    }

    /// Releases every entry that `is_reached` does not know; how many. No other thread may use the
    /// heap meanwhile.
    ///
    /// # Errors
    ///
    /// As [`ObjectPool::scan`].
    pub(crate) fn scan(&self, is_reached: impl Fn(u64) -> bool) -> Result<u64> {
        let mut leaked = 0;
        for (_, pool) in &*self.pools {
            leaked += pool.scan(&is_reached)?.leaked;
        }
        Ok(leaked)
    }

    /// How many bytes the pools' segments take.
    pub(crate) fn bytes(&self) -> u64 {
        self.pools.iter().map(|(_, pool)| pool.bytes()).sum()
    }
}

/// The entries of a tree of byte strings are its records.
impl Records for Heap {
    fn locate(&self, at: u64) -> (&[u8], Lsn) {
        let Stored { key, seq, .. } = self.read(at);
        (key, seq)
    }

    fn prefetch(&self, at: u64) {
        self.region.prefetch(at);
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
