//! What a running transaction locks before it reads and writes, and the check that what it locked
//! has not changed since its snapshot. Its invariants are those of `state.rs`.

use super::options::Isolation;
use super::state::{Inner, Running};
use crate::error::{Error, ErrorKind, Result};
use crate::limits;
use crate::locks::{Mode, Patience};
use crate::options::Failpoint;
use crate::read::{self, KeyRange};
use crate::record::Lsn;

impl Running {
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
        inner.shared.committer.lock_rows()?;
        debug_assert!(
            inner.shared.committer.locks_rows(),
            "plain writes lock their rows before a transaction locks its first one (invariant 1)"
        );
        let target = &self.tables[table].pinned;
        let space = target.lock_space();
        let is_new = self.locker.lock_key(space, key, how.0, how.1, &|| target.label())?;
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
        inner.shared.committer.lock_rows()?;
        let patience = self.patience();
        let target = &self.tables[table].pinned;
        let space = target.lock_space();
        let new = self.locker.lock_range(space, range, mode, patience, &|| target.label())?;
        debug_assert!(
            self.locker.has_range(space, range, mode),
            "a range that was locked is held until the transaction ends (invariant 1)"
        );
        Ok(new)
    }

    /// Makes a key its own: locked and, if it reads a snapshot, not changed since.
    pub(super) fn own(&mut self, inner: &Inner, table: usize, key: &[u8]) -> Result<()> {
        limits::check_key(key)?;
        if inner.options.optimistic {
            return self.rely_on_key(table, key);
        }
        let patience = self.patience();
        let is_new = self.lock(inner, table, key, (Mode::Exclusive, patience))?;
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

    /// Locks a key so that nothing changes it. Others may do the same.
    pub(super) fn share(&mut self, inner: &Inner, table: usize, key: &[u8]) -> Result<()> {
        limits::check_key(key)?;
        if inner.options.optimistic {
            return self.rely_on_key(table, key);
        }
        let patience = self.patience();
        let is_new = self.lock(inner, table, key, (Mode::Shared, patience))?;
        self.check_locked(inner, table, key, is_new)
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
        table: usize,
        range: &KeyRange,
    ) -> Result<()> {
        if inner.options.optimistic {
            return self.rely_on_range(table, range);
        }
        let new = self.lock_range(inner, table, range, Mode::Exclusive)?;
        self.check_locked_range(inner, table, range, new.as_ref())
    }

    /// Locks a range with its gaps so that nothing changes it. Others may do the same.
    pub(super) fn share_range(
        &mut self,
        inner: &Inner,
        table: usize,
        range: &KeyRange,
    ) -> Result<()> {
        if inner.options.optimistic {
            return self.rely_on_range(table, range);
        }
        let new = self.lock_range(inner, table, range, Mode::Shared)?;
        self.check_locked_range(inner, table, range, new.as_ref())
    }

    /// Checks what is new of a range that is locked, or all of it while checks are owed.
    fn check_locked_range(
        &self,
        inner: &Inner,
        table: usize,
        range: &KeyRange,
        new: Option<&KeyRange>,
    ) -> Result<()> {
        let unchecked = if self.owes_checks() { Some(range) } else { new };
        unchecked.map_or(Ok(()), |range| self.check_range(inner, table, range))
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

    pub(super) fn check_key(&self, inner: &Inner, table: usize, key: &[u8]) -> Result<()> {
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        debug_assert!(
            self.locker.has_key(self.tables[table].pinned.lock_space(), key, Mode::Shared),
            "a key is locked before its versions are compared with the snapshot (invariant 2)"
        );
        let core = &self.tables[table].pinned.core;
        let newest = inner.shared.read(core, Some(snapshot), |view, _| read::newest(view, key))?;
        let skips = inner.shared.region.has(Failpoint::SkipConflictCheck);
        match newest.filter(|&lsn| lsn > snapshot.lsn() && !skips) {
            Some(lsn) => Err(self.conflict(inner, table, key, lsn)),
            None => Ok(()),
        }
    }

    pub(super) fn check_range(&self, inner: &Inner, table: usize, range: &KeyRange) -> Result<()> {
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        let space = self.tables[table].pinned.lock_space();
        debug_assert!(
            self.locker.has_range(space, range, Mode::Shared),
            "a range is locked before its versions are compared with the snapshot (invariant 2)"
        );
        let core = &self.tables[table].pinned.core;
        let changed = inner.shared.read(core, Some(snapshot), |view, _| {
            read::changed(&view, &inner.shared.cache, range, snapshot.lsn())
        })?;
        match changed {
            Some((key, lsn)) => Err(self.conflict(inner, table, &key, lsn)),
            None => Ok(()),
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
