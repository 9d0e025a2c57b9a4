//! Row locks: a lock table on full keys and on ranges of keys, with deadlock detection. It knows
//! nothing of what it guards; transactions and plain writes hold its locks.

mod graph;
mod locker;
mod manager;
mod ranges;
mod request;

use std::time::Duration;

pub(crate) use locker::{DEFAULT_LIMIT, Locker, killed};
pub(crate) use manager::{LockManager, Patience, RunsHere};
pub(crate) use request::{Keys, Mode, OwnerId};

/// How long a writer waits for a lock if nothing else is said.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
