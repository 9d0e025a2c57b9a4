//! Look-ups in a table, as of now or of a snapshot.
//!
//! Where cold levels lie in an object store, what a look-up needs of it comes first, while no epoch
//! is pinned: no zone is released before a pinned epoch has passed, so writers would wait for the
//! store too.
//!
//! Then the look-up runs as always, and finds all of that on this machine: it holds the blocks
//! ([`Brought`]). Values that lie apart in objects are read behind it. A look-up holds the space of
//! what it reads then.

use std::cell::Cell;

use bytes::Bytes;

use super::{Shared, TableSlot};
use crate::error::Result;
use crate::extent::Brought;
use crate::mvcc::Registered;
use crate::read::{self, AsOf, AskedParts, LentValue, Lookups, MissingParts};
use crate::view::PinnedView;

/// What look-ups of one table go through.
#[derive(Clone, Copy)]
pub(crate) struct TableReader<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) slot: &'a TableSlot,
    /// `None` reads as of now.
    pub(crate) snapshot: Option<&'a Registered>,
}

impl TableReader<'_> {
    /// Runs `f` with the view of this moment; again as long as the table is truncated meanwhile,
    /// which ends the reads of a snapshot.
    #[inline]
    pub(crate) fn read<T>(self, f: impl Fn(PinnedView<'_>, AsOf) -> Result<T>) -> Result<T> {
        self.shared.with_table(self.slot, |core| {
            if let Some(snapshot) = self.snapshot {
                // The table of this moment came first: emptied after that, it fails by itself.
                self.slot.check_not_emptied_since(snapshot.lsn())?;
            }
            self.shared.read(core, self.snapshot, &f)
        })
    }

    /// The value of `key`.
    pub(super) fn get(self, key: &[u8]) -> Result<Option<Bytes>> {
        let near = self.read(|view, at| read::near(view, || read::get(view, key, at)))?;
        near.map_or_else(|| Ok(self.multi_get_far(&[key])?.pop().flatten()), Ok)
    }

    /// Whether there is `key`.
    pub(super) fn contains_key(self, key: &[u8]) -> Result<bool> {
        let contains = |view: PinnedView<'_>, at| read::contains(view, key, at);
        let near = self.read(|view, at| read::near(view, || contains(view, at)))?;
        if let Some(near) = near {
            return Ok(near);
        }
        let _brought = self.bring(&[key])?;
        self.read(contains)
    }

    /// What `f` makes of the value of `key`, which it is lent where it lies.
    pub(super) fn get_with<T>(self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        // The table may turn out to be emptied, and is looked into again then. `f` has not run.
        let f = Cell::new(Some(f));
        let make = |value: &[u8]| f.take().map(|f| f(value));
        let near = self.read(|view, at| read::near(view, || read::lend(view, (key, at), make)))?;
        if let Some(near) = near {
            debug_assert!(!matches!(near, Some(None)), "a value is lent once");
            return Ok(near.flatten());
        }
        let _brought = self.bring(&[key])?;
        match self.read(|view, at| read::lend_near(view, (key, at), make))? {
            LentValue::Made(made) => Ok(made.flatten()),
            LentValue::Found(found) => {
                let mut one = Lookups::with_capacity(1);
                one.add(Some(found));
                let value = self.values_of(one)?.pop().flatten();
                Ok(value.and_then(|value| make(&value)))
            }
        }
    }

    /// The values of some keys, all as of one moment.
    pub(super) fn multi_get<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        // No epoch stays pinned over many keys: it would hold back space in every database.
        if self.snapshot.is_some() || read::together(keys).nth(1).is_some() {
            return self.multi_get_far(keys);
        }
        let near = self.read(|view, at| read::near(view, || read::find_many(view, keys, at)))?;
        near.map_or_else(|| self.multi_get_far(keys), |found| self.values_of(found))
    }

    /// The same of a table that is far, or of many keys.
    pub(crate) fn multi_get_far<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        if self.snapshot.is_some() || self.side_by_side(keys).nth(1).is_none() {
            return self.some_at_a_time(keys);
        }
        loop {
            // All of them are as of one moment, with no truncation after it.
            let now = self.shared.snapshots.register();
            match (TableReader { snapshot: Some(&now), ..self }).some_at_a_time(keys) {
                Err(e) if e.is_truncated() => {}
                done => return done,
            }
        }
    }

    /// The values of keys, of as many at a time as ask side by side.
    fn some_at_a_time<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let mut values = Vec::with_capacity(keys.len());
        for all in read::together(keys) {
            let mut asked = self.ask_ahead(all)?;
            for some in self.side_by_side(all) {
                let _brought = self.bring_beside(some, &mut asked)?;
                values.extend(
                    self.values_of(self.read(|view, at| read::find_many(view, some, at))?)?,
                );
            }
        }
        Ok(values)
    }

    /// The values of look-ups, of which those that are far are read now.
    pub(crate) fn values_of(self, found: Lookups) -> Result<Vec<Option<Bytes>>> {
        found.into_values().map_err(|e| e.in_table(|| self.slot.core().name()))
    }

    /// Whether a look-up may need something of an object store.
    pub(crate) fn is_far(self) -> Result<bool> {
        // Without an object store nothing is far.
        Ok(self.has_objects() && self.read(|view, _| Ok(view.is_far))?)
    }

    fn has_objects(self) -> bool {
        self.shared.set.store().objects().is_some()
    }

    /// Brings to this machine what look-ups of keys need of an object store.
    pub(crate) fn bring<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Brought> {
        self.bring_beside(keys, &mut AskedParts::default())
    }

    /// The same, beside what was asked for before.
    pub(crate) fn bring_beside<K: AsRef<[u8]>>(
        self,
        keys: &[K],
        before: &mut AskedParts,
    ) -> Result<Brought> {
        if !self.has_objects() {
            return Ok(Brought::default());
        }
        read::bring(&self.shared.cache, before, || self.missing(keys))
    }

    /// Asks for what look-ups of all of these keys need, if they are looked up some at a time.
    pub(crate) fn ask_ahead<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<AskedParts> {
        let are_some_later = self.side_by_side(keys).nth(1).is_some();
        if !are_some_later || !self.has_objects() {
            return Ok(AskedParts::default());
        }
        read::ask_ahead(&self.shared.cache, self.missing(keys)?)
    }

    fn missing<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<MissingParts> {
        self.read(|view, at| read::missing(view, keys, at.lsn))
    }

    /// As many keys at a time as have room in the cache for their blocks.
    pub(crate) fn side_by_side<'k, K>(
        self,
        keys: &'k [K],
    ) -> impl Iterator<Item = &'k [K]> + use<'k, K> {
        read::side_by_side(keys, (&self.shared.cache, self.slot.block_size()))
    }
}
