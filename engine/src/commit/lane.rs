//! Lanes: where threads wait until somebody rings.

use crate::os::sync::{AtomicU32, Futex, Ordering, fence};

/// Where threads wait until it is rung.
///
/// Thread safety: any thread waits, any thread rings.
///
/// Invariants:
///
/// 1. A thread takes a seat, looks once more whether it has to wait, and then sleeps. Who rings
///    has changed what it looks at before, with a sequentially consistent fence in between on
///    both sides: either the sleeper sees the change, or the ringer sees the seat.
/// 2. Whoever sleeps saw `rings` before it looked: a ring after that does not let it sleep.
#[derive(Debug, Default)]
pub(super) struct Lane {
    rings: Futex,
    seats: AtomicU32,
    /// Whoever wakes up next wakes all others (1), or does not (0).
    relay: AtomicU32,
}

/// A seat in a lane, given back by dropping it.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    lane: &'a Lane,
    seen: u32,
}

impl Lane {
    /// Takes a seat. Look once more before sleeping (invariant 1).
    pub(super) fn take_seat(&self) -> Seat<'_> {
        self.seats.fetch_add(1, Ordering::SeqCst);
        let seen = self.rings.count();
        fence(Ordering::SeqCst);
        Seat { lane: self, seen }
    }

    /// Wakes everybody.
    pub(super) fn ring(&self) {
        if self.is_taken() {
            self.rings.move_on();
            self.rings.wake(u32::MAX >> 1);
        }
    }

    /// Wakes everybody through the first one who wakes up: that takes the ringer one wake-up,
    /// however many sleep.
    pub(super) fn ring_through_one(&self) {
        if self.is_taken() {
            self.relay.store(1, Ordering::SeqCst);
            self.rings.move_on();
            self.rings.wake(1);
        }
    }

    /// Wakes one sleeper; whether there was one. Who has a seat and does not sleep yet looks
    /// again instead.
    pub(super) fn ring_one(&self) -> bool {
        if !self.is_taken() {
            return false;
        }
        self.rings.move_on();
        self.rings.wake(1) > 0
    }

    fn is_taken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.seats.load(Ordering::SeqCst) > 0
    }
}

impl Seat<'_> {
    /// Sleeps until the lane is rung; not at all if it was since the seat was taken. May also end
    /// for no reason.
    pub(super) fn sleep(self) {
        self.lane.rings.sleep_at(self.seen);
        let relay = &self.lane.relay;
        if relay.load(Ordering::SeqCst) == 1 && relay.swap(0, Ordering::SeqCst) == 1 {
            self.lane.ring();
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.lane.seats.fetch_sub(1, Ordering::SeqCst);
    }
}
