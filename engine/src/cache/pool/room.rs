//! Room for what is about to be loaded: which frames leave for it, and that all stays within the
//! capacity.
//!
//! Four sums share the capacity: frames in the queues, rooms, frames that have left and are still
//! in use, and memory of the arena that is free. A frame that is evicted moves through them: it
//! leaves the queues at once, its memory is free when no reader can be on the way to it, and a new
//! frame takes it. So an eviction makes the sum of the four no smaller. It makes a place.
//!
//! What finds a place among the free memory needs no eviction for that place: the queues grow by
//! what the free memory loses. What finds none takes new memory. The free memory is then of no use
//! for it, and the queues have that much less.

use super::{FramePool, Gone};
use crate::base::memory::Holding;
use crate::mvcc::{drive, pin};

/// One part of so many of the capacity is kept for values that left and that readers may still use.
const LEAVING: u64 = 32;
const MOST_LEAVING: u64 = 4 << 20;

/// Bytes that are kept for a value while it is loaded. They are free again when this is dropped.
#[derive(Debug)]
pub(crate) struct LoadRoom {
    pub(super) held: Holding,
    pub(super) loading: Holding,
    bytes: u64,
}

/// The most bytes in the queues: so much less than the capacity that what left and is still in use
/// has room, too.
pub(super) fn most_queued(capacity: u64) -> u64 {
    capacity - leaving(capacity)
}

/// Of a capacity, what is kept for values that left, and for memory that is free.
fn leaving(capacity: u64) -> u64 {
    (capacity / LEAVING).min(MOST_LEAVING)
}

/// Memory of the arena that is in no use, seen by a value that is about to come.
#[derive(Clone, Copy, Debug)]
struct Free {
    bytes: u64,
    /// Whether one free range is long enough for the value, and all of them for the rooms too.
    has_place: bool,
}

impl Free {
    /// Bytes that the queues cannot have because of it.
    fn denied(self) -> u64 {
        if self.has_place { 0 } else { self.bytes }
    }

    /// Bytes that are still free when `coming` bytes have their places.
    fn after(self, coming: u64) -> u64 {
        if self.has_place { self.bytes.saturating_sub(coming) } else { self.bytes }
    }
}

impl<V: Send + Sync + 'static> FramePool<V> {
    /// Keeps room for a value that is about to be loaded and will weigh about `bytes`, perhaps in
    /// place of others. `None` if there is none, because they are too many or because readers still
    /// use what left: the reader then loads it for itself alone.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<LoadRoom> {
        let (capacity, mut gone) = (self.capacity(), Gone::new());
        {
            let free = self.free_for(bytes, capacity);
            let mut state = self.state.lock();
            let coming = bytes.checked_add(self.rooms.bytes())?;
            let most = most_queued(capacity).checked_sub(coming)?;
            let denied = free.denied().saturating_sub(leaving(capacity) / 2);
            state.make_room(most.saturating_sub(denied), &mut gone);
        }
        gone.release();
        let hold = || {
            let coming = bytes.checked_add(self.rooms.bytes())?;
            let free = self.free_for(bytes, capacity).after(coming);
            self.used.hold_within(bytes, capacity.checked_sub(free)?)
        };
        let held = hold().or_else(|| {
            pin().flush();
            hold()
        })?;
        Some(LoadRoom { held, loading: self.rooms.hold(bytes), bytes })
    }

    /// The same room for another number of bytes.
    pub(super) fn resize(&self, mut room: LoadRoom, bytes: u64) -> Option<LoadRoom> {
        if bytes > room.bytes {
            drop(room);
            return self.reserve(bytes);
        }
        room.held.set(bytes);
        room.loading.set(bytes);
        room.bytes = bytes;
        Some(room)
    }

    /// What is free for a value of `bytes`. Where the capacity does not hold it beside what is in
    /// use, memory goes back to the system first. What cannot go back is no place then: the pool
    /// evicts, and ranges join.
    fn free_for(&self, bytes: u64, capacity: u64) -> Free {
        let Some(arena) = &self.arena else { return Free { bytes: 0, has_place: false } };
        let coming = bytes.saturating_add(self.rooms.bytes());
        let most = capacity.saturating_sub(self.used.bytes());
        arena.trim(most);
        let (free, has_place) = arena.free_for(bytes);
        if has_place && (coming..=most).contains(&free) {
            return Free { bytes: free, has_place };
        }
        Free { bytes: arena.trim(most.saturating_sub(bytes)), has_place: false }
    }

    /// Bytes of memory that are in no use.
    pub(super) fn free_bytes(&self) -> u64 {
        self.arena.as_ref().map_or(0, |arena| arena.free_bytes())
    }

    /// Gives memory back that is in no use, until no more than `most` bytes are taken with it, as
    /// far as it can.
    pub(super) fn trim_to(&self, most: u64) {
        if let Some(arena) = &self.arena {
            arena.trim(most.saturating_sub(self.used.bytes()));
        }
    }

    /// Evicts until the queues have at most `most` bytes.
    pub(super) fn shrink_to(&self, most: u64) {
        let mut gone = Gone::new();
        self.state.lock().make_room(most, &mut gone);
        if gone.release() {
            drive();
        }
    }
}
