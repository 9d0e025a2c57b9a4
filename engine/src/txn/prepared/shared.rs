//! Prepared transactions of a shared database (`docs/internals/shared-store.md`): those that a
//! checkpoint takes along, and those of the writer that a database follows.

use std::time::Duration;

use super::{Named, PreparedInfo, PreparedRows, PreparedSet, Resolved, Resolving, State};
use crate::error::{Error, ErrorKind, Result};
use crate::levels::Level;
use crate::os::time;
use crate::record::{Lsn, TableId};
use crate::table::Shared;

/// A prepare whose ticket is durable has its place at once, unless its thread rests. A checkpoint
/// waits for it so long.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// How often it looks whether the database is closing or has stopped.
const LOOK: Duration = Duration::from_millis(100);

/// A transaction that was prepared and open at the LSN of a checkpoint.
pub(crate) struct OpenPrepare {
    pub(crate) lsn: Lsn,
    /// Its records in the region.
    pub(crate) records: Vec<u8>,
    /// What it has spilled, by table.
    pub(crate) runs: Vec<(TableId, Level)>,
}

/// As long as it lives the records of prepares stay, also of those that get their verdict.
pub(crate) struct KeptPrepares<'a>(&'a PreparedSet);

impl PreparedSet {
    /// Keeps records, from before the LSN of a checkpoint is taken.
    pub(crate) fn keep(&self) -> KeptPrepares<'_> {
        self.state.lock().keepers += 1;
        KeptPrepares(self)
    }

    /// Lists a transaction that is prepared on the writer, or no more.
    pub(crate) fn follow(&self, id: &[u8], info: Option<PreparedInfo>) {
        let mut state = self.state.lock();
        match info {
            Some(info) => state.followed.insert(id.to_vec(), info),
            None => state.followed.remove(id),
        };
    }
}

impl KeptPrepares<'_> {
    /// The prepares up to `lsn` without a verdict up to `lsn`, the oldest first. All commits up to
    /// there are durable, and [`PreparedSet::keep`] was called before that LSN was taken. Once it
    /// `hurries`, it waits for no prepare that rests.
    ///
    /// # Errors
    ///
    /// `Closed` once a closing has begun; `Unavailable` if the database has stopped, or a prepare
    /// has no place for a minute, or a tenth of a second in a hurry.
    pub(crate) fn open_at(
        &self,
        shared: &Shared,
        lsn: Lsn,
        hurries: &dyn Fn() -> bool,
    ) -> Result<Vec<OpenPrepare>> {
        debug_assert!(lsn <= shared.committer.durable(), "a checkpoint is of what is durable");
        let began = time::now();
        let mut state = self.0.state.lock();
        // Each ticket up to there is taken: what has one is about to have its place.
        while let Some((id, _)) = state.named.iter().find(|(_, it)| it.is_on_its_way(lsn)) {
            shared.check_open()?;
            shared.poison.check()?;
            let longest = if hurries() { LOOK } else { LONGEST_WAIT };
            if time::since(began) >= longest {
                let message = format!(
                    "the prepare of transaction \"{}\" has not ended for {longest:?}, and a \
                     checkpoint waits for it",
                    id.escape_ascii()
                );
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            self.0.placed.wait_for(&mut state, LOOK);
        }
        let mut found = state.open_at(lsn);
        drop(state);
        found.sort_by_key(|contents| contents.place.lsn);
        let open = found.into_iter().map(|PreparedRows { place, runs }| OpenPrepare {
            lsn: place.lsn,
            records: shared.region.bytes(place.at, place.len).to_vec(),
            runs,
        });
        Ok(open.collect())
    }
}

impl Drop for KeptPrepares<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        debug_assert!(state.keepers > 0, "each keeper is counted once");
        state.keepers -= 1;
    }
}

impl Named {
    fn is_on_its_way(&self, lsn: Lsn) -> bool {
        matches!(self, Named::Preparing(ticket) if ticket.get().is_some_and(|at| at <= lsn))
    }
}

impl State {
    fn open_at(&self, lsn: Lsn) -> Vec<PreparedRows> {
        let named = self.named.values().filter_map(|named| match named {
            Named::Preparing(_) => None,
            Named::Resolving(Resolving { contents, verdict }) => {
                verdict.get().is_none_or(|at| at > lsn).then(|| contents.clone())
            }
            Named::Open(prepared) => Some(prepared.contents()),
        });
        let is_later = |resolved: &&Resolved| resolved.lsn > lsn;
        let resolved = self.resolved.iter().filter(is_later).map(|it| it.prepare.clone());
        named.chain(resolved).filter(|contents| contents.place.lsn <= lsn).collect()
    }
}
