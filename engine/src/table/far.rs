//! Look-ups in tables whose cold levels lie in an object store. What they need of it comes first,
//! while no epoch is pinned: no zone is released before a pinned epoch has passed, so writers would
//! wait for the store too.
//!
//! Then the look-up runs as always, and finds all of that on this machine: it holds the blocks
//! ([`Brought`]). Values that lie apart in
//! objects are read behind it. A look-up holds the space of what it reads then.

use std::cell::Cell;

use bytes::Bytes;

use super::{Shared, Snapshot, Table, TableSlot};
use crate::error::Result;
use crate::extent::Brought;
use crate::mvcc::Registered;
use crate::read::{self, AskedParts, LentValue, Lookups, MissingParts};

impl Shared {
    /// Whether a look-up in a table may need something of an object store.
    pub(crate) fn is_far(&self, slot: &TableSlot) -> Result<bool> {
        // Without an object store nothing is far.
        if self.set.store().objects().is_none() {
            return Ok(false);
        }
        self.with_table(slot, |core| self.read(core, None, |view, _| Ok(view.is_far)))
    }

    /// Brings to this machine what look-ups of keys of a table, as of a snapshot or of now, need of
    /// an object store.
    pub(super) fn bring<K: AsRef<[u8]>>(
        &self,
        slot: &TableSlot,
        keys: &[K],
        snapshot: Option<&Registered>,
    ) -> Result<Brought> {
        self.bring_beside(slot, keys, snapshot, &mut AskedParts::default())
    }

    /// The same, beside what was asked for before.
    fn bring_beside<K: AsRef<[u8]>>(
        &self,
        slot: &TableSlot,
        keys: &[K],
        snapshot: Option<&Registered>,
        before: &mut AskedParts,
    ) -> Result<Brought> {
        if self.set.store().objects().is_none() {
            return Ok(Brought::default());
        }
        read::bring(&self.cache, before, || self.missing(slot, keys, snapshot))
    }

    /// Asks for what look-ups of all of these keys need, if they are looked up some at a time.
    pub(super) fn ask_ahead<K: AsRef<[u8]>>(
        &self,
        slot: &TableSlot,
        keys: &[K],
        snapshot: Option<&Registered>,
    ) -> Result<AskedParts> {
        let are_some_later = self.side_by_side(slot, keys).nth(1).is_some();
        if !are_some_later || self.set.store().objects().is_none() {
            return Ok(AskedParts::default());
        }
        read::ask_ahead(&self.cache, self.missing(slot, keys, snapshot)?)
    }

    fn missing<K: AsRef<[u8]>>(
        &self,
        slot: &TableSlot,
        keys: &[K],
        snapshot: Option<&Registered>,
    ) -> Result<MissingParts> {
        self.with_table(slot, |core| {
            self.read(core, snapshot, |view, at| read::missing(view, keys, at.lsn))
        })
    }

    /// As many keys at a time as have room in the cache for their blocks.
    pub(super) fn side_by_side<'a, K>(
        &self,
        slot: &TableSlot,
        keys: &'a [K],
    ) -> impl Iterator<Item = &'a [K]> + use<'a, K> {
        read::side_by_side(keys, (&self.cache, slot.block_size()))
    }

    /// The values of some keys of a table that is far, as of a snapshot or of one moment.
    pub(crate) fn multi_get_far<K: AsRef<[u8]>>(
        &self,
        slot: &TableSlot,
        keys: &[K],
        snapshot: Option<&Registered>,
    ) -> Result<Vec<Option<Bytes>>> {
        if let Some(snapshot) = snapshot {
            let values = self.some_at_a_time(slot, keys, Some(snapshot))?;
            return slot.check_not_emptied_since(snapshot.lsn()).map(|()| values);
        }
        if self.side_by_side(slot, keys).nth(1).is_none() {
            return self.some_at_a_time(slot, keys, None);
        }
        loop {
            // All of them are as of one moment, with no truncation after it.
            let now = self.snapshots.register();
            let values = self.some_at_a_time(slot, keys, Some(&now))?;
            if slot.check_not_emptied_since(now.lsn()).is_ok() {
                return Ok(values);
            }
        }
    }

    /// The values of keys, of as many at a time as ask side by side.
    fn some_at_a_time<K: AsRef<[u8]>>(
        &self,
        slot: &TableSlot,
        keys: &[K],
        snapshot: Option<&Registered>,
    ) -> Result<Vec<Option<Bytes>>> {
        let mut values = Vec::with_capacity(keys.len());
        for all in read::together(keys) {
            let mut asked = self.ask_ahead(slot, all, snapshot)?;
            for some in self.side_by_side(slot, all) {
                let _brought = self.bring_beside(slot, some, snapshot, &mut asked)?;
                let found = self.with_table(slot, |core| {
                    self.read(core, snapshot, |view, at| read::find_many(view, some, at))
                })?;
                values.extend(found.into_values().map_err(|e| e.in_table(|| slot.core().name()))?);
            }
        }
        Ok(values)
    }
}

