//! The checkpoints of a shipper. One that is due is a job of its own: its thread sends the data,
//! while segments go on, and the shipper appends the entry. One that takes the place of what no
//! segment can have holds segments up: the shipper sends it itself.
//!
//! Thread safety: the state is held while data is sent, by the job's thread or the shipper. The
//! stage is held for a few instructions.
//!
//! Invariant: the levels of a checkpoint have the commits of all entries before
//! [`SentCheckpoint::from`].

use std::sync::Weak;
use std::time::Duration;

use super::waiting::count_failure;
use super::{After, MOST_ENTRIES, ShipStep, Shipper, State};
use crate::backup::{MICROS_A_SECOND, oldest_above_levels};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Durability;
use crate::base::record::{LSN_MAX, Lsn};
use crate::engine::{Engine, Shipping};
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::time;
use crate::replication::checkpoint::{
    self, AHEAD_BYTES, DataPieces, Hindrance, LogBase, SentCheckpoint, SentData,
};
use crate::replication::log::EntryBody;
use crate::sstable::Extent;

/// As [`AHEAD_BYTES`], where steps come in their turn.
const STEPPED_AHEAD_BYTES: u64 = 16 << 10;

/// Where steps come in their turn, so many come between the data of a checkpoint and its entry.
const STEPS_BETWEEN: u32 = 2;

/// The job looks so often whether one is due.
const LOOKS: Duration = Duration::from_secs(1);

/// How far a checkpoint is.
#[derive(Debug, Default)]
enum CheckpointStage {
    /// None is due.
    #[default]
    None,
    /// There are segments enough for one.
    Due,
    /// All its data is sent, and so many steps were taken since.
    Ready(Box<SentCheckpoint>, u32),
    /// Its entry is being appended.
    Appending,
}

/// What a checkpoint is made with.
#[derive(Debug)]
pub(super) struct JobState {
    pieces: DataPieces,
    pub(super) sent: SentData,
    base: LogBase,
    /// What is left to be sent ahead of the checkpoint that is due, once that has begun. What a
    /// compaction replaces meanwhile is given back: no checkpoint has it any more.
    ahead: Option<Vec<Weak<Extent>>>,
    /// The log was too long. Once all up to here is drained, and nothing is written any more,
    /// another checkpoint makes it shorter.
    shortens: Option<Lsn>,
    /// The last commit of the last look.
    seen: Lsn,
}

/// The job.
#[derive(Debug)]
pub(super) struct CheckpointJob {
    pub(super) state: Mutex<JobState>,
    stage: Mutex<CheckpointStage>,
    /// Why the checkpoint that is due failed, if so.
    hindered: Mutex<Option<Hindrance>>,
    /// The number of the shipper's next entry, or a lower one: no part of a commit but its first.
    next_entry: AtomicU64,
}

impl CheckpointJob {
    /// With what the store has already, and what the log has.
    pub(super) fn new(claim: u64, sent: SentData, base: LogBase) -> CheckpointJob {
        let pieces = DataPieces { claim, next: 0 };
        CheckpointJob {
            state: Mutex::new(JobState {
                pieces,
                sent,
                base,
                ahead: None,
                shortens: None,
                seen: 0,
            }),
            stage: Mutex::default(),
            hindered: Mutex::default(),
            next_entry: AtomicU64::new(claim + 1),
        }
    }

    /// A checkpoint is due, unless one is on its way.
    pub(super) fn set_due(&self) {
        let mut stage = self.stage.lock();
        if matches!(*stage, CheckpointStage::None) {
            *stage = CheckpointStage::Due;
        }
    }

    /// The checkpoint that is due has failed. Parts that go out between two failures of another one
    /// change no pause.
    fn hinder(&self, error: &Error) {
        let mut hindered = self.hindered.lock();
        *hindered = Some(Hindrance::of(error, hindered.as_ref()));
    }

    /// The next entry has this number. Behind a part the first one counts: a reader that begins
    /// with another lacks some.
    pub(super) fn note_next(&self, number: u64, is_behind_part: bool) {
        if !is_behind_part {
            self.next_entry.store(number, Ordering::Release);
        }
    }

    /// Why the checkpoint that is due failed, if so.
    pub(super) fn note(&self) -> Option<String> {
        self.hindered.lock().as_ref().map(|it| it.cause.clone())
    }

    /// The checkpoint whose data is sent, once the log has the commits up to its LSN, `next` being
    /// the first that it lacks: so it leaps over none.
    fn take_ready(&self, next: Lsn, is_stepped: bool) -> Option<Box<SentCheckpoint>> {
        let mut stage = self.stage.lock();
        let CheckpointStage::Ready(sent, steps) = &mut *stage else { return None };
        *steps += 1;
        if next <= sent.manifest.lsn || is_stepped && *steps <= STEPS_BETWEEN {
            return None;
        }
        let ready = std::mem::replace(&mut *stage, CheckpointStage::Appending);
        if let CheckpointStage::Ready(sent, _) = ready { Some(sent) } else { None }
    }

