//! The checkpoint that is due: it is sent between segments. If it cannot be made, segments go on.

use std::time::{Duration, Instant};

use super::checkpoint;
use super::shipper::{LONGEST_PAUSE, LONGEST_REST, Shipper, State};
use crate::engine::Engine;
use crate::engine::shipping::Shipping;
use crate::error::Result;
use crate::os::sync::atomic::Ordering;
use crate::os::time;

/// About so many bytes of extents are sent ahead of a checkpoint between two segments. One extent
/// with its values is sent whole. Where steps come in their turn it is fewer.
pub(super) const AHEAD_BYTES: u64 = 16 << 20;
const STEPPED_AHEAD_BYTES: u64 = 16 << 10;

/// Why a checkpoint that is due could not be made.
#[derive(Debug)]
pub(super) struct Hindrance {
    pub(super) cause: String,
    /// It is tried again then. Where steps come in their turn, each one tries.
    until: Instant,
    pause: Duration,
}

impl State {
    /// Whether the checkpoint that is due may be sent now.
    pub(super) fn may_try(&self, shipper: &Shipper) -> bool {
        let waits = |it: &Hindrance| shipper.has_thread && time::now() < it.until;
        !shipper.is_closing() && !self.hindered.as_ref().is_some_and(waits)
    }

    /// Sends some of the checkpoint that is due. If that fails, segments go on, and it is tried
    /// again later: what fails may be of this machine alone.
    pub(super) fn send_some(&mut self, engine: &Engine, shipper: &Shipper) -> Result<()> {
        let sent = match self.send_ahead(engine, shipper) {
            Ok(false) => self.send_data(engine, shipper).map(|sent| {
                self.ready = Some(Box::new(sent));
            }),
            ahead => ahead.map(drop),
        };
        // Parts that go out between two failures of another one change no pause.
        if let Err(error) = &sent {
            self.ahead = None;
            let before = self.hindered.as_ref().map(|it| (it.pause * 2).min(LONGEST_REST));
            let (cause, pause) = (error.to_string(), before.unwrap_or(LONGEST_PAUSE));
            self.hindered = Some(Hindrance { cause, until: time::now() + pause, pause });
        }
        sent
    }

    /// Sends some extents ahead of a checkpoint, so that commits wait for few of them; whether
    /// there were any. A checkpoint holds up segments from its LSN on, and has what came meanwhile
    /// alone to send then.
    fn send_ahead(&mut self, engine: &Engine, shipper: &Shipper) -> Result<bool> {
        let most = if engine.options.stepped { STEPPED_AHEAD_BYTES } else { AHEAD_BYTES };
        let extents = self.ahead.get_or_insert_with(|| checkpoint::extents(engine, &self.sent));
        let into = (&mut self.pieces, &mut self.sent);
        let bytes = checkpoint::send_ahead(engine, &shipper.log, (extents, most), into)?;
        shipper.counts.checkpoint_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(bytes > 0)
    }
}
