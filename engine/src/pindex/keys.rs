//! Keys as nodes hold them. A leaf's slot has the offset of a record, which is its identity, and
//! the first eight bytes of the key. When those are equal, a search reads the rest from the
//! record.
//!
//! A *bound* is where a node starts: the shortest that tells the neighbours of a split apart, and
//! the tree's own: records come and go, bounds stay as long as a node starts there. Up to seven
//! bytes of it lie in the word itself, a longer one in the tree's heap. A node and the inner nodes
//! of which it is the first child share one. A bound of zero is no key, and starts before all.
//!
//! Every call that compares keys is made with an epoch pinned: what an offset led to when the
//! version of its node was checked is still there.

use std::cmp;
use std::path::Path;
use std::sync::Arc;

use super::node::{NodeWriter, Slot};
use crate::base::error::{Damage, Error, ErrorKind, Result};
use crate::base::record::{LSN_MAX, Lsn, put_u64, slice};
use crate::memtable::{Records, Separator};
use crate::mvcc::defer;
use crate::os::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::OnceLock;
use crate::pm::alloc::{ObjectPool, Segments};
use crate::pm::{Geometry, LINE, Region};

/// The longest bound in a word.
const SHORT: usize = 7;

/// Keys of records.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Where records are.
    pub(crate) records: Arc<Unread>,
    /// Where bounds are.
    pub(crate) heap: Heap,
}

/// The bytes of a key, or those that lay in a word.
#[derive(Clone, Copy, Debug)]
enum Bytes<'a> {
    Lent(&'a [u8]),
    Own([u8; 8], usize),
}

impl Bytes<'_> {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Lent(bytes) => bytes,
            Bytes::Own(bytes, len) => &bytes[..*len],
        }
    }
}

/// Where a place lies to the key that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    At,
    /// Just before it.
    Before,
    /// Behind all keys.
    End,
}

/// A place in the order of versions: by key, the newest version of a key first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    prefix: u64,
    bytes: Bytes<'a>,
    seq: Lsn,
    side: Side,
}

impl<'a> Place<'a> {
    /// That of a version.
    pub(crate) fn at(key: &'a [u8], seq: Lsn) -> Place<'a> {
        Place { prefix: slice(key, 0), bytes: Bytes::Lent(key), seq, side: Side::At }
    }

    /// Just before this one.
    pub(crate) fn before(self) -> Place<'a> {
        Place { side: Side::Before, ..self }
    }

    /// Behind all keys.
    pub(crate) fn end() -> Place<'static> {
        Place { side: Side::End, ..Place::at(&[], 0) }
    }

    /// How the version (`key`, `seq`) stands to this place.
    fn order_of(&self, key: &[u8], seq: Lsn) -> cmp::Ordering {
        match self.side {
            Side::End => cmp::Ordering::Less,
            side => {
                let order = key.cmp(self.bytes.get()).then_with(|| self.seq.cmp(&seq));
                if side == Side::Before { order.then(cmp::Ordering::Greater) } else { order }
            }
        }
    }
}

/// The bytes of a bound that lies in its word.
fn short(bound: u64) -> Option<([u8; 8], usize)> {
    let len = (bound & 0xff) as usize >> 1;
    (bound & 1 == 1).then(|| ((bound & !0xff).to_be_bytes(), len))
}

impl Keys {
    /// Key and sequence number of a bound other than zero.
    fn bound_at(&self, bound: u64) -> (Bytes<'_>, Lsn) {
        if let Some((bytes, len)) = short(bound) {
            return (Bytes::Own(bytes, len), LSN_MAX);
        }
        let (key, seq) = self.heap.read(bound);
        (Bytes::Lent(key), seq)
    }

    /// The slot of a record.
    pub(crate) fn slot(key: &[u8], at: u64) -> Slot {
        Slot { id: at, other: slice(key, 0) }
    }

