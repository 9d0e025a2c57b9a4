//! Commits that have their place in the order and were not waited for.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batch::Batch;
use crate::database::{Database, check_may_wait, check_not_forked, durability};
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
/// Thread safety: any thread. No thread waits for the commit with the lock held. The engine wakes
/// without a lock of its own.
#[derive(Debug)]
struct Commit {
    state: Mutex<State>,
    ended: Condvar,
}

/// How a commit has ended, for all that were told. None where a wait for it panicked.
type Outcome = Option<std::result::Result<(), Arc<terrace::Error>>>;

/// What is called when a commit has ended.
type OnEnd = Box<dyn FnOnce(Status, Option<&Error>) + Send>;

enum State {
    Waits(terrace::PendingCommit),
    /// A thread waits, and calls these then.
    IsWaitedFor(Vec<OnEnd>),
    /// A thread of the engine waits, and these are called then.
    Calls(terrace::PendingCommit, Vec<OnEnd>),
    Ended(Outcome),
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Waits(_) => "Waits",
            State::IsWaitedFor(_) => "IsWaitedFor",
            State::Calls(..) => "Calls",
            State::Ended(_) => "Ended",
        })
    }
}

impl Pending {
    pub(crate) fn new(database: &terrace::Database, commit: terrace::PendingCommit) -> Pending {
        let (number, state) = (commit.number(), Mutex::new(State::Waits(commit)));
        let commit = Arc::new(Commit { state, ended: Condvar::new() });
        Pending { number, database: database.clone(), commit }
    }

    /// Has `f` called when the commit has ended, or now if it has.
    pub(crate) fn on_end(&self, f: OnEnd) -> Result<()> {
        check_not_forked(&self.database)?;
        let mut state = self.commit.state.lock();
        match &mut *state {
            State::IsWaitedFor(all) | State::Calls(_, all) => all.push(f),
            State::Ended(done) => {
                let done = done.clone();
                drop(state);
                tell(vec![f], &done);
            }
            State::Waits(_) => {
                if let State::Waits(commit) = take(&mut state) {
                    *state = State::Calls(commit, vec![f]);
                }
                drop(state);
                self.commit.look();
            }
        }
        Ok(())
    }
}

/// Takes the commit out, and leaves a wait.
fn take(state: &mut State) -> State {
    std::mem::replace(state, State::IsWaitedFor(Vec::new()))
}

impl Commit {
    /// Waits until the commit has ended, and calls what is to be called then.
    fn wait(&self) -> Outcome {
        self.wait_with(terrace::PendingCommit::wait)
    }

    fn wait_with(
        &self,
        wait: impl FnOnce(terrace::PendingCommit) -> terrace::Result<()>,
    ) -> Outcome {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Ended(done) => return done.clone(),
                State::Waits(_) => break,
                State::IsWaitedFor(_) | State::Calls(..) => self.ended.wait(&mut state),
            }
        }
        let State::Waits(commit) = take(&mut state) else { return None };
        drop(state);
        let done = catch_unwind(AssertUnwindSafe(|| wait(commit)));
        let done = done.ok().map(|done| done.map_err(Arc::new));
        self.end(self.state.lock(), &done);
        done
    }

    fn end(&self, mut state: MutexGuard<'_, State>, done: &Outcome) {
        let before = std::mem::replace(&mut *state, State::Ended(done.clone()));
        drop(state);
        self.ended.notify_all();
        if let State::IsWaitedFor(all) | State::Calls(_, all) = before {
            tell(all, done);
        }
    }

    /// Asks the engine whether the commit has ended, and calls what is to be called then.
    fn look(self: &Arc<Commit>) {
        let mut state = self.state.lock();
        let State::Calls(commit, _) = &mut *state else { return };
        let waker = Waker::from(Arc::clone(self));
        let polled = Pin::new(commit).poll(&mut Context::from_waker(&waker));
        let Poll::Ready(done) = polled else { return };
        self.end(state, &Some(done.map_err(Arc::new)));
    }
}

impl Wake for Commit {
    fn wake(self: Arc<Commit>) {
        self.look();
    }
}

/// Tells how a commit has ended.
fn tell(all: Vec<OnEnd>, done: &Outcome) {
    let failed = result(done).err().map(Error::new);
    let status = terrace_error_status(failed.as_ref());
    all.into_iter().for_each(|f| f(status, failed.as_ref()));
}

fn result(done: &Outcome) -> Result<()> {
    match done {
        Some(done) => done.clone().map_err(Failure::Engine),
        None => Err(Failure::Panic("a wait for this commit panicked".to_owned())),
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
        let batch = need(batch, "batch")?.take();
        let (database, durability) = (need(database, "database")?, self::durability(durability)?);
        let commit = database.0.enqueue(batch, durability)?;
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

/// Waits until a commit is visible and as durable as was asked for. It gives its row locks back
/// before it waits for a shared store. Several threads may wait, and a call may come again: each
/// has the same outcome.
///
/// Errors: TERRACE_UNKNOWN_OUTCOME when the device failed meanwhile, or the shared store did not
/// acknowledge a TERRACE_REMOTE commit, which is here then; TERRACE_UNAVAILABLE in a forked child;
/// TERRACE_INVALID inside of a merge operator. After the last two the commit goes on.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_pending_wait(
    pending: Option<&Pending>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let pending = need(pending, "pending")?;
        check_may_wait(&pending.database)?;
        result(&pending.commit.wait())
    })
}

/// Frees the handle. It undoes nothing: the commit becomes visible, and durable if that was asked
/// for, a moment later. Rows that it has locked are given back once it is as durable as this
/// machine makes it. This waits for that only where no thread can be started. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_pending_free(pending: Option<Box<Pending>>) {
    guard::free(pending);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn pending(dir: &tempfile::TempDir) -> Pending {
        let database =
            terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db")).unwrap();
        let mut batch = terrace::WriteBatch::new();
        batch.put(&database.table("t").unwrap(), "k", "v");
        let commit = database.enqueue(batch, terrace::Durability::Durable).unwrap();
        Pending::new(&database, commit)
    }

    /// What was told, once it was told.
    fn told(pending: &Pending) -> Receiver<Status> {
        let (send, told) = channel();
        let tell = move |status, _: Option<&Error>| send.send(status).unwrap_or_default();
        pending.on_end(Box::new(tell)).unwrap();
        told
    }

    /// A wait that panicked left the commit marked as done, so that the next wait for it said that
    /// it succeeded. It leaves a mark that makes every later wait fail.
    #[test]
    fn a_wait_that_did_not_end_is_no_success() {
        let dir = tempfile::tempdir().unwrap();
        let pending = pending(&dir);
        assert!(pending.commit.wait_with(|_| panic!("on purpose")).is_none());
        for _ in 0..2 {
            assert_eq!(terrace_pending_wait(Some(&pending), None), Status::TERRACE_INTERNAL);
        }
        assert_eq!(told(&pending).try_recv(), Ok(Status::TERRACE_INTERNAL));
    }

    /// Bug: a function could not be registered while another thread waited for the commit. Cause:
    /// the wait held the lock until the commit had ended. Fix: it holds no lock meanwhile.
    #[test]
    fn a_function_is_registered_beside_a_wait() {
        let dir = tempfile::tempdir().unwrap();
        let pending = pending(&dir);
        let mut later = None;
        let done = pending.commit.wait_with(|commit| {
            later = Some(told(&pending));
            commit.wait()
        });
        assert!(done.is_some_and(|done| done.is_ok()));
        assert_eq!(later.unwrap().try_recv(), Ok(Status::TERRACE_OK));
    }
}
