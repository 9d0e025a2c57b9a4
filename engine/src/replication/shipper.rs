//! The shipper: reads published commit groups in their zones, and appends them to the log of the
//! shared store in their order.
//!
//! Thread safety: one step at a time, by its thread, a stepper, or the closing; the state is behind
//! one mutex, which is held while the store is asked. No commit takes it. Checkpoints and the
//! collector have threads and mutexes of their own, so that what takes long holds no entry up.
//!
//! Invariants:
//!
//! 1. Only groups that are durable on this machine are appended.
//! 2. The log lacks no commit: a segment begins at `next`, and a checkpoint takes the place of what
//!    no segment can have.
//! 3. A commit is acknowledged after the entry that has it.
//! 4. Nothing is deleted before the head says so, and the head moves after its checkpoint.
//! 5. What an entry leads to follows once it is there: no note of what is to be done goes before.

mod checkpoints;
mod goes_on;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoint::{self, LogBase, SentCheckpoint, SentData};
use super::collect::{Kept, MadeCheckpoint, MadeCheckpoints};
use super::log::{EntryBody, LogEnd, LogWriter, NewBody, SegmentGroups, SharedLog, SharedTable};
use super::segment::{LargeCommit, PartsSent, SegmentCut, cut_segment};
use super::status::ShipCounts;
use super::tell_role;
use crate::backup::MICROS_A_SECOND;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::{Durability, Failpoint};
use crate::base::record::Lsn;
use crate::commit::{Feed, StreamPlaces};
use crate::engine::Engine;
use crate::engine::{ShareStats, Shipping};
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::OnceLock;
use crate::os::time;
use crate::storage::ExtentStore;
use checkpoints::CheckpointJob;
pub(super) use goes_on::GoesOn;
use waiting::{WaitingMarks, count_failure};

/// Commits go out at least so often.
const INTERVAL: Duration = Duration::from_millis(100);

/// A commit that is waited for goes out at once, or after so long at most: others may join it.
const LONGEST_PATIENCE: Duration = Duration::from_millis(10);

/// Bytes of segments after which a checkpoint is made. Where steps come in their turn it is fewer,
/// so that their histories have many.
const CHECKPOINT_BYTES: u64 = 64 << 20;
const STEPPED_CHECKPOINT_BYTES: u64 = 256 << 10;

/// Or after so many segments, however small they are.
const MOST_ENTRIES: u64 = 4096;

/// A closing makes a checkpoint that an earlier opening has left, if that sends no more than so
/// many times these bytes.
const MOST_OWED: u64 = 8;

/// Bytes of a part of a large commit, and as above.
const PART_BYTES: usize = 4 << 20;
const STEPPED_PART_BYTES: usize = 2 << 10;

/// After a failure the shipper waits so long at most, and the collector.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_REST: Duration = Duration::from_secs(300);

/// The collector looks so often whether there is a newer checkpoint.
const COLLECTIONS: Duration = Duration::from_secs(1);

/// Ships the commits of one database.
#[derive(Debug)]
pub(crate) struct Shipper {
    log: Arc<SharedLog>,
    /// The number of the writer's claim.
    claim: u64,
    /// Of this machine.
    store: Arc<ExtentStore>,
    state: Mutex<State>,
    checkpoints: CheckpointJob,
    kept: Mutex<Kept>,
    made: MadeCheckpoints,
    /// Set by the closing before its own steps: no checkpoint that is only due is begun any more,
    /// a long one is given up, and so is a collection soon.
    closing: Arc<OnceLock<Instant>>,
    /// An earlier opening ended before the checkpoint that was due. This one makes it, if it has to
    /// at its closing: else openings that are short make none. A closing gives a large one up.
    owes: AtomicBool,
    /// Set by the closing, whose own steps are the last.
    stopped: AtomicBool,
    has_thread: bool,
    /// After so many bytes of segments there is another checkpoint.
    checkpoint_bytes: u64,
    counts: ShipCounts,
}

