//! The checkpoints of a shipper: what is sent ahead of one, and when its entry follows.

use super::{After, ShipStep, State};
use crate::backup::MICROS_A_SECOND;
use crate::base::error::Result;
use crate::base::options::Durability;
use crate::engine::Shipping;
use crate::os::sync::atomic::Ordering;
use crate::os::time;
use crate::replication::checkpoint::{self, AHEAD_BYTES, Hindrance, SentCheckpoint};
use crate::replication::log::EntryBody;

/// As [`AHEAD_BYTES`], where steps come in their turn.
const STEPPED_AHEAD_BYTES: u64 = 16 << 10;

impl State {
    /// Whether the checkpoint that is due may be sent now.
    pub(super) fn may_try(&self, step: ShipStep<'_>) -> bool {
        let waits = |it: &Hindrance| step.shipper.has_thread && time::now() < it.until;
        !step.shipper.is_closing(0) && !self.hindered.as_ref().is_some_and(waits)
    }

    /// Sends some of the checkpoint that is due. If that fails, segments go on, and it is tried
    /// again later: what fails may be of this machine alone.
    pub(super) fn send_some(&mut self, step: ShipStep<'_>) -> Result<()> {
        let sent = match self.send_ahead(step) {
            Ok(false) => self.send_data(step).map(|sent| {
                self.ready = Some(Box::new(sent));
            }),
            ahead => ahead.map(drop),
        };
        // Parts that go out between two failures of another one change no pause.
        if let Err(error) = &sent {
            self.ahead = None;
            self.hindered = Some(Hindrance::of(error, self.hindered.as_ref()));
        }
        sent
    }

    /// Sends some extents ahead of a checkpoint, so that commits wait for few of them; whether
    /// there were any. A checkpoint holds up segments from its LSN on, and has what came meanwhile
    /// alone to send then.
    fn send_ahead(&mut self, step: ShipStep<'_>) -> Result<bool> {
        let most = if step.engine.options.stepped { STEPPED_AHEAD_BYTES } else { AHEAD_BYTES };
        let extents =
            self.ahead.get_or_insert_with(|| checkpoint::extents(step.engine, &self.sent));
        let into = (&mut self.pieces, &mut self.sent);
        let bytes = checkpoint::send_ahead(step.engine, &step.shipper.log, (extents, most), into)?;
        step.shipper.counts.checkpoint_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(bytes > 0)
    }

    /// Sends what a checkpoint of this moment has.
    fn send_data(&mut self, step: ShipStep<'_>) -> Result<SentCheckpoint> {
        self.ahead = None;
        let into = (&mut self.pieces, &mut self.sent);
        let sent = checkpoint::send(step.engine, &step.shipper.log, self.writer.next(), into)?;
        debug_assert!(sent.manifest.lsn + 1 >= self.next, "a checkpoint has all that was shipped");
        step.shipper.counts.checkpoints.fetch_add(1, Ordering::Relaxed);
        step.shipper.counts.checkpoint_bytes.fetch_add(sent.manifest.added, Ordering::Relaxed);
        Ok(sent)
    }

    /// Sends a checkpoint at once. It takes the place of commits that no segment can have.
    pub(super) fn leap(&mut self, step: ShipStep<'_>) -> Result<bool> {
        (self.large, self.ready) = (None, None);
        step.engine.shared.committer.wait_for(self.forgotten, Durability::Durable)?;
        let sent = self.send_data(step)?;
        self.append_entry_of(Box::new(sent), step)
    }

    /// Appends a checkpoint behind segments with all of its commits. Where its last ones were no
    /// news, an empty segment brings readers to its LSN first.
    pub(super) fn append_checkpoint(
        &mut self,
        ready: Box<SentCheckpoint>,
        step: ShipStep<'_>,
    ) -> Result<bool> {
        let (first, last) = (self.writer.last() + 1, ready.manifest.lsn);
        if first > last {
            return self.append_entry_of(ready, step);
        }
        self.ready = Some(ready);
        self.append_empty((first, last), step)
    }

    fn append_entry_of(
        &mut self,
        mut sent: Box<SentCheckpoint>,
        step: ShipStep<'_>,
    ) -> Result<bool> {
        // Segments may have come between its data and its entry: they are no older than that says.
        sent.manifest.number = self.writer.next();
        sent.manifest.created = step.engine.shared.clock.now() / MICROS_A_SECOND;
        let (body, last) = (EntryBody::Checkpoint(sent.body()), sent.manifest.lsn);
        self.append(body.into(), (0, last), After::Checkpoint(sent), step)
    }
}