impl Table {
    /// Brings to this machine what look-ups of keys need of an object store.
    pub(crate) fn bring<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Brought> {
        self.shared.bring(&self.slot, keys, None)
    }

    /// The same, beside what was asked for before.
    pub(crate) fn bring_beside<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        before: &mut AskedParts,
    ) -> Result<Brought> {
        self.shared.bring_beside(&self.slot, keys, None, before)
    }

    /// Asks for what look-ups of all of these keys need, if they are looked up some at a time.
    pub(crate) fn ask_ahead<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<AskedParts> {
        self.shared.ask_ahead(&self.slot, keys, None)
    }

    /// Whether a look-up of a key may need something of an object store.
    pub(crate) fn is_far(&self) -> Result<bool> {
        self.shared.is_far(&self.slot)
    }

    /// As [`Table::get`], of a table that is far.
    pub(super) fn get_far(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.multi_get_far(&[key])?.pop().flatten())
    }

    /// As [`Table::multi_get`], of a table that is far.
    pub(super) fn multi_get_far<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        self.shared.multi_get_far(&self.slot, keys, None)
    }

    /// The values of look-ups, of which those that are far are read now.
    pub(crate) fn values_of(&self, found: Lookups) -> Result<Vec<Option<Bytes>>> {
        found.into_values().map_err(|e| e.in_table(|| self.name()))
    }

    /// What `f` makes of what a look-up found. Of a value that is far it is read now.
    pub(super) fn made_of<T>(
        &self,
        found: LentValue<T>,
        f: &Cell<Option<impl FnOnce(&[u8]) -> T>>,
    ) -> Result<Option<T>> {
        let found = match found {
            LentValue::Made(made) => return Ok(made),
            LentValue::Found(found) => found,
        };
        let mut one = Lookups::with_capacity(1);
        one.add(Some(found));
        let value = self.values_of(one)?.pop().flatten();
        Ok(value.zip(f.take()).map(|(value, f)| f(&value)))
    }
}

impl Snapshot {
    /// Brings to this machine what look-ups of keys need of an object store.
    pub(super) fn bring<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<Brought> {
        let before = &mut AskedParts::default();
        read::bring(&self.shared.cache, before, || self.missing(table, keys))
    }

    fn missing<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<MissingParts> {
        self.read(table, |view, at| read::missing(view, keys, at.lsn))
    }

    /// Asks for what look-ups of all of these keys need, if they are looked up some at a time.
    fn ask_ahead<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<AskedParts> {
        if table.side_by_side(keys).nth(1).is_none() {
            return Ok(AskedParts::default());
        }
        read::ask_ahead(&self.shared.cache, self.missing(table, keys)?)
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
        for all in read::together(keys) {
            let mut asked = self.ask_ahead(table, all)?;
            for some in table.side_by_side(all) {
                let missing = || self.missing(table, some);
                let _brought = read::bring(&self.shared.cache, &mut asked, missing)?;
                let found = self.read(table, |view, at| read::find_many(view, some, at))?;
                values.extend(table.values_of(found)?);
            }
        }
        Ok(values)
    }
}
