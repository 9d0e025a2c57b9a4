//! Bytes of memory, counted where they are taken and given back; and a clock that evicts when there
//! are too many.
//!
//! Thread safety: a gauge is a counter. A clock has a mutex, held for a few instructions for each
//! thing that is added or removed. Using a thing takes no lock.
//!
//! Invariants:
//!
//! 1. A gauge shows the sum of what its holdings say.
//! 2. What a clock keeps takes no more together than it may, except while the mutex is held. What
//!    it evicts is released right after that.
//! 3. The clock first evicts what was not used since its hand last came by. What is used faster
//!    than the hand turns is evicted after two turns.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;

/// The most turns of a clock's hand for what comes, or for a new limit.
const TURNS: usize = 2;

/// Bytes that are held of one kind.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    /// Bytes that are held.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts bytes in. A caller without a holding counts them out, too.
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes out.
    pub(crate) fn sub(&self, bytes: u64) {
        let before = self.0.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "counted in before: {bytes} of {before}");
    }

    /// Holds `bytes`.
    pub(crate) fn hold(self: &Arc<Self>, bytes: u64) -> Holding {
        self.add(bytes);
        Holding { gauge: Arc::clone(self), bytes }
    }

    /// Holds `bytes`, if not more than `most` are held with them.
    pub(crate) fn hold_within(self: &Arc<Self>, bytes: u64, most: u64) -> Option<Holding> {
        let add = |held: u64| held.checked_add(bytes).filter(|held| *held <= most);
        let added = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.ok().map(|_| Holding { gauge: Arc::clone(self), bytes })
    }
}

/// Bytes that are held until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    gauge: Arc<Gauge>,
    bytes: u64,
}

impl Holding {
    /// The number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the number of bytes.
    pub(crate) fn set(&mut self, bytes: u64) {
        match bytes >= self.bytes {
            true => self.gauge.add(bytes - self.bytes),
            false => self.gauge.sub(self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.gauge.sub(self.bytes);
    }
}

/// What a clock can evict; it can be loaded again.
pub(crate) trait LetGo: Send + Sync {
    /// Whether it was used since this was asked last.
    fn was_used(&self) -> bool;

    /// Evicts it. Its clock has forgotten it, and holds no lock.
    fn release(&self);
}

/// Things in the order in which they came, of which those that are used may stay.
pub(crate) struct Clock {
    most: AtomicU64,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    /// By place, with the bytes that each takes.
    things: BTreeMap<u64, (Arc<dyn LetGo>, u64)>,
    bytes: u64,
    /// The hand comes to what is behind this place next.
    hand: u64,
    last_place: u64,
    /// Whether something had to go for what came since that was asked.
    is_short: bool,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { most: AtomicU64::new(u64::MAX), ring: Mutex::default() }
    }
}

impl Clock {
    /// Keeps something that takes `bytes`, perhaps in place of others. Returns its place until it
    /// is evicted or [removed](Clock::remove).
    pub(crate) fn keep(&self, thing: Arc<dyn LetGo>, bytes: u64) -> u64 {
        let mut ring = self.ring.lock();
        ring.last_place += 1;
        let place = ring.last_place;
        ring.things.insert(place, (thing, bytes));
        ring.bytes += bytes;
        ring.is_short |= ring.bytes > self.most();
        let gone = ring.sweep(self.most());
        drop(ring);
        gone.iter().for_each(|thing| thing.release());
        place
    }

    /// Whether something is at a place still.
    pub(crate) fn keeps(&self, place: u64) -> bool {
        self.ring.lock().things.contains_key(&place)
    }

    /// Forgets what is at a place, if it is there still.
    pub(crate) fn remove(&self, place: u64) {
        let mut ring = self.ring.lock();
        if let Some((_, bytes)) = ring.things.remove(&place) {
            ring.bytes -= bytes;
        }
    }

    /// Sets the most bytes that it keeps. What is beyond that is evicted at once.
    pub(crate) fn set_most(&self, bytes: u64) {
        self.most.store(bytes, Ordering::Relaxed);
        let gone = self.ring.lock().sweep(bytes);
        gone.iter().for_each(|thing| thing.release());
    }

    /// Whether something had to go for what came, since this was asked.
    pub(crate) fn was_short(&self) -> bool {
        std::mem::take(&mut self.ring.lock().is_short)
    }

    /// Bytes that it keeps.
    pub(crate) fn kept(&self) -> u64 {
        self.ring.lock().bytes
    }

