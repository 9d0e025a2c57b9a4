//! What the pool holds values in.

use std::ops::Deref;
use std::sync::Arc;

use super::queues::EvictionQueue;
use crate::base::memory::Holding;
use crate::os::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// How warm a frame may become. A reader stores nothing into the warmest.
const WARMEST: u8 = 4;

/// How much a frame was used, and which queue it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Warmth {
    pub(super) heat: u8,
    pub(super) queue: EvictionQueue,
}

impl Warmth {
    /// Of what no reader has asked for yet.
    pub(crate) const COLD: Warmth = Warmth { heat: 0, queue: EvictionQueue::Small };

    /// Of what a reader has asked for once.
    pub(super) const READ: Warmth = Warmth { heat: 1, queue: EvictionQueue::Small };

    /// Whether a reader has asked for it, as far as that is known still.
    pub(crate) fn is_used(self) -> bool {
        self != Warmth::COLD
    }

    /// The warmer of two.
    pub(crate) fn max(self, other: Warmth) -> Warmth {
        let key = |warmth: &Warmth| (warmth.queue == EvictionQueue::Main, warmth.heat);
        if key(&other) > key(&self) { other } else { self }
    }
}

/// A value in memory. The pool counts its bytes until the last holder drops it.
pub(crate) struct BufferFrame<V> {
    value: V,
    /// Uses since the hand of the pool last came by, up to [`WARMEST`]. Readers load and store it:
    /// where two meet, one use is lost.
    heat: AtomicU8,
    /// Whether it is in the main queue. Changed under the pool's lock.
    is_main: AtomicBool,
    /// Its place in the queues. Changed under the pool's lock.
    place: AtomicU32,
    /// `None` if no pool has it.
    _held: Option<Holding>,
}

impl<V> BufferFrame<V> {
    /// A value that no pool has.
    pub(crate) fn apart(value: V) -> BufferFrame<V> {
        BufferFrame::new(value, Warmth::COLD, None)
    }

    pub(super) fn new(value: V, warmth: Warmth, held: Option<Holding>) -> BufferFrame<V> {
        BufferFrame {
            value,
            heat: AtomicU8::new(warmth.heat),
            is_main: AtomicBool::new(warmth.queue == EvictionQueue::Main),
            place: AtomicU32::new(u32::MAX),
            _held: held,
        }
    }

    /// A reader uses it. It stores three times at most until the hand comes by, and reads
    /// otherwise.
    #[inline]
    pub(super) fn touch(&self) {
        let heat = self.heat.load(Ordering::Relaxed);
        if heat < WARMEST {
            self.heat.store(heat + 1, Ordering::Relaxed);
        }
    }

    /// How warm it is.
    pub(super) fn warmth(&self) -> Warmth {
        let is_main = self.is_main.load(Ordering::Relaxed);
        let queue = if is_main { EvictionQueue::Main } else { EvictionQueue::Small };
        Warmth { heat: self.heat.load(Ordering::Relaxed), queue }
    }

    pub(super) fn set_warmth(&self, warmth: Warmth) {
        self.heat.store(warmth.heat, Ordering::Relaxed);
        self.is_main.store(warmth.queue == EvictionQueue::Main, Ordering::Relaxed);
    }

    pub(super) fn place(&self) -> u32 {
        self.place.load(Ordering::Relaxed)
    }

    pub(super) fn set_place(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }
}

impl<V> Deref for BufferFrame<V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V: std::fmt::Debug> std::fmt::Debug for BufferFrame<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferFrame({:?}, {:?})", self.warmth(), self.value)
    }
}

/// What a reader uses: lent to it while its epoch is pinned, or with a reference of its own.
#[derive(Debug)]
pub(crate) enum Borrowed<'g, T> {
    /// A swip led to it.
    Here(&'g T),
    /// The reader loaded it.
    Own(Arc<T>),
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Borrowed::Here(here) => here,
            Borrowed::Own(own) => own,
        }
    }
}
