//! Commits that have their place in the order and were not waited for.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::{Condvar, Mutex};

use crate::batch::Batch;
use crate::database::{Database, check_not_forked, durability};
use crate::error::{Error, Status, terrace_error_status};
use crate::guard::{self, Failure, Result, need};

/// A commit that has its place in the order. Any thread may wait for it. Commits become visible in
/// the order in which they were enqueued.
#[derive(Debug)]
pub struct Pending {
    number: u64,
    database: terrace::Database,
    commit: Arc<Commit>,
}

/// What becomes of a commit, for all that wait for it.
///
/// Thread safety: any thread. A thread that waits holds the lock until the commit has ended, unless
/// functions are to be called then. The engine wakes without a lock of its own.
#[derive(Debug)]
struct Commit {
    state: Mutex<State>,
    /// Of a commit that functions are called for.
    ended: Condvar,
}

/// How a commit has ended, for all that were told.
type Outcome = std::result::Result<(), Arc<terrace::Error>>;

/// What is called when a commit has ended.
type OnEnd = Box<dyn FnOnce(Status, Option<&Error>) + Send>;

enum State {
    Waits(terrace::PendingCommit),
    /// A wait is under way. One that does not end leaves this, which is no success.
    IsWaitedFor,
    /// A thread of the engine waits, and these are called then.
    Calls(terrace::PendingCommit, Vec<OnEnd>),
    Ended(Outcome),
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Waits(_) => "Waits",
            State::IsWaitedFor => "IsWaitedFor",
            State::Calls(..) => "Calls",
            State::Ended(_) => "Ended",
        })
    }
}

impl Pending {
    pub(crate) fn new(database: &terrace::Database, commit: terrace::PendingCommit) -> Pending {
        Pending::at(commit.number(), database, State::Waits(commit))
    }

    fn at(number: u64, database: &terrace::Database, state: State) -> Pending {
        let commit = Arc::new(Commit { state: Mutex::new(state), ended: Condvar::new() });
        Pending { number, database: database.clone(), commit }
    }

    /// Has `f` called when the commit has ended, or now if it has.
    pub(crate) fn on_end(&self, f: OnEnd) -> Result<()> {
        check_not_forked(&self.database)?;
        let mut state = self.commit.state.lock();
        *state = match std::mem::replace(&mut *state, State::IsWaitedFor) {
            State::Waits(commit) => State::Calls(commit, vec![f]),
            State::Calls(commit, mut all) => {
                all.push(f);
                State::Calls(commit, all)
            }
            State::IsWaitedFor => return Err(panicked()),
            State::Ended(done) => {
                *state = State::Ended(done.clone());
                drop(state);
                tell(vec![f], &done);
                return Ok(());
            }
        };
        drop(state);
        self.commit.look();
        Ok(())
    }
}

impl Commit {
    /// Asks the engine whether the commit has ended, and calls what is to be called then.
    fn look(self: &Arc<Commit>) {
        let mut state = self.state.lock();
        let State::Calls(commit, all) = &mut *state else { return };
        let waker = Waker::from(Arc::clone(self));
        let polled = Pin::new(commit).poll(&mut Context::from_waker(&waker));
        let Poll::Ready(done) = polled else { return };
        let (done, all) = (done.map_err(Arc::new), std::mem::take(all));
        *state = State::Ended(done.clone());
        drop(state);
        self.ended.notify_all();
        tell(all, &done);
    }
}

impl Wake for Commit {
    fn wake(self: Arc<Commit>) {
        self.look();
    }
}

/// Tells how a commit has ended.
fn tell(all: Vec<OnEnd>, done: &Outcome) {
    let failed = done.as_ref().err().map(|error| Error::new(Failure::Engine(Arc::clone(error))));
    let status = terrace_error_status(failed.as_ref());
    all.into_iter().for_each(|f| f(status, failed.as_ref()));
}

fn panicked() -> Failure {
    Failure::Panic("an earlier wait for this commit panicked".to_owned())
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
        let mut state = pending.commit.state.lock();
        while let State::Calls(..) = &*state {
            pending.commit.ended.wait(&mut state);
        }
        let done = match std::mem::replace(&mut *state, State::IsWaitedFor) {
            State::Waits(commit) => commit.wait().map_err(Arc::new),
            State::IsWaitedFor | State::Calls(..) => return Err(panicked()),
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
        let pending = Pending::at(1, &database, State::IsWaitedFor);
        for _ in 0..2 {
            assert_eq!(terrace_pending_wait(Some(&pending), None), Status::TERRACE_INTERNAL);
        }
    }
}
