//! The feed: what commits and the shipper tell each other (`docs/internals/shared-store.md`).
//!
//! The shipper reads commit groups in the zones that they lie in. A commit counts its bytes here
//! before its slot in the ring is finished. The zones with commits that the shared store lacks are
//! kept. Where they are let go all the same, a checkpoint takes the place of what is missing. No
//! commit waits for the shipper, but for those that ask for `Durability::Remote`.
//!
//! Thread safety: any thread hands over, waits and fails; one thread at a time ships.
//!
//! Invariants:
//!
//! 1. `acknowledged` only rises, and every commit up to it is in the shared store.
//! 2. After a failure nothing is acknowledged any more.
//! 3. Waits for commits that were given up end. They may be acknowledged later all the same.
//! 4. No zone is released that has a commit above `kept`.

use std::time::{Duration, Instant};

use super::committer::Committer;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::Lsn;
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::locks::{Condvar, Mutex};
use crate::os::sync::shared::OnceLock;
use crate::os::time;

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

/// What was handed over up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandedOver {
    /// When the first of it came that was not seen before.
    pub(crate) since: Instant,
    /// Its bytes since the opening.
    pub(crate) bytes: u64,
}

/// The feed of one database.
pub(crate) struct Feed {
    /// Bytes that were handed over since the opening, and those of them that the store has.
    handed: AtomicU64,
    shipped: AtomicU64,
    /// When the first commit came that the shipper has not seen, in nanoseconds since the feed
    /// began; 0 if there is none.
    fresh: AtomicU64,
    began: Instant,
    /// Zones with commits above it are kept; [`Lsn::MAX`] once they were let go.
    kept: AtomicU64,
    /// Whether it is known what the store has.
    has_begun: AtomicBool,
    /// Whether the superblock of this opening says what is kept.
    is_noted: AtomicBool,
    /// The commits of the opening before are above this one.
    pub(crate) before: Lsn,
    /// Dead zones wait for the store to have their commits.
    holds_dead: AtomicBool,
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
            handed: AtomicU64::new(0),
            shipped: AtomicU64::new(0),
            fresh: AtomicU64::new(0),
            began: time::now(),
            kept: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
            is_noted: AtomicBool::new(false),
            before: 0,
            holds_dead: AtomicBool::new(false),
            remote: Mutex::default(),
            moved: Condvar::new(),
            full: Condvar::new(),
            paused: Condvar::new(),
            driver: OnceLock::new(),
        }
    }
}

impl Feed {
    /// That of an opening behind one whose commits are above `before`.
    pub(super) fn behind(before: Lsn) -> Feed {
        Feed { before, ..Feed::default() }
    }

    /// A group of so many bytes is about to finish its slot.
    pub(super) fn hand_over(&self, bytes: u64) {
        let before = self.queued();
        self.handed.fetch_add(bytes, Ordering::SeqCst);
        if self.fresh.load(Ordering::SeqCst) == 0 {
            let since = time::since(self.began).as_nanos().max(1) as u64;
            // Another commit may have come first.
            let (order, is_set) = (Ordering::SeqCst, Ordering::Relaxed);
            self.fresh.compare_exchange(0, since, order, is_set).unwrap_or_default();
        }
        if before < FULL_SEGMENT && self.queued() >= FULL_SEGMENT {
            self.wake();
        }
    }

    /// What was handed over, if something was since the last call.
    pub(crate) fn look(&self) -> Option<HandedOver> {
        // What comes in between is seen once more.
        let since = self.fresh.swap(0, Ordering::SeqCst);
        let bytes = self.handed.load(Ordering::SeqCst);
        (since > 0).then(|| HandedOver { since: self.began + Duration::from_nanos(since), bytes })
    }

