//! Commits that have their place in the order and were not waited for.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::batch::Batch;
use crate::database::{Database, check_not_forked, durability};
use crate::error::{Error, Status};
use crate::guard::{self, Failure, need};

/// A commit that has its place in the order. Any thread may wait for it. Commits become visible in
/// the order in which they were enqueued.
#[derive(Debug)]
pub struct Pending {
    number: u64,
    database: terrace::Database,
    state: Mutex<State>,
}

/// What becomes of a commit, for all that wait for it.
#[derive(Debug)]
enum State {
    Waits(terrace::PendingCommit),
    /// A wait is under way. One that does not end leaves this, which is no success.
    IsWaitedFor,
    Ended(std::result::Result<(), Arc<terrace::Error>>),
}

impl Pending {
    pub(crate) fn new(database: &terrace::Database, commit: terrace::PendingCommit) -> Pending {
        let (number, database) = (commit.number(), database.clone());
        Pending { number, database, state: Mutex::new(State::Waits(commit)) }
    }
}

/// Gives a batch its place in the order of commits, without waiting until it is visible and
/// durable. NULL after an error. Wait with terrace_pending_wait, then free with
/// terrace_pending_free. The batch is empty afterwards, also after an error.
///
/// Errors: as terrace_database_write, but never TERRACE_UNKNOWN_OUTCOME: nothing was done then.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_enqueue(
    database: Option<&Database>,
    batch: Option<&mut Batch>,
    durability: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Pending>> {
    guard::made(error, || {
        let (database, durability) = (need(database, "database")?, self::durability(durability)?);
        let commit = database.0.enqueue(need(batch, "batch")?.take(), durability)?;
        Ok(Pending::new(&database.0, commit))
    })
}

/// Makes durable all that was acknowledged or enqueued before the call: relaxed commits survive a
/// power cut from then on. It costs one sync for any number of them, and nothing where all is
/// durable already.
///
/// Errors: TERRACE_UNAVAILABLE when the device failed; TERRACE_INVALID for a database that is open
/// read-only; TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_sync(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(database, "database")?.0.sync()?))
}

/// The number of a commit; one that was enqueued later has a greater number. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_pending_number(pending: Option<&Pending>) -> u64 {
    pending.map_or(0, |pending| pending.number)
}

/// Waits until a commit is visible and as durable as was asked for, and gives its row locks back.
/// Several threads may wait, and a call may come again: each has the same outcome.
///
/// Errors: TERRACE_UNKNOWN_OUTCOME when the device failed meanwhile, or the shared store did not
/// acknowledge a TERRACE_REMOTE commit, which is here then; TERRACE_UNAVAILABLE in a forked child.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_pending_wait(
    pending: Option<&Pending>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let pending = need(pending, "pending")?;
        check_not_forked(&pending.database)?;
        // Others that wait for the same commit wait here.
        let mut state = pending.state.lock();
        let done = match std::mem::replace(&mut *state, State::IsWaitedFor) {
            State::Waits(commit) => commit.wait().map_err(Arc::new),
            State::IsWaitedFor => {
                return Err(Failure::Panic("an earlier wait for this commit panicked".to_owned()));
            }
            State::Ended(done) => done,
        };
        *state = State::Ended(done.clone());
        done.map_err(Failure::Engine)
    })
}

/// Frees the handle. It undoes nothing: the commit becomes visible, and durable if that was asked
/// for, a moment later. One that has rows locked and was not waited for is waited for here. NULL is
/// no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_pending_free(pending: Option<Box<Pending>>) {
    guard::free(pending);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait that panicked left the commit marked as done, so that the next wait for it said that
    /// it succeeded. It leaves a mark that makes every later wait fail.
    #[test]
    fn a_wait_that_did_not_end_is_no_success() {
        let dir = tempfile::tempdir().unwrap();
        let database =
            terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db")).unwrap();
        let pending = Pending { number: 1, database, state: Mutex::new(State::IsWaitedFor) };
        for _ in 0..2 {
            assert_eq!(terrace_pending_wait(Some(&pending), None), Status::TERRACE_INTERNAL);
        }
    }
}
