//! The shipper: takes published commit groups from the feed, and appends them to the log of the
//! shared store in their order.
//!
//! Thread safety: one step at a time, by its thread, a stepper, or the closing; the state is behind
//! one mutex, which is held while the store is asked. No commit takes it.
//!
//! Invariants:
//!
//! 1. Only groups that are durable on this machine are appended.
//! 2. The log lacks no commit: a segment begins at `next`, and a checkpoint takes the place of what
//!    no segment can have.
//! 3. A commit is acknowledged after the entry that has it.
//! 4. Nothing is deleted before the head says so, and the head moves after its checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::checkpoint::{self, DataPieces, SentData, objects_of};
use super::collect::Kept;
use super::segment;
use crate::commit::{FedGroup, Feed};
use crate::db::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::levels::Manifest;
use crate::options::{Durability, Failpoint};
use crate::record::Lsn;
use crate::replica::{EntryBody, LogEnd, LogWriter, SharedLog, SharedTable};

/// Commits go out at least so often.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of segments after which a checkpoint is made.
const CHECKPOINT_BYTES: u64 = 64 << 20;

/// Ships the commits of one database.
#[derive(Debug)]
pub(in crate::db) struct Shipper {
    pub(super) log: Arc<SharedLog>,
    state: Mutex<State>,
    /// Set by the closing, whose own steps are the last.
    stopped: AtomicBool,
    pub(super) counts: ShipCounts,
}

/// What was shipped since the opening.
#[derive(Debug, Default)]
pub(super) struct ShipCounts {
    pub(super) segments: AtomicU64,
    pub(super) segment_bytes: AtomicU64,
    pub(super) checkpoints: AtomicU64,
    pub(super) checkpoint_bytes: AtomicU64,
    /// When shipping last caught up or went on, while something waits; `None` if nothing waits.
    pub(super) waiting_since: Mutex<Option<std::time::Instant>>,
    pub(super) failure: Mutex<Option<String>>,
}

/// What an entry that was appended leads to.
#[derive(Debug)]
enum After {
    Segment { last: Lsn },
    Tables,
    Checkpoint(Box<Manifest>),
}

#[derive(Debug)]
pub(super) struct State {
    writer: LogWriter,
    /// Groups that the log lacks.
    waiting: BTreeMap<Lsn, FedGroup>,
    /// The first LSN that the log lacks.
    next: Lsn,
    needs_checkpoint: bool,
    needs_tables: bool,
    /// What becomes of the entry whose put is not decided.
    after: Option<After>,
    /// Bytes of segments since the last checkpoint.
    since_checkpoint: u64,
    pieces: DataPieces,
    sent: SentData,
    kept: Kept,
    /// Prepares since the opening that have runs in extents.
    spilled: BTreeSet<Lsn>,
    /// Prepares up to here are unknown.
    began_after: Lsn,
}

/// How a shipper begins.
pub(super) struct Beginning {
    pub(super) writer: LogWriter,
    pub(super) end: LogEnd,
    /// Whether the log has every commit of the directory.
    pub(super) shipped: bool,
    /// The newest checkpoint, if this directory made it.
    pub(super) own: Option<Manifest>,
}

impl Shipper {
    pub(super) fn new(log: &Arc<SharedLog>, beginning: Beginning, engine: &Engine) -> Shipper {
        let Beginning { writer, end, shipped, own } = beginning;
        let opened_at = engine.shared.committer.visible();
        let early = engine.options.has(Failpoint::DeleteSegmentsEarly);
        let pieces = DataPieces { claim: writer.number(), next: 0 };
        let kept = Kept::new(writer.number(), end.checkpoint, early);
        let state = State {
            writer,
            waiting: BTreeMap::new(),
            next: opened_at + 1,
            needs_checkpoint: !shipped || end.checkpoint == 0,
            needs_tables: shipped,
            after: None,
            since_checkpoint: 0,
            pieces,
            sent: own.as_ref().map_or_else(SentData::default, SentData::of),
            kept,
            spilled: BTreeSet::new(),
            began_after: opened_at,
        };
        Shipper {
            log: Arc::clone(log),
            state: Mutex::new(state),
            stopped: AtomicBool::new(false),
            counts: ShipCounts::default(),
        }
    }

