//! The feed: commit groups on their way from commits to the shipper, and back what the shared store
//! has acknowledged (`docs/internals/shared-store.md`).
//!
//! A commit hands its encoded parts over before its slot in the ring is finished. So once an LSN is
//! durable, its group is in the feed. The feed has a bound: a group beyond it is forgotten, and the
//! feed says so. Then a checkpoint takes the place of what is missing. No commit waits for the
//! shipper, but for those that ask for `Durability::Remote`.
//!
//! Thread safety: any thread hands over, waits and fails; one thread at a time takes.
//!
//! Invariants:
//!
//! 1. `acknowledged` only rises, and every commit up to it is in the shared store.
//! 2. After a failure nothing is acknowledged any more.
//! 3. Waits for commits that were given up end. They may be acknowledged later all the same.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::group::Group;
use super::subentry::Content;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::{Lsn, put_bytes};
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::locks::{Condvar, Mutex};
use crate::os::sync::shared::OnceLock;
use crate::os::{thread, time};

/// The most bytes of groups that wait for the shipper.
const MOST_BYTES: u64 = 64 << 20;

/// With so many bytes the shipper need not wait for its interval.
pub(crate) const FULL_SEGMENT: u64 = 4 << 20;

/// After so many steps in a row that failed on this machine, commits that wait are given up.
const TRIES: u32 = 3;

/// Where steps come in their turn, a commit gives up after so many.
const MOST_STEPS: u32 = 64;

/// What drives the shipper where it has no thread: one step.
type Driver = Box<dyn Fn() + Send + Sync>;

/// What the shared store has.
#[derive(Debug, Default)]
struct Remote {
    acknowledged: Lsn,
    failed: Option<(ErrorKind, String)>,
    /// Up to which commit, and why.
    given_up: (Lsn, String),
    /// Steps in a row that failed on this machine.
    failures: u32,
    /// Rises when a wait is to look which commit it waits for.
    looks: u64,
    /// The last commit that was waited for.
    wanted: Lsn,
    /// How many wait, and how many did when the last commit was acknowledged.
    waiting: u32,
    waited_together: u32,
}

/// What a shipper has seen before a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FeedSeen {
    queued: u64,
    wanted: Lsn,
}

/// The feed of one database.
pub(crate) struct Feed {
    buffers: FeedBuffers,
    queued: AtomicU64,
    has_lost: AtomicBool,
    remote: Mutex<Remote>,
    /// The acknowledged LSN rose, or shipping failed.
    moved: Condvar,
    /// The shipper has enough to do.
    full: Condvar,
    /// A pause is to look whether it ends: it is no part of a commit's way.
    paused: Condvar,
    driver: OnceLock<Driver>,
}

impl Remote {
    /// Why the wait for a commit ends without its acknowledgement, if so.
    fn ended(&self, lsn: Lsn) -> Option<(ErrorKind, &str)> {
        let failed = self.failed.as_ref().map(|(kind, cause)| (*kind, cause.as_str()));
        let (until, cause) = &self.given_up;
        failed.or_else(|| (lsn <= *until).then_some((ErrorKind::UnknownOutcome, cause.as_str())))
    }
}

impl Default for Feed {
    fn default() -> Feed {
        Feed {
            buffers: FeedBuffers::default(),
            queued: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            remote: Mutex::default(),
            moved: Condvar::new(),
            full: Condvar::new(),
            paused: Condvar::new(),
            driver: OnceLock::new(),
        }
    }
}

impl Feed {
    /// Hands a group over that has its LSN, before its slot is finished.
    pub(super) fn hand_over(&self, lsn: Lsn, group: &Group) {
        debug_assert!(lsn > 0, "a group that is handed over has its ticket");
        if self.has_lost.load(Ordering::SeqCst) {
            return;
        }
        let fed = FeedBuffers::describe(lsn, group);
        let bytes = fed.bytes();
        let queued = self.queued.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if queued > MOST_BYTES {
            self.has_lost.store(true, Ordering::SeqCst);
            return;
        }
        self.buffers.add(fed, group);
        if queued >= FULL_SEGMENT && queued - bytes < FULL_SEGMENT {
            self.wake();
        }
    }

    /// Takes all that is there into `into`.
    pub(crate) fn take_into(&self, into: &mut FedGroups) {
        into.take_from(&self.buffers);
    }

