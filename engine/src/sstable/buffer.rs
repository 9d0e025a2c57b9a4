//! The memory that extents are laid out in, one after the other, counted.

use std::sync::Arc;

use super::BuiltExtent;
use crate::base::memory::{Gauge, Holding};

/// While an extent is laid out, the block under way, the filter and the index lie beside it. They
/// take one part in this many of its bytes.
const BESIDE: usize = 16;

/// Room for an extent, which the next extent uses again.
#[derive(Debug)]
pub(crate) struct ExtentBuffer {
    bytes: Vec<u8>,
    held: Holding,
    most: usize,
}

impl ExtentBuffer {
    /// Room for extents that are cut at `extent_bytes`, for a writer of no more than `all` bytes;
    /// `gauge` counts it. All of it is allocated at once: a buffer that doubles as it fills takes
    /// up to twice what it holds, and three times while it grows.
    pub(crate) fn new(gauge: &Arc<Gauge>, extent_bytes: usize, all: u64) -> ExtentBuffer {
        // An extent may grow an eighth, and has summaries, filter, index and a last record.
        let whole = extent_bytes + extent_bytes / 16 * 3;
        let most = usize::try_from(all).unwrap_or(usize::MAX).min(whole);
        ExtentBuffer { bytes: Vec::new(), held: gauge.hold(0), most }
    }

    /// The room, for an extent that begins.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.reserve_exact(self.most);
        self.count(&bytes);
        bytes
    }

    /// The extent is complete. It may have grown beyond what was foreseen.
    pub(crate) fn filled(&mut self, built: &BuiltExtent) {
        self.count(&built.bytes);
    }

    /// The extent is written.
    pub(crate) fn put_back(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    fn count(&mut self, bytes: &Vec<u8>) {
        let bytes = bytes.capacity();
        self.held.set((bytes + bytes / BESIDE) as u64);
    }
}

/// Makes room for `len` bytes more at the end of an extent that has outgrown its buffer. It adds
/// little at a time, since few extents do.
pub(super) fn make_room(out: &mut Vec<u8>, len: usize) {
    if out.capacity() - out.len() < len {
        out.reserve_exact(len.max(out.len() / 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::Compression;
    use crate::sstable::tests::{Entry, sim_store};
    use crate::sstable::{BlockCache, ExtentBuilder, Format};

    /// Bug: a compaction took 4 MiB for each extent of 2 MiB, and 6 MiB while its buffer grew.
    /// Cause: the buffer of an extent doubled as it filled, and each extent had a new one.
    /// Fix: one buffer for all extents of a job, taken once.
    #[test]
    fn a_job_takes_room_for_one_extent_once() {
        const EXTENT: usize = 256 * 1024;
        let (gauge, (_, store)) = (Arc::new(Gauge::default()), sim_store());
        let mut buffer = ExtentBuffer::new(&gauge, EXTENT, u64::MAX);
        let mut places = Vec::new();
        for id in 1..4u64 {
            let format = Format::new(Compression::None);
            let mut builder = ExtentBuilder::in_buffer(id, format, buffer.take());
            assert!(gauge.bytes() <= EXTENT as u64 * 13 / 10, "{}", gauge.bytes());
            let mut n = 0u64;
            while builder.size() < EXTENT + EXTENT / 8 {
                builder.add(Entry::put(&n.to_be_bytes(), 1, &[id as u8; 1000]).as_ref());
                n += 1;
            }
            let before = gauge.bytes();
            let built = builder.finish();
            buffer.filled(&built);
            assert_eq!(gauge.bytes(), before, "it has not grown");
            places.push(built.bytes.as_ptr());
            let written = built.write_filling((&store, None), &BlockCache::new(0), |_, _, _| None);
            let (extent, bytes) = written.unwrap();
            assert_eq!(extent.meta().records, n);
            buffer.put_back(bytes);
        }
        assert!(places.iter().all(|place| *place == places[0]), "the same memory");
        drop(buffer);
        assert_eq!(gauge.bytes(), 0);
        let small = ExtentBuffer::new(&gauge, EXTENT, 1000).take();
        assert!(small.capacity() < 2000, "no more than there is to write");
    }
}