    /// Whether one waits for its entry.
    pub(super) fn is_ready(&self) -> bool {
        matches!(*self.stage.lock(), CheckpointStage::Ready(..))
    }

    /// The log has a checkpoint: the first piece of a later one.
    pub(super) fn conclude(&self, sent: &SentCheckpoint) -> u32 {
        let mut state = self.state.lock();
        state.sent.keep_only(sent);
        state.base = sent.log_base();
        *self.hindered.lock() = None;
        *self.stage.lock() = CheckpointStage::None;
        state.pieces.next
    }
}

impl Shipper {
    /// The body of the job's thread.
    pub(super) fn send_checkpoints(&self, engine: &Engine) {
        let Some(feed) = engine.shared.committer.feed() else { return };
        let ends = || engine.ctx.is_stopping() || self.closing.get().is_some();
        while !ends() && !feed.has_failed() {
            if !matches!(self.send_some(engine), Ok(true)) {
                feed.pause(LOOKS, &ends);
            }
        }
    }

    /// Sends some of the checkpoint that is due; whether one is. If that fails, it is tried again
    /// later: what fails may be of this machine alone.
    pub(super) fn send_some(&self, engine: &Engine) -> Result<bool> {
        let job = &self.checkpoints;
        let mut state = job.state.lock();
        self.look_at_rest(&mut state, engine);
        if !self.begins(engine) {
            return Ok(false);
        }
        let sent = match Shipper::is_drained(&state, engine) {
            Ok(false) if self.closing.get().is_none() => return Ok(false),
            // A closing has no time for drains.
            Ok(_) => self.send_more(&mut state, engine),
            Err(error) => Err(error),
        };
        let sent = sent.inspect_err(|error| {
            state.ahead = None;
            job.hinder(error);
            count_failure(engine, error);
        })?;
        *job.stage.lock() =
            sent.map_or(CheckpointStage::Due, |sent| CheckpointStage::Ready(sent, 0));
        Ok(true)
    }

    /// Where the log was too long, and nothing is written any more, has a checkpoint follow the
    /// drains.
    fn look_at_rest(&self, state: &mut JobState, engine: &Engine) {
        let Some(until) = state.shortens else { return };
        let visible = engine.shared.committer.visible();
        let rests = std::mem::replace(&mut state.seen, visible) == visible;
        let is_none = || matches!(*self.checkpoints.stage.lock(), CheckpointStage::None);
        if rests && is_none() && oldest_above_levels(engine).is_ok_and(|oldest| oldest > until) {
            self.checkpoints.set_due();
            state.shortens = None;
        }
    }

    /// Whether a checkpoint is due and may be sent now. The caller has the state.
    fn begins(&self, engine: &Engine) -> bool {
        let job = &self.checkpoints;
        let waits = |it: &Hindrance| self.has_thread && time::now() < it.until;
        if self.is_closing(0)
            || engine.shared.poison.check().is_err()
            || job.hindered.lock().as_ref().is_some_and(waits)
        {
            return false;
        }
        matches!(*job.stage.lock(), CheckpointStage::Due)
    }

    /// Whether all is drained that the log lacks. If not, that is asked for.
    fn is_drained(state: &JobState, engine: &Engine) -> Result<bool> {
        let lacks = state.base.lacks;
        let is_drained = oldest_above_levels(engine)? > lacks;
        if !is_drained {
            engine.ctx.drain_upto(lacks);
        }
        Ok(is_drained)
    }

    /// Sends extents ahead of a checkpoint, or if there are none its data.
    fn send_more(
        &self,
        state: &mut JobState,
        engine: &Engine,
    ) -> Result<Option<Box<SentCheckpoint>>> {
        if self.send_ahead(state, engine)? {
            return Ok(None);
        }
        let next = self.checkpoints.next_entry.load(Ordering::Acquire);
        let mut sent = Box::new(self.send_data(state, engine, (state.base.lacks, next))?);
        if sent.manifest.oldest == 0 {
            return Ok(Some(sent));
        }
        let lsn = sent.manifest.lsn;
        match self.find_first(&mut sent, (state.base.from, next)) {
            Ok(Some(bytes)) => {
                let most = engine.shared.zones.region_len();
                let entries = (next - sent.from) * (self.checkpoint_bytes / MOST_ENTRIES);
                // A reader takes in what was appended, however much the objects are compressed.
                if entries.max(bytes).max(engine.scheduler.round_bytes()) > most {
                    engine.ctx.drain_upto(lsn);
                    state.shortens = Some(lsn);
                }
                Ok(Some(sent))
            }
            Err(error) if error.kind() != ErrorKind::Corrupt => Err(error),
            // No reader comes past that: the next one begins behind it.
            _ => {
                state.base = LogBase { from: next, lacks: lsn };
                Ok(None)
            }
        }
    }

