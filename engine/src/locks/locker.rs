//! An owner of locks: it takes them one after the other and gives all of them back together.

use std::fmt;
use std::sync::Arc;

use super::manager::{Attempt, Granted, LockManager, Patience, note_deadlock};
use super::request::Shard;
use super::request::{
    Held, Mode, Name, Outcome, OwnerId, Request, SPACE, Span, Waiter, keys_of, name, names,
};
use crate::base::error::{Error, ErrorKind, Result};
use crate::mvcc::{IntervalSet, KeyInterval, after};
use crate::os::earlier;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::time;
use crate::read::KeyRange;

/// An owner of locks; dropping it gives all of them back.
///
/// Thread safety: it may move between threads. It waits for one lock at a time, as `&mut` says.
pub(crate) struct Locker {
    manager: Arc<LockManager>,
    id: OwnerId,
    /// The keys that are locked by themselves, each once.
    points: Vec<Name>,
    /// Whether one of them was locked as shared.
    has_shared: bool,
    /// The names of the ranges that are locked.
    ranges: IntervalSet,
    /// Whether one of them was locked as shared.
    has_shared_range: bool,
    /// Bytes of memory that the locks take, and what else was counted; and as many of them as the
    /// manager knows of.
    memory: usize,
    told: usize,
    /// By how many bytes its locks have made the boundaries of ranges grow, which the manager
    /// counts.
    boundaries: isize,
    /// The most that all of it may take.
    limit: usize,
    /// Bytes that it took after locks on keys became ranges.
    escalated: usize,
    /// How often it was given a lock that it did not have, or a stronger one, and rows written.
    work: u64,
    /// While it is raised no lock is waited for.
    mark: Option<Arc<AtomicBool>>,
}

/// What the locks of one owner may take, if nothing else is said.
pub(crate) const DEFAULT_LIMIT: usize = 64 << 20;

/// Locks on keys become ranges once they take one part in so many of what they may take.
const ESCALATE_AT: usize = 4;

/// Fewer keys than that stay as they are: a range takes the memory of a few keys.
const LEAST_RUN: usize = 16;

/// So many keys are given back by what lies between the first and the last, a shard at once.
const MANY: usize = 4096;

/// The manager is told of this many bytes at a time, or few locks would cost it a shared counter.
const STEP: usize = 8 << 10;

impl Locker {
    /// An owner without locks.
    pub(crate) fn new(manager: &Arc<LockManager>) -> Locker {
        Locker::with_limit(manager, DEFAULT_LIMIT)
    }

    /// An owner without locks, which may take `limit` bytes of memory.
    pub(crate) fn with_limit(manager: &Arc<LockManager>, limit: usize) -> Locker {
        let (manager, id) = (Arc::clone(manager), manager.new_owner());
        Locker {
            manager,
            id,
            points: Vec::new(),
            has_shared: false,
            ranges: IntervalSet::default(),
            has_shared_range: false,
            memory: 0,
            told: 0,
            boundaries: 0,
            limit,
            escalated: 0,
            work: 0,
            mark: None,
        }
    }

    /// The same, with a mark: while it is raised no lock is waited for.
    pub(crate) fn with_mark(mut self, mark: &Arc<AtomicBool>) -> Locker {
        self.mark = Some(Arc::clone(mark));
        self
    }

    /// Its number.
    pub(crate) fn id(&self) -> OwnerId {
        self.id
    }

    /// How often it was given a lock that it did not have, or a stronger one, and rows written.
    /// Only rises: ranges that touch become one, so the number of locks does not tell.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Counts a row that its owner has written.
    pub(crate) fn count_write(&mut self) {
        self.work += 1;
    }

    /// Whether locks on keys have become ranges: keys are locked that it did not ask for.
    pub(crate) fn has_escalated(&self) -> bool {
        self.escalated > 0
    }

    /// How many locks it holds.
    pub(crate) fn held(&self) -> usize {
        self.points.len() + self.ranges.len()
    }