    /// Groups of so many bytes have left for good.
    pub(crate) fn release(&self, bytes: u64) {
        // Groups that arrive while the feed starts over are not counted.
        let less = |queued: u64| Some(queued.saturating_sub(bytes));
        self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or_default();
    }

    /// Bytes that wait for the shipper.
    pub(crate) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Forgets groups, as beyond the bound.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn forget(&self) {
        self.has_lost.store(true, Ordering::SeqCst);
    }

    /// Whether groups were forgotten.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::SeqCst)
    }

    /// Starts over after groups were forgotten. From now on every group with a new ticket is handed
    /// over. `waiting` is what the shipper holds.
    pub(crate) fn start_over(&self, waiting: &mut FedGroups) {
        self.take_into(waiting);
        waiting.clear();
        self.queued.store(0, Ordering::Relaxed);
        self.has_lost.store(false, Ordering::SeqCst);
    }

    /// Says that the shared store has every commit up to `lsn`.
    pub(crate) fn acknowledge(&self, lsn: Lsn) {
        let mut remote = self.remote.lock();
        if remote.failed.is_some() {
            return;
        }
        if lsn > remote.acknowledged {
            (remote.acknowledged, remote.waited_together) = (lsn, remote.waiting);
        }
        drop(remote);
        self.moved.notify_all();
    }

    /// The greatest LSN that the shared store has.
    pub(crate) fn acknowledged(&self) -> Lsn {
        self.remote.lock().acknowledged
    }

    /// Ends shipping: every commit that still waits fails with this error. The first one stays.
    pub(crate) fn fail(&self, error: &Error) {
        self.remote.lock().failed.get_or_insert((error.kind(), error.to_string()));
        self.moved.notify_all();
        self.full.notify_all();
        self.paused.notify_all();
    }

    /// The shipper has taken a step while `lsn` was the last commit. Where this machine fails again
    /// and again, the waits for commits up to that one end, so that their users learn of it.
    pub(crate) fn tried(&self, lsn: Lsn, did: &Result<bool>) {
        let mut remote = self.remote.lock();
        let Err(error) = did else {
            remote.failures = 0;
            return;
        };
        // A store that is away comes back. Damage, and a disk that fails, need their owner.
        let is_away = error.is_of_store_for_now() && error.kind() != ErrorKind::Corrupt;
        let is_passing = is_away || error.may_pass();
        if !is_passing && !matches!(error.kind(), ErrorKind::Closed | ErrorKind::Fenced) {
            remote.failures += 1;
            if remote.failures >= TRIES {
                remote.given_up = (lsn, error.to_string());
                self.moved.notify_all();
            }
        }
    }

    /// Whether shipping has ended.
    pub(crate) fn has_failed(&self) -> bool {
        self.remote.lock().failed.is_some()
    }

    /// Has `driver` take a step of the shipper where it has no thread.
    pub(crate) fn drive_by(&self, driver: impl Fn() + Send + Sync + 'static) {
        drop(self.driver.set(Box::new(driver)));
    }

    /// Whether a commit is decided: acknowledged, or no wait for it lasts.
    pub(crate) fn is_decided(&self, lsn: Lsn) -> bool {
        let remote = self.remote.lock();
        remote.acknowledged >= lsn || remote.ended(lsn).is_some()
    }

    /// How often waits were ended by [`Feed::look_again`].
    pub(crate) fn looks(&self) -> u64 {
        self.remote.lock().looks
    }

    /// Ends each wait that knows fewer looks.
    pub(crate) fn look_again(&self) {
        self.remote.lock().looks += 1;
        self.moved.notify_all();
    }

    /// Waits until the shared store has the commit `lsn`, or until there were more than so many
    /// `looks`, where that is asked for.
    pub(crate) fn wait_remote(&self, lsn: Lsn, looks: Option<u64>) -> Result<()> {
        let mut steps = 0;
        loop {
            if let Some(driver) = self.driver.get().filter(|_| !self.is_decided(lsn)) {
                steps += 1;
                driver();
            }
            let mut remote = self.remote.lock();
            if remote.acknowledged >= lsn || looks.is_some_and(|looks| remote.looks != looks) {
                return Ok(());
            }
            if let Some((kind, cause)) = remote.ended(lsn) {
                let fenced = kind == ErrorKind::Fenced;
                let kind = if fenced { ErrorKind::Fenced } else { ErrorKind::UnknownOutcome };
                let message = format!(
                    "commit {lsn} is durable on this machine, and the shared store has not \
                     acknowledged it: {cause}"
                );
                return Err(Error::new(kind, message));
            }
            if self.driver.get().is_none() {
                remote.wanted = remote.wanted.max(lsn);
                remote.waiting += 1;
                self.full.notify_all();
                self.moved.wait(&mut remote);
                remote.waiting -= 1;
            } else if steps >= MOST_STEPS {
                let message = format!("commit {lsn} was not acknowledged after {steps} steps");
                return Err(Error::new(ErrorKind::UnknownOutcome, message));
            }
        }
    }

    /// What there is before a step of the shipper.
    pub(crate) fn seen(&self) -> FeedSeen {
        FeedSeen { queued: self.queued(), wanted: self.remote.lock().wanted }
    }

    /// Waits for an interval of the shipper, or until there is a whole segment, or a commit that is
    /// waited for, of which the shipper has not `seen` the last group: it could ship none. Ends at
    /// once where the database `is_stopping`, so that a closing that has just woken the shipper
    /// does not wait.
    pub(crate) fn wait_for_groups(
        &self,
        interval: Duration,
        seen: FeedSeen,
        is_stopping: &dyn Fn() -> bool,
    ) {
        let has_more = |remote: &Remote| {
            let queued = self.queued();
            remote.wanted > seen.wanted || queued >= FULL_SEGMENT && queued > seen.queued
        };
        self.wait_while(time::now() + interval, is_stopping, |remote| !has_more(remote));
    }

    /// Waits until the shipper's next turn, or until there is a whole segment or a commit that is
    /// waited for.
    pub(crate) fn wait_for_turn(&self, turn: Instant, is_stopping: &dyn Fn() -> bool) {
        self.wait_while(turn, is_stopping, |remote| {
            remote.wanted <= remote.acknowledged && self.queued() < FULL_SEGMENT
        });
    }

    /// Waits until as many commits wait as did at the last acknowledgement, at most for `patience`.
    /// Does not wait if none does. A writer that was told then commits again at once, as a rule. A
    /// commit that comes after the request has begun waits for all of that one.
    pub(crate) fn gather(&self, patience: Duration, is_stopping: &dyn Fn() -> bool) {
        self.wait_while(time::now() + patience, is_stopping, |remote| {
            let is_partial = (1..remote.waited_together).contains(&remote.waiting);
            is_partial && self.queued() < FULL_SEGMENT
        });
    }

    /// The shipper waits until a moment, as long as `waits` says so and shipping has not ended.
    fn wait_while(
        &self,
        until: Instant,
        is_stopping: &dyn Fn() -> bool,
        waits: impl Fn(&Remote) -> bool,
    ) {
        let mut remote = self.remote.lock();
        while waits(&remote) && remote.failed.is_none() && !is_stopping() {
            if self.full.wait_until(&mut remote, until).timed_out() {
                return;
            }
        }
    }

    /// Waits after a failure, however much there is to ship; ends with shipping, or once the
    /// database `is_stopping` and the shipper is woken.
    pub(crate) fn pause(&self, pause: Duration, is_stopping: &dyn Fn() -> bool) {
        let until = time::now() + pause;
        let mut remote = self.remote.lock();
        while remote.failed.is_none() && !is_stopping() {
            if self.paused.wait_until(&mut remote, until).timed_out() {
                return;
            }
        }
    }

    /// Wakes the shipper and all that pauses. The lock is taken first: a shipper that has just
    /// looked and is about to wait is not missed.
    pub(crate) fn wake(&self) {
        drop(self.remote.lock());
        self.full.notify_all();
        self.paused.notify_all();
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("queued", &self.queued()).finish_non_exhaustive()
    }
}