/// What an entry that was appended leads to.
#[derive(Debug)]
enum After {
    Segment { last: Lsn },
    Part(PartsSent),
    Tables,
    Checkpoint(Box<SentCheckpoint>),
}

#[derive(Debug)]
struct State {
    writer: LogWriter,
    /// Where the groups lie that the log lacks.
    places: StreamPlaces,
    waiting: WaitingMarks,
    /// The first LSN that the log lacks.
    next: Lsn,
    /// Segments cannot go on: a checkpoint takes the place of what no segment can have.
    needs_checkpoint: bool,
    /// The last commit that may not have been handed over: a checkpoint has it.
    forgotten: Lsn,
    /// The commit of which the next entries are parts, or the end.
    large: Option<LargeCommit>,
    /// The tables of the opening, for the first entry behind the claim, at the LSN of the log.
    /// Those of a later moment would lack tables that the segments behind it name.
    first_tables: Option<Vec<SharedTable>>,
    /// What becomes of the entry whose put is not decided.
    after: Option<After>,
    /// Bytes of segments since the last checkpoint. `None` until the first segment, which asks the
    /// log for those of earlier openings.
    since_checkpoint: Option<u64>,
}

/// How a shipper begins.
pub(super) struct Beginning {
    pub(super) writer: LogWriter,
    pub(super) end: LogEnd,
    /// Where segments go on; `None` if they cannot.
    pub(super) goes_on: Option<GoesOn>,
    /// The newest checkpoint, whose data the store has, and whether this directory made it.
    pub(super) newest: Option<SentCheckpoint>,
    pub(super) is_own: bool,
}

impl Shipper {
    pub(super) fn new(log: &Arc<SharedLog>, beginning: Beginning, engine: &Engine) -> Shipper {
        let Beginning { writer, end, goes_on, newest, is_own } = beginning;
        let (opened_at, claim) = (engine.shared.committer.visible(), writer.number());
        let early = engine.options.has(Failpoint::DeleteSegmentsEarly);
        let sent = newest.as_ref().map(|newest| SentData::of(newest, is_own)).unwrap_or_default();
        let own = newest.filter(|_| is_own);
        // What a takeover has applied has LSNs of its own above the levels: no entry has it.
        let claimed = || LogBase { from: claim + 1, lacks: opened_at };
        let base = own.as_ref().map_or_else(claimed, SentCheckpoint::log_base);
        let keeping = (early, engine.options.share_retention);
        let before = (end.checkpoint, own.as_ref().map(SentCheckpoint::pieces));
        let now = engine.shared.clock.now() / MICROS_A_SECOND;
        let closing = Arc::<OnceLock<Instant>>::default();
        let made = MadeCheckpoints::default();
        let kept = Kept::new(claim, before, keeping, now).behind(end.claim, &made, &closing);
        let state = State {
            writer,
            places: StreamPlaces::default(),
            waiting: WaitingMarks::default(),
            next: goes_on.as_ref().map_or(opened_at + 1, |it| it.next),
            needs_checkpoint: goes_on.is_none() || end.checkpoint == 0,
            forgotten: 0,
            large: None,
            first_tables: goes_on.map(|it| it.tables),
            after: None,
            since_checkpoint: None,
        };
        Shipper {
            log: Arc::clone(log),
            claim,
            store: Arc::clone(engine.set.store()),
            state: Mutex::new(state),
            checkpoints: CheckpointJob::new(claim, sent, base),
            kept: Mutex::new(kept),
            made,
            closing,
            owes: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            has_thread: !engine.options.stepped,
            checkpoint_bytes: engine.options.checkpoint_bytes.unwrap_or({
                if engine.options.stepped { STEPPED_CHECKPOINT_BYTES } else { CHECKPOINT_BYTES }
            }),
            counts: ShipCounts::default(),
        }
    }

