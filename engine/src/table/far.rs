//! Look-ups in tables whose cold levels lie in an object store. What they need of it comes first,
//! while no epoch is pinned: no zone is released before a pinned epoch has passed, so writers would
//! wait for the store too.
//!
//! Then the look-up runs as always, and finds all of that on this machine. Values that lie apart in
//! objects are read behind it. A look-up holds the space of what it reads then.

use bytes::Bytes;

use super::{Shared, Snapshot, Table, TableCore, TableSlot};
use crate::error::Result;
use crate::read::{self, Lookups};

impl Shared {
    /// Whether the database has an object store. Without one nothing is far, and calls below cost a
    /// load.
    fn has_object_store(&self) -> bool {
        self.set.store().objects().is_some()
    }

    /// Brings to this machine what look-ups of keys of a table need of an object store.
    pub(super) fn bring<K: AsRef<[u8]>>(&self, slot: &TableSlot, keys: &[K]) -> Result<()> {
        if !self.has_object_store() {
            return Ok(());
        }
        let missing =
            |core: &TableCore| self.read(core, None, |view, at| read::missing(view, keys, at.lsn));
        read::bring(&self.cache, || self.with_table(slot, missing))
    }
}

impl Table {
    /// Brings to this machine what look-ups of keys need of an object store.
    pub(crate) fn bring<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<()> {
        self.shared.bring(&self.slot, keys)
    }

    /// Whether a look-up of a key may need something of an object store.
    pub(crate) fn is_far(&self) -> Result<bool> {
        if !self.shared.has_object_store() {
            return Ok(false);
        }
        self.read(|view, _| Ok(read::near(view, 1, || Ok(()))?.is_none()))
    }

    /// As [`Table::get`], of a table that is far.
    pub(super) fn get_far(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.bring(&[key])?;
        let found = self.read(|view, at| read::find_many(view, &[key], at))?;
        Ok(self.values_of(found)?.pop().flatten())
    }

    /// As [`Table::multi_get`], of a table that is far.
    pub(super) fn multi_get_far<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let mut chunks = self.side_by_side(keys);
        let first = chunks.next().unwrap_or_default();
        if first.len() == keys.len() {
            self.bring(keys)?;
            return self.values_of(self.read(|view, at| read::find_many(view, keys, at))?);
        }
        loop {
            // All of them are as of one moment, with no truncation after it.
            let now = self.shared.snapshots.register();
            let mut values = Vec::with_capacity(keys.len());
            for some in self.side_by_side(keys) {
                self.bring(some)?;
                let found = self.shared.with_table(&self.slot, |core| {
                    self.shared.read(core, Some(&now), |view, at| read::find_many(view, some, at))
                })?;
                values.extend(self.values_of(found)?);
            }
            if self.slot.check_not_emptied_since(now.lsn()).is_ok() {
                return Ok(values);
            }
        }
    }

    /// The values of look-ups, of which those that are far are read now.
    pub(crate) fn values_of(&self, found: Lookups) -> Result<Vec<Option<Bytes>>> {
        found.into_values().map_err(|e| e.in_table(|| self.name()))
    }
}

impl Snapshot {
    /// Brings to this machine what look-ups of keys need of an object store.
    pub(super) fn bring<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<()> {
        let missing = || self.read(table, |view, at| read::missing(view, keys, at.lsn));
        read::bring(&self.shared.cache, missing)
    }

    /// As [`Snapshot::get`], of a table that is far.
    pub(super) fn get_far(&self, table: &Table, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.multi_get_far(table, &[key])?.pop().flatten())
    }

    /// As [`Snapshot::multi_get`].
    pub(super) fn multi_get_far<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: &[K],
    ) -> Result<Vec<Option<Bytes>>> {
        let mut values = Vec::with_capacity(keys.len());
        for some in table.side_by_side(keys) {
            self.bring(table, some)?;
            let found = self.read(table, |view, at| read::find_many(view, some, at))?;
            values.extend(table.values_of(found)?);
        }
        Ok(values)
    }
}
