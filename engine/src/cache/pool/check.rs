//! Holds the pool against its invariants: from frames to swips, and from swips to frames.

use super::{BufferFrame, Entry, FramePool, Swips, Weigh};
use crate::mvcc::pin;

impl<V: Weigh + Send + Sync + 'static> FramePool<V> {
    /// What breaks an invariant, if something does. It holds the lock for as long as there are
    /// frames.
    pub(crate) fn check(&self) -> Option<String> {
        let guard = pin();
        let state = self.state.lock();
        if !state.queues.check() {
            return Some("the queues of the pool do not add up".into());
        }
        for (place, entry, bytes) in state.queues.iter() {
            let frame = &entry.frame;
            let leads = |(swips, n): &(Swips<V>, u32)| {
                let found = swips.get(*n as usize, &guard);
                found.is_some_and(|found| std::ptr::eq(found, &raw const **frame))
            };
            if entry.parents.is_empty() || !entry.parents.iter().all(leads) {
                return Some(format!("the frame at {place} has a swip that does not lead to it"));
            }
            let queue = state.queues.queue_of(place);
            if frame.place() != place
                || queue != Some(frame.warmth().queue)
                || bytes != frame.weight()
            {
                return Some(format!("the frame at {place} is listed as another one"));
            }
        }
        let (queued, used) = (state.queues.bytes(), self.used());
        (used < queued).then(|| format!("{queued} bytes in the queues, {used} counted"))
    }

    /// A swip of an extent that leads to a frame which the pool does not know it by, if there is
    /// one. It holds the lock for as long as there are swips.
    pub(crate) fn check_swips(&self, swips: &Swips<V>) -> Option<String> {
        let guard = pin();
        let state = self.state.lock();
        let is_known = |n: usize, frame: &BufferFrame<V>| {
            let lists = |entry: &Entry<V>| {
                let is_it = |(of, m): &(Swips<V>, u32)| of.are(swips) && *m as usize == n;
                std::ptr::eq(&raw const *entry.frame, frame) && entry.parents.iter().any(is_it)
            };
            state.queues.get(frame.place()).is_some_and(lists)
        };
        let stray = (0..swips.len())
            .find(|n| swips.get(*n, &guard).is_some_and(|frame| !is_known(*n, frame)))?;
        Some(format!("swip {stray} leads to a frame that the pool does not list it for"))
    }
}
