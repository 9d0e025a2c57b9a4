//! A commit that has its place in the order and has not been waited for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::awaited::{KeptLocks, Place, Start};
use super::shared::{Keep, Shared};
use crate::base::error::Result;
use crate::base::operations::OperationKind;
use crate::base::options::{Durability, Failpoint};
use crate::base::record::Lsn;
use crate::locks::Locker;
use crate::os::thread::{Builder, JoinHandle};

/// A commit that nothing can keep from happening but a failure of the device: its place in the
/// order is taken, and it waits to be visible and durable. Commits become so in the order in which
/// they were enqueued.
///
/// It owns what it needs and may be waited for by any thread, at any time, or awaited: it is a
/// [`Future`] for every executor. A thread of the database, started at the first await, waits for
/// the device in place of the task, and wakes it.
///
/// Dropping it undoes nothing: the commit becomes visible, and durable if that was asked for, a
/// moment later. Rows that it has locked are given back once it is as durable as this machine makes
/// it: a thread of the database waits for that. Dropping it waits only where no thread can be
/// started, and then for the device and for no shared store.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// use terrace::{Durability, WriteBatch};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let users = db.table("users")?;
/// let mut batch = WriteBatch::new();
/// batch.put(&users, "ada", "1815").set_blob("position 4711");
/// let first = db.enqueue(batch, Durability::Durable)?;
/// let mut batch = WriteBatch::new();
/// batch.put(&users, "ada", "1852");
/// let second = db.enqueue(batch, Durability::Durable)?;
/// assert!(first.number() < second.number());
/// second.wait()?; // and hence the first one too
/// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1852"[..]));
/// assert_eq!(db.last_blob().as_deref(), Some(&b"position 4711"[..]));
/// # Ok(())
/// # }
/// ```
#[must_use = "the commit is not known to be durable before it was waited for"]
pub struct PendingCommit {
    shared: Arc<Shared>,
    /// Keeps the database open.
    _keep: Keep,
    lsn: Lsn,
    durability: Durability,
    locks: Option<Locker>,
    /// They, once a queue of awaited commits has them.
    kept: Option<Arc<KeptLocks>>,
    waited: bool,
    /// Where it is registered, once it was polled.
    place: Option<Place>,
}

impl PendingCommit {
    /// A commit at an LSN; without one there is nothing to wait for.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        keep: Keep,
        (lsn, durability): (Option<Lsn>, Durability),
        locks: Option<Locker>,
    ) -> PendingCommit {
        debug_assert!(lsn.is_none_or(|lsn| lsn > 0), "the first commit has the number 1");
        let (waited, shared) = (lsn.is_none(), Arc::clone(shared));
        let lsn = lsn.unwrap_or_else(|| shared.committer.visible());
        let locks = locks.filter(|locks| locks.held() > 0);
        let (kept, place) = (None, None);
        PendingCommit { shared, _keep: keep, lsn, durability, locks, kept, waited, place }
    }

    /// Its number: a commit that was enqueued later has a greater one. Of an empty transaction or
    /// batch, the number of a commit before it.
    pub fn number(&self) -> u64 {
        self.lsn
    }

    /// Waits until it is visible and as durable as was asked for. It gives its row locks back
    /// before it waits for a shared store.
    ///
    /// # Errors
    ///
    /// `Invalid` inside of a merge operator: the commit goes on as if this was dropped.
    /// `UnknownOutcome` when the device failed meanwhile: it may or may not be there at the next
    /// opening. Also when the shared store did not acknowledge a `Remote` one: it is here then.
    pub fn wait(mut self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        shared.check_outside()?;
        shared.events.time(OperationKind::Commit, || None, || self.finish())
    }

    fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.waited, true) {
            return Ok(());
        }
        let done = self.shared.committer.wait_on_this_machine(self.lsn, self.durability);
        self.unlock();
        done?;
        self.shared.committer.wait_for_store(self.lsn, self.durability, None)
    }
}

