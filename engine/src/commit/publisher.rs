//! The publisher: consecutive finished groups become durable together, then visible.
//!
//! There is no publisher's thread. A thread that waits for a commit tries to be it, in two stages.
//! Each stage has a lock of its own, which is only tried. (1) *Hand over* takes the finished slots
//! in order, writes to the operating system what its owner did not (`file` mode), and moves
//! `written`. (2) *Make durable* syncs what was handed over, once for all of it, and moves
//! `durable`. On persistent memory the groups' own fences made them durable and the first stage is
//! all. There are two stages because a relaxed commit must not wait for a neighbour's sync: while
//! one run is at the device the next is handed over.
//!
//! A thread that finds a stage taken sleeps in a wait queue: that of the run whose sync will cover
//! it, or that of the threads that wait for no sync. The end of a run wakes its queue with one
//! system call.
//! After a stage was given back, its last holder looks whether there is more to do, and wakes one
//! sleeper to do it (`pass_on`). So does a thread that finishes its slot and does not wait: others
//! may sleep behind that slot.
//!
//! Thread safety: every method takes `&self`. Lock order: `syncer`, `writer`, `floor_writer`.
//!
//! Invariants:
//!
//! 1. F ≤ durable ≤ written < next ticket; durable and visible move in this order, and everything
//!    visible is written. What is visible and not durable is, or comes before, a relaxed commit.
//! 2. The floor is stored only after the sync or fence that made it true, so it rides in the next
//!    run, or with the next group's fence (`floor_writer`). It counts as on the media, for what
//!    rests on that, only once `durable_number` has its number.
//! 3. A run's sync begins after `current` names it, and its queue is woken after `durable` moved.
//! 4. A sleeper entered the queue of the run that will cover it, and looked once more.
//! 5. `durable` is at most `pending_floor::most_lag` above the floor that is known to be on the
//!    media.

use std::sync::Arc;

use super::floor::{FloorWriter, Gidx, JournalMark, StoredFloor, Tails, forget, set_tail};
use super::poison::{Poison, Stopped};
use super::ring::{Ring, WaitQueue, Written, ring_len};
use super::sequencer::{Start, Step, reached};
use crate::base::error::{Error, Result};
use crate::base::operations;
use crate::base::options::Failpoint;
use crate::base::record::Lsn;
use crate::mvcc::Watermark;
use crate::os::sync::atomic::AtomicU64 as Counter;
use crate::os::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence, spin_until};
use crate::pm::alloc::ZonePool;
use crate::pm::{Fenced, Purpose, Region, Span, SpentOn};

/// Most groups that are handed over at once.
pub(super) const MAX_RUN: u64 = 1024;

/// How many runs in a row a waiting thread publishes before it looks after its own commit.
pub(super) const TURNS: u32 = 2;

/// Queues of runs: the one at the device, the next, and those whose sleepers are waking up.
const QUEUES: usize = 4;

/// Bits of `current` for the LSN.
const TARGET_BITS: u32 = 56;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The publisher has taken it.
    Written,
    /// Readers see it.
    Visible,
    /// It is durable, and readers see it.
    Durable,
}

/// What only the first stage touches.
#[derive(Debug)]
pub(super) struct Writer {
    /// Where the streams end with what is written.
    pub(super) tails: Tails,
    /// Ranges of the run; kept for their memory.
    pub(super) spans: Vec<Span>,
    /// The floor that a run took along last.
    pub(super) floor: StoredFloor,
}

/// The publisher of one database.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(super) region: Arc<Region>,
    zones: Arc<ZonePool>,
    poison: Arc<Poison>,
    pub(super) ring: Ring,
    written: Watermark,
    durable: Watermark,
    visible: Arc<Watermark>,
    pub(super) writer: Mutex<Writer>,
    pub(super) syncer: Mutex<()>,
    pub(super) floor_writer: Mutex<FloorWriter>,
    /// The number of the last floor that is on the media; a later one is on its way there.
    pub(super) durable_number: AtomicU64,
    /// Its LSN, or a smaller one: F on the media is no less.
    pub(super) durable_floor: AtomicU64,
    /// The number of the latest run (its lowest bits) and the last LSN that it covers.
    current: AtomicU64,
    /// Threads that wait for a run.
    queues: [WaitQueue; QUEUES],
    /// Threads that wait for no sync.
    handed: WaitQueue,
    /// Runs since the database was opened.
    pub(super) runs: Counter,
}

