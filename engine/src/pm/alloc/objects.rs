//! Pools of objects of one size, in segments of a region.
//!
//! An allocation has three parts. `get` writes nothing. The caller stores into the object. `commit`
//! stores one word, which says that the object is taken. Word and object are flushed together and
//! need no order between them: one line beyond the object's own, one fence, no log. The object is
//! *used* once the caller has linked it, with a store after that fence. A cut before the link
//! leaves an object that is taken and not reached. [`ObjectPool::scan`] releases those.
//!
//! Source: the object pools of Halloc, the allocator of the persistent-memory LSM tree in the
//! project's design (section 3).
//!
//! Thread safety: every method takes `&self`. The lists of free objects are behind one mutex. It is
//! held for a few instructions, or while a segment is taken or its index is read.
//!
//! Invariants:
//!
//! 1. An object is in exactly one of three states. It is free (and on the list, or in a segment
//!    whose index was not read yet), owned by the caller of `get`, or taken. Its entry on the media
//!    says *persistent* only when it is taken, or was owned when the power was cut.
//! 2. A taken object goes back to the list only after its entry says so on the media, and its owner
//!    unlinks it, durably, before it releases it.
//! 3. Entries are changed only by the owner of their object.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::segments::{Pool, PoolEntry};
use super::segments::{SegmentHeader, Segments};
use crate::base::error::{Error, Mismatch, Result};
use crate::os::sync::locks::Mutex;
use crate::pm::{Dirty, LINE, Region, Span};

/// A pool.
#[derive(Debug)]
pub(crate) struct ObjectPool {
    region: Arc<Region>,
    segments: Arc<dyn Segments>,
    header: SegmentHeader,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<u64>,
    /// Segments whose index was not read yet.
    unread: BTreeSet<u64>,
    /// All segments of the pool.
    segments: BTreeSet<u64>,
}

/// Objects of the pool that were taken and that no link reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Objects that are in use.
    pub(crate) used: u64,
    /// Objects that were released by the scan.
    pub(crate) leaked: u64,
}

impl ObjectPool {
    /// The pool numbered `pool` of objects of `object` bytes, a multiple of 64, with the segments
    /// that it took before. Reads no index yet, so it takes no longer than there are segments.
    pub(crate) fn open(
        region: &Arc<Region>,
        segments: &Arc<dyn Segments>,
        pool: u32,
        object: u32,
    ) -> ObjectPool {
        debug_assert!(u64::from(object).is_multiple_of(LINE), "objects are whole lines");
        let of = u64::from(object);
        let mut count = (segments.len() - LINE) / (of + 8);
        while first_object(count, of) + count * of > segments.len() {
            count -= 1;
        }
        let header = SegmentHeader { pool, object, count: count as u32 };
        let ours = |(at, found): (u64, SegmentHeader)| (found == header).then_some(at);
        let unread: BTreeSet<u64> = segments.taken().into_iter().filter_map(ours).collect();
        let all = unread.clone();
        ObjectPool {
            region: Arc::clone(region),
            segments: Arc::clone(segments),
            header,
            state: Mutex::new(State { free: Vec::new(), unread, segments: all }),
        }
    }

    /// A free object, which is the caller's now. Nothing is written: after a crash it is free
    /// again.
    pub(crate) fn get(&self) -> Result<u64> {
        let mut state = self.state.lock();
        loop {
            if let Some(object) = state.free.pop() {
                return Ok(object);
            }
            match state.unread.pop_first() {
                Some(segment) => self.read_index(&mut state, segment)?,
                None => self.grow(&mut state)?,
            }
        }
    }

    /// How many bytes its free objects have, but for more than `enough`.
    pub(crate) fn free_bytes(&self, enough: u64) -> Result<u64> {
        let (mut state, object) = (self.state.lock(), u64::from(self.header.object));
        while (state.free.len() as u64 * object) < enough
            && let Some(segment) = state.unread.pop_first()
        {
            self.read_index(&mut state, segment)?;
        }
        Ok(enough.min(state.free.len() as u64 * object))
    }

    /// Gives back an object that was never committed, or was freed.
    pub(crate) fn put_back(&self, object: u64) {
        self.state.lock().free.push(object);
    }

    /// Says on the media that an object is taken: to be flushed with the object, and fenced
    /// before anything refers to it.
    pub(crate) fn commit(&self, object: u64) -> Result<Dirty> {
        let (at, entry) = self.entry(object)?;
        debug_assert!(!entry.persistent, "object {object} is taken twice (invariant 1)");
        Ok(self.store(at, object, PoolEntry { persistent: true, ..entry }))
    }

    /// Counts the entry of an object as stored again as it is, to be made durable: a process that
    /// was killed may have left it in the caches alone.
    pub(crate) fn rewrite(&self, object: u64) -> Result<Dirty> {
        let (at, _) = self.entry(object)?;
        Ok(self.region.rewrite(Span { at, len: 8 }))
    }