    /// Of what was handed over the store has so many bytes.
    pub(crate) fn release(&self, bytes: u64) {
        self.shipped.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Bytes that wait for the shipper.
    pub(crate) fn queued(&self) -> u64 {
        let shipped = self.shipped.load(Ordering::Relaxed);
        self.handed.load(Ordering::Relaxed).saturating_sub(shipped)
    }

    /// Zones with commits above this one are kept.
    pub(crate) fn kept(&self) -> Lsn {
        self.kept.load(Ordering::SeqCst)
    }

    /// Begins: zones with commits above `lsn` are kept. An earlier opening has left so many bytes
    /// that the store lacks.
    pub(crate) fn begin(&self, lsn: Lsn, bytes: u64) {
        self.handed.fetch_add(bytes, Ordering::Relaxed);
        if bytes > 0 {
            self.hand_over(0);
        }
        self.kept.store(lsn, Ordering::SeqCst);
        self.has_begun.store(true, Ordering::SeqCst);
    }

    /// Whether zones may be let go: it is known what the store has, and they are kept.
    pub(crate) fn may_let_go(&self) -> bool {
        self.has_begun.load(Ordering::SeqCst) && !self.has_lost()
    }

    /// Lets all zones go.
    pub(crate) fn let_go(&self) {
        self.is_noted.store(false, Ordering::SeqCst);
        self.kept.store(Lsn::MAX, Ordering::SeqCst);
    }

    /// Whether the superblock of this opening says what is kept.
    pub(crate) fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::SeqCst)
    }

    /// Notes that it does, or that it is to say it once more.
    pub(crate) fn set_noted(&self, is_noted: bool) {
        self.is_noted.store(is_noted, Ordering::SeqCst);
    }

    /// Whether zones were let go.
    pub(crate) fn has_lost(&self) -> bool {
        self.kept() == Lsn::MAX
    }

    /// Keeps zones again from the last ticket on, which it returns: no zone with a later commit was
    /// let go.
    pub(crate) fn start_over(&self, committer: &Committer) -> Lsn {
        committer.at_boundary(|last| {
            self.kept.store(last, Ordering::SeqCst);
            last
        })
    }

    /// Notes whether dead zones wait for the store.
    pub(crate) fn note_dead(&self, waits: bool) {
        self.holds_dead.store(waits, Ordering::Relaxed);
    }

    /// Whether some did.
    pub(crate) fn take_dead(&self) -> bool {
        self.holds_dead.swap(false, Ordering::Relaxed)
    }

    /// Says that the shared store has every commit up to `lsn`.
    pub(crate) fn acknowledge(&self, lsn: Lsn) {
        let mut remote = self.remote.lock();
        if remote.failed.is_some() {
            return;
        }
        if lsn > remote.acknowledged {
            (remote.acknowledged, remote.waited_together) = (lsn, remote.waiting);
            self.kept.fetch_max(lsn, Ordering::SeqCst);
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
        let is_passing = is_away || error.may_pass() && !error.is_unread();
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::base::error::Mismatch;
    use std::sync::Barrier;

    /// Bug: from some moment on the shipper saw nothing new any more, and made an entry a request.
    /// Cause: the flag of what is new was set behind its lock, after a look had cleared it. Fix:
    /// both are one word.
    #[test]
    fn what_comes_beside_a_look_is_seen() {
        for _ in 0..200 {
            let (feed, barrier) = (Feed::default(), Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    (0..200).for_each(|_| feed.hand_over(1));
                });
                barrier.wait();
                for _ in 0..200 {
                    feed.look();
                }
            });
            let seen = feed.look().map_or(0, |handed| handed.bytes);
            feed.hand_over(1);
            let later = feed.look().unwrap();
            assert!(later.bytes == 201 && seen <= 200, "{later:?}");
        }
    }

    /// The commit that completes a segment told the shipper without its lock. A shipper between
    /// its look and its wait missed that, and slept for the whole interval.
    #[test]
    fn a_whole_segment_wakes_a_shipper_that_is_about_to_wait() {
        let interval = Duration::from_mins(1);
        for round in 0..20_000 {
            let (feed, start) = (Feed::default(), Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    feed.handed.store(FULL_SEGMENT - 1, Ordering::Relaxed);
                    start.wait();
                    (0..round % 50).for_each(|_| std::hint::spin_loop());
                    feed.hand_over(64);
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
        feed.handed.store(FULL_SEGMENT * 3, Ordering::Relaxed);
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
        feed.handed.store(FULL_SEGMENT * 2, Ordering::Relaxed);
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
            std::thread::yield_now();
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
        feed.handed.store(FULL_SEGMENT - 1, Ordering::Relaxed);
        assert!(turn(short) >= short);
        std::thread::scope(|scope| {
            scope.spawn(|| feed.wait_remote(9, None).unwrap());
            assert!(turn(hour) < hour, "a commit is waited for");
            feed.acknowledge(9);
        });
        assert!(turn(short) >= short, "it is there");
        feed.handed.store(FULL_SEGMENT, Ordering::Relaxed);
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
}