    /// The body of the shipper's thread.
    pub(in crate::db) fn run(&self, engine: &Engine) {
        let Some(feed) = engine.shared.committer.feed() else { return };
        let mut pause = INTERVAL;
        while !engine.ctx.stop.load(Ordering::Acquire) && !feed.has_failed() {
            match self.step(engine) {
                Ok(true) => pause = INTERVAL,
                Ok(false) => {
                    pause = INTERVAL;
                    feed.wait_for_groups(INTERVAL);
                }
                Err(_) => {
                    feed.wait_for_groups(pause);
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
            }
        }
    }

    /// Appends an entry, if there is something to append; whether there was. Does nothing while
    /// another thread takes a step.
    ///
    /// # Errors
    ///
    /// `Fenced` if another writer has claimed the log: the database has stopped then. `Unavailable`
    /// if the store does not answer: another step tries again. Those of a checkpoint.
    pub(in crate::db) fn step(&self, engine: &Engine) -> Result<bool> {
        let Some(feed) = engine.shared.committer.feed() else { return Ok(false) };
        let Some(mut state) = self.state.try_lock() else { return Ok(false) };
        if feed.has_failed() || self.stopped.load(Ordering::Acquire) {
            return Ok(false);
        }
        let did = state.advance(engine, feed, self);
        self.note(&state, &did);
        if let Err(error) = &did
            && error.kind() == ErrorKind::Fenced
        {
            feed.fail(error);
            engine.shared.stop_by(error);
        }
        did
    }

    fn note(&self, state: &State, did: &Result<bool>) {
        *self.counts.failure.lock() = did.as_ref().err().map(ToString::to_string);
        let mut since = self.counts.waiting_since.lock();
        *since = match state.waiting.is_empty() && state.after.is_none() {
            true => None,
            false => since.or_else(|| Some(std::time::Instant::now())),
        };
        if matches!(did, Ok(true)) && since.is_some() {
            *since = Some(std::time::Instant::now());
        }
    }

    /// Ships what there is, before a closing. Ends at the first failure: a store that is away takes
    /// half a minute.
    pub(in crate::db) fn drain(&self, engine: &Engine) {
        let Some(feed) = engine.shared.committer.feed() else { return };
        let until = engine.shared.committer.visible();
        while engine.shared.poison.check().is_ok() && !feed.has_failed() {
            let mut state = self.state.lock();
            let did = state.advance(engine, feed, self);
            self.note(&state, &did);
            let has_all = !state.needs_checkpoint && state.next > until;
            if !matches!(did, Ok(true)) || has_all {
                return;
            }
        }
    }

    /// From now on a request that fails is not made again, so that a closing does not wait for it.
    pub(in crate::db) fn hurry(&self) {
        self.log.stop();
    }

    /// The last steps: ships what there is, as long as the store answers, and ends every wait.
    pub(in crate::db) fn finish(&self, engine: &Engine) {
        let Some(feed) = engine.shared.committer.feed() else { return };
        if engine.shared.poison.check().is_ok() {
            while matches!(self.step(engine), Ok(true)) {}
            // If it fails, the next opening makes a checkpoint.
            drop(self.state.lock().close_gap(feed, self));
        }
        self.stopped.store(true, Ordering::Release);
        feed.fail(&Error::closed());
    }
}

impl State {
    fn advance(&mut self, engine: &Engine, feed: &Feed, shipper: &Shipper) -> Result<bool> {
        if let Some(after) = self.after.take() {
            if let Err(error) = self.writer.settle() {
                self.after = Some(after);
                return Err(error);
            }
            return self.conclude(after, feed, shipper).map(|()| true);
        }
        let committer = &engine.shared.committer;
        if feed.has_lost() {
            feed.start_over(&mut self.waiting);
            // Groups with earlier tickets are not in the feed: the checkpoint has to have them.
            let last = committer.at_boundary(|last| last);
            committer.wait_for(last, Durability::Durable)?;
            self.needs_checkpoint = true;
        }
        feed.take_into(&mut self.waiting);
        self.forget_shipped(feed);
        if self.needs_checkpoint {
            return self.send_checkpoint(engine, feed, shipper);
        }
        if feed.take_options() {
            self.needs_tables = true;
        }
        if self.needs_tables {
            self.needs_tables = false;
            let last = self.writer.last().max(self.next - 1);
            return self.append(
                EntryBody::Tables(tables(engine)),
                (0, last),
                After::Tables,
                feed,
                shipper,
            );
        }
        self.send_segment(engine, feed, shipper)
    }

    /// Releases the groups that the log has.
    fn forget_shipped(&mut self, feed: &Feed) {
        let waiting = self.waiting.split_off(&self.next);
        let shipped = std::mem::replace(&mut self.waiting, waiting);
        feed.release(shipped.values().map(FedGroup::bytes).sum());
    }