    /// Finds the entry with which a reader of a checkpoint goes on, of those that are there. The
    /// bytes from there on, which it applies; `None` if an entry of them is missing.
    fn find_first(&self, sent: &mut SentCheckpoint, among: (u64, u64)) -> Result<Option<u64>> {
        sent.from = self.log.first_with(sent.manifest.oldest, among)?;
        self.log.sound_bytes_behind(sent.from - 1, among.1)
    }

    /// Sends some extents ahead of a checkpoint, so that it has what came meanwhile alone to send;
    /// whether there were any.
    fn send_ahead(&self, state: &mut JobState, engine: &Engine) -> Result<bool> {
        let most = if engine.options.stepped { STEPPED_AHEAD_BYTES } else { AHEAD_BYTES };
        let extents = state.ahead.get_or_insert_with(|| checkpoint::extents(engine, &state.sent));
        let into = (&mut state.pieces, &mut state.sent);
        let bytes = checkpoint::send_ahead(engine, &self.log, (extents, most), into)?;
        self.counts.checkpoint_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(bytes > 0)
    }

    /// As [`checkpoint::send`].
    fn send_data(
        &self,
        state: &mut JobState,
        engine: &Engine,
        log: (Lsn, u64),
    ) -> Result<SentCheckpoint> {
        state.ahead = None;
        let into = (&mut state.pieces, &mut state.sent);
        let sent = checkpoint::send(engine, &self.log, log, into)?;
        self.counts.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.counts.checkpoint_bytes.fetch_add(sent.manifest.added, Ordering::Relaxed);
        Ok(sent)
    }
}

impl State {
    /// Sends a checkpoint at once. It takes the place of commits that no segment can have.
    pub(super) fn leap(&mut self, step: ShipStep<'_>) -> Result<bool> {
        let ShipStep { engine, shipper, .. } = step;
        self.large = None;
        engine.shared.committer.wait_for(self.forgotten, Durability::Durable)?;
        let mut state = shipper.checkpoints.state.lock();
        // One that is on its way lacks what was forgotten.
        *shipper.checkpoints.stage.lock() = CheckpointStage::Appending;
        // The log lacks what was let go, whatever else it has.
        let sent = shipper.send_data(&mut state, engine, (LSN_MAX, self.writer.next() + 1));
        drop(state);
        let sent =
            sent.inspect_err(|_| *shipper.checkpoints.stage.lock() = CheckpointStage::None)?;
        debug_assert!(sent.manifest.lsn + 1 >= self.next, "a checkpoint has all that was shipped");
        self.append_entry_of(Box::new(sent), step)
    }

    /// Appends the checkpoint whose data is sent, behind segments with all of its commits; `None`
    /// if there is none. Where its last ones were no news, an empty segment brings readers to its
    /// LSN first.
    pub(super) fn append_checkpoint(&mut self, step: ShipStep<'_>) -> Result<Option<bool>> {
        let job = &step.shipper.checkpoints;
        let Some(ready) = job.take_ready(self.next, !step.shipper.has_thread) else {
            return Ok(None);
        };
        let (first, last) = (self.writer.last() + 1, ready.manifest.lsn);
        if first > last {
            return self.append_entry_of(ready, step).map(Some);
        }
        *job.stage.lock() = CheckpointStage::Ready(ready, STEPS_BETWEEN);
        self.append_empty((first, last), step).map(Some)
    }

    fn append_entry_of(
        &mut self,
        mut sent: Box<SentCheckpoint>,
        step: ShipStep<'_>,
    ) -> Result<bool> {
        // Segments may have come between its data and its entry: they are no older than that says.
        sent.manifest.number = self.writer.next();
        sent.manifest.created = step.engine.shared.clock.now() / MICROS_A_SECOND;
        let last = self.writer.last().max(sent.manifest.lsn);
        let (body, from) = (EntryBody::Checkpoint(sent.body()), sent.from);
        let appended = self.append(body.into(), (from, last), After::Checkpoint(sent), step);
        appended.inspect_err(|error| {
            if !self.writer.is_undecided() {
                let job = &step.shipper.checkpoints;
                job.hinder(error);
                *job.stage.lock() = CheckpointStage::Due;
            }
        })
    }
}