    /// Deletes what no reader needs any more, if there may be some; whether that succeeded. A
    /// failure is the collector's alone: shipping goes on.
    fn collect(&self, engine: &Engine) -> bool {
        let mut kept = self.kept.lock();
        let tier = self.store.objects();
        let live = || tier.map_or_else(BTreeSet::new, |tier| tier.live_shared());
        let collected = kept.collect(&self.log, &live);
        let is_done = collected.as_ref().inspect_err(|error| count_failure(engine, error)).is_ok();
        *self.counts.collect_failure.lock() = collected.err().map(|error| error.to_string());
        is_done
    }

    /// As [`Shipper::collect`], where steps come in their turn.
    fn collect_in_turn(&self, engine: &Engine) {
        if !self.has_thread {
            self.collect(engine);
        }
    }

    fn step_of(&self, engine: &Engine, state: &mut State) -> Result<bool> {
        let Some(feed) = engine.shared.committer.feed() else { return Ok(false) };
        if feed.has_failed() || self.stopped.load(Ordering::Acquire) {
            return Ok(false);
        }
        // The publisher may have failed, which knows nothing of the feed.
        if engine.shared.poison.check().is_err() {
            engine.shared.committer.wake_all();
            return Ok(false);
        }
        let did = state.advance(ShipStep { engine, feed, shipper: self });
        if matches!(did, Ok(false)) {
            self.collect_in_turn(engine);
        }
        self.note(state, feed, &did);
        if let Err(error) = did.as_ref().inspect_err(|error| count_failure(engine, error))
            && error.kind() == ErrorKind::Fenced
        {
            feed.fail(error);
            tell_role(engine, "fenced", engine.shared.committer.visible());
            engine.shared.stop_by(error);
        }
        did
    }

    /// The bytes of the largest checkpoint that a closing makes for an earlier opening.
    fn most_owed(&self) -> u64 {
        MOST_OWED * self.checkpoint_bytes
    }
}

