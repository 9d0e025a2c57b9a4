//! What the pool holds values in, and the swips that lead to them.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::Weigh;
use super::pool::Core;
use super::queues::EvictionQueue;
use super::swip::Swip;
use crate::base::memory::{Gauge, Holding};
use crate::mvcc::{EpochGuard, pin};
use crate::os::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
use crate::os::sync::shared::OnceLock;
use crate::os::{LINE, prefetch_lines};

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
pub(crate) enum Lent<'g, T> {
    /// A swip led to it.
    Here(&'g T),
    /// The reader loaded it.
    Own(Arc<T>),
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Lent::Here(here) => here,
            Lent::Own(own) => own,
        }
    }
}

/// What the swips of an extent share.
pub(super) struct Home<V: Send + Sync + 'static> {
    /// The pool whose frames they lead to, once there was one.
    pub(super) pool: OnceLock<Weak<Core<V>>>,
    /// Whether the extent was replaced: nothing is loaded into the pool for it any more.
    pub(super) is_closed: AtomicBool,
    _held: Holding,
}

/// The way to a value.
pub(super) struct HintedSwip<V: Send + Sync + 'static> {
    pub(super) swip: Swip<BufferFrame<V>>,
    /// Where the value begins, as long as the swip leads to it. It lies beside the swip: so a
    /// reader asks for the value's first lines before it has seen the frame.
    begins_at: AtomicUsize,
}

impl<V: Send + Sync + 'static> Default for HintedSwip<V> {
    fn default() -> HintedSwip<V> {
        HintedSwip { swip: Swip::default(), begins_at: AtomicUsize::new(0) }
    }
}

impl<V: Weigh + Send + Sync + 'static> HintedSwip<V> {
    /// Leads to `frame` from now on, where it led to nothing.
    pub(super) fn lead_to(&self, frame: Arc<BufferFrame<V>>) {
        self.begins_at.store(frame.begins_at().addr(), Ordering::Relaxed);
        let before = self.swip.set(frame);
        debug_assert!(before.is_ok(), "it led to nothing, and changes under the lock alone");
    }
}

/// So many lines of a value are read first: in a block, what leads to its entries.
const FIRST_LINES: usize = 5;

/// The swips of an extent, by the number of the block.
///
/// Thread safety: a reader loads a swip. The pool alone changes one, under its lock.
pub(crate) struct Swips<V: Send + Sync + 'static> {
    pub(super) list: Arc<[HintedSwip<V>]>,
    pub(super) home: Arc<Home<V>>,
}

impl<V: Send + Sync + 'static> Clone for Swips<V> {
    fn clone(&self) -> Swips<V> {
        Swips { list: Arc::clone(&self.list), home: Arc::clone(&self.home) }
    }
}

impl<V: Send + Sync + 'static> Swips<V> {
    /// Swips to `len` values on the medium, whose bytes `gauge` counts.
    pub(crate) fn new(len: usize, gauge: &Arc<Gauge>) -> Swips<V> {
        let bytes = len * size_of::<HintedSwip<V>>() + size_of::<Home<V>>();
        let (pool, is_closed) = (OnceLock::new(), AtomicBool::new(false));
        let held = gauge.hold(bytes as u64);
        Swips {
            list: (0..len).map(|_| HintedSwip::default()).collect(),
            home: Arc::new(Home { pool, is_closed, _held: held }),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Value `n`, if it is in memory. No sign of use.
    #[inline]
    pub(super) fn get<'g>(&self, n: usize, pinned: &'g EpochGuard) -> Option<&'g BufferFrame<V>> {
        self.list.get(n)?.swip.get(pinned)
    }

    /// As [`Swips::get`], for a reader that searches the value next.
    #[inline]
    pub(super) fn get_to_search<'g>(
        &self,
        n: usize,
        pinned: &'g EpochGuard,
    ) -> Option<&'g BufferFrame<V>> {
        let way = self.list.get(n)?;
        let found = way.swip.get(pinned)?;
        let begins_at = way.begins_at.load(Ordering::Relaxed);
        prefetch_lines(std::ptr::without_provenance(begins_at), FIRST_LINES * LINE);
        Some(found)
    }

    /// Value `n`, if it is in memory, for a holder that outlives its epoch. No sign of use.
    pub(crate) fn peek(&self, n: usize) -> Option<Arc<BufferFrame<V>>> {
        self.list.get(n)?.swip.pin(&pin())
    }

    /// Whether value `n` is in memory. No sign of use.
    pub(crate) fn has(&self, n: usize) -> bool {
        self.list.get(n).is_some_and(|way| way.swip.is_set())
    }

    /// How warm value `n` is, if it is in memory.
    pub(crate) fn warmth(&self, n: usize) -> Option<Warmth> {
        self.get(n, &pin()).map(BufferFrame::warmth)
    }

    /// Whether the pool may lead them to frames of `core`.
    pub(super) fn may_lead_to(&self, core: &Arc<Core<V>>) -> bool {
        let pool = self.home.pool.get_or_init(|| Arc::downgrade(core));
        // See `leave`.
        fence(Ordering::SeqCst);
        std::ptr::eq(pool.as_ptr(), Arc::as_ptr(core))
            && !self.home.is_closed.load(Ordering::Relaxed)
    }

    /// Whether two are the same swips.
    pub(super) fn are(&self, others: &Swips<V>) -> bool {
        Arc::ptr_eq(&self.home, &others.home)
    }

    /// Bytes of value `n`, if it is in memory and no reader has asked for it.
    pub(crate) fn unread_bytes(&self, n: usize) -> u64
    where
        V: Weigh,
    {
        let guard = pin();
        let unread = self.get(n, &guard).filter(|frame| !frame.warmth().is_used());
        unread.map_or(0, |frame| frame.weight())
    }

    /// Takes all frames out of the pool, and has it take no more.
    pub(crate) fn leave(&self) {
        self.home.is_closed.store(true, Ordering::Relaxed);
        // With the fence of the pool: it sees the mark before it takes a frame, or is seen here.
        fence(Ordering::SeqCst);
        if let Some(pool) = self.home.pool.get().and_then(Weak::upgrade) {
            pool.remove_all(self);
        }
    }
}

impl<V: Send + Sync + 'static> std::fmt::Debug for Swips<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let there = self.list.iter().filter(|way| way.swip.is_set()).count();
        write!(f, "Swips({there} of {} in memory)", self.list.len())
    }
}
