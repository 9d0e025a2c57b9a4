//! How far a node is, and how long it rests.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::base::error::{ErrorKind, Result};
use crate::os::time;
use crate::replication::log::SharedLog;
use crate::replication::status::NodeStatus;

/// After a step, of which a failure doubles it; and after many: each may have copied all data.
pub(super) const PAUSE: Duration = Duration::from_secs(2);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

#[derive(Clone)]
pub(super) struct NodeProgress {
    /// That of its last database.
    pub(super) directory: PathBuf,
    pub(super) commit: u64,
    pub(super) entry: u64,
    pub(super) restarts: u64,
    pub(super) missed: u64,
    pub(super) known_at: Option<Instant>,
    pub(super) note: Option<String>,
}

impl NodeProgress {
    pub(super) fn none(directory: &Path) -> NodeProgress {
        let directory = directory.to_path_buf();
        let (commit, entry, restarts, missed) = (0, 0, 0, 0);
        NodeProgress { directory, commit, entry, restarts, missed, known_at: None, note: None }
    }

    pub(super) fn status(self, log: &SharedLog) -> NodeStatus {
        NodeStatus {
            store: log.address(),
            directory: self.directory,
            commit: self.commit,
            entry: self.entry,
            lag_ms: self.known_at.map_or(u64::MAX, |at| time::since(at).as_millis() as u64),
            restarts: self.restarts,
            missed: self.missed,
            gets: log.client.counts().gets,
            note: self.note,
        }
    }
}

/// How long a node waits after a step, if that fails, where it waited `before` after the last one.
/// A store that is away is asked again soon.
pub(super) fn rest_after(did: &Result<bool>, before: Duration) -> Duration {
    match did {
        Err(error) if error.kind() != ErrorKind::Unavailable => (before * 2).min(LONGEST_PAUSE),
        _ => PAUSE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;

    /// Bug: a standby that could not finish a copy made it again each two seconds. Cause: its pause
    /// was the same after each failure. Fix: it doubles, but for a store that is away.
    #[test]
    fn a_node_that_fails_again_and_again_rests_longer() {
        let failed = |kind| Err(Error::new(kind, "planned"));
        let mut rest = PAUSE;
        for _ in 0..20 {
            let before = rest;
            rest = rest_after(&failed(ErrorKind::Corrupt), before);
            assert!(rest > before || rest == LONGEST_PAUSE, "{rest:?} behind {before:?}");
        }
        assert_eq!(rest, LONGEST_PAUSE);
        assert_eq!(rest_after(&failed(ErrorKind::Unavailable), rest), PAUSE);
        assert_eq!(rest_after(&Ok(true), rest), PAUSE);
    }
}