// Commit groups between commits and the shipper: the bytes of their parts, one group behind the
// other in a few buffers.
//
// A commit copies its records into the buffer of its thread, under a lock that no other thread
// takes as a rule. The shipper takes whole buffers, and gives emptied ones back. So a group costs
// no allocation here, and no thread frees what another one allocated.
//
// Thread safety: any thread may use [`FeedBuffers`]; [`FedGroups`] is the shipper's.

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
struct FeedBuffers([CachePadded<Mutex<Filling>>; BUFFERS]);

impl FeedBuffers {
    /// Describes a group that is to be added.
    fn describe(lsn: Lsn, group: &Group) -> FedGroup {
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
    fn take_from(&mut self, buffers: &FeedBuffers) {
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
    use std::time::Instant;

    use super::*;
    use crate::base::error::Mismatch;
    use std::sync::Barrier;

    /// The commit that completes a segment told the shipper without its lock. A shipper between
    /// its look and its wait missed that, and slept for the whole interval.
    #[test]
    fn a_whole_segment_wakes_a_shipper_that_is_about_to_wait() {
        let interval = Duration::from_mins(1);
        for round in 0..20_000 {
            let (feed, start) = (Feed::default(), Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let group = Group::event(b"key", b"value", None);
                    feed.queued.store(FULL_SEGMENT - 1, Ordering::Relaxed);
                    start.wait();
                    (0..round % 50).for_each(|_| std::hint::spin_loop());
                    feed.hand_over(1, &group);
                });
                start.wait();
                let began = Instant::now();
                feed.wait_for_groups(interval, FeedSeen::default(), &|| false);
                assert!(began.elapsed() < interval, "it slept in round {round}");
            });
        }
    }

    /// Bug: a `Remote` commit waited for ever once a sync of a store in a directory had failed.
    /// Cause: all failures of the store were taken for passing. Fix: this one counts.
    #[test]
    fn a_store_that_fails_for_good_ends_waits() {
        let away = || Err(Error::new(ErrorKind::Unavailable, "away").of_store());
        let unsynced = || Err(Error::new(ErrorKind::Unavailable, "unsynced").of_store_for_good());
        let damaged = || {
            let damage = Mismatch::new("", "").at("object", "object", "of", 0);
            Err(Error::corrupt(damage).of_store())
        };
        let feed = Feed::default();
        (0..TRIES).for_each(|_| feed.tried(5, &damaged()));
        assert!(feed.is_decided(5), "damage does not pass");
        feed.tried(6, &Ok(true));
        (0..10 * TRIES).for_each(|_| feed.tried(7, &away()));
        assert!(!feed.is_decided(7));
        (0..TRIES).for_each(|_| feed.tried(7, &unsynced()));
        let error = feed.wait_remote(7, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        assert!(error.to_string().contains("unsynced"), "{error}");
        assert!(!feed.is_decided(8), "later ones are tried");
    }

    /// After a failure the shipper waited as it does for groups: not at all while a whole segment
    /// waited. So it asked a store that refuses again and again, millions of times. The pause of a
    /// failure is one of its own, which neither groups nor a wake-up ends.
    #[test]
    fn a_pause_after_a_failure_lasts_however_much_waits() {
        let (feed, stop) = (Feed::default(), AtomicBool::new(false));
        feed.queued.store(FULL_SEGMENT * 3, Ordering::Relaxed);
        let (pause, paused) = (Duration::from_millis(200), AtomicBool::new(true));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while paused.load(Ordering::Relaxed) {
                    feed.wake();
                    std::thread::yield_now();
                }
            });
            let began = Instant::now();
            feed.pause(pause, &|| stop.load(Ordering::Acquire));
            assert!(began.elapsed() >= pause);
            paused.store(false, Ordering::Relaxed);
        });
        // The end of the database ends it.
        std::thread::scope(|scope| {
            let paused = scope.spawn(|| {
                feed.pause(Duration::from_secs(3600), &|| stop.load(Ordering::Acquire));
            });
            stop.store(true, Ordering::Release);
            while !paused.is_finished() {
                feed.wake();
                std::thread::yield_now();
            }
        });
        feed.fail(&Error::closed());
        feed.pause(Duration::from_secs(3600), &|| false);
    }

    /// Bug: a closing waited for the rest of an interval. Cause: it had woken the shipper between
    /// that one's look whether to end and its wait for groups. Fix: the wait looks again, under the
    /// lock that the waking takes.
    #[test]
    fn a_shipper_that_is_to_end_waits_for_no_groups() {
        let (feed, interval, began) = (Feed::default(), Duration::from_secs(3600), Instant::now());
        feed.wake();
        feed.wait_for_groups(interval, FeedSeen::default(), &|| true);
        assert!(began.elapsed() < interval);
    }

    /// A shipper that can ship nothing of a full queue, since the first group of it is not visible
    /// yet, does not look again and again either.
    #[test]
    fn a_full_queue_of_which_nothing_can_be_shipped_is_waited_for() {
        let feed = Feed::default();
        feed.queued.store(FULL_SEGMENT * 2, Ordering::Relaxed);
        let (interval, began) = (Duration::from_millis(100), Instant::now());
        feed.wait_for_groups(interval, feed.seen(), &|| false);
        assert!(began.elapsed() >= interval);
        let (interval, began) = (Duration::from_secs(3600), Instant::now());
        let seen = FeedSeen { queued: FULL_SEGMENT, wanted: 0 };
        feed.wait_for_groups(interval, seen, &|| false);
        assert!(began.elapsed() < interval, "more has come since");
    }

    /// Waits until so many wait for commits.
    fn until_waiting(feed: &Feed, waiting: u32) {
        while feed.remote.lock().waiting != waiting {
            thread::yield_now();
        }
    }

    /// Bug: a commit with `Durability::Remote` took up to 100 ms beside the request that it needs.
    /// Cause: the shipper came to it at the end of its interval. Fix: who waits wakes the shipper.
    #[test]
    fn a_commit_that_is_waited_for_goes_out_at_once() {
        let (feed, hour, began) = (Feed::default(), Duration::from_secs(3600), Instant::now());
        std::thread::scope(|scope| {
            let seen = feed.seen();
            scope.spawn(|| feed.wait_remote(7, None).unwrap());
            feed.wait_for_groups(hour, seen, &|| false);
            let seen = feed.seen();
            assert_eq!(seen.wanted, 7);
            // The step that follows could not ship it: no other wait, no other step.
            feed.wait_for_groups(Duration::from_millis(50), seen, &|| false);
            assert!(began.elapsed() >= Duration::from_millis(50));
            feed.acknowledge(7);
        });
        assert!(began.elapsed() < hour);
    }

    /// Bug: commits with no waiter cost a request as soon as the store had answered the last one.
    /// Cause: the shipper waited for its interval only where it had nothing to ship. Fix: segments
    /// that are not full have their turns.
    #[test]
    fn commits_that_nobody_waits_for_have_their_turn() {
        let (feed, hour) = (&Feed::default(), Duration::from_secs(3600));
        let turn = |after: Duration| {
            let began = Instant::now();
            feed.wait_for_turn(began + after, &|| false);
            began.elapsed()
        };
        let short = Duration::from_millis(50);
        feed.queued.store(FULL_SEGMENT - 1, Ordering::Relaxed);
        assert!(turn(short) >= short);
        std::thread::scope(|scope| {
            scope.spawn(|| feed.wait_remote(9, None).unwrap());
            assert!(turn(hour) < hour, "a commit is waited for");
            feed.acknowledge(9);
        });
        assert!(turn(short) >= short, "it is there");
        feed.queued.store(FULL_SEGMENT, Ordering::Relaxed);
        assert!(turn(hour) < hour);
    }

    /// Who waited together is shipped together: none waits for a request that has only another's.
    #[test]
    fn commits_are_gathered_as_far_as_they_came_together_before() {
        let (feed, hour) = (&Feed::default(), Duration::from_secs(3600));
        std::thread::scope(|scope| {
            // No commit waits.
            feed.gather(hour, &|| false);
            for lsn in [1, 2] {
                scope.spawn(move || feed.wait_remote(lsn, None).unwrap());
            }
            until_waiting(feed, 2);
            feed.gather(hour, &|| false);
            feed.acknowledge(2);
            until_waiting(feed, 0);
            scope.spawn(|| feed.wait_remote(3, None).unwrap());
            until_waiting(feed, 1);
            let (short, began) = (Duration::from_millis(50), Instant::now());
            feed.gather(short, &|| false);
            assert!(began.elapsed() >= short, "it waits for the other one, and not for ever");
            feed.gather(hour, &|| true);
            scope.spawn(|| feed.wait_remote(4, None).unwrap());
            feed.gather(hour, &|| false);
            feed.acknowledge(4);
        });
    }

    mod fed {
        use std::sync::atomic::Ordering;

        use super::super::*;

        fn add(buffers: &FeedBuffers, lsn: Lsn) {
            let group = Group::event(b"key", &lsn.to_le_bytes(), None);
            buffers.add(FeedBuffers::describe(lsn, &group), &group);
        }

        /// Threads hand groups over in any order; the shipper has them by LSN, with their bytes.
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
}