impl Publisher {
    /// A publisher that goes on as `start` says, whose floor the opening has written.
    pub(super) fn new(
        (region, zones): (Arc<Region>, Arc<ZonePool>),
        poison: Arc<Poison>,
        visible: Arc<Watermark>,
        start: &Start,
        tails: Tails,
    ) -> Publisher {
        let Start { last, floor, incarnation, .. } = *start;
        debug_assert!(last < 1 << TARGET_BITS, "LSNs have 56 bits");
        Publisher {
            durable_number: AtomicU64::new(floor.number),
            durable_floor: AtomicU64::new(floor.lsn),
            writer: Mutex::new(Writer {
                tails: tails.clone(),
                spans: Vec::new(),
                floor: StoredFloor { number: floor.number, lsn: floor.lsn },
            }),
            syncer: Mutex::new(()),
            floor_writer: Mutex::new(FloorWriter::new(floor, tails, incarnation)),
            ring: Ring::new(),
            written: Watermark::new(last),
            durable: Watermark::new(last),
            visible,
            current: AtomicU64::new(last),
            queues: Default::default(),
            handed: WaitQueue::default(),
            runs: Counter::new(0),
            region,
            zones,
            poison,
        }
    }

    /// The greatest LSN that is durable.
    pub(super) fn durable(&self) -> Lsn {
        self.durable.get()
    }

    /// The greatest LSN that readers see.
    pub(super) fn visible(&self) -> Lsn {
        self.visible.get()
    }

    /// Where the streams end with what is written.
    pub(super) fn tails(&self) -> Tails {
        let tails = self.writer.lock().tails.clone();
        self.pass_on();
        tails
    }

    /// The first LSN for which the ring has no slot yet.
    pub(super) fn credit(&self) -> Lsn {
        self.written.get() + ring_len()
    }

    /// Waits until `lsn` has come as far as `goal`; is the publisher whenever no other thread is.
    pub(super) fn wait(&self, lsn: Lsn, goal: Goal) -> std::result::Result<(), Stopped> {
        operations::wait(|spent| &mut spent.sync, || self.wait_for(lsn, goal))
    }

    fn wait_for(&self, lsn: Lsn, goal: Goal) -> std::result::Result<(), Stopped> {
        loop {
            if self.has_reached(lsn, goal) {
                debug_assert!(self.is_floor_near(), "F is near (invariant 5)");
                return Ok(());
            }
            if self.poison.is_set() {
                // The thread that poisoned the database need not know that this one sleeps.
                self.wake_all();
                return Err(Stopped);
            }
            if !self.advance(goal) && !self.comes_soon(lsn, goal) {
                self.sleep(lsn, goal);
            }
        }
    }

    /// A thread that waits for no sync spins for a neighbour that is about to finish. That mostly
    /// takes less time than to go to sleep and be woken.
    fn comes_soon(&self, lsn: Lsn, goal: Goal) -> bool {
        let waits_for_sync = goal == Goal::Durable && !self.region.is_persistent_memory();
        !waits_for_sync && spin_until(|| self.has_reached(lsn, goal) || self.can_hand_over())
    }

    /// What of invariant 1 the watermarks say. Those that have to be smaller are read first, since
    /// all only rise.
    fn are_watermarks_ordered(&self) -> bool {
        let (durable, visible) = (self.durable.get(), self.visible.get());
        durable.max(visible) <= self.written.get()
    }

    fn has_reached(&self, lsn: Lsn, goal: Goal) -> bool {
        match goal {
            Goal::Written => self.written.get() >= lsn,
            Goal::Visible => self.visible.get() >= lsn,
            Goal::Durable => self.durable.get() >= lsn && self.visible.get() >= lsn,
        }
    }

    /// Takes the stages that are free and have something to do; whether any was taken. At most
    /// [`TURNS`] times: another waiting thread goes on then.
    fn advance(&self, goal: Goal) -> bool {
        let (mut turned, _spent) = (false, SpentOn::purpose_if_none(Purpose::Commit));
        for turn in 1..=TURNS {
            let (took_stage, run) = self.take_turn(goal);
            turned |= took_stage;
            let goes_on = turned && turn < TURNS && self.has_work(goal);
            match run.map(|run| &self.queues[run as usize % QUEUES]) {
                // The next run first: to wake all takes as long as there are sleepers.
                Some(queue) if goes_on => queue.wake_through_one(),
                queue => {
                    if turned && !goes_on {
                        self.pass_on();
                    }
                    queue.into_iter().for_each(WaitQueue::wake_all);
                }
            }
            if !goes_on {
                break;
            }
        }
        turned
    }