impl Shipping for Shipper {
    fn run(&self, engine: &Engine) {
        let Some(feed) = engine.shared.committer.feed() else { return };
        let is_stopping = || engine.ctx.is_stopping();
        let (mut pause, mut patience) = (INTERVAL, Duration::ZERO);
        while !is_stopping() && !feed.has_failed() {
            feed.gather(patience, &is_stopping);
            let (seen, from) = (feed.seen(), time::now());
            let mut state = self.state.lock();
            let (did, at_once) = (self.step_of(engine, &mut state), state.ships_at_once(self));
            drop(state);
            match did {
                Ok(true) => {
                    pause = INTERVAL;
                    patience = (time::since(from) / 4).min(LONGEST_PATIENCE);
                    if !at_once {
                        feed.wait_for_turn(from + INTERVAL, &is_stopping);
                    }
                }
                Ok(false) => {
                    pause = INTERVAL;
                    feed.wait_for_groups(INTERVAL, seen, &is_stopping);
                }
                Err(_) => {
                    feed.pause(pause, &is_stopping);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn run_checkpoints(&self, engine: &Engine) {
        self.send_checkpoints(engine);
    }

    fn run_collector(&self, engine: &Engine) {
        let Some(feed) = engine.shared.committer.feed() else { return };
        let mut rest = LONGEST_PAUSE;
        while !engine.ctx.is_stopping() && !feed.has_failed() {
            let is_done = self.collect(engine);
            let pause = if is_done { COLLECTIONS } else { rest };
            rest = if is_done { LONGEST_PAUSE } else { (rest * 2).min(LONGEST_REST) };
            feed.pause(pause, &|| engine.ctx.is_stopping());
        }
    }

    fn step(&self, engine: &Engine) -> Result<bool> {
        let Some(mut state) = self.state.try_lock() else { return Ok(false) };
        self.step_of(engine, &mut state)
    }

    fn drain(&self, engine: &Engine) {
        let Some(feed) = engine.shared.committer.feed() else { return };
        self.log.client.hurry();
        self.closing.get_or_init(time::now);
        let until = engine.shared.committer.visible();
        while engine.shared.poison.check().is_ok() && !feed.has_failed() {
            let mut state = self.state.lock();
            // Waits for what the job's thread sends.
            let job = self.checkpoints.state.lock();
            let sends_much = || checkpoint::bytes_to_send(engine, &job.sent) > self.most_owed();
            let owed = self.owes.load(Ordering::Acquire) && !sends_much();
            self.owes.store(owed, Ordering::Release);
            drop(job);
            let did = state.advance(ShipStep { engine, feed, shipper: self });
            self.note(&state, feed, &did);
            let owes = self.owes.load(Ordering::Acquire);
            let has_all = !state.needs_checkpoint && !owes && state.next > until;
            drop(state);
            if owed && !owes {
                // The collector's thread may not come to it.
                self.collect(engine);
            }
            if !matches!(did, Ok(true)) || has_all {
                return;
            }
        }
    }

    fn is_closing(&self, sent: u64) -> bool {
        let owes = self.owes.load(Ordering::Acquire);
        self.closing.get().is_some() && (!owes || sent >= self.most_owed())
    }

    fn hurry(&self) {
        self.log.client.stop();
    }

    fn finish(&self, engine: &Engine) {
        let Some(feed) = engine.shared.committer.feed() else { return };
        if engine.shared.poison.check().is_ok() {
            while matches!(self.step(engine), Ok(true)) {}
            // If it fails, the next opening makes a checkpoint.
            let mut state = self.state.lock();
            drop(state.close_gap(ShipStep { engine, feed, shipper: self }));
            // A later opening tells by it whether the store was put back.
            if feed.is_noted() {
                feed.set_noted(false);
                // Behind the log's last commit a cleaner's copies may be acknowledged.
                drop(engine.ctx.note_kept(feed.acknowledged().min(state.writer.last())));
            }
        }
        self.stopped.store(true, Ordering::Release);
        feed.fail(&Error::closed());
    }

    fn stats(&self, engine: &Engine) -> Option<ShareStats> {
        self.counts.stats(&self.log, self.claim, engine)
    }
}

/// What a step works with.
#[derive(Clone, Copy)]
struct ShipStep<'a> {
    engine: &'a Engine,
    feed: &'a Feed,
    shipper: &'a Shipper,
}

impl State {
    /// Whether there is an entry to append that waits for no interval.
    fn ships_at_once(&self, shipper: &Shipper) -> bool {
        let has_entry = self.large.is_some() || self.first_tables.is_some();
        has_entry || self.needs_checkpoint || shipper.checkpoints.is_ready()
    }

    fn advance(&mut self, step: ShipStep<'_>) -> Result<bool> {
        let until = step.engine.shared.committer.visible();
        let did = self.append_next(step);
        step.feed.tried(until, &did);
        did
    }

    fn append_next(&mut self, step: ShipStep<'_>) -> Result<bool> {
        *step.shipper.counts.looked_at.lock() = Some(time::now());
        if let Some(after) = self.after.take() {
            if let Err(error) = self.writer.settle() {
                self.after = Some(after);
                return Err(error);
            }
            self.conclude(after, step);
            return Ok(true);
        }
        if step.feed.has_lost() {
            // From here on it is this state that knows of what was lost, and no failure forgets it.
            self.needs_checkpoint = true;
            // Zones of groups with earlier tickets may be gone: the checkpoint has to have them.
            self.forgotten = step.feed.start_over(&step.engine.shared.committer);
        }
        self.waiting.look(self.next, step);
        step.engine.shared.unshipped.forget_below(self.next);
        step.shipper.note_waiting(self);
        if self.needs_checkpoint {
            // It may take long.
            if let Some(lost) = self.note(step.feed) {
                step.shipper.counts.failure.lock().get_or_insert(lost);
            }
            return self.leap(step);
        }
        if self.first_tables.is_none() {
            step.engine.ctx.note_kept(self.next - 1)?;
        }
        // Where the job has no thread, or none any more.
        let sends = !step.shipper.has_thread || step.shipper.closing.get().is_some();
        let sent = if sends { step.shipper.send_some(step.engine) } else { Ok(false) };
        let did = self.append_entry(step)?;
        let is_ready = sends && step.shipper.checkpoints.is_ready();
        if did || is_ready { Ok(true) } else { sent }
    }

    /// Appends the next entry, if there is something to append.
    fn append_entry(&mut self, step: ShipStep<'_>) -> Result<bool> {
        if self.large.is_some() {
            return self.send_large(step);
        }
        if let Some(did) = self.append_checkpoint(step)? {
            return Ok(did);
        }
        if let Some(first) = self.first_tables.clone() {
            let (body, last) = (EntryBody::Tables(first), self.writer.last().max(self.next - 1));
            return self.append(body.into(), (0, last), After::Tables, step);
        }
        self.send_segment(step)
    }

    fn send_segment(&mut self, step: ShipStep<'_>) -> Result<bool> {
        let committer = &step.engine.shared.committer;
        let awaited = committer.visible();
        if awaited < self.next {
            return Ok(false);
        }
        let until = if step.engine.options.has(Failpoint::ShipUndurable) {
            awaited
        } else {
            // Relaxed commits too (invariant 1).
            committer.wait_for(awaited, Durability::Durable)?;
            // Nothing that is not visible yet: a checkpoint of a later moment has all of it.
            committer.visible().min(committer.durable())
        };
        self.waiting.look(self.next, step);
        let Some(cut) = self.cut(until, step)? else { return Ok(true) };
        match cut.large {
            Some(None) => {
                self.needs_checkpoint = true;
                return self.leap(step);
            }
            Some(large) => {
                self.large = large;
                return self.send_large(step);
            }
            None => {}
        }
        let Some(last) = cut.last else {
            // Only a cleaner's copies: no reader lacks them.
            self.next = cut.seen + 1;
            self.acknowledge(step);
            return Ok(false);
        };
        if step.engine.options.has(Failpoint::AcknowledgeEarly) {
            step.feed.acknowledge(last);
        }
        self.count(cut.bytes, step)?;
        let (body, first) = (cut.groups.into(), self.writer.last() + 1);
        self.append(body, (first, last), After::Segment { last }, step)
    }

    /// Cuts a segment of groups up to `until`; `None` if their zones were let go.
    fn cut(&mut self, until: Lsn, step: ShipStep<'_>) -> Result<Option<SegmentCut>> {
        let shared = &step.engine.shared;
        // Zones that are let go from now on stay while this reads.
        let _hold = shared.queue.hold();
        if step.feed.has_lost() {
            return Ok(None);
        }
        let groups = shared.committer.stored_groups(&mut self.places, self.next)?;
        let memory = self.writer.take_memory();
        cut_segment(groups, (self.next - 1, until), (&shared.unshipped, memory)).map(Some)
    }

    /// Says what the log has.
    fn acknowledge(&mut self, step: ShipStep<'_>) {
        self.waiting.forget_below(self.next, step.feed);
        step.feed.acknowledge(self.next - 1);
        if step.feed.take_dead() {
            step.engine.shared.wakeup.wake();
        }
    }

    /// Counts a segment towards the next checkpoint, with what earlier openings have left.
    fn count(&mut self, bytes: u64, step: ShipStep<'_>) -> Result<()> {
        // Entries that are small take time too: each is a request of a reader that starts.
        let least = step.shipper.checkpoint_bytes / MOST_ENTRIES;
        let before = match self.since_checkpoint {
            Some(before) => before,
            None => {
                let left = step.shipper.log.bytes_behind(self.writer.checkpoint(), least)?;
                step.shipper.owes.store(left >= step.shipper.checkpoint_bytes, Ordering::Release);
                left
            }
        };
        self.since_checkpoint = Some(before + bytes.max(least));
        step.shipper.counts.segments.fetch_add(1, Ordering::Relaxed);
        step.shipper.counts.segment_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Appends the next part of a large commit, or the segment behind the last one.
    fn send_large(&mut self, step: ShipStep<'_>) -> Result<bool> {
        let Some(large) = &self.large else { return Ok(false) };
        let most = if step.engine.options.stepped { STEPPED_PART_BYTES } else { PART_BYTES };
        let Some((part, sent)) = large.next_part(&step.engine.shared.cache, most)? else {
            let (first, last) = (self.writer.last() + 1, large.lsn);
            let body = large.groups().into();
            self.count(0, step)?;
            return self.append(body, (first, last), After::Segment { last }, step);
        };
        let last = self.writer.last();
        self.count(part.records.len() as u64, step)?;
        let body = EntryBody::Part(part).into();
        self.append(body, (0, last), After::Part(sent), step)
    }

    /// Brings the log to the last LSN, though there was no news, so that the next opening goes on.
    fn close_gap(&mut self, step: ShipStep<'_>) -> Result<()> {
        let (first, last) = (self.writer.last() + 1, self.next - 1);
        let is_ready = step.engine.shared.committer.visible() <= last && self.after.is_none();
        if last < first || !is_ready || self.needs_checkpoint || step.feed.has_failed() {
            return Ok(());
        }
        self.append_empty((first, last), step).map(drop)
    }

    /// Brings the log from `first` to `last`, between which there was no news.
    fn append_empty(&mut self, (first, last): (Lsn, Lsn), step: ShipStep<'_>) -> Result<bool> {
        let body = SegmentGroups::default().into();
        self.append(body, (first, last), After::Segment { last }, step)
    }

    fn append(
        &mut self,
        body: NewBody,
        lsns: (Lsn, Lsn),
        after: After,
        step: ShipStep<'_>,
    ) -> Result<bool> {
        debug_assert!(self.after.is_none(), "one entry after the other");
        if let Err(error) = self.writer.append(body, lsns) {
            if self.writer.is_undecided() {
                self.after = Some(after);
            }
            return Err(error);
        }
        self.conclude(after, step);
        Ok(true)
    }

    /// What follows once an entry is there. Nothing of it can fail the entry.
    fn conclude(&mut self, after: After, step: ShipStep<'_>) {
        let last = self.writer.last();
        step.shipper.checkpoints.note_next(self.writer.next(), matches!(after, After::Part(_)));
        match after {
            After::Tables => {
                self.first_tables = None;
                self.next = self.next.max(last + 1);
            }
            After::Part(sent) => {
                if let Some(large) = &mut self.large {
                    large.sent = sent;
                }
            }
            After::Segment { last } => {
                self.next = self.next.max(last + 1);
                self.large = None;
                let bytes = self.since_checkpoint;
                if bytes.is_some_and(|bytes| bytes >= step.shipper.checkpoint_bytes) {
                    step.shipper.checkpoints.set_due();
                }
            }
            After::Checkpoint(sent) => {
                self.next = self.next.max(sent.manifest.lsn + 1);
                self.needs_checkpoint = false;
                self.since_checkpoint = Some(0);
                step.shipper.owes.store(false, Ordering::Release);
                self.forgotten = 0;
                // It names all tables itself.
                self.first_tables = None;
                let pending = step.shipper.checkpoints.conclude(&sent);
                let (number, from, pieces) = (sent.manifest.number, sent.from, sent.pieces());
                let made = MadeCheckpoint { number, from, pieces, pending };
                step.shipper.made.lock().push(made);
            }
        }
        // Invariant 3.
        self.acknowledge(step);
        step.shipper.collect_in_turn(step.engine);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
