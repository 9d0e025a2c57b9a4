//! An owner of locks: it takes them one after the other and gives all of them back together.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::manager::{Attempt, LockManager, Patience};
use super::request::{Held, Mode, Name, Outcome, OwnerId, Request, SPACE, Span, Waiter, name};
use super::shard::Shard;
use crate::error::{Error, ErrorKind, Result};
use crate::os::earlier;
use crate::read::KeyRange;

/// An owner of locks; dropping it gives all of them back.
///
/// Thread safety: it may move between threads. It waits for one lock at a time, as `&mut` says.
pub(crate) struct Locker {
    manager: Arc<LockManager>,
    id: OwnerId,
    points: Vec<Name>,
    ranges: usize,
    /// Bytes of memory that the locks take, and what else was counted; and as many of them as the
    /// manager knows of.
    memory: usize,
    told: usize,
}

/// The manager is told of this many bytes at a time, or few locks would cost it a shared counter.
const STEP: usize = 8 << 10;

impl Locker {
    /// An owner without locks.
    pub(crate) fn new(manager: &Arc<LockManager>) -> Locker {
        let (manager, id) = (Arc::clone(manager), manager.new_owner());
        Locker { manager, id, points: Vec::new(), ranges: 0, memory: 0, told: 0 }
    }

    /// Its number.
    pub(crate) fn id(&self) -> OwnerId {
        self.id
    }

    /// How many locks it holds.
    pub(crate) fn held(&self) -> usize {
        self.points.len() + self.ranges
    }

    /// Locks one key; whether it had no such lock before. `table` is asked for the table's name
    /// when it has to wait.
    ///
    /// # Errors
    ///
    /// - `Deadlock`: it was chosen to end one; give all locks back;
    /// - `Timeout`: the deadline passed, or another owner has it and `patience` is `None`;
    /// - `Closed`: it was killed, or the database was closed;
    /// - `Invalid`: a transaction that this thread runs has it.
    pub(crate) fn lock_key(
        &mut self,
        space: u64,
        key: &[u8],
        mode: Mode,
        patience: Patience,
        table: &dyn Fn() -> String,
    ) -> Result<bool> {
        let name = name(space, key);
        let span = Span::Point(name.clone());
        let new = self.lock(Request { owner: self.id, space, mode, span }, patience, table)?;
        if new {
            // Twice when it had it shared; what is taken back twice is gone.
            self.points.push(name);
            self.count(Locker::bytes_of_key(key.len()));
        }
        Ok(new)
    }

    /// Bytes of memory that a lock on a key of `len` bytes takes. Tables and lists are a third
    /// empty.
    pub(crate) fn bytes_of_key(len: usize) -> usize {
        let heap = if len + SPACE > Name::new().inline_size() { len + SPACE } else { 0 };
        (Shard::POINT + size_of::<Name>()) * 3 / 2 + 2 * heap
    }

    /// Bytes of memory that a lock on a range takes, which is in every shard.
    pub(crate) fn bytes_of_range(&self, range: &KeyRange) -> usize {
        (size_of::<Request>() * 3 / 2 + range.bound_bytes()) * self.manager.shards()
    }

    /// Bytes of memory that its locks take, and what else was counted.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Counts bytes of memory that are held for as long as the locks.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.memory += bytes;
        if self.memory - self.told >= STEP {
            self.manager.changed(self.told, self.memory);
            self.told = self.memory;
        }
    }

    /// Whether it has a key locked like this, or with a range.
    pub(crate) fn has_key(&self, space: u64, key: &[u8], mode: Mode) -> bool {
        self.has(space, mode, Span::Point(name(space, key)))
    }

    /// Whether it has a range locked like this.
    pub(crate) fn has_range(&self, space: u64, range: &KeyRange, mode: Mode) -> bool {
        self.has(space, mode, Span::Range(range.clone()))
    }

    fn has(&self, space: u64, mode: Mode, span: Span) -> bool {
        self.manager.has(&Request { owner: self.id, space, mode, span })
    }

    /// Locks all keys of a range, those that are not there too.
    ///
    /// # Errors
    ///
    /// As [`Locker::lock_key`].
    pub(crate) fn lock_range(
        &mut self,
        space: u64,
        range: &KeyRange,
        mode: Mode,
        patience: Patience,
        table: &dyn Fn() -> String,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let span = Span::Range(range.clone());
        let new = self.lock(Request { owner: self.id, space, mode, span }, patience, table)?;
        if new {
            self.ranges += 1;
            self.count(self.bytes_of_range(range));
        }
        Ok(())
    }

    /// Whether the lock is new.
    fn lock(
        &self,
        request: Request,
        patience: Patience,
        table: &dyn Fn() -> String,
    ) -> Result<bool> {
        match self.manager.attempt(request, patience, self.held(), table) {
            Attempt::Had => Ok(false),
            Attempt::Granted => Ok(true),
            Attempt::Busy(request, by) => Err(Error::new(
                ErrorKind::Timeout,
                format!("{request} of table {:?} is locked by {}", table(), Owners(&by)),
            )),
            Attempt::Own(request, holder) => Err(Error::invalid(format!(
                "{request} of table {:?} is locked by transaction {holder}, which this thread \
                 runs: the call would wait for itself; make it through that transaction, or \
                 after it has ended",
                table()
            ))),
            Attempt::Closed => Err(Error::closed()),
            Attempt::Waits(waiter) => self.wait(&waiter, patience),
        }
    }

    fn wait(&self, waiter: &Arc<Waiter>, patience: Patience) -> Result<bool> {
        let since = Instant::now();
        let deadline = match patience {
            Patience::Until(deadline) => Some(deadline),
            Patience::Endless | Patience::None => None,
        };
        match self.manager.wait(waiter, earlier(deadline)) {
            Outcome::Granted => Ok(true),
            Outcome::Deadlock(cycle) => {
                let advice = "was rolled back to end a deadlock; run it again";
                let message = format!("transaction {} {advice}: {cycle}", self.id);
                Err(Error::new(ErrorKind::Deadlock, message))
            }
            Outcome::Killed => Err(killed(self.id)),
            Outcome::Closed => Err(Error::closed()),
            Outcome::Late(by) => {
                let (waited, what) = (since.elapsed().as_millis(), &waiter.request);
                let message = format!(
                    "waited {waited} ms for {what} of table {:?}, locked by {}; try later or \
                     wait longer",
                    waiter.table,
                    Owners(&by)
                );
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }

    /// Whether it holds ranges; what lies in one of its own has no lock of its own.
    pub(crate) fn has_ranges(&self) -> bool {
        self.ranges > 0
    }

    /// All that it holds.
    pub(crate) fn locks(&self) -> Vec<Held> {
        self.manager.locks_of(self.id, &self.points, self.ranges > 0)
    }

    /// Gives all locks back.
    pub(crate) fn release(&mut self) {
        let points = std::mem::take(&mut self.points);
        let ranges = std::mem::take(&mut self.ranges);
        self.manager.release(self.id, &points, ranges > 0);
        self.manager.changed(std::mem::take(&mut self.told), 0);
        self.memory = 0;
    }
}

/// The error of a transaction that was killed.
pub(crate) fn killed(id: OwnerId) -> Error {
    Error::new(ErrorKind::Closed, format!("transaction {id} was killed and rolled back"))
}

struct Owners<'a>(&'a [OwnerId]);

impl fmt::Display for Owners<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, owner) in self.0.iter().enumerate() {
            write!(f, "{}transaction {owner}", if n == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker").field("id", &self.id).field("held", &self.held()).finish()
    }
}
