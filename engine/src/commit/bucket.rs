//! Buckets: where batches of several threads become one commit group.
//!
//! A thread brings its encoded group to one of a few buckets. The first thread leads. Threads that
//! come while the leader's group is on its way to the ring wait, and go together in the next one.
//! So a lone writer waits for no other thread. The more writers there are, the more of them share
//! a ticket, a header and a fence. No thread in a bucket has a ticket yet, so a stopped leader
//! holds up only its own bucket.
//!
//! Thread safety: the queue is behind a mutex that is held for a few instructions.
//!
//! Invariants:
//!
//! 1. While `led`, exactly one thread leads the bucket. No thread waits in one that is not led.
//! 2. A member that waits is told exactly once: that it leads, that it is done, or that it goes
//!    alone. A leader that dies tells its followers too.
//! 3. Members of a group keep the order in which they came.

use std::collections::VecDeque;
use std::sync::Arc;

use super::group::Group;
use super::ring::WaitQueue;
use crate::base::operations;
use crate::base::record::Lsn;
use crate::os::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::os::{cores, thread};

/// What became of a member's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It went into this LSN's group, which was published.
    Published(Lsn),
    /// It went into this LSN's group, and the database stopped before that was published.
    Unknown(Lsn),
    /// The group of all could not go. Each tries alone, to find out whose fault it was.
    Alone,
}

/// A group that waits in a bucket.
#[derive(Debug)]
pub(super) struct Member {
    group: Mutex<Option<Group>>,
    told: Mutex<Option<Told>>,
    queue: WaitQueue,
}

#[derive(Debug)]
enum Told {
    /// It leads the bucket now, with its own group to begin with.
    Leads,
    Done(Outcome),
}

#[derive(Debug, Default)]
struct Queue {
    led: bool,
    waiting: VecDeque<Arc<Member>>,
}

/// One bucket.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    queue: Mutex<Queue>,
}

/// The part of a thread that brought a group.
#[expect(clippy::large_enum_variant, reason = "moved once; a box would be an allocation a commit")]
pub(super) enum Part<'a> {
    Leads(Lead<'a>),
    Follows(Outcome),
}

#[cfg(test)]
#[cfg_attr(feature = "loom", expect(dead_code, reason = "order.rs"))]
impl Bucket {
    /// Whether a thread leads it.
    pub(super) fn is_led(&self) -> bool {
        self.queue.lock().led
    }

    /// How many wait in it.
    pub(super) fn waiting(&self) -> usize {
        self.queue.lock().waiting.len()
    }
}

impl Bucket {
    /// Brings a group; returns when it leads, or when another leader has committed it.
    pub(super) fn join(&self, group: Group) -> Part<'_> {
        let member = {
            let mut queue = self.queue.lock();
            if !queue.led {
                debug_assert!(
                    queue.waiting.is_empty(),
                    "no thread waits in a bucket that is not led (invariant 1)"
                );
                queue.led = true;
                return Part::Leads(Lead::new(self, group));
            }
            let member = Arc::new(Member {
                group: Mutex::new(Some(group)),
                told: Mutex::new(None),
                queue: WaitQueue::default(),
            });
            queue.waiting.push_back(Arc::clone(&member));
            member
        };
        match operations::wait(|spent| &mut spent.sync, || member.wait()) {
            Told::Leads => match member.group.lock().take() {
                Some(group) => Part::Leads(Lead::new(self, group)),
                None => unreachable!("a member that is told to lead has its group (invariant 2)"),
            },
            Told::Done(outcome) => Part::Follows(outcome),
        }
    }
}

impl Member {
    fn tell(&self, told: Told) {
        let before = self.told.lock().replace(told);
        debug_assert!(before.is_none(), "a member is told once (invariant 2)");
        self.queue.wake_all();
    }

    fn wait(&self) -> Told {
        loop {
            if let Some(told) = self.told.lock().take() {
                return told;
            }
            let waiter = self.queue.enter();
            if self.told.lock().is_none() {
                waiter.sleep();
            }
        }
    }
}

/// The lead of a bucket, with the group that goes to the ring next.
pub(super) struct Lead<'a> {
    bucket: Option<&'a Bucket>,
    group: Option<Group>,
    followers: Vec<Arc<Member>>,
    /// The LSN of the group, once it has a ticket.
    lsn: Option<Lsn>,
}

