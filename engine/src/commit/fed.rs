//! Commit groups between commits and the shipper: the bytes of their parts, one group behind the
//! other in a few buffers.
//!
//! A commit copies its records into the buffer of its thread, under a lock that no other thread
//! takes as a rule. The shipper takes whole buffers, and gives emptied ones back. So a group costs
//! no allocation here, and no thread frees what another one allocated.
//!
//! Thread safety: any thread may use [`FeedBuffers`]; [`FedGroups`] is the shipper's.

use std::collections::VecDeque;
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::group::Group;
use super::subentry::Content;
use crate::os::sync::locks::Mutex;
use crate::os::{thread, time};
use crate::record::{Lsn, put_bytes};

/// So many buffers are filled at a time.
const BUFFERS: usize = 8;

/// What a group counts beyond its bytes.
const GROUP_BYTES: u64 = 64;

/// An emptied buffer with more room is not kept.
const MOST_KEPT: usize = 4 << 20;

/// A commit group that was handed over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FedGroup {
    pub(crate) lsn: Lsn,
    pub(crate) content: Content,
    /// Whether some of its rows lie in extents.
    pub(crate) has_runs: bool,
    /// How many parts it has.
    pub(crate) parts: u16,
    len: u32,
}

impl FedGroup {
    /// Bytes that it counts.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.len) + GROUP_BYTES
    }
}

/// Groups of some threads, in the order in which they came.
#[derive(Debug, Default)]
struct Filling {
    bytes: Vec<u8>,
    groups: Vec<FedGroup>,
    /// When the first one came.
    since: Option<Instant>,
}

/// The buffers that commits fill.
#[derive(Debug, Default)]
pub(super) struct FeedBuffers([CachePadded<Mutex<Filling>>; BUFFERS]);

impl FeedBuffers {
    /// Describes a group that is to be added.
    pub(super) fn describe(lsn: Lsn, group: &Group) -> FedGroup {
        let (content, has_runs) = (group.content, group.has_runs);
        // A cleaner's copies are no news.
        let parts = if content == Content::Moved { &[] } else { &group.parts[..] };
        // Before each part its length is written.
        let len: usize = parts.iter().map(|part| part.payload().len() + size_of::<u32>()).sum();
        debug_assert!(u32::try_from(len).is_ok(), "a group fits in zones");
        FedGroup { lsn, content, has_runs, parts: parts.len() as u16, len: len as u32 }
    }

    /// Adds a group.
    pub(super) fn add(&self, fed: FedGroup, group: &Group) {
        let mut filling = self.0[thread::number() % BUFFERS].lock();
        filling.since.get_or_insert_with(time::now);
        let before = filling.bytes.len();
        for part in &group.parts[..usize::from(fed.parts)] {
            put_bytes(&mut filling.bytes, part.payload());
        }
        debug_assert_eq!(filling.bytes.len() - before, fed.len as usize, "as it was described");
        filling.groups.push(fed);
    }
}

/// A buffer that was taken.
#[derive(Debug)]
struct TakenBuffer {
    bytes: Vec<u8>,
    /// Groups that the shipper still needs.
    live: usize,
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct PlacedGroup {
    group: FedGroup,
    /// The number of its buffer, and its first byte there.
    buffer: u64,
    start: usize,
}

/// Groups that the shipper has taken, by their LSNs.
#[derive(Debug, Default)]
pub(crate) struct FedGroups {
    groups: VecDeque<PlacedGroup>,
    /// The first one has the number `first_buffer`.
    buffers: VecDeque<TakenBuffer>,
    first_buffer: u64,
    /// Emptied ones, and emptied lists of groups.
    spare: (Vec<Vec<u8>>, Vec<Vec<FedGroup>>),
}

impl FedGroups {
    /// Takes all that is there.
    pub(super) fn take_from(&mut self, buffers: &FeedBuffers) {
        let before = self.groups.len();
        for buffer in &buffers.0 {
            let mut filling = buffer.lock();
            let Some(since) = filling.since.take() else { continue };
            let bytes = self.spare.0.pop().unwrap_or_default();
            let bytes = std::mem::replace(&mut filling.bytes, bytes);
            let list = self.spare.1.pop().unwrap_or_default();
            let list = std::mem::replace(&mut filling.groups, list);
            drop(filling);
            self.add(bytes, list, since);
        }
        if self.groups.len() > before {
            // Each buffer is nearly in order, which the sort makes use of.
            self.groups.make_contiguous().sort_by_key(|placed| placed.group.lsn);
        }
        debug_assert!(
            self.groups
                .iter()
                .zip(self.groups.iter().skip(1))
                .all(|(a, b)| a.group.lsn < b.group.lsn),
            "each group is handed over once"
        );
    }

