//! What a running transaction locks before it reads and writes, and the check that what it locked
//! has not changed since its snapshot. Its invariants are those of `state.rs`.
//!
//! A table that a transaction uses is truncated: a conflict, since a run again finds the emptied
//! table. A dropped table is an error that no run again helps.
//!
//! Deleting all keys of a range in a transaction: an interval, and key by key what the transaction
//! itself has put into it, be it spilled.
//!
//! How an optimistic transaction finds, when it commits, that what it relies on is unchanged.

use std::ops::Bound;
use std::sync::Arc;

use super::options::Isolation;
use super::seen::{Seen, bytes_of, bytes_of_range};
use super::spilled::{End, WritesAhead};
use super::state::{Inner, Running};
use super::tables::Used;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits;
use crate::base::options::Failpoint;
use crate::base::record::Lsn;
use crate::commit::Committer;
use crate::locks::{Locker, Mode, Patience};
use crate::read;
use crate::read::{KeyRange, Looked};
use crate::sstable::ReadAhead;
use crate::table::{Applying, TableReader};

impl Running {
    /// The commit up to which it answers for rows that it has locked, or relies on, though it
    /// writes nothing. Plain reads are no promise.
    pub(super) fn answers_up_to(&self, committer: &Committer) -> Option<Lsn> {
        let answers = self.locker.held() > 0 || !self.seen.is_empty();
        answers.then(|| committer.visible()).filter(|lsn| *lsn > 0)
    }

    /// Whether a write to a key is protected: by an exclusive lock, or by the validation of an
    /// optimistic transaction (invariants 1 and 5).
    pub(super) fn owns(&self, inner: &Inner, table: usize, key: &[u8]) -> bool {
        let space = self.tables[table].pinned.lock_space();
        match inner.options.optimistic {
            true => self.seen.has_key(table, key),
            false => self.locker.has_key(space, key, Mode::Exclusive),
        }
    }

    /// Locks a key; whether it had no such lock.
    fn lock(
        &mut self,
        inner: &Inner,
        table: usize,
        key: &[u8],
        how: (Mode, Patience),
    ) -> Result<bool> {
        // A prepare writes it as the key of a record.
        limits::check_key(key)?;
        inner.shared.check_leads()?;
        inner.shared.committer.lock_rows()?;
        debug_assert!(
            inner.shared.committer.locks_rows(),
            "plain writes lock their rows before a transaction locks its first one (invariant 1)"
        );
        let target = &self.tables[table].pinned;
        let space = target.lock_space();
        // A takeover locks what the writer had locked, as an opening does.
        let lock = match Applying::is_inside() {
            true => Locker::lock_key_beyond_limit,
            false => Locker::lock_key,
        };
        let is_new = lock(&mut self.locker, space, key, how.0, how.1, &|| target.label())?;
        debug_assert!(
            self.locker.has_key(space, key, how.0),
            "a key that was locked is held until the transaction ends (invariant 1)"
        );
        Ok(is_new)
    }

    /// Locks a range; the part of it that was not locked with others.
    fn lock_range(
        &mut self,
        inner: &Inner,
        table: usize,
        range: &KeyRange,
        mode: Mode,
    ) -> Result<Option<KeyRange>> {
        inner.shared.check_leads()?;
        inner.shared.committer.lock_rows()?;
        let patience = self.patience();
        let target = &self.tables[table].pinned;
        let space = target.lock_space();
        let lock = match Applying::is_inside() {
            true => Locker::lock_range_beyond_limit,
            false => Locker::lock_range,
        };
        let new = lock(&mut self.locker, space, range, mode, patience, &|| target.label())?;
        debug_assert!(
            self.locker.has_range(space, range, mode),
            "a range that was locked is held until the transaction ends (invariant 1)"
        );
        Ok(new)
    }

    /// Makes a key its own: locked and, if it reads a snapshot, not changed since.
    pub(super) fn own(
        &mut self,
        inner: &Inner,
        (table, key): (usize, &[u8]),
        mode: Mode,
    ) -> Result<()> {
        limits::check_key(key)?;
        if inner.options.optimistic {
            return self.rely_on_key(table, key);
        }
        let patience = self.patience();
        let is_new = self.lock(inner, table, key, (mode, patience))?;
        self.check_locked(inner, table, key, is_new)
    }

