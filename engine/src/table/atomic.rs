//! Changes that depend on what is there: read and written under the row's lock.
//!
//! They lock as transactions do. So from the first one on, plain writes of the database lock their
//! rows too, for as long as it is open.
//!
//! Why they are atomic: an owner that locks a row sees every commit of earlier owners of the lock
//! (transaction invariant 1). It holds the lock until its own commit is visible. A batch names the
//! table of the moment. So a truncation in between makes the commit fail, and the change begins
//! anew.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::{Pinned, Range, Shared, Table, TableBatch, TableReader, TableSlot, TableTarget};
use crate::base::error::Result;
use crate::base::limits;
use crate::base::operations::OperationKind;
use crate::base::options::Durability;
use crate::base::record::{Kind, Lsn};
use crate::locks::{Locker, Mode, Patience, RunsHere};
use crate::read::KeyRange;

impl Table {
    /// Sets `key` to `value`, durably, if it has no value; whether it had none.
    ///
    /// # Errors
    ///
    /// `Timeout` when others had the row locked for 10 s; otherwise as [`Table::get`] and
    /// [`Table::put`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let users = db.table("users")?;
    /// assert!(users.insert_if_absent("ada", "1815")?);
    /// assert!(!users.insert_if_absent("ada", "1852")?);
    /// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn insert_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let value = value.as_ref();
        self.change(key.as_ref(), |current| match current {
            Some(_) => (None, false),
            None => (Some(Some(value.to_vec())), true),
        })
    }

    /// Gives `key` the value `new`, durably, if it has the value `expected`; whether it had. `None`
    /// stands for no value: as `expected` for a key that is not there, as `new` for its removal.
    /// Where both are the same value, the row's time to live starts again.
    ///
    /// # Errors
    ///
    /// As [`Table::insert_if_absent`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let leases = db.table("leases")?;
    /// assert!(leases.compare_and_set("leader", None, Some(b"node 1"))?);
    /// assert!(!leases.compare_and_set("leader", Some(b"node 2"), None)?);
    /// assert!(leases.compare_and_set("leader", Some(b"node 1"), None)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let expires = || self.slot.core().view().version.options.ttl.is_some();
        let renews = expected == new && new.is_some() && expires();
        self.change(key.as_ref(), |current| match current == expected {
            true if expected == new && !renews => (None, true),
            true => (Some(new.map(<[u8]>::to_vec)), true),
            false => (None, false),
        })
    }

    /// Sets `key` to `value`, durably, and returns the value that it had. [`Table::put`] costs
    /// less: it neither reads nor locks the row.
    ///
    /// # Errors
    ///
    /// As [`Table::insert_if_absent`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let users = db.table("users")?;
    /// assert_eq!(users.replace("ada", "1815")?, None);
    /// assert_eq!(users.replace("ada", "1852")?.as_deref(), Some(&b"1815"[..]));
    /// assert_eq!(users.take("ada")?.as_deref(), Some(&b"1852"[..]));
    /// assert_eq!(users.take("ada")?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let value = value.as_ref();
        self.change(key.as_ref(), |old| {
            (Some(Some(value.to_vec())), old.map(Bytes::copy_from_slice))
        })
    }

    /// Removes `key`, durably, and returns the value that it had. As [`Table::replace`].
    ///
    /// # Errors
    ///
    /// As [`Table::insert_if_absent`].
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.change(key.as_ref(), |old| (old.map(|_| None), old.map(Bytes::copy_from_slice)))
    }

    /// Gives `key` the value that `f` makes of the one it has, durably; returns it. `None` stands
    /// for no value, before and after. `f` may be called again after a truncation, and must not
    /// write to the row by itself.
    ///
    /// # Errors
    ///
    /// As [`Table::insert_if_absent`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let counters = db.table("counters")?;
    /// for _ in 0..3 {
    ///     counters.update("visits", |old| {
    ///         let old = old.and_then(|old| old.try_into().ok()).map_or(0, u64::from_be_bytes);
    ///         Some((old + 1).to_be_bytes())
    ///     })?;
    /// }
    /// assert_eq!(counters.get("visits")?.as_deref(), Some(&3u64.to_be_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        mut f: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Bytes>> {
        self.change(key.as_ref(), |current| {
            let new = f(current).map(|value| value.as_ref().to_vec());
            let result = new.as_ref().map(|value| Bytes::copy_from_slice(value));
            let is_same = new.as_deref() == current;
            ((!is_same).then_some(new), result)
        })
    }

    /// Removes the row with the least key, durably, and returns it. No other call gets the same
    /// row. Callers wait for each other: workers that share a queue take
    /// [`Transaction::range_skip_locked`](crate::Transaction::range_skip_locked).
    ///
    /// # Errors
    ///
    /// As [`Table::insert_if_absent`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let jobs = db.table("jobs")?;
    /// jobs.put("1", "first")?;
    /// jobs.put("2", "second")?;
    /// assert_eq!(jobs.pop_first()?.unwrap().1, "first");
    /// assert_eq!(jobs.pop_last()?.unwrap().1, "second");
    /// assert_eq!(jobs.pop_first()?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn pop_first(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.pop(false)
    }

    /// Removes the row with the greatest key, durably, and returns it. As [`Table::pop_first`].
    ///
    /// # Errors
    ///
    /// As [`Table::insert_if_absent`].
    pub fn pop_last(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.pop(true)
    }

    /// Changes a row as `decide` says, which gets its value.
    fn change<T>(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<&[u8]>) -> (Outcome, T),
    ) -> Result<T> {
        self.rows().change(key, Patience::usual(), decide)
    }

    fn rows(&self) -> ChangeRows<'_> {
        ChangeRows { shared: &self.shared, slot: &self.slot, durability: self.durability }
    }

    fn pop(&self, is_last: bool) -> Result<Option<(Bytes, Bytes)>> {
        self.rows().time(|| self.pop_now(is_last))
    }

    fn pop_now(&self, is_last: bool) -> Result<Option<(Bytes, Bytes)>> {
        let (rows, committer) = (self.rows(), &self.shared.committer);
        rows.check()?;
        let (lsn, row) = self.shared.again_after_truncations(&self.slot, |pinned| {
            loop {
                let all = Range::of_now(self, KeyRange::from_bounds(&(..)));
                let Some((key, _)) = outermost(all, is_last)? else {
                    return Ok((committer.visible(), None));
                };
                // Up to it: so no key comes before it meanwhile.
                let to_key = match is_last {
                    false => KeyRange::from_bounds(&(..=&key)),
                    true => KeyRange::from_bounds(&(Bound::Included(&key), Bound::Unbounded)),
                };
                let (mut locker, name) = (rows.locker()?, || pinned.label());
                let space = pinned.lock_space();
                locker.lock_range(space, &to_key, Mode::Exclusive, Patience::usual(), &name)?;
                let Some(row) = outermost(Range::of_now(self, to_key), is_last)? else {
                    // Another call was faster.
                    continue;
                };
                debug_assert!(
                    locker.has_key(space, &row.0, Mode::Exclusive),
                    "a row that is popped lies in the range that is locked"
                );
                return Ok((rows.commit(pinned, &row.0, None)?, Some(row)));
            }
        })?;
        committer.wait_for(lsn, self.durability)?;
        Ok(row)
    }
}