    fn has_work(&self, goal: Goal) -> bool {
        self.can_hand_over() || goal == Goal::Durable && self.can_make_durable()
    }

    /// Takes each stage once, if it is free and seems to have something to do: whether any was
    /// taken, and the run that was made durable. A stage that was taken for nothing was taken: it
    /// kept others away, so the caller passes on.
    fn take_turn(&self, goal: Goal) -> (bool, Option<u64>) {
        let mut took_stage = false;
        if self.can_hand_over()
            && let Some(mut writer) = self.writer.try_lock()
        {
            self.hand_over(&mut writer);
            drop(writer);
            self.handed.wake_all();
            took_stage = true;
        }
        if goal == Goal::Durable
            && self.can_make_durable()
            && let Some(syncer) = self.syncer.try_lock()
        {
            return (true, self.make_durable(syncer));
        }
        (took_stage, None)
    }

    fn can_hand_over(&self) -> bool {
        self.ring.is_finished(self.written.get() + 1) && !self.writer.is_locked()
    }

    fn can_make_durable(&self) -> bool {
        self.durable.get() < self.written.get() && !self.syncer.is_locked()
    }

    /// Sleeps until there may be something to do or to have.
    fn sleep(&self, lsn: Lsn, goal: Goal) {
        let queue = self.queue(lsn, goal);
        let rests = || {
            let is_waiting = !self.has_reached(lsn, goal) && !self.poison.is_set();
            is_waiting && !self.has_work(goal)
        };
        let early = self.region.has(Failpoint::SleepWithoutSecondLook).then(rests);
        let waiter = queue.enter();
        // The run may have begun between the choice of the queue and the entry (invariant 4).
        if early.unwrap_or_else(rests) && std::ptr::eq(queue, self.queue(lsn, goal)) {
            waiter.sleep();
        }
    }

    /// The queue of the run that covers `lsn`: the current one, or the one after it.
    fn queue(&self, lsn: Lsn, goal: Goal) -> &WaitQueue {
        if goal != Goal::Durable || self.region.is_persistent_memory() {
            return &self.handed;
        }
        let (run, target) = self.current_run();
        &self.queues[(run as usize + usize::from(lsn > target)) % QUEUES]
    }

    fn current_run(&self) -> (u64, Lsn) {
        let current = self.current.load(Ordering::SeqCst);
        (current >> TARGET_BITS, current & ((1 << TARGET_BITS) - 1))
    }

    /// After a stage was given back, or a slot was finished whose thread waits for nothing: if a
    /// stage is free and has something to do, one sleeper is woken to do it. Those of the next run
    /// first, since those of earlier ones may be on their way out.
    pub(super) fn pass_on(&self) {
        fence(Ordering::SeqCst);
        let hand_over = self.can_hand_over();
        if hand_over && self.handed.wake_one() {
            return;
        }
        if hand_over || self.can_make_durable() {
            let next = self.current_run().0 as usize + 1;
            let _woken = (0..QUEUES).any(|i| self.queues[(next + i) % QUEUES].wake_one());
        }
    }

    /// Stage 1. On a failure the database is poisoned.
    fn hand_over(&self, writer: &mut Writer) {
        if self.poison.is_set() {
            return;
        }
        #[cfg(any(test, feature = "testing"))]
        let _phase = crate::testing::InPhase::enter(crate::testing::Phase::Commit);
        let before = self.written.get();
        let (last, relaxed) = self.take_finished(writer, before);
        if last == before {
            return;
        }
        if self.region.is_persistent_memory() {
            self.runs.fetch_add(1, Ordering::Relaxed);
            if !self.keep_floor_near(last, &writer.tails) {
                return;
            }
            self.written.raise(last);
            self.durable.raise(last);
            self.visible.raise(last);
            debug_assert!(self.are_watermarks_ordered(), "durable is written (invariant 1)");
            // Another thread may have the floor writer and be stopped, so the publisher does not
            // wait for it. The next run notes what this one does not, and so does a settling
            // thread.
            if let Some(mut floor_writer) = self.floor_writer.try_lock() {
                floor_writer.note_durable(last, &writer.tails);
            }
            return;
        }
        if self.region.has(Failpoint::EarlyFloor) {
            self.floor_writer.lock().note_durable(last, &writer.tails);
        } else if self.region.has(Failpoint::EarlyGidx) {
            let durable = self.durable.get();
            self.floor_writer.lock().note_durable(durable, &writer.tails);
        }
        self.take_floor_with_run(writer);
        let run = Fenced::carried(writer.spans.drain(..));
        match self.region.write_back(&run) {
            Ok(()) => {
                self.written.raise(last);
                self.visible.raise(relaxed);
                debug_assert!(self.are_watermarks_ordered(), "invariant 1");
            }
            Err(e) => self.stop(&e),
        }
    }