    fn send_segment(&mut self, engine: &Engine, feed: &Feed, shipper: &Shipper) -> Result<bool> {
        let committer = &engine.shared.committer;
        if self.waiting.is_empty() {
            return Ok(false);
        }
        let visible = committer.visible();
        let durable = match engine.options.has(Failpoint::ShipUndurable) {
            true => visible,
            false => {
                // Relaxed commits too (invariant 1).
                committer.wait_for(visible, Durability::Durable)?;
                committer.durable()
            }
        };
        // What is durable by now was handed over before it was.
        feed.take_into(&mut self.waiting);
        let mut judged = segment::Judge { spilled: &mut self.spilled, since: self.began_after };
        let cut = segment::cut(&self.waiting, (self.next, durable), &mut judged);
        if cut.needs_checkpoint {
            self.needs_checkpoint = true;
            return self.send_checkpoint(engine, feed, shipper);
        }
        let Some(last) = cut.last else {
            // Only a cleaner's copies: no reader lacks them.
            self.next = cut.seen + 1;
            feed.acknowledge(cut.seen);
            self.forget_shipped(feed);
            return Ok(false);
        };
        let first = self.writer.last() + 1;
        if engine.options.has(Failpoint::AcknowledgeEarly) {
            feed.acknowledge(last);
        }
        self.since_checkpoint += cut.bytes;
        shipper.counts.segments.fetch_add(1, Ordering::Relaxed);
        shipper.counts.segment_bytes.fetch_add(cut.bytes, Ordering::Relaxed);
        let body = EntryBody::Segment(cut.groups);
        self.append(body, (first, last), After::Segment { last }, feed, shipper)
    }

    /// Brings the log to the last LSN, though there was no news, so that the next opening goes on.
    fn close_gap(&mut self, feed: &Feed, shipper: &Shipper) -> Result<()> {
        let (first, last) = (self.writer.last() + 1, self.next - 1);
        let is_ready = self.waiting.is_empty() && self.after.is_none();
        if last < first || !is_ready || self.needs_checkpoint || feed.has_failed() {
            return Ok(());
        }
        let body = EntryBody::Segment(Vec::new());
        self.append(body, (first, last), After::Segment { last }, feed, shipper).map(drop)
    }

    fn send_checkpoint(&mut self, engine: &Engine, feed: &Feed, shipper: &Shipper) -> Result<bool> {
        let number = self.writer.next();
        let into = (&mut self.pieces, &mut self.sent);
        let manifest = checkpoint::send(engine, &shipper.log, number, into)?;
        debug_assert!(manifest.lsn + 1 >= self.next, "a checkpoint has all that was shipped");
        shipper.counts.checkpoints.fetch_add(1, Ordering::Relaxed);
        shipper.counts.checkpoint_bytes.fetch_add(manifest.added, Ordering::Relaxed);
        let (last, body) = (manifest.lsn, EntryBody::Checkpoint(manifest.encode()));
        self.append(body, (0, last), After::Checkpoint(Box::new(manifest)), feed, shipper)
    }

    fn append(
        &mut self,
        body: EntryBody,
        lsns: (Lsn, Lsn),
        after: After,
        feed: &Feed,
        shipper: &Shipper,
    ) -> Result<bool> {
        debug_assert!(self.after.is_none(), "one entry after the other");
        if let Err(error) = self.writer.append(body, lsns) {
            if self.writer.is_undecided() {
                self.after = Some(after);
            }
            return Err(error);
        }
        self.conclude(after, feed, shipper).map(|()| true)
    }

    /// What follows once an entry is there.
    fn conclude(&mut self, after: After, feed: &Feed, shipper: &Shipper) -> Result<()> {
        let last = self.writer.last();
        match after {
            After::Tables => self.next = self.next.max(last + 1),
            After::Segment { last } => {
                self.next = self.next.max(last + 1);
                self.needs_checkpoint = self.since_checkpoint >= CHECKPOINT_BYTES;
            }
            After::Checkpoint(manifest) => {
                self.next = self.next.max(manifest.lsn + 1);
                (self.needs_checkpoint, self.since_checkpoint) = (false, 0);
                self.sent = SentData::of(&manifest);
                self.kept.add(manifest.number, objects_of(&manifest), self.pieces.next);
            }
        }
        // Invariant 3.
        feed.acknowledge(self.next - 1);
        self.forget_shipped(feed);
        self.kept.collect(&shipper.log)
    }
}

/// The tables of this moment.
fn tables(engine: &Engine) -> Vec<SharedTable> {
    let table = |table: Arc<crate::table::TableCore>| SharedTable {
        id: table.id(),
        name: table.name(),
        options: table.view().version.options,
    };
    engine.tables().into_iter().map(table).collect()
}