impl<'a> Lead<'a> {
    fn new(bucket: &'a Bucket, group: Group) -> Lead<'a> {
        Lead { bucket: Some(bucket), group: Some(group), followers: Vec::new(), lsn: None }
    }

    /// Takes along the groups that wait, as far as the bounds and the `room` in a zone allow, and
    /// returns the group of all.
    pub(super) fn gather(&mut self, bounds: &Bounds, room: usize) -> Group {
        let Some(mut group) = self.group.take() else { unreachable!("a group is gathered once") };
        let Some(bucket) = self.bucket else { return group };
        let (most, bytes) =
            (bounds.batches.load(Ordering::Relaxed) as usize, bounds.bytes().min(room));
        let mut queue = bucket.queue.lock();
        debug_assert!(self.lsn.is_none(), "a group gathers its members before its ticket");
        while self.followers.len() + 1 < most
            && let Some(next) = queue.waiting.front()
        {
            let mut waiting = next.group.lock();
            if !waiting.as_ref().is_some_and(|next| group.takes(next, bytes)) {
                break;
            }
            if let Some(next) = waiting.take() {
                group.absorb(next);
            }
            drop(waiting);
            self.followers.extend(queue.waiting.pop_front());
        }
        drop(queue);
        group.drop_superseded();
        group
    }

    /// Notes that the group has its ticket.
    pub(super) fn note_ticket(&mut self, lsn: Lsn) {
        debug_assert_eq!(self.lsn, None, "a group has one ticket");
        self.lsn = Some(lsn);
    }

    /// Whether the group is of more than one.
    pub(super) fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    /// Gives the bucket to the next thread, if one waits: this one's group is in the ring.
    pub(super) fn hand_on(&mut self) {
        let Some(bucket) = self.bucket.take() else { return };
        let mut queue = bucket.queue.lock();
        debug_assert!(queue.led, "a bucket is handed on by the thread that leads it (invariant 1)");
        let next = queue.waiting.pop_front();
        queue.led = next.is_some();
        drop(queue);
        if let Some(next) = next {
            next.tell(Told::Leads);
        }
    }

    /// Tells the followers what became of the group.
    pub(super) fn tell(&mut self, outcome: Outcome) {
        self.followers.drain(..).for_each(|member| member.tell(Told::Done(outcome)));
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.hand_on();
        // Followers are left only when the leader died on its way (invariant 2). Without a ticket
        // nothing was done.
        self.tell(self.lsn.map_or(Outcome::Alone, Outcome::Unknown));
    }
}

/// How large a group of several batches may become; may be changed at any time.
#[derive(Debug)]
pub(super) struct Bounds {
    batches: AtomicU32,
    bytes: AtomicU64,
}

impl Bounds {
    fn bytes(&self) -> usize {
        usize::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }
}

/// The buckets of a database: some for durable groups and as many for relaxed ones, which must not
/// wait for a sync.
#[derive(Debug)]
pub(super) struct Buckets {
    buckets: Box<[Bucket]>,
    pub(super) bounds: Bounds,
}

impl Buckets {
    /// Buckets for as many threads as there are processors.
    pub(super) fn new() -> Buckets {
        Buckets::of(if cfg!(feature = "loom") { 1 } else { cores().min(8) })
    }

    /// So many for durable groups, and as many for relaxed ones.
    pub(super) fn of(each: usize) -> Buckets {
        Buckets {
            buckets: (0..2 * each).map(|_| Bucket::default()).collect(),
            bounds: Bounds { batches: AtomicU32::new(1), bytes: AtomicU64::new(0) },
        }
    }

    /// Bounds groups by the number of batches and by their bytes.
    pub(super) fn set_bounds(&self, batches: u32, bytes: u64) {
        self.bounds.batches.store(batches.max(1), Ordering::Relaxed);
        self.bounds.bytes.store(bytes, Ordering::Relaxed);
    }

    /// This thread's bucket; `None` when every batch is a group of its own.
    pub(super) fn of_this_thread(&self, relaxed: bool) -> Option<&Bucket> {
        if self.bounds.batches.load(Ordering::Relaxed) < 2 {
            return None;
        }
        let each = self.buckets.len() / 2;
        Some(&self.buckets[thread::number() % each + if relaxed { each } else { 0 }])
    }
}