    /// Takes the slots that are finished and follow each other: the last LSN, and the last one
    /// that is relaxed.
    fn take_finished(&self, writer: &mut Writer, before: Lsn) -> (Lsn, Lsn) {
        let (mut last, mut last_relaxed) = (before, 0);
        let needs_spans = !self.region.is_persistent_memory();
        while last < before + MAX_RUN && self.ring.is_finished(last + 1) {
            last += 1;
            let others = writer.spans.len();
            let relaxed = self.ring.take(last, |Written { stream, span }| {
                if let Some(stream) = stream {
                    let zone = self.zones.zone_of(span.at);
                    let tail = span.end() - self.zones.geometry().zone(zone);
                    let before = writer.tails.get(stream as usize).copied().flatten();
                    debug_assert!(
                        before.is_none_or(|before| before.zone != zone || before.tail < tail),
                        "a run takes the groups of a stream in the order of their LSNs"
                    );
                    set_tail(&mut writer.tails, stream, Gidx { zone, tail });
                }
                if needs_spans {
                    writer.spans.push(span);
                }
            });
            if relaxed {
                last_relaxed = last;
                // Its writer has handed it over.
                writer.spans.truncate(others);
            }
        }
        (last, last_relaxed)
    }

    /// Stage 2: the run that is durable now, whose queue is to be woken. On a failure the database
    /// is poisoned, and all waiters are woken.
    fn make_durable(&self, syncer: MutexGuard<'_, ()>) -> Option<u64> {
        let (target, tails, floor) = {
            let writer = self.writer.lock();
            (self.written.get(), writer.tails.clone(), writer.floor)
        };
        // Another thread may have found the first stage taken for this moment; the second one is.
        self.pass_on();
        reached(Step::SyncTarget);
        // On persistent memory the first stage makes durable, and may have passed the target.
        if target <= self.durable.get() || self.poison.is_set() {
            return None;
        }
        #[cfg(any(test, feature = "testing"))]
        let _phase = crate::testing::InPhase::enter(crate::testing::Phase::Commit);
        let run = (self.current_run().0 + 1) & 0xff;
        debug_assert!(
            self.current_run().1 < target,
            "each run covers LSNs behind those of the run before it (invariant 3)"
        );
        self.current.store(run << TARGET_BITS | target, Ordering::SeqCst);
        let times = self.poison.events().times();
        let synced = times.syncs.time(|| self.region.sync_written());
        self.runs.fetch_add(1, Ordering::Relaxed);
        match synced {
            Ok(_) => {
                self.mark_floor_durable(floor);
                if !self.keep_floor_near(target, &tails) {
                    return None;
                }
                self.durable.raise(target);
                self.visible.raise(target);
                debug_assert!(self.are_watermarks_ordered(), "invariant 1");
                debug_assert!(self.is_floor_near(), "invariant 5");
                reached(Step::SaidDurable);
                self.floor_writer.lock().note_durable(target, &tails);
                drop(syncer);
                Some(run)
            }
            Err(e) => {
                self.stop(&e);
                None
            }
        }
    }

    /// Poisons the database, and wakes every waiting thread.
    pub(super) fn stop(&self, cause: &Error) {
        self.poison.set(cause);
        self.wake_all();
    }