    /// As [`Running::own`], without waiting; whether no other owner has it.
    pub(super) fn own_if_free(&mut self, inner: &Inner, table: usize, key: &[u8]) -> Result<bool> {
        limits::check_key(key)?;
        if inner.options.optimistic {
            return self.rely_on_key(table, key).map(|()| true);
        }
        // The lock alone says so: a check that fails does not mean that another owner has the key.
        match self.lock(inner, table, key, (Mode::Exclusive, Patience::None)) {
            Ok(is_new) => self.check_locked(inner, table, key, is_new).map(|()| true),
            Err(e) if e.kind() == ErrorKind::Timeout => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether there may be locks on keys that were not checked (invariant 2).
    fn owes_checks(&self) -> bool {
        self.owes_checks || self.locker.has_escalated()
    }

    /// Checks a key that is locked, unless the call that got the lock did (invariant 2).
    fn check_locked(&self, inner: &Inner, table: usize, key: &[u8], is_new: bool) -> Result<()> {
        if is_new || self.owes_checks() { self.check_key(inner, table, key) } else { Ok(()) }
    }

    /// Makes a range its own, with its gaps.
    pub(super) fn own_range(
        &mut self,
        inner: &Inner,
        (table, range): (usize, &KeyRange),
        mode: Mode,
    ) -> Result<()> {
        if inner.options.optimistic {
            return self.rely_on_range(table, range);
        }
        let new = self.lock_range(inner, table, range, mode)?;
        self.check_locked_range(inner, table, range, new.as_ref())
    }

    /// Checks what is new of a range that is locked; while checks are owed, what of it was not
    /// checked since they are.
    fn check_locked_range(
        &mut self,
        inner: &Inner,
        table: usize,
        range: &KeyRange,
        new: Option<&KeyRange>,
    ) -> Result<()> {
        if !self.owes_checks() {
            return new.map_or(Ok(()), |new| self.check_range(inner, table, new));
        }
        let Some(keys) = range.interval() else { return Ok(()) };
        for gap in self.tables[table].checked.gaps(&keys) {
            self.check_range(inner, table, &gap.into())?;
        }
        self.tables[table].checked.insert(&keys);
        Ok(())
    }

    /// What a serializable transaction does before it reads a key.
    pub(super) fn about_to_read(&mut self, inner: &Inner, table: usize, key: &[u8]) -> Result<()> {
        if inner.options.isolation != Isolation::Serializable {
            return Ok(());
        }
        if inner.options.optimistic {
            return self.rely_on_key(table, key);
        }
        let patience = self.patience();
        self.lock(inner, table, key, (Mode::Shared, patience)).map(drop)
    }

    /// What a serializable transaction does before it reads a range.
    pub(super) fn about_to_scan(
        &mut self,
        inner: &Inner,
        table: usize,
        range: &KeyRange,
    ) -> Result<()> {
        if inner.options.isolation != Isolation::Serializable {
            return Ok(());
        }
        if inner.options.optimistic {
            return self.rely_on_range(table, range);
        }
        self.lock_range(inner, table, range, Mode::Shared).map(drop)
    }

    /// Whether no commit after `since` has changed what is locked. A commit holds its locks until
    /// it is visible (invariant 1). That of a plain write does so too by now.
    fn is_newest(&self, inner: &Inner, since: Lsn) -> bool {
        debug_assert!(
            inner.shared.committer.locks_rows(),
            "rows are locked before they are compared with a snapshot (invariant 2)"
        );
        inner.shared.committer.visible() <= since
    }

    fn check_key(&self, inner: &Inner, table: usize, key: &[u8]) -> Result<()> {
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        debug_assert!(
            self.locker.has_key(self.tables[table].pinned.lock_space(), key, Mode::Shared),
            "a key is locked before its versions are compared with the snapshot (invariant 2)"
        );
        let (core, since) = (&self.tables[table].pinned.core, snapshot.lsn());
        if self.is_newest(inner, since) {
            return Ok(());
        }
        let reader =
            TableReader { shared: &inner.shared, slot: &self.tables[table].slot, snapshot: None };
        let _fetched = reader.fetch_above(key, since)?;
        let newest = inner
            .shared
            .read(core, Some(snapshot), |view, _| read::newest_above(view, key, since))?;
        let skips = inner.shared.region.has(Failpoint::SkipConflictCheck);
        match newest.filter(|_| !skips) {
            Some(lsn) => Err(self.conflict(inner, table, key, lsn)),
            None => Ok(()),
        }
    }

    fn check_range(&self, inner: &Inner, table: usize, range: &KeyRange) -> Result<()> {
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        let space = self.tables[table].pinned.lock_space();
        debug_assert!(
            self.locker.has_range(space, range, Mode::Shared),
            "a range is locked before its versions are compared with the snapshot (invariant 2)"
        );
        let (core, since) = (&self.tables[table].pinned.core, snapshot.lsn());
        if self.is_newest(inner, since) {
            return Ok(());
        }
        let (mut rest, cache, ahead) = (range.clone(), &inner.shared.cache, ReadAhead::for_user());
        loop {
            inner.check_call()?;
            let looked = ahead.read_apart_from_waits(cache, || {
                inner.shared.read(core, Some(snapshot), |view, _| {
                    read::find_change(&view, (cache, &ahead), &rest, since)
                })
            })?;
            match looked {
                Looked::Found(key, lsn) => return Err(self.conflict(inner, table, &key, lsn)),
                Looked::NothingUpTo(key) => rest.lower = Bound::Excluded(key),
                Looked::Nothing => return Ok(()),
            }
        }
    }

    fn conflict(&self, inner: &Inner, table: usize, key: &[u8], lsn: Lsn) -> Error {
        let message = format!(
            "key \"{}\" of table {:?} was changed by commit {lsn}, after the snapshot of \
             transaction {} at {}; run it again",
            key.escape_ascii(),
            self.tables[table].pinned.label(),
            inner.id,
            self.snapshot.as_ref().map_or(0, |s| s.lsn()),
        );
        Error::new(ErrorKind::Conflict, message)
    }
}

impl Running {
    /// The error of a call: one that a truncation has caused becomes a conflict.
    pub(super) fn explain(&self, inner: &Inner, error: Error) -> Error {
        if error.is_truncated() {
            return Error::new(
                ErrorKind::Conflict,
                format!("{error} of transaction {}; run it again", inner.id),
            );
        }
        if !error.is_table_gone() {
            return error;
        }
        // A truncation that is under way has put the new table in its place after this.
        drop(inner.shared.ddl.lock());
        let is_replaced = |used: &&Used| !Arc::ptr_eq(&used.slot.core(), &used.pinned.core);
        match self.tables.iter().find(is_replaced) {
            Some(used) => Error::new(
                ErrorKind::Conflict,
                format!(
                    "table {:?} was truncated after transaction {} had used it; run it again",
                    used.slot.core().name(),
                    inner.id
                ),
            ),
            None => error,
        }
    }
}

impl Running {
    /// Deletes all keys of a range.
    pub(super) fn delete_range(
        &mut self,
        inner: &Inner,
        table: usize,
        range: &KeyRange,
    ) -> Result<()> {
        inner.shared.check_writable()?;
        let Some(interval) = range.interval() else { return Ok(()) };
        limits::check_key(&interval.start)?;
        limits::check_key(interval.end.as_deref().unwrap_or_default())?;
        self.own_range(inner, (table, range), Mode::Exclusive)?;
        // All of it, or nothing.
        let savepoints = self.writes.savepoints();
        self.writes.set_savepoint("");
        let limit = inner.options.write_limit;
        let deleted = self.delete_own(inner, table, &KeyRange::from(interval.clone()));
        let deleted = deleted.and_then(|()| self.writes.delete_range(table, &interval, limit));
        if deleted.is_err() {
            self.writes.roll_back_to("")?;
        }
        self.writes.release("")?;
        debug_assert_eq!(
            self.writes.savepoints(),
            savepoints,
            "a range delete leaves the savepoints of its caller as they were"
        );
        if deleted.is_ok() {
            self.writes.forget_deleted(table, &interval);
        }
        deleted
    }

    /// Deletes the rows of a range that it has written itself.
    fn delete_own(&mut self, inner: &Inner, table: usize, range: &KeyRange) -> Result<()> {
        let (mut rest, mut ahead) = (range.clone(), WritesAhead::default());
        loop {
            let (cache, bounds) = (&inner.shared.cache, rest.bounds());
            let own = self.writes.outermost(table, bounds, End::Front, cache, &mut ahead)?;
            let Some((key, write)) = own else { return Ok(()) };
            if write.is_some() {
                self.keep(inner, table, &key, None)?;
            }
            rest.lower = Bound::Excluded(key.to_vec());
        }
    }

    /// Whether it has deleted a part of a range.
    pub(super) fn deletes_in(&self, table: usize, range: &KeyRange) -> bool {
        range.interval().is_some_and(|keys| self.writes.deletes_in(table, &keys))
    }
}

impl Running {
    /// Has the commit of an optimistic transaction find a key unchanged.
    fn rely_on_key(&mut self, table: usize, key: &[u8]) -> Result<()> {
        limits::check_key(key)?;
        if self.seen.has_key(table, key) {
            return Ok(());
        }
        self.take_room(bytes_of(key.len()))?;
        let is_new = self.seen.of_table(table).keys.insert(key.into());
        debug_assert!(is_new, "the memory of a key is counted once");
        Ok(())
    }

    /// As [`Running::rely_on_key`], for a range with its gaps.
    fn rely_on_range(&mut self, table: usize, range: &KeyRange) -> Result<()> {
        let Some(keys) = range.interval().filter(|keys| !self.seen.has_range(table, keys)) else {
            return Ok(());
        };
        self.take_room(bytes_of_range(&keys))?;
        let ranges = &mut self.seen.of_table(table).ranges;
        let joined: usize = ranges.insert(&keys).iter().map(bytes_of_range).sum();
        let counted = joined + bytes_of_range(&keys);
        self.locker.count(ranges.find(&keys.start).map_or(0, |one| bytes_of_range(&one)));
        self.locker.discount(counted);
        Ok(())
    }

    fn take_room(&mut self, bytes: usize) -> Result<()> {
        self.locker.check_room(bytes)?;
        self.locker.count(bytes);
        Ok(())
    }

    /// An optimistic transaction locks, at last, what it wrote and saw, and finds it unchanged.
    pub(super) fn validate(&mut self, inner: &Inner) -> Result<()> {
        let seen = std::mem::take(&mut self.seen);
        let done = self.validate_all(inner, &seen);
        self.seen = seen;
        done
    }

    /// An optimistic transaction holds no lock again: what it relies on stays to be validated.
    pub(super) fn give_validation_back(&mut self, inner: &Inner) {
        if inner.options.optimistic {
            self.locker.release();
            self.locker.count(self.seen.bytes());
        }
    }

    fn validate_all(&mut self, inner: &Inner, seen: &Seen) -> Result<()> {
        debug_assert!(
            seen.is_empty() || self.locker.held() == 0,
            "an optimistic transaction begins its validation without locks (invariant 5 of `state`)"
        );
        // What it can only read is as of one snapshot, and a promotion waits for no lock of its.
        if inner.shared.refuses_writes() {
            return Ok(());
        }
        inner.shared.committer.lock_rows()?;
        // What it only saw is locked too, until it is committed: else two transactions that each
        // saw what the other one wrote would both find it unchanged.
        let space = |table: usize| self.tables[table].pinned.lock_space();
        let ranges: Vec<(usize, KeyRange)> = seen.ranges().collect();
        let keys = seen.keys().map(|(table, key)| (space(table), key, None, table));
        let mut locks: Vec<(u64, &[u8], Option<&KeyRange>, usize)> = keys
            .chain(ranges.iter().map(|(at, range)| (space(*at), range.start(), Some(range), *at)))
            .collect();
        locks.sort_unstable_by(|a, b| (a.0, a.1, a.2.is_none()).cmp(&(b.0, b.1, b.2.is_none())));
        debug_assert!(
            locks.is_sorted_by(|a, b| (a.0, a.1, a.2.is_none()) < (b.0, b.1, b.2.is_none())),
            "validations lock each row and range once, in one order, so they do not wait in a \
             circle"
        );
        for &(space, key, range, table) in &locks {
            let written = match range {
                Some(range) => self.writes_in(inner, table, range)?,
                None => self.writes.get(table, key, &inner.shared.cache)?.is_some(),
            };
            let mode = if written { Mode::Exclusive } else { Mode::Shared };
            let (patience, target) = (self.patience(), &self.tables[table].pinned);
            let (name, locker) = (|| target.label(), &mut self.locker);
            match range {
                Some(range) => {
                    drop(locker.lock_range_beyond_limit(space, range, mode, patience, &name)?);
                }
                None => drop(locker.lock_key_beyond_limit(space, key, mode, patience, &name)?),
            }
        }
        for &(_, key, range, table) in &locks {
            match range {
                Some(range) => self.check_range(inner, table, range)?,
                None => self.check_key(inner, table, key)?,
            }
        }
        Ok(())
    }

    /// Whether it has written, or deleted, anything in a range.
    fn writes_in(&self, inner: &Inner, table: usize, range: &KeyRange) -> Result<bool> {
        if range.is_empty() {
            return Ok(false);
        }
        let cache = &inner.shared.cache;
        let (bounds, mut ahead) = (range.bounds(), WritesAhead::default());
        let own = self.writes.outermost(table, bounds, End::Front, cache, &mut ahead)?;
        Ok(own.is_some() || self.deletes_in(table, range))
    }
}