    /// The place of a bound; of zero, the first of all.
    pub(crate) fn sought(&self, bound: u64) -> Place<'_> {
        if bound == 0 {
            return Place::at(&[], LSN_MAX);
        }
        let (bytes, seq) = self.bound_at(bound);
        Place { prefix: slice(bytes.get(), 0), bytes, seq, side: Side::At }
    }

    /// The place of a leaf's slot.
    fn key(&self, slot: Slot) -> Place<'_> {
        let (key, seq) = self.records.locate(slot.id);
        Place { prefix: slot.other, bytes: Bytes::Lent(key), seq, side: Side::At }
    }

    /// Compares a bound with a place.
    pub(crate) fn seek(&self, bound: u64, sought: Place<'_>) -> cmp::Ordering {
        if bound == 0 || sought.side == Side::End {
            return cmp::Ordering::Less;
        }
        if bound & 1 == 1 {
            // Zeros fill up what is missing on either side: they decide nothing.
            let first = (bound >> 8).cmp(&(sought.prefix >> 8));
            if first.is_ne() {
                return first;
            }
        }
        let (bytes, seq) = self.bound_at(bound);
        sought.order_of(bytes.get(), seq)
    }

    /// Compares the key of a leaf's slot with a place.
    pub(crate) fn seek_leaf(&self, slot: Slot, sought: Place<'_>) -> cmp::Ordering {
        if sought.side == Side::End {
            return cmp::Ordering::Less;
        }
        slot.other.cmp(&sought.prefix).then_with(|| {
            let (key, seq) = self.records.locate(slot.id);
            sought.order_of(key, seq)
        })
    }

    /// Compares the keys of two slots of a leaf.
    pub(crate) fn slots(&self, a: Slot, b: Slot) -> cmp::Ordering {
        // Records are read only where their keys begin alike.
        a.other.cmp(&b.other).then_with(|| self.seek_leaf(a, self.key(b)))
    }

    /// Compares two bounds, neither of them zero.
    pub(crate) fn bounds(&self, a: u64, b: u64) -> cmp::Ordering {
        self.seek(a, self.sought(b))
    }

    /// A bound above the key of `left` and not above that of `right`, its neighbour. What it needs
    /// of memory is durable with the writer.
    pub(crate) fn bound(
        &self,
        writer: &mut NodeWriter<'_>,
        left: Slot,
        right: Slot,
    ) -> Result<u64> {
        let (left, right) = (self.records.locate(left.id), self.records.locate(right.id));
        let Separator { bytes, seq } = Separator::between(left, right);
        if bytes.len() <= SHORT && seq == LSN_MAX {
            let word = slice(&bytes, 0) | (bytes.len() as u64) << 1 | 1;
            debug_assert!(short(word).is_some_and(|(b, len)| b[..len] == bytes), "{bytes:?}");
            return Ok(word);
        }
        self.heap.write(writer, &bytes, seq)
    }

    /// Gives the memory of a bound back. No node on the media starts there any more.
    pub(crate) fn release(&self, bound: u64) -> Result<()> {
        if bound == 0 || bound & 1 == 1 { Ok(()) } else { self.heap.release(bound) }
    }
}

// Records that an opening passed over, because the persistent index knows of them. Their checksums
// are checked when the index first leads to one, a zone at a time.
//
// Thread safety: every method takes `&self`. A thread that finds a zone unread reads it, one
// thread at a time. Others go on where no zone is unverified.
//
// Invariants:
//
// 1. The bytes of a record in an unverified zone, or damaged, are not given out. A caller
//    that asks for its key gets an empty one, and learns from `check` that its result does not
//    count.
// 2. An unverified zone stays as it is on the media: no zone is released while one is unverified.

/// Says what is wrong with the records of a zone that were passed over, if anything.
pub(crate) type Look = Box<dyn Fn(u32) -> Option<Damage> + Send + Sync>;

/// The records of a region, as an index sees them.
pub(crate) struct Unread {
    region: Arc<Region>,
    /// Whether any zone may be unverified.
    is_left: AtomicBool,
    unverified: OnceLock<Unverified>,
    damage: OnceLock<Damage>,
}

struct Unverified {
    geometry: Geometry,
    /// By unit: of which zone that is unverified it is, plus one; else 0.
    zones: Box<[AtomicU32]>,
    look: Look,
    turn: Mutex<()>,
}

impl Unread {
    /// Nothing is unverified at first.
    pub(crate) fn new(region: &Arc<Region>) -> Unread {
        Unread {
            region: Arc::clone(region),
            is_left: AtomicBool::new(false),
            unverified: OnceLock::new(),
            damage: OnceLock::new(),
        }
    }