    fn add(&mut self, bytes: Vec<u8>, mut list: Vec<FedGroup>, since: Instant) {
        let number = self.first_buffer + self.buffers.len() as u64;
        let mut start = 0;
        for group in &list {
            self.groups.push_back(PlacedGroup { group: *group, buffer: number, start });
            start += group.len as usize;
        }
        debug_assert_eq!(start, bytes.len(), "groups lie behind each other");
        self.buffers.push_back(TakenBuffer { bytes, live: list.len(), since });
        list.clear();
        if self.spare.1.len() < BUFFERS {
            self.spare.1.push(list);
        }
    }

    /// The groups from the first on, by their LSNs, each with its parts: the length of each comes
    /// before its records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FedGroup, &[u8])> {
        self.groups.iter().map(|PlacedGroup { group, buffer, start }| {
            let taken = &self.buffers[(buffer - self.first_buffer) as usize];
            (*group, &taken.bytes[*start..*start + group.len as usize])
        })
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// When the first one was handed over, or one of its buffer before it.
    pub(crate) fn since(&self) -> Option<Instant> {
        let first = self.groups.front()?;
        Some(self.buffers[(first.buffer - self.first_buffer) as usize].since)
    }

    /// Drops groups below `lsn`, and returns the bytes that they counted.
    pub(crate) fn forget_below(&mut self, lsn: Lsn) -> u64 {
        let mut bytes = 0;
        while let Some(first) = self.groups.pop_front_if(|placed| placed.group.lsn < lsn) {
            bytes += first.group.bytes();
            self.buffers[(first.buffer - self.first_buffer) as usize].live -= 1;
        }
        while let Some(empty) = self.buffers.pop_front_if(|taken| taken.live == 0) {
            self.first_buffer += 1;
            let mut spare = empty.bytes;
            if spare.capacity() <= MOST_KEPT && self.spare.0.len() < BUFFERS {
                spare.clear();
                self.spare.0.push(spare);
            }
        }
        bytes
    }

    /// Drops all groups.
    pub(super) fn clear(&mut self) {
        self.forget_below(Lsn::MAX);
        debug_assert!(self.buffers.is_empty(), "a buffer without groups goes");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn add(buffers: &FeedBuffers, lsn: Lsn) {
        let group = Group::event(b"key", &lsn.to_le_bytes(), None);
        buffers.add(FeedBuffers::describe(lsn, &group), &group);
    }

    /// Threads hand groups over in any order; the shipper has them by their LSNs, with their bytes.
    #[test]
    fn groups_come_in_their_order_whichever_thread_hands_them_over() {
        let (buffers, mut taken) = (FeedBuffers::default(), FedGroups::default());
        let mut counted = 0;
        for round in 0..20u64 {
            let next = std::sync::atomic::AtomicU64::new(round * 400 + 1);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            add(&buffers, next.fetch_add(1, Ordering::Relaxed));
                        }
                    });
                }
            });
            taken.take_from(&buffers);
            let lsns: Vec<Lsn> = taken.iter().map(|(group, _)| group.lsn).collect();
            let last = (round + 1) * 400;
            assert!(lsns.is_sorted() && lsns.last() == Some(&last), "{round}");
            for (group, bytes) in taken.iter() {
                assert_eq!((group.parts, bytes.len() as u64), (1, group.bytes() - GROUP_BYTES));
                assert!(bytes.windows(8).any(|it| it == group.lsn.to_le_bytes()), "{group:?}");
            }
            assert!(taken.since().is_some());
            counted += taken.forget_below(last - 37);
            assert_eq!(taken.iter().count(), 38);
            assert_eq!(taken.iter().next().map(|(group, _)| group.lsn), Some(last - 37));
        }
        assert!(counted > 0 && taken.spare.0.len() <= BUFFERS);
        taken.clear();
        assert!(taken.is_empty() && taken.since().is_none());
    }
}
