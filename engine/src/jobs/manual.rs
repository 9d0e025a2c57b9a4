//! Manual compactions: a call asks for one, the background does it in bounded jobs, and the call
//! waits.
//!
//! Thread safety: callers add requests and wait; the background's thread does their work, and that
//! of objects what concerns objects. The mutexes are held for a few instructions, or in a timed
//! wait.
//!
//! Invariant: a request is open until it has a result, and gets one once.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::record::Lsn;
use crate::mvcc::{KeyInterval, after};
use crate::os::sync::locks::{Condvar, Mutex};
use crate::table::{Shared, TableCore};

/// A waiting call asks this often whether it is cancelled, and looks whether the database stopped.
const LOOK: Duration = Duration::from_millis(100);

/// How far a manual compaction has come. See
/// [`Database::compact_range`](crate::Database::compact_range).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CompactionProgress {
    /// Columns drained from the region to level 1.
    pub drains: u64,
    /// Compactions, moves of extents included.
    pub compactions: u64,
    /// Whether nothing is left to do. `false` in the end if it was cancelled.
    pub is_finished: bool,
}

/// Where a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Memtables are to come to level 0.
    Memtables,
    /// Level 0 is drained, from a key on.
    Level0(Vec<u8>),
    /// Extents go down.
    Levels,
}

impl Stage {
    /// Whether a request may stand here after `before`: it goes down, and in level 0 up the keys.
    fn follows(&self, before: &Stage) -> bool {
        match (before, self) {
            (Stage::Memtables, Stage::Level0(_)) | (Stage::Level0(_), Stage::Levels) => true,
            (Stage::Level0(from), Stage::Level0(to)) => from < to,
            _ => false,
        }
    }
}

#[derive(Debug)]
struct State {
    stage: Stage,
    progress: CompactionProgress,
    result: Option<Result<()>>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct ManualCompaction {
    pub(crate) table: Arc<TableCore>,
    pub(crate) keys: KeyInterval,
    /// What was committed up to here is meant.
    pub(crate) upto: Lsn,
    state: Mutex<State>,
    changed: Condvar,
}

impl ManualCompaction {
    /// Where it stands.
    pub(crate) fn stage(&self) -> Stage {
        self.state.lock().stage.clone()
    }

    /// It stands there from now on.
    pub(crate) fn set_stage(&self, stage: Stage) {
        let mut state = self.state.lock();
        debug_assert!(stage.follows(&state.stage), "{stage:?} after {:?}", state.stage);
        state.stage = stage;
    }

    /// Counts jobs that were done for it. Another thread may have found meanwhile that nothing is
    /// left to do.
    pub(crate) fn count(&self, drains: u64, compactions: u64) {
        let mut state = self.state.lock();
        state.progress.drains += drains;
        state.progress.compactions += compactions;
        self.changed.notify_all();
    }

    /// The keys that are left from `from` on.
    pub(crate) fn rest(&self, from: &[u8]) -> KeyInterval {
        KeyInterval { start: from.to_vec(), end: self.keys.end.clone() }
    }

    fn look(&self) -> (CompactionProgress, Option<Result<()>>) {
        let mut state = self.state.lock();
        (state.progress, state.result.take())
    }

    fn wait(&self) {
        let mut state = self.state.lock();
        if state.result.is_none() {
            self.changed.wait_for(&mut state, LOOK);
        }
    }
}

/// The requests that are open, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ManualCompactions(Mutex<VecDeque<Arc<ManualCompaction>>>);

impl ManualCompactions {
    /// The oldest one.
    pub(crate) fn first(&self) -> Option<Arc<ManualCompaction>> {
        self.0.lock().front().cloned()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn add(&self, request: &Arc<ManualCompaction>) {
        self.0.lock().push_back(Arc::clone(request));
    }

    fn remove(&self, request: &Arc<ManualCompaction>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, request));
    }