    /// Marks zones as unverified, each with its number of units. Called once, before the first
    /// read.
    pub(crate) fn mark_unverified(&self, geometry: Geometry, of: &[(u32, u32)], look: Look) {
        let zones: Box<[AtomicU32]> = (0..geometry.units).map(|_| AtomicU32::new(0)).collect();
        for (zone, units) in of {
            let units = &zones[*zone as usize..(zone + units) as usize];
            units.iter().for_each(|unit| unit.store(zone + 1, Ordering::Relaxed));
        }
        let is_new =
            self.unverified.set(Unverified { geometry, zones, look, turn: Mutex::default() });
        debug_assert!(is_new.is_ok(), "an opening marks zones once");
        self.is_left.store(!of.is_empty(), Ordering::Release);
    }

    /// Everything that the index leads to was read.
    pub(crate) fn trust(&self) {
        self.is_left.store(self.damage.get().is_some(), Ordering::Release);
    }

    /// Whether the record at `at` may be looked at. Reads its zone if that was not read yet.
    #[cold]
    fn is_sound(&self, at: u64) -> bool {
        let Some(unverified) = self.unverified.get() else { return true };
        // Whatever came by growth since was never unverified.
        let unit = unverified.zones.get(unverified.geometry.unit_of(at) as usize);
        let Some(unit) = unit else { return true };
        if unit.load(Ordering::Acquire) == 0 {
            return true;
        }
        let _turn = unverified.turn.lock();
        let Some(zone) = unit.load(Ordering::Acquire).checked_sub(1) else { return true };
        if let Some(damage) = (unverified.look)(zone) {
            drop(self.damage.set(damage));
            return false;
        }
        let of_zone =
            unverified.zones.iter().filter(|unit| unit.load(Ordering::Relaxed) == zone + 1);
        of_zone.for_each(|unit| unit.store(0, Ordering::Release));
        true
    }

    /// The file's path, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.region.path()
    }
}

impl Records for Unread {
    #[inline]
    fn locate(&self, at: u64) -> (&[u8], Lsn) {
        if self.is_left.load(Ordering::Acquire) && !self.is_sound(at) {
            return (&[], 0);
        }
        self.region.locate(at)
    }

    fn check(&self, at: u64) -> Result<()> {
        if self.is_left.load(Ordering::Acquire) {
            self.is_sound(at);
        }
        self.sound()
    }

    fn sound(&self) -> Result<()> {
        match self.damage.get() {
            Some(damage) => Err(Error::corrupt(damage.clone())),
            None => Ok(()),
        }
    }

    #[inline]
    fn prefetch(&self, at: u64) {
        self.region.prefetch(at);
    }
}

impl std::fmt::Debug for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unread").field("region", &self.path()).finish_non_exhaustive()
    }
}

// The bounds of nodes that do not fit a word, in persistent memory.
//
// A bound takes an object of the smallest of sixteen or so sizes that holds it, from a pool for
// each. Like nodes they are taken without a log. A bound is durable with its pool entry before a
// node has it, and a scan finds what a cut leaves in between.
//
// Thread safety: every method takes `&self`. A bound is never written after it was linked, and
// its memory is used again only when every epoch has ended that began before it was released.

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
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn write(&self, writer: &mut NodeWriter<'_>, key: &[u8], seq: Lsn) -> Result<u64> {
        let len = key.len() as u64;
        let pool = pool_for(&self.pools, len).ok_or_else(|| {
            Error::new(
                ErrorKind::TooLarge,
                format!("a bound of {len} bytes is too long for the persistent index"),
            )
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
    pub(crate) fn scan(&self, is_reached: impl Fn(u64) -> bool) -> Result<u64> {
        let scans = self.pools.iter().map(|(_, pool)| Ok(pool.scan(&is_reached)?.leaked));
        scans.sum()
    }

    /// How many bytes free bounds have, but for more than `enough`.
    pub(crate) fn free_bytes(&self, enough: u64) -> Result<u64> {
        self.pools.iter().try_fold(0, |free, (_, pool)| Ok(free + pool.free_bytes(enough - free)?))
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