/// As [`PendingCommit::wait`]. To be polled again after it was ready is no error.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// # fn block_on<F: Future>(f: F) -> F::Output {
/// #     struct Unpark(std::thread::Thread);
/// #     impl std::task::Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark() }
/// #     }
/// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #     let mut f = std::pin::pin!(f);
/// #     loop {
/// #         match f.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
/// #             std::task::Poll::Ready(done) => return done,
/// #             std::task::Poll::Pending => std::thread::park(),
/// #         }
/// #     }
/// # }
/// use terrace::{Database, Durability, Result, WriteBatch};
///
/// async fn save(db: &Database, name: &str) -> Result<()> {
///     let users = db.table("users")?;
///     let mut batch = WriteBatch::new();
///     batch.put(&users, name, "");
///     db.enqueue(batch, Durability::Durable)?.await
/// }
/// block_on(save(&db, "ada"))?;
/// # Ok(())
/// # }
/// ```
impl Future for PendingCommit {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        if this.shared.region.has(Failpoint::SecondPollReturns) {
            this.waited |= this.place.is_some() && this.shared.committer.visible() >= this.lsn;
        }
        if !this.waited && !this.is_decided() {
            if this.durability == Durability::Remote {
                this.pass_locks_on();
            }
            let shared = &this.shared;
            let in_one_queue = shared.region.has(Failpoint::AwaitInOneQueue);
            let durability = if in_one_queue { Durability::Remote } else { this.durability };
            let commit = (this.lsn, durability);
            let waiting = (&shared.committer, &starter(shared) as Start<'_>);
            this.place = shared.awaited.register(waiting, commit, this.place, context.waker());
            // Looked at once more after it was registered (invariant 2 of `awaited`). Without a
            // thread this one waits.
            if this.place.is_some() && !this.is_decided() {
                return Poll::Pending;
            }
        }
        // It waits for nothing by now.
        let done = this.finish();
        this.unlock();
        this.withdraw();
        Poll::Ready(done)
    }
}

/// Starts the thread that waits for the awaited commits of a durability.
fn starter(shared: &Arc<Shared>) -> impl Fn(Durability) -> io::Result<JoinHandle<()>> {
    move |durability| {
        let shared = Arc::clone(shared);
        let run = move || shared.awaited.run(&shared.committer, durability);
        Builder::new().name("terrace-commits".into()).spawn(run)
    }
}

impl PendingCommit {
    fn withdraw(&mut self) {
        self.place.take().into_iter().for_each(|place| self.shared.awaited.withdraw(place));
    }

    /// Has its locks given back once the commit is as durable as this machine makes it. Where no
    /// thread can be had for that, this one waits.
    fn pass_locks_on(&mut self) {
        let (shared, own) = (&self.shared, self.durability.on_this_machine());
        if shared.committer.is_decided(self.lsn, own) {
            self.unlock();
        } else if let Some(locks) = self.locks.take() {
            let waiting = (&shared.committer, &starter(shared) as Start<'_>);
            match shared.awaited.keep(waiting, (self.lsn, own), locks) {
                Ok(kept) => self.kept = Some(kept),
                Err(locks) => {
                    // A failure stops the database, and every later call reports it.
                    drop(shared.committer.wait_on_this_machine(self.lsn, own));
                    drop(locks);
                }
            }
        }
    }

    /// Whether it is done, or never will be.
    fn is_decided(&self) -> bool {
        self.shared.committer.is_decided(self.lsn, self.durability)
    }

    /// Gives its locks back: their next owner sees the commit, unless nothing does.
    fn unlock(&mut self) {
        debug_assert!(
            self.shared.poison.is_set() || self.lsn <= self.shared.committer.visible(),
            "row locks are given back after the commit is visible"
        );
        self.locks = None;
        // The queue may hold the locks longer than the caller waits for the commit.
        self.kept.take().iter().for_each(|kept| kept.give_back());
    }
}

impl Drop for PendingCommit {
    fn drop(&mut self) {
        if self.shared.fork.is_forked() {
            // The parent's commit.
            std::mem::forget(self.locks.take());
            return;
        }
        self.withdraw();
        // The next owner of a lock sees the commits of its earlier owners. For that no commit has
        // to be in a shared store. No destructor waits for it where another thread can.
        self.pass_locks_on();
        if !self.waited {
            self.shared.wakeup.wake();
        }
    }
}

impl std::fmt::Debug for PendingCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingCommit")
            .field("number", &self.lsn)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}
