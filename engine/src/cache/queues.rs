//! Two queues of things that may be evicted. Each thing has a place, by which it is found, moved
//! and removed in constant time.
//!
//! Invariants, which [`Queues::check`] holds against the whole:
//!
//! 1. A place is in one queue, or free.
//! 2. The bytes of a queue are the sum of what its things take.

/// A queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictionQueue {
    /// What has just come.
    Small,
    /// What was asked for again.
    Main,
}

/// No place.
const NONE: u32 = u32::MAX;

struct Slot<T> {
    /// The neighbours in the queue; of a free place, `next` is another free one.
    before: u32,
    next: u32,
    queue: EvictionQueue,
    /// With the bytes that it takes; `None` if the place is free.
    thing: Option<(T, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct QueueEnds {
    first: u32,
    last: u32,
    bytes: u64,
}

/// The queues.
pub(super) struct Queues<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: usize,
    ends: [QueueEnds; 2],
}

impl<T> Default for Queues<T> {
    fn default() -> Queues<T> {
        let ends = QueueEnds { first: NONE, last: NONE, bytes: 0 };
        Queues { slots: Vec::new(), free: NONE, len: 0, ends: [ends; 2] }
    }
}

impl<T> Queues<T> {
    /// Appends a thing to a queue; `None` when all places are taken, of which there are more than
    /// four thousand million.
    pub(super) fn push(&mut self, queue: EvictionQueue, thing: T, bytes: u64) -> Option<u32> {
        let slot = Slot { before: NONE, next: NONE, queue, thing: Some((thing, bytes)) };
        let place = match self.slots.get(self.free as usize) {
            Some(free) => {
                let place = std::mem::replace(&mut self.free, free.next);
                self.slots[place as usize] = slot;
                place
            }
            None => {
                let place = u32::try_from(self.slots.len()).ok().filter(|place| *place != NONE)?;
                self.slots.push(slot);
                place
            }
        };
        self.len += 1;
        self.ends[queue as usize].bytes += bytes;
        self.link(place, queue);
        Some(place)
    }

    fn link(&mut self, place: u32, queue: EvictionQueue) {
        let last = std::mem::replace(&mut self.ends[queue as usize].last, place);
        match self.slots.get_mut(last as usize) {
            Some(before) => before.next = place,
            None => self.ends[queue as usize].first = place,
        }
        let slot = &mut self.slots[place as usize];
        (slot.before, slot.next, slot.queue) = (last, NONE, queue);
    }

    fn unlink(&mut self, place: u32) {
        let Slot { before, next, queue, .. } = self.slots[place as usize];
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.next = next,
            None => self.ends[queue as usize].first = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(slot) => slot.before = before,
            None => self.ends[queue as usize].last = before,
        }
    }

    /// What is at a place.
    pub(super) fn get(&self, place: u32) -> Option<&T> {
        self.slots.get(place as usize)?.thing.as_ref().map(|(thing, _)| thing)
    }