    /// Whether an object is taken.
    pub(crate) fn check(&self, object: u64) -> Result<bool> {
        Ok(self.entry(object)?.1.persistent)
    }

    /// Says on the media that a taken object is free (invariant 2). The caller puts it back when no
    /// reader can see it any more.
    pub(crate) fn free(&self, object: u64) -> Result<()> {
        self.know(object)?;
        let (at, entry) = self.entry(object)?;
        debug_assert!(entry.persistent, "object {object} is free (invariant 2)");
        self.region.persist([self.store(at, object, entry.released())])?;
        Ok(())
    }

    /// Reads the index of the segment of a taken object, if it was not read yet. Read later, the
    /// object would be found free there, and go to the list a second time.
    fn know(&self, object: u64) -> Result<()> {
        let segment = self.segments.segment_of(object);
        let mut state = self.state.lock();
        if state.unread.remove(&segment) {
            self.read_index(&mut state, segment)?;
        }
        Ok(())
    }

    /// Frees a taken object that nothing on the media refers to any more (invariant 2).
    pub(crate) fn release(&self, object: u64) -> Result<()> {
        self.free(object)?;
        self.put_back(object);
        Ok(())
    }

    /// Releases every taken object that `is_reached` does not know. No other thread may use the
    /// pool meanwhile.
    pub(crate) fn scan(&self, is_reached: impl Fn(u64) -> bool) -> Result<Scan> {
        let mut scan = Scan::default();
        let segments: Vec<u64> = self.state.lock().segments.iter().copied().collect();
        for segment in segments {
            for index in 0..self.header.count {
                let object = self.object(segment, index);
                if !self.check(object)? {
                    continue;
                }
                if is_reached(object) {
                    scan.used += 1;
                } else {
                    self.release(object)?;
                    scan.leaked += 1;
                }
            }
        }
        Ok(scan)
    }

    /// How many bytes the pool's segments take.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().segments.len() as u64 * self.segments.len()
    }

    fn read_index(&self, state: &mut State, segment: u64) -> Result<()> {
        for index in (0..self.header.count).rev() {
            let object = self.object(segment, index);
            if !self.check(object)? {
                state.free.push(object);
            }
        }
        Ok(())
    }

    fn grow(&self, state: &mut State) -> Result<()> {
        let segment = self.segments.take(&mut |segment| {
            // Whatever was there before: no entry may look taken once the header counts.
            let index = vec![0; self.index_len() as usize];
            self.region.persist([self.region.write(segment + LINE, &index)])?;
            self.region.persist([self.region.write(segment, &self.header.encode(segment))])?;
            Ok(())
        })?;
        state.segments.insert(segment);
        let objects = (0..self.header.count).rev().map(|index| self.object(segment, index));
        state.free.extend(objects);
        Ok(())
    }

    fn index_len(&self) -> u64 {
        (u64::from(self.header.count) * 8).next_multiple_of(LINE)
    }

    fn object(&self, segment: u64, index: u32) -> u64 {
        let of = u64::from(self.header.object);
        segment + first_object(u64::from(self.header.count), of) + u64::from(index) * of
    }

    /// Offset and content of an object's entry. A word of zero is a free object's that was never
    /// taken.
    fn entry(&self, object: u64) -> Result<(u64, PoolEntry)> {
        let segment = self.segments.segment_of(object);
        let index = (object - self.object(segment, 0)) / u64::from(self.header.object);
        let at = segment + LINE + index * 8;
        let word = self.region.word(at);
        if word == 0 {
            return Ok((at, PoolEntry::default()));
        }
        let damaged = |(sum, computed): (u32, u32)| {
            let what = format!("index entry of the object at byte {object}");
            Error::corrupt(self.region.damage(at, what, Mismatch::checksum(sum, computed)))
        };
        let entry = PoolEntry::decode(word, Pool::Objects, self.seed(object)).map_err(damaged)?;
        Ok((at, entry))
    }

    fn store(&self, at: u64, object: u64, entry: PoolEntry) -> Dirty {
        self.region.store_word(at, entry.encode(Pool::Objects, self.seed(object)))
    }

    /// What an entry's checksum is seeded with beside the pool: objects are whole lines.
    fn seed(&self, object: u64) -> u32 {
        (object / LINE) as u32
    }
}

/// Where the objects start in a segment: behind the header and the index. Objects up to a sector,
/// if their size is a power of two, do not straddle sectors (segments start at one).
fn first_object(count: u64, object: u64) -> u64 {
    let align = if object.is_power_of_two() && object <= 512 { object } else { LINE };
    (LINE + (count * 8).next_multiple_of(LINE)).next_multiple_of(align)
}

#[cfg(test)]
mod tests;