/// The first row of a range, or its last one.
fn outermost(range: Range, is_last: bool) -> Result<Option<(Bytes, Bytes)>> {
    let mut range = if is_last { range.rev() } else { range }.limit(1);
    range.next().transpose()
}

/// What a change leaves of a row: nothing is written, or a value, or that there is none.
type Outcome = Option<Option<Vec<u8>>>;

/// Changes rows of one table, each under its lock.
pub(super) struct ChangeRows<'a> {
    pub(super) shared: &'a Shared,
    pub(super) slot: &'a TableSlot,
    pub(super) durability: Durability,
}

impl ChangeRows<'_> {
    fn check(&self) -> Result<()> {
        self.shared.check_writable()?;
        self.shared.committer.check_durability(self.durability)
    }

    /// An operation, with its waits for locks, what it reads, and its commit.
    fn time<T>(&self, f: impl FnOnce() -> T) -> T {
        self.shared.events.time(OperationKind::Commit, || None, f)
    }

    /// Changes a row as `decide` says, which gets its value. Where it finds nothing to write, what
    /// it read becomes as durable: it answers for that. It waits for a store without the lock.
    pub(super) fn change<T>(
        &self,
        key: &[u8],
        patience: Patience,
        decide: impl FnMut(Option<&[u8]>) -> (Outcome, T),
    ) -> Result<T> {
        self.time(|| self.change_now(key, patience, decide))
    }

    fn change_now<T>(
        &self,
        key: &[u8],
        patience: Patience,
        mut decide: impl FnMut(Option<&[u8]>) -> (Outcome, T),
    ) -> Result<T> {
        self.check()?;
        limits::check_key(key)?;
        let _brought =
            TableReader { shared: self.shared, slot: self.slot, snapshot: None }.fetch(&[key])?;
        let (lsn, result) = self.shared.again_after_truncations(self.slot, |pinned| {
            let mut locker = self.locker()?;
            let name = || pinned.label();
            locker.lock_key(pinned.lock_space(), key, Mode::Exclusive, patience, &name)?;
            let current = self.shared.get(&pinned.core, None, key)?;
            // What the caller's code writes to the row would wait for this call.
            let here = RunsHere::enter(&self.shared.locks, locker.id());
            let (outcome, result) = decide(current.as_deref());
            drop(here);
            let Some(value) = outcome else {
                return Ok((self.shared.committer.visible(), result));
            };
            debug_assert!(
                locker.has_key(pinned.lock_space(), key, Mode::Exclusive),
                "a row is locked from the read to the commit of its change"
            );
            Ok((self.commit(pinned, key, value.as_deref())?, result))
        })?;
        self.shared.committer.wait_for(lsn, self.durability)?;
        Ok(result)
    }

    pub(super) fn locker(&self) -> Result<Locker> {
        self.shared.committer.lock_rows()?;
        Ok(Locker::new(&self.shared.locks))
    }

    pub(super) fn commit(
        &self,
        pinned: &Arc<Pinned>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Lsn> {
        let target = TableTarget::Pinned(Arc::clone(pinned));
        let mut batch = TableBatch::default();
        match value {
            Some(value) => batch.push(&target, Kind::Put, key, value),
            None => batch.push(&target, Kind::Delete, key, &[]),
        }
        self.shared.commit(&batch, self.durability)
    }
}