    /// Wakes every waiting thread, after a failure.
    pub(super) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        self.queues.iter().chain([&self.handed]).for_each(WaitQueue::wake_all);
    }

    /// Publishes all that is finished, makes it durable and writes the floor; returns F. Called
    /// before background work that needs the floor, when idle, and at close.
    pub(super) fn sync_floor(&self) -> Result<Lsn> {
        loop {
            self.hand_over(&mut self.writer.lock());
            self.poison.check()?;
            if !self.ring.is_finished(self.written.get() + 1) {
                break;
            }
        }
        // Threads that wait for no sync do not wait for this one either.
        self.handed.wake_all();
        // Also where all is durable already: a thread that has just said so tells the floor writer
        // before it gives the syncer back, and the floor would be older than what is visible.
        let run = self.make_durable(self.syncer.lock());
        run.into_iter().for_each(|run| self.queues[run as usize % QUEUES].wake_all());
        self.poison.check()?;
        if self.region.is_persistent_memory() {
            self.tell_floor_writer();
        }
        let floor = self.write_floor();
        debug_assert!(
            floor.as_ref().map_or(true, |floor| *floor <= self.durable.get())
                || self.region.has(Failpoint::EarlyFloor),
            "the floor is durable (invariant 1)"
        );
        self.pass_on();
        floor
    }

    /// Keeps runs from their sync for as long as the guard lives.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn hold_syncs(&self) -> MutexGuard<'_, ()> {
        self.syncer.lock()
    }

    /// As if another thread's run had ended.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn say_durable(&self, lsn: Lsn) {
        self.durable.raise(lsn);
    }

    /// Threads that sleep, or are about to.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn sleepers(&self) -> u32 {
        self.queues.iter().chain([&self.handed]).map(WaitQueue::waiters).sum()
    }

    /// Whether everything committed is durable and the floor says so. A commit that no thread waits
    /// for may not even be handed over.
    pub(super) fn is_floor_current(&self) -> bool {
        let durable = self.durable.get();
        let written = self.written.get();
        let handed_over = !self.ring.is_finished(written + 1);
        handed_over && written == durable && self.visible.get() == durable && {
            let floor_writer = self.floor_writer.lock();
            floor_writer.durable() == durable
                && !floor_writer.lags()
                && !self.is_pending(&floor_writer)
        }
    }

    /// Takes note of how much of the journal is durable; it rides along with the next floor.
    pub(super) fn note_journal(&self, mark: JournalMark) {
        self.floor_writer.lock().note_journal(mark);
    }

    /// Those of `zones`, all dead, that no GIDX word names or will come to name. The word of a
    /// stream that is `idle`, so that nothing is appended to it, is about to be cleared.
    pub(super) fn releasable(&self, zones: Vec<u32>, idle: &[u32]) -> Vec<u32> {
        if zones.is_empty() {
            return zones;
        }
        // No run is on its way that would bring a forgotten tail back.
        let releasable = {
            let (_syncer, mut writer, mut floor_writer) = self.all();
            let ends_here = |stream: &u32| {
                let tail = writer.tails.get(*stream as usize).copied().flatten();
                tail.is_some_and(|tail| zones.contains(&tail.zone))
            };
            let ended: Vec<u32> = idle.iter().copied().filter(ends_here).collect();
            forget(&mut writer.tails, &ended);
            floor_writer.forget(&ended);
            let coming = |zone: u32| writer.tails.iter().flatten().any(|tail| tail.zone == zone);
            zones.into_iter().filter(|&zone| !floor_writer.names(zone) && !coming(zone)).collect()
        };
        self.pass_on();
        releasable
    }

    /// After a failure: returns once no thread writes for a group up to `last`, the last ticket,
    /// and none publishes. Each such thread finishes or abandons its slot, and waits for nothing
    /// until then.
    pub(super) fn wait_for_tickets(&self, last: Lsn) {
        for lsn in self.written.get() + 1..=last {
            while !self.ring.is_left(lsn) {
                crate::os::thread::yield_now();
            }
        }
        // A stage that was begun before the failure ends. A later one finds it.
        self.while_quiet(|| ());
    }

    /// Both stages and the floor writer. A group that has the floor writer may be stopped. It is
    /// not waited for with the stages held, since publishers wait for those.
    fn all(&self) -> (MutexGuard<'_, ()>, MutexGuard<'_, Writer>, MutexGuard<'_, FloorWriter>) {
        loop {
            let (syncer, writer) = (self.syncer.lock(), self.writer.lock());
            if let Some(floor_writer) = self.floor_writer.try_lock() {
                return (syncer, writer, floor_writer);
            }
            drop((writer, syncer));
            self.pass_on();
            drop(self.floor_writer.lock());
        }
    }

    /// Runs `f` while the publisher writes nothing to the media; commits wait.
    pub(super) fn while_quiet<T>(&self, f: impl FnOnce() -> T) -> T {
        let result = {
            let _all = self.all();
            f()
        };
        self.pass_on();
        result
    }
}