    /// Gives a request its result.
    pub(crate) fn finish(&self, request: &Arc<ManualCompaction>, result: Result<()>) {
        self.remove(request);
        let mut state = request.state.lock();
        if state.result.is_some() {
            // Another thread that worked on it was faster: the first result stands.
            return;
        }
        state.progress.is_finished = result.is_ok();
        state.result = Some(result);
        request.changed.notify_all();
    }

    /// Ends all requests: the database is shut. One that comes later sees that by itself.
    pub(crate) fn close(&self) {
        while let Some(request) = self.first() {
            self.finish(&request, Err(Error::closed()));
        }
    }
}

/// What a call of a manual compaction needs of the database.
pub(crate) struct ManualContext<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) requests: &'a ManualCompactions,
    /// Does one job, where the background has no thread and each step is a call.
    pub(crate) step: Option<&'a dyn Fn() -> Result<bool>>,
}

/// Compacts `keys` of a table, and waits. `progress` is asked after each job whether to go on, and
/// again and again while none ends.
pub(crate) fn compact(
    ctx: &ManualContext<'_>,
    (table, keys): (Arc<TableCore>, KeyInterval),
    progress: &mut dyn FnMut(&CompactionProgress) -> ControlFlow<()>,
) -> Result<CompactionProgress> {
    let shared = ctx.shared;
    shared.check_open()?;
    shared.poison.check()?;
    table.check()?;
    if shared.read_only {
        return Err(Error::invalid("a database that is open read-only cannot be compacted"));
    }
    // A range tombstone is cut behind some key.
    let keys = KeyInterval { end: keys.end.map(|end| after(&end)), ..keys };
    let state =
        State { stage: Stage::Memtables, progress: CompactionProgress::default(), result: None };
    let upto = shared.committer.visible();
    let (state, changed) = (Mutex::new(state), Condvar::new());
    let request = Arc::new(ManualCompaction { table, keys, upto, state, changed });
    ctx.requests.add(&request);
    shared.wakeup.wake();
    let waited = wait(ctx, &request, progress);
    ctx.requests.remove(&request);
    waited
}

fn wait(
    ctx: &ManualContext<'_>,
    request: &ManualCompaction,
    progress: &mut dyn FnMut(&CompactionProgress) -> ControlFlow<()>,
) -> Result<CompactionProgress> {
    let (mut seen, mut has_waited) = (CompactionProgress::default(), false);
    loop {
        let (now, result) = request.look();
        if let Some(result) = result {
            return result.map(|()| now);
        }
        if (now != seen || has_waited) && progress(&now).is_break() {
            return Ok(now);
        }
        seen = now;
        ctx.shared.check_open()?;
        ctx.shared.poison.check()?;
        let did = ctx.step.map_or(Ok(false), |step| step())?;
        if !did {
            // Another thread's job comes first, or all jobs are other threads'.
            request.wait();
            has_waited = true;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::base::options::Options;
    use crate::compaction::ClaimedKeys;

    /// Bug: with stepped jobs a manual compaction took steps without a pause, and asked no caller
    /// whether to go on, while another thread's compaction had its keys. Cause: only a call that
    /// waits for the background waited and asked. Fix: one whose step did nothing does too.
    #[test]
    fn a_stepped_compaction_that_finds_its_keys_claimed_asks_whether_to_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        table.put("k", "v").unwrap();
        db.compact_range(&table, ..).unwrap();
        table.put("k", "w").unwrap();
        let (done, is_done) = sync_channel(1);
        std::thread::spawn(move || {
            let all = ClaimedKeys::in_all_levels(KeyInterval::all());
            let claim = db.inner.ctx.claims.claim(table.slot.core().id(), all).unwrap();
            let mut asked = 0;
            let ended = db.compact_range_with(&table, .., |_| {
                asked += 1;
                if asked > 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            drop(claim);
            done.send(ended).unwrap();
        });
        let ended = is_done.recv_timeout(Duration::from_mins(1)).unwrap().unwrap();
        assert!(!ended.is_finished, "{ended:?}");
    }
}