    /// Locks one key; whether it had no such lock before. `table` is asked for the table's name
    /// when it has to wait. Many locks on keys become ranges, where others have no locks between
    /// them.
    ///
    /// # Errors
    ///
    /// - `TooLarge`: it would take more memory than it may;
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
        let room = self.make_room(Locker::bytes_of_key(key.len()));
        if room.is_err() && !self.has_key(space, key, mode) {
            return room.map(|()| false);
        }
        self.lock_key_beyond_limit(space, key, mode, patience, table)
    }

    /// As [`Locker::lock_key`], without a look at the limit of memory.
    pub(crate) fn lock_key_beyond_limit(
        &mut self,
        space: u64,
        key: &[u8],
        mode: Mode,
        patience: Patience,
        table: &dyn Fn() -> String,
    ) -> Result<bool> {
        let name = name(space, key);
        if self.knows_ranges_of(mode) && self.ranges.contains(&name) {
            return Ok(false);
        }
        let span = Span::Point(name);
        let Some(granted) = self.lock(Request { owner: self.id, mode, span }, patience, table)?
        else {
            return Ok(false);
        };
        self.work += 1;
        if let Span::Point(name) = granted.span
            && !granted.is_stronger
        {
            self.points.push(name);
            self.has_shared |= mode == Mode::Shared;
            self.count(Locker::bytes_of_key(key.len()));
        }
        Ok(true)
    }

    /// Bytes of memory that a lock on a key of `len` bytes takes. Tables and lists are a third
    /// empty.
    fn bytes_of_key(len: usize) -> usize {
        let heap = if len + SPACE > Name::new().inline_size() { len + SPACE } else { 0 };
        (Shard::POINT + size_of::<Name>()) * 3 / 2 + 2 * heap
    }

    /// Bytes of memory that its locks take, and what else was counted.
    pub(crate) fn memory(&self) -> usize {
        self.memory.saturating_add_signed(self.boundaries)
    }

    /// Makes room for locks of so many bytes. Many locks on keys become locks on ranges: once they
    /// take a part of what its limit and the locks of others leave it. Where others have locks
    /// between them they stay, until there are twice as many.
    fn make_room(&mut self, more: usize) -> Result<()> {
        let own = self.memory();
        let limit = match self.counts_with_others(more) {
            true => {
                let others = self.manager.memory().saturating_sub(own);
                self.limit.min(self.manager.most_memory().saturating_sub(others))
            }
            false => self.limit,
        };
        let due = (limit / ESCALATE_AT).max(2 * self.escalated).min(limit);
        if own > self.escalated + self.escalated / 8 && own + more >= due {
            self.escalate();
            self.escalated = self.memory();
        }
        self.check_room(more)
    }

    /// Whether with so many bytes more it holds so much that the locks of all owners bound it.
    fn counts_with_others(&self, more: usize) -> bool {
        self.memory() + more > STEP
    }

    /// Whether so many bytes more may be taken. One that holds little is not refused for what
    /// others hold.
    pub(crate) fn check_room(&self, more: usize) -> Result<()> {
        let (own, limit) = (self.memory() + more, self.limit);
        let (whose, would, which, larger) = if own > limit {
            let whose = format!("transaction {}, and what it has to find unchanged,", self.id);
            (whose, own, format!("its limit is {limit}"), "use a larger lock_limit")
        } else {
            let (all, most) = (self.manager.memory() + more, self.manager.most_memory());
            if all <= most || !self.counts_with_others(more) {
                return Ok(());
            }
            let which = format!("an eighth of the database's memory limit, {most}, is for them");
            let larger = "open the database with a larger memory";
            ("all transactions".to_string(), all, which, larger)
        };
        Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "the row locks of {whose} would take {would} bytes of memory, and {which}; lock a \
             range first (range_for_update), and rows in it take no lock of their own, commit in \
             parts, or {larger}"
            ),
        ))
    }

    /// Counts bytes of memory that are held for as long as the locks.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.set_memory(self.memory + bytes);
    }

    /// Takes back what [`Locker::count`] has counted.
    pub(crate) fn discount(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.memory, "what is taken back was counted");
        self.set_memory(self.memory - bytes);
    }

    fn set_memory(&mut self, bytes: usize) {
        self.memory = bytes;
        if self.memory.abs_diff(self.told) >= STEP {
            self.manager.changed(self.told, self.memory);
            self.told = self.memory;
        }
    }

    /// Whether it has a key locked like this, or with a range.
    pub(crate) fn has_key(&self, space: u64, key: &[u8], mode: Mode) -> bool {
        let span = Span::Point(name(space, key));
        self.manager.has(&Request { owner: self.id, mode, span })
    }

    /// Whether it has all keys of a range locked like this, with ranges; one without keys always.
    pub(crate) fn has_range(&self, space: u64, range: &KeyRange, mode: Mode) -> bool {
        let Some(keys) = range.interval() else { return true };
        let names = names(space, &keys);
        if self.knows_ranges_of(mode) {
            return self.ranges.covers(&names);
        }
        let span = Span::Range(names);
        self.manager.has(&Request { owner: self.id, mode, span })
    }

    /// Bytes that all locks would take more with these names: with their part in the boundaries of
    /// other owners, and without what its own ranges in them give back.
    fn bytes_of_range(&self, names: &KeyInterval, mode: Mode) -> usize {
        let (mut joined, mut freed) = (names.clone(), 0);
        for one in self.ranges.touching(names) {
            joined = joined.joined(&one);
            freed += bytes_of(&one);
        }
        let request = Request { owner: self.id, mode, span: Span::Range(names.clone()) };
        let grown = self.manager.ranges.lock().growth(&request);
        usize::try_from(grown + bytes_of(&joined).cast_signed() - freed.cast_signed()).unwrap_or(0)
    }

    /// Locks all keys of a range, those that are not there too; the part of it that its ranges did
    /// not have.
    pub(crate) fn lock_range(
        &mut self,
        space: u64,
        range: &KeyRange,
        mode: Mode,
        patience: Patience,
        table: &dyn Fn() -> String,
    ) -> Result<Option<KeyRange>> {
        let Some(keys) = range.interval() else { return Ok(None) };
        let names = names(space, &keys);
        if self.knows_ranges_of(mode) && self.ranges.covers(&names) {
            return Ok(None);
        }
        let room = self.make_room(self.bytes_of_range(&names, mode));
        // Keys may have become ranges, which it joins.
        if room.is_err() && self.bytes_of_range(&names, mode) > 0 {
            return room.map(|()| None);
        }
        self.lock_range_beyond_limit(space, range, mode, patience, table)
    }

    /// As [`Locker::lock_range`], without a look at the limit of memory.
    pub(crate) fn lock_range_beyond_limit(
        &mut self,
        space: u64,
        range: &KeyRange,
        mode: Mode,
        patience: Patience,
        table: &dyn Fn() -> String,
    ) -> Result<Option<KeyRange>> {
        let Some(keys) = range.interval() else { return Ok(None) };
        let names = names(space, &keys);
        if self.knows_ranges_of(mode) && self.ranges.covers(&names) {
            return Ok(None);
        }
        self.has_shared_range |= mode == Mode::Shared;
        let span = Span::Range(names);
        let granted = self.lock(Request { owner: self.id, mode, span }, patience, table)?;
        self.work += u64::from(granted.is_some());
        Ok(granted.and_then(|granted| self.hold_range(granted)))
    }

    /// Whether all ranges that are held are locked like this, or stronger.
    fn knows_ranges_of(&self, mode: Mode) -> bool {
        mode == Mode::Shared || !self.has_shared_range
    }

    /// Notes a range that is locked; its keys.
    fn hold_range(&mut self, granted: Granted) -> Option<KeyRange> {
        let Span::Range(names) = granted.span else { return None };
        self.boundaries += granted.grown;
        let bytes = |set: &IntervalSet| set.find(&names.start).map_or(0, |one| bytes_of(&one));
        let joined: usize = self.ranges.insert(&names).iter().map(bytes_of).sum();
        let memory = self.memory - joined + bytes(&self.ranges);
        self.set_memory(memory);
        Some(keys_of(&names).into())
    }

    /// What it did not have; `None` if it had all.
    fn lock(
        &self,
        request: Request,
        patience: Patience,
        table: &dyn Fn() -> String,
    ) -> Result<Option<Granted>> {
        match self.manager.attempt(request, patience, self.work, self.mark.as_deref(), table) {
            Attempt::Had => Ok(None),
            Attempt::Granted(granted) => Ok(Some(granted)),
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
            Attempt::Waits(waiter, granted) => {
                let grown = self.wait(&waiter, patience)?;
                Ok(Some(Granted { grown, ..granted }))
            }
        }
    }

    /// Waits for a lock; by how many bytes that has made the boundaries of ranges grow.
    fn wait(&self, waiter: &Arc<Waiter>, patience: Patience) -> Result<isize> {
        let deadline = match patience {
            Patience::Until(deadline) => Some(deadline),
            Patience::Endless | Patience::None => None,
        };
        match self.manager.wait(waiter, earlier(deadline)) {
            Outcome::Granted { grown } => Ok(grown),
            Outcome::Deadlock(cycle) => {
                note_deadlock(&self.manager);
                let advice = "was rolled back to end a deadlock; run it again";
                let message = format!("transaction {} {advice}: {cycle}", self.id);
                Err(Error::new(ErrorKind::Deadlock, message))
            }
            Outcome::Killed => Err(killed(self.id)),
            Outcome::Closed => Err(Error::closed()),
            Outcome::Late(by) => {
                let (waited, what) = (time::since(waiter.since).as_millis(), &waiter.request);
                let is_ended = self.mark.as_ref().is_some_and(|m| m.load(Ordering::Acquire));
                let advice = match is_ended {
                    true => "another thread ended the wait",
                    false => "try later or wait longer",
                };
                let (table, by) = (&waiter.table, Owners(&by));
                let message = format!(
                    "waited {waited} ms for {what} of table {table:?}, locked by {by}; {advice}"
                );
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }

    /// Locks ranges in place of many keys, without waiting. Runs of its keys become ranges in the
    /// mode of the keys, where no other owner has a lock between them that excludes this, or waits
    /// for one, and the range takes less memory. The keys between them are locked with them, and it
    /// did not ask for those.
    pub(super) fn escalate(&mut self) {
        let mut points = std::mem::take(&mut self.points);
        points.sort_unstable();
        for keys in points.chunk_by(|a, b| a[..SPACE] == b[..SPACE]) {
            let mode = |name| match self.has_shared {
                true => self.manager.mode_of(self.id, name).unwrap_or(Mode::Shared),
                false => Mode::Exclusive,
            };
            let modes: Vec<Mode> = keys.iter().map(mode).collect();
            let mut rest = keys;
            for (len, mode) in runs(&modes) {
                let (run, behind) = rest.split_at(len);
                rest = behind;
                if !self.escalate_behind_last(run, mode) {
                    self.escalate_run(run, mode);
                }
            }
        }
    }

    /// Joins keys of one table, which are in order, with the range in front of them, as those of a
    /// load in order are; whether they were free, with what is between. The range stays as it is.
    fn escalate_behind_last(&mut self, keys: &[Name], mode: Mode) -> bool {
        let range = keys.first().and_then(|first| self.ranges.last_before(first));
        let end = range.and_then(|range| range.end);
        let is_behind = |end: &Vec<u8>| **end <= *keys[0] && end.starts_with(&keys[0][..SPACE]);
        end.filter(is_behind).is_some_and(|end| self.lock_instead(end, keys, mode))
    }

    /// Escalates keys of one table, which are in order.
    fn escalate_run(&mut self, keys: &[Name], mode: Mode) {
        if keys.len() < LEAST_RUN {
            self.points.extend_from_slice(keys);
        } else if !self.lock_instead(keys[0].to_vec(), keys, mode) {
            let (before, behind) = keys.split_at(keys.len() / 2);
            self.escalate_run(before, mode);
            self.escalate_run(behind, mode);
        }
    }

    /// Locks the names from `start` to the last of `keys` in place of the keys; whether they were
    /// free, and that saves memory.
    fn lock_instead(&mut self, start: Vec<u8>, keys: &[Name], mode: Mode) -> bool {
        let freed: usize = keys.iter().map(|key| Locker::bytes_of_key(key.len() - SPACE)).sum();
        let names = KeyInterval { start, end: keys.last().map(|last| after(last)) };
        if self.bytes_of_range(&names, mode) > freed {
            return false;
        }
        self.has_shared_range |= mode == Mode::Shared;
        let span = Span::Range(names);
        let request = Request { owner: self.id, mode, span };
        match self.manager.attempt(request, Patience::None, self.work, None, &String::new) {
            Attempt::Granted(granted) => drop(self.hold_range(granted)),
            Attempt::Had => {}
            _ => return false,
        }
        // Owners that wait for the keys wait for the range now.
        match (mode, keys) {
            (Mode::Exclusive, [first, .., last]) if keys.len() >= MANY => {
                self.manager.release_all_keys(self.id, first, last);
            }
            _ => drop(self.manager.release_keys(self.id, keys)),
        }
        self.set_memory(self.memory - freed);
        true
    }

    /// Whether it holds ranges; what lies in one of its own has no lock of its own.
    pub(crate) fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// All that it holds.
    pub(crate) fn locks(&self) -> Vec<Held> {
        let mut points: Vec<&Name> = self.points.iter().collect();
        points.sort_unstable();
        let mode = |name: &Name| self.manager.mode_of(self.id, name);
        let points = points.into_iter().filter_map(|name| Some(Held::key(name, mode(name)?)));
        let ranges = self.ranges.iter().flat_map(|names| self.manager.held_by(self.id, names));
        points.chain(ranges).collect()
    }

    /// Gives all locks back.
    pub(crate) fn release(&mut self) {
        let points = std::mem::take(&mut self.points);
        let ranges = std::mem::take(&mut self.ranges);
        self.manager.release(self.id, &points, &ranges);
        self.manager.changed(std::mem::take(&mut self.told), 0);
        (self.memory, self.boundaries) = (0, 0);
        (self.has_shared, self.has_shared_range) = (false, false);
    }
}

/// Cuts keys, which are locked like this, into runs of one mode: how many, and how. Shared keys
/// that are too few for a range, between exclusive ones, become exclusive with them.
fn runs(modes: &[Mode]) -> Vec<(usize, Mode)> {
    let alike: Vec<&[Mode]> = modes.chunk_by(|a, b| a == b).collect();
    let mut runs: Vec<(usize, Mode)> = Vec::new();
    for (n, chunk) in alike.iter().enumerate() {
        let is_between = n > 0 && n + 1 < alike.len();
        let mode = match is_between && chunk.len() < LEAST_RUN {
            true => Mode::Exclusive,
            false => chunk[0],
        };
        match runs.last_mut() {
            Some((len, last)) if *last == mode => *len += chunk.len(),
            _ => runs.push((chunk.len(), mode)),
        }
    }
    runs
}

/// Bytes of memory that a range takes with its owner, whose two ends have so many bytes. Lists are
/// a third empty.
fn bytes_between(ends: usize) -> usize {
    size_of::<KeyInterval>() * 3 / 2 + ends
}

fn bytes_of(names: &KeyInterval) -> usize {
    bytes_between(names.start.len() + names.end.as_ref().map_or(0, Vec::len))
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
        // The locks of a forked child are its parent's, and a dead thread may hold their mutexes.
        if !self.manager.fork.is_forked() {
            self.release();
        }
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker").field("id", &self.id).field("held", &self.held()).finish()
    }
}
