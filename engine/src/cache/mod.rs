//! A cache of values, bounded by bytes. It does not know what it holds.
//!
//! Thread safety: every method may be called from any thread. The cache is cut into shards. Each
//! has a lock, which is held for a few instructions.
//!
//! Invariants:
//!
//! 1. Values are immutable, and a key never gets another value: an extent's id is not reused while
//!    a thread can look it up. So there is nothing to invalidate.
//! 2. The weights of all values never exceed the capacity. A value that is heavier than a shard is
//!    not inserted.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync;

/// What a cached value costs.
pub(crate) trait Weigh {
    /// Bytes of memory.
    fn weight(&self) -> u64;
}

/// The extent's id and the offset in it.
type Key = (u64, u32);

#[derive(Clone, Debug)]
struct ByBytes;

impl<V: Weigh> Weighter<Key, Arc<V>> for ByBytes {
    fn weight(&self, _key: &Key, value: &Arc<V>) -> u64 {
        // Zero would mean "never evicted".
        value.weight().max(1)
    }
}

/// A second cache: faster than the medium and slower than this cache.
pub(crate) trait Below: Send + Sync + std::fmt::Debug {
    /// The bytes, if they are here.
    fn get(&self, extent: u64, offset: u32) -> Option<Vec<u8>>;

    /// Keeps the bytes if there is room.
    fn keep(&self, extent: u64, offset: u32, bytes: &[u8]);
}

/// Values by (extent, offset). The least useful ones are evicted when bytes run out.
pub(crate) struct Cache<V: Weigh> {
    inner: sync::Cache<Key, Arc<V>, ByBytes>,
    below: Option<Arc<dyn Below>>,
}

impl<V: Weigh> Cache<V> {
    /// A cache of at most `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: u64) -> Cache<V> {
        const TYPICAL_BYTES: u64 = 16 * 1024;
        let items = usize::try_from(capacity_bytes / TYPICAL_BYTES).unwrap_or(usize::MAX);
        Cache { inner: sync::Cache::with_weighter(items, capacity_bytes, ByBytes), below: None }
    }

    /// Adds a second cache below it, of bytes as they lie on the medium.
    pub(crate) fn above(self, below: Option<Arc<dyn Below>>) -> Cache<V> {
        Cache { below, ..self }
    }

    /// What is below it.
    pub(crate) fn below(&self) -> Option<&dyn Below> {
        self.below.as_deref()
    }

    /// The value at `offset` of an extent, if it is cached.
    pub(crate) fn get(&self, extent: u64, offset: u32) -> Option<Arc<V>> {
        self.inner.get(&(extent, offset))
    }

    /// Whether a value is cached. It counts as neither a hit nor a miss, and not as use.
    pub(crate) fn contains(&self, extent: u64, offset: u32) -> bool {
        self.inner.contains_key(&(extent, offset))
    }

    /// The value at `offset` of an extent, if it is cached. It counts as neither a hit nor a miss,
    /// and not as use.
    pub(crate) fn peek(&self, extent: u64, offset: u32) -> Option<Arc<V>> {
        self.inner.peek(&(extent, offset))
    }

    /// Removes a value.
    pub(crate) fn remove(&self, extent: u64, offset: u32) {
        self.inner.remove(&(extent, offset));
    }

    /// Inserts a value, perhaps in place of others.
    pub(crate) fn insert(&self, extent: u64, offset: u32, value: Arc<V>) {
        self.inner.insert((extent, offset), value);
    }

    /// Sets the most bytes that it holds. Values beyond that are evicted at once.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        if capacity_bytes != self.capacity() {
            self.inner.set_capacity(capacity_bytes);
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.inner.weight()
    }

    /// Whether one more value would displace no other. Shards fill unevenly: with less than an
    /// eighth left it counts as full.
    pub(crate) fn has_room(&self) -> bool {
        self.used() < self.capacity() / 8 * 7
    }

    /// The most bytes it will use.
    pub(crate) fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    /// Look-ups that found their value.
    pub(crate) fn hits(&self) -> u64 {
        self.inner.hits()
    }

    /// Look-ups that did not.
    pub(crate) fn misses(&self) -> u64 {
        self.inner.misses()
    }
}

impl<V: Weigh> std::fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({} of {} bytes)", self.used(), self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(u64);

    impl Weigh for Bytes {
        fn weight(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn stays_within_its_bytes() {
        let cache = Cache::new(1 << 20);
        for offset in 0..1000 {
            cache.insert(1, offset, Arc::new(Bytes(5000)));
            assert!(cache.used() <= cache.capacity());
        }
        assert!(cache.used() > 1 << 19, "and uses them");
        assert!(cache.get(2, 0).is_none());
        let found = (0..1000).filter(|offset| cache.get(1, *offset).is_some()).count() as u64;
        assert_eq!((cache.hits(), cache.misses()), (found, 1001 - found));
    }

    #[test]
    fn a_smaller_capacity_holds_at_once() {
        let cache = Cache::new(1 << 20);
        (0..1000).for_each(|offset| cache.insert(1, offset, Arc::new(Bytes(1000))));
        assert!(cache.used() > 1 << 19);
        cache.set_capacity(1 << 17);
        assert!(cache.used() <= 1 << 17 && cache.used() > 0, "{} bytes", cache.used());
        cache.set_capacity(1 << 20);
        (0..1000).for_each(|offset| cache.insert(2, offset, Arc::new(Bytes(1000))));
        assert!(cache.used() > 1 << 19, "and grows again");
    }

    #[test]
    fn no_capacity_holds_nothing() {
        let cache = Cache::new(0);
        cache.insert(1, 0, Arc::new(Bytes(1)));
        assert_eq!(cache.used(), 0);
    }
}