    /// The most bytes that it keeps.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Ring {
    /// Evicts as much as is beyond the bound. Each turn of the hand finds what was used less. But
    /// threads that use things take no lock and could keep the hand turning. So the hand spares
    /// nothing after two turns. Returns what is to be released.
    fn sweep(&mut self, most: u64) -> Vec<Arc<dyn LetGo>> {
        let (mut gone, mut to_spare) = (Vec::new(), TURNS * self.things.len());
        while self.bytes > most {
            let behind = (Bound::Excluded(self.hand), Bound::Unbounded);
            let next = self.things.range(behind).next().or_else(|| self.things.first_key_value());
            let Some((&place, (thing, _))) = next else { break };
            self.hand = place;
            if to_spare > 0 && thing.was_used() {
                to_spare -= 1;
                continue;
            }
            if let Some((thing, bytes)) = self.things.remove(&place) {
                self.bytes -= bytes;
                gone.push(thing);
            }
        }
        gone
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clock({} of {} bytes)", self.ring.lock().bytes, self.most())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;

    #[derive(Default)]
    struct Thing {
        used: AtomicBool,
        gone: AtomicBool,
    }

    impl LetGo for Thing {
        fn was_used(&self) -> bool {
            self.used.swap(false, Ordering::Relaxed)
        }

        fn release(&self) {
            assert!(!self.gone.swap(true, Ordering::Relaxed), "once");
        }
    }

    /// Used again as soon as the hand has come by.
    #[derive(Default)]
    struct Busy {
        looks: AtomicUsize,
        gone: AtomicBool,
    }

    impl LetGo for Busy {
        fn was_used(&self) -> bool {
            assert!(self.looks.fetch_add(1, Ordering::Relaxed) < TURNS, "the hand keeps turning");
            true
        }

        fn release(&self) {
            assert!(!self.gone.swap(true, Ordering::Relaxed), "once");
        }
    }

    fn gone(things: &[Arc<Thing>]) -> Vec<usize> {
        let is_gone = |n: &usize| things[*n].gone.load(Ordering::Relaxed);
        (0..things.len()).filter(is_gone).collect()
    }

    #[test]
    fn a_gauge_is_the_sum_of_its_holdings() {
        let gauge = Arc::new(Gauge::default());
        let mut some = gauge.hold(10);
        let more = gauge.hold_within(5, 15);
        assert!(more.is_some() && gauge.hold_within(1, 15).is_none());
        some.set(3);
        assert_eq!(gauge.bytes(), 8);
        some.set(30);
        drop(more);
        assert_eq!(gauge.bytes(), 30);
        drop(some);
        assert_eq!(gauge.bytes(), 0);
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes_in_turn() {
        let (clock, things): (Clock, Vec<Arc<Thing>>) = Default::default();
        let mut things = things;
        let mut keep = |used: bool| {
            let thing = Arc::new(Thing::default());
            thing.used.store(used, Ordering::Relaxed);
            things.push(Arc::clone(&thing));
            clock.keep(thing, 10)
        };
        let places: Vec<u64> = [false, true, false, true].map(&mut keep).to_vec();
        clock.set_most(40);
        keep(false);
        assert_eq!(gone(&things), [0]);
        assert!(clock.was_short() && !clock.was_short());
        let mut keep_one = || {
            things.push(Arc::default());
            clock.keep(Arc::clone(&things[things.len() - 1]) as _, 10)
        };
        keep_one();
        assert_eq!(gone(&things), [0, 2], "1 was used");
        clock.remove(places[3]);
        clock.remove(places[0]);
        clock.set_most(10);
        assert_eq!(gone(&things), [0, 2, 4, 5], "the hand comes to 1 after these; 3 was removed");
        clock.set_most(0);
        assert_eq!(clock.ring.lock().bytes, 0);
    }

    /// Bug: a call of `keep` did not end, with the clock's mutex held, while other threads used
    /// all that there was faster than the hand came by.
    /// Cause: the hand spared what was used, however often it had come by.
    /// Fix: after two turns it spares nothing.
    #[test]
    fn what_is_used_all_the_time_goes_after_two_turns() {
        let (clock, things) = (Clock::default(), [(); 4].map(|()| Arc::new(Busy::default())));
        for thing in &things {
            clock.keep(Arc::clone(thing) as _, 10);
        }
        clock.set_most(20);
        let is_gone = |thing: &Arc<Busy>| thing.gone.load(Ordering::Relaxed);
        assert_eq!(things.each_ref().map(is_gone), [true, true, false, false]);
        assert_eq!(clock.kept(), 20);
    }
}
