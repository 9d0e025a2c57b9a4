//! Objects on their way to the store, of all jobs. A few are under way at a time.
//!
//! Thread safety: any thread may call any method. The lock is held for an instant, never in a
//! request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::name::ObjectId;
use super::tier::{ObjectTier, Upload};
use crate::error::{Error, Result};
use crate::memory::{Gauge, Holding};

/// As many are under way at a time; the next one waits for the oldest.
const MOST: usize = 4;

/// One of them, and what counts its bytes.
#[derive(Debug)]
struct Sent {
    id: ObjectId,
    upload: Upload,
    held: Holding,
}

#[derive(Debug, Default)]
struct State {
    under_way: VecDeque<Sent>,
    /// Those that failed, until their job asks.
    failed: BTreeMap<ObjectId, Error>,
}

/// What is on its way.
#[derive(Debug, Default)]
pub(super) struct Uploads(Mutex<State>);

impl Uploads {
    fn oldest(&self) -> Option<Sent> {
        let mut state = self.0.lock();
        if state.under_way.len() < MOST { None } else { state.under_way.pop_front() }
    }

    fn add(&self, sent: Sent) {
        self.0.lock().under_way.push_back(sent);
    }

    /// Takes an upload; or how it failed.
    fn take(&self, id: ObjectId) -> Result<Option<Sent>> {
        let mut state = self.0.lock();
        if let Some(error) = state.failed.remove(&id) {
            return Err(error);
        }
        let at = state.under_way.iter().position(|sent| sent.id == id);
        Ok(at.and_then(|at| state.under_way.remove(at)))
    }

    fn fail(&self, id: ObjectId, error: Error) {
        self.0.lock().failed.insert(id, error);
    }

    /// No one asks for it any more.
    pub(super) fn forget(&self, id: ObjectId) {
        let mut state = self.0.lock();
        state.failed.remove(&id);
        state.under_way.retain(|sent| sent.id != id);
    }
}

impl ObjectTier {
    /// Sends an extent that has its name; `gauge` counts its bytes until they have arrived. It may
    /// wait for another one to arrive.
    pub(crate) fn send(&self, id: ObjectId, bytes: &[u8], gauge: &Arc<Gauge>) {
        while let Some(oldest) = self.uploads().oldest() {
            // Its own job hears of it, when that asks.
            if let Err(error) = self.finish_sent(oldest.upload, oldest.held) {
                self.uploads().fail(oldest.id, error);
            }
        }
        let held = gauge.hold(bytes.len() as u64);
        let upload = self.begin_upload(id, bytes.to_vec());
        self.uploads().add(Sent { id, upload, held });
    }

    fn finish_sent(&self, upload: Upload, held: Holding) -> Result<()> {
        let finished = self.finish_upload(upload);
        drop(held);
        finished
    }

    /// Waits until the store has acknowledged extents that were sent, and looks whether the fence
    /// is still this writer's: then an edit may name them.
    ///
    /// # Errors
    ///
    /// The store did not acknowledge one in time; `Fenced` if another writer has the store.
    pub(crate) fn acknowledge(&self, ids: impl Iterator<Item = ObjectId>) -> Result<()> {
        let mut any = false;
        for id in ids {
            any = true;
            if self.planted().unacknowledged {
                continue;
            }
            if let Some(sent) = self.uploads().take(id)? {
                self.finish_sent(sent.upload, sent.held)?;
            }
        }
        if any { self.confirm() } else { Ok(()) }
    }
}