    /// As [`Queues::get`], to be changed.
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.slots.get_mut(place as usize)?.thing.as_mut().map(|(thing, _)| thing)
    }

    /// The place that is first in a queue.
    pub(super) fn first(&self, queue: EvictionQueue) -> Option<u32> {
        Some(self.ends[queue as usize].first).filter(|place| *place != NONE)
    }

    /// The queue that a thing is in.
    pub(super) fn queue_of(&self, place: u32) -> Option<EvictionQueue> {
        self.slots.get(place as usize).filter(|slot| slot.thing.is_some()).map(|slot| slot.queue)
    }

    /// Puts a thing to the end of a queue.
    pub(super) fn move_to(&mut self, place: u32, queue: EvictionQueue) {
        let Some(from) = self.queue_of(place) else { return };
        let bytes = self.slots[place as usize].thing.as_ref().map_or(0, |(_, bytes)| *bytes);
        self.unlink(place);
        self.ends[from as usize].bytes -= bytes;
        self.ends[queue as usize].bytes += bytes;
        self.link(place, queue);
    }

    /// Sets the bytes that a thing takes.
    pub(super) fn set_bytes(&mut self, place: u32, bytes: u64) {
        let Some(queue) = self.queue_of(place) else { return };
        if let Some((_, before)) = &mut self.slots[place as usize].thing {
            let all = &mut self.ends[queue as usize].bytes;
            *all = *all - *before + bytes;
            *before = bytes;
        }
    }

    /// Removes what is at a place.
    pub(super) fn remove(&mut self, place: u32) -> Option<T> {
        let queue = self.queue_of(place)?;
        self.unlink(place);
        let free = std::mem::replace(&mut self.free, place);
        let slot = &mut self.slots[place as usize];
        slot.next = free;
        let (thing, bytes) = slot.thing.take()?;
        self.ends[queue as usize].bytes -= bytes;
        self.len -= 1;
        Some(thing)
    }

    /// Bytes of the things in a queue.
    pub(super) fn bytes_of(&self, queue: EvictionQueue) -> u64 {
        self.ends[queue as usize].bytes
    }

    /// Bytes of all things.
    pub(super) fn bytes(&self) -> u64 {
        self.ends.iter().map(|ends| ends.bytes).sum()
    }

    /// How many things there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All things, with their places and the bytes that they take.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T, u64)> {
        let things = (0..).zip(&self.slots);
        things
            .filter_map(|(at, slot)| slot.thing.as_ref().map(|(thing, bytes)| (at, thing, *bytes)))
    }

    /// Whether the invariants hold.
    pub(super) fn check(&self) -> bool {
        let mut seen = 0;
        for queue in [EvictionQueue::Small, EvictionQueue::Main] {
            let (mut at, mut before, mut bytes) = (self.ends[queue as usize].first, NONE, 0);
            while let Some(slot) = self.slots.get(at as usize) {
                let Some((_, taken)) = &slot.thing else { return false };
                if slot.before != before || slot.queue != queue || seen > self.len {
                    return false;
                }
                (bytes, seen, before, at) = (bytes + taken, seen + 1, at, slot.next);
            }
            let ends = &self.ends[queue as usize];
            if ends.last != before || ends.bytes != bytes {
                return false;
            }
        }
        let (mut free, mut at) = (0, self.free);
        while let Some(slot) = self.slots.get(at as usize).filter(|_| free <= self.slots.len()) {
            (free, at) = (free + usize::from(slot.thing.is_none()), slot.next);
        }
        seen == self.len && free + seen == self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Push(EvictionQueue, u64),
        Move(usize, EvictionQueue),
        Resize(usize, u64),
        Remove(usize),
    }

    fn acts() -> impl Strategy<Value = Act> {
        let queue = || prop::sample::select(&[EvictionQueue::Small, EvictionQueue::Main][..]);
        prop_oneof![
            (queue(), 0u64..50).prop_map(|(queue, bytes)| Act::Push(queue, bytes)),
            (any::<usize>(), queue()).prop_map(|(n, queue)| Act::Move(n, queue)),
            (any::<usize>(), 0u64..50).prop_map(|(n, bytes)| Act::Resize(n, bytes)),
            any::<usize>().prop_map(Act::Remove),
        ]
    }

    proptest! {
        /// Against two deques of (place, thing, bytes).
        #[test]
        fn queues_are_two_deques(acts in prop::collection::vec(acts(), 1..80)) {
            let mut queues = Queues::default();
            let mut model: [VecDeque<(u32, usize, u64)>; 2] = Default::default();
            for (n, act) in acts.into_iter().enumerate() {
                let all: Vec<(usize, usize)> = (0..2)
                    .flat_map(|queue| (0..model[queue].len()).map(move |at| (queue, at)))
                    .collect();
                let chosen = |n: usize| all.get(n % all.len().max(1)).copied();
                match act {
                    Act::Push(queue, bytes) => {
                        let place = queues.push(queue, n, bytes).unwrap();
                        model[queue as usize].push_back((place, n, bytes));
                    }
                    Act::Move(n, to) => if let Some((queue, at)) = chosen(n) {
                        let moved = model[queue].remove(at).unwrap();
                        queues.move_to(moved.0, to);
                        model[to as usize].push_back(moved);
                    }
                    Act::Resize(n, bytes) => if let Some((queue, at)) = chosen(n) {
                        model[queue][at].2 = bytes;
                        queues.set_bytes(model[queue][at].0, bytes);
                    }
                    Act::Remove(n) => if let Some((queue, at)) = chosen(n) {
                        let (place, thing, _) = model[queue].remove(at).unwrap();
                        prop_assert_eq!(queues.remove(place), Some(thing));
                        prop_assert_eq!(queues.remove(place), None);
                    }
                }
                prop_assert!(queues.check());
                let queues_of_all = [EvictionQueue::Small, EvictionQueue::Main];
                for (queue, of_model) in queues_of_all.into_iter().zip(&model) {
                    prop_assert_eq!(queues.first(queue), of_model.front().map(|one| one.0));
                    let bytes: u64 = of_model.iter().map(|one| one.2).sum();
                    prop_assert_eq!(queues.bytes_of(queue), bytes);
                    for (place, thing, _) in of_model {
                        prop_assert_eq!(queues.get(*place), Some(thing));
                        prop_assert_eq!(queues.queue_of(*place), Some(queue));
                    }
                }
                prop_assert_eq!(queues.len(), model.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
