//! Versions of records that lie in another region, in persistent memory: what the memtable's index
//! is, and there again after a restart without being rebuilt.
//!
//! An entry is the first eight bytes of a key and the offset of a record; key and sequence number
//! are read from the record. Entries are in the order of versions: by key, the newest first.
//!
//! What the owner sees to:
//!
//! 1. A record is durable before it is inserted, and only what no power cut can undo is.
//! 2. The memory of a record is used again only after `remove` or `relocate` has returned, by which
//!    the tree has durably forgotten it, and when no epoch from before is left.
//! 3. What was under way when the power was cut is there or not; doing it again changes nothing.
//! 4. Every call that names keys, and every cursor, has an epoch pinned.

use super::keys::{Keys, Place, Unread};
use super::node::Slot;
use super::tree::{Chunk, Tree};
use crate::base::error::Result;
use crate::base::record::{LSN_MAX, Lsn};
use crate::memtable::Records as _;

impl Tree {
    fn records(&self) -> &Unread {
        &self.nodes.keys.records
    }

    /// Makes the record at `at` findable, durably; whether it was not yet.
    pub(crate) fn insert(&self, key: &[u8], seq: Lsn, at: u64) -> Result<bool> {
        let before = self.put(Place::at(key, seq), Keys::slot(key, at))?;
        self.records().sound()?;
        debug_assert!(before.is_none_or(|before| before.id == at), "a version has one record");
        Ok(before.is_none())
    }

    /// Takes a version out, durably; where its record was.
    pub(crate) fn remove(&self, key: &[u8], seq: Lsn) -> Result<Option<u64>> {
        let removed = self.delete(Place::at(key, seq))?;
        self.records().sound()?;
        Ok(removed.map(|slot| slot.id))
    }

    /// Has a version be found at `to` instead of `from`, durably; whether it was there.
    pub(crate) fn relocate(&self, key: &[u8], seq: Lsn, from: u64, to: u64) -> Result<bool> {
        let is_there = self.update(Place::at(key, seq), Keys::slot(key, to), from)?;
        self.records().sound()?;
        Ok(is_there)
    }

    /// The newest version of `key` that is not newer than `at_most`: sequence number and offset.
    pub(crate) fn get(&self, key: &[u8], at_most: Lsn) -> Result<Option<(Lsn, u64)>> {
        let mut cursor = self.cursor();
        cursor.seek(key, at_most)?;
        let found = cursor.version().filter(|(_, at)| self.records().locate(*at).0 == key);
        Ok(found)
    }

    /// An offset that some version has and `leads` does not take for that of its record, if there
    /// is one; `leads` gets the first eight bytes of the version's key too.
    pub(crate) fn wrong_offset(&self, leads: &dyn Fn(u64, u64) -> bool) -> Result<Option<u64>> {
        let mut chunk = self.chunk(Place::at(&[], LSN_MAX))?;
        loop {
            if let Some(slot) = chunk.slots.iter().find(|slot| !leads(slot.id, slot.other)) {
                return Ok(Some(slot.id));
            }
            if chunk.high == 0 {
                return Ok(None);
            }
            chunk = self.chunk(self.nodes.keys.sought(chunk.high))?;
        }
    }

    /// A cursor over all versions, nowhere at first.
    pub(crate) fn cursor(&self) -> VersionCursor<'_> {
        VersionCursor { tree: self, chunk: None, at: 0 }
    }
}

/// A position among versions. It reads a leaf at a time, as it is then.
#[derive(Debug)]
pub(crate) struct VersionCursor<'t> {
    tree: &'t Tree,
    /// The leaf, with at least one version.
    chunk: Option<Chunk>,
    at: usize,
}

impl VersionCursor<'_> {
    /// The version here: sequence number and offset.
    pub(crate) fn version(&self) -> Option<(Lsn, u64)> {
        let slot = self.chunk.as_ref()?.slots[self.at];
        Some((self.tree.nodes.keys.records.locate(slot.id).1, slot.id))
    }

    /// Whether what led here, and the record that is here, can be believed.
    fn arrive(&self) -> Result<()> {
        let records = &self.tree.nodes.keys.records;
        match &self.chunk {
            Some(chunk) => records.check(chunk.slots[self.at].id),
            None => records.sound(),
        }
    }

    /// Goes to the first version at or behind (`key`, `seq`).
    pub(crate) fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.forward_from(Place::at(key, seq))?;
        self.arrive()
    }

    /// Goes to the last version before all of `key`; without one, to the last of all.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let end = Place::end();
        self.back_from(key.map_or(end, |key| Place::at(key, LSN_MAX).before()))?;
        self.arrive()
    }

    /// Goes to the next version.
    pub(crate) fn next(&mut self) -> Result<()> {
        let Some(chunk) = &self.chunk else { return Ok(()) };
        if self.at + 1 < chunk.slots.len() {
            self.at += 1;
            return self.arrive();
        }
        match chunk.high {
            0 => self.chunk = None,
            high => self.forward_from(self.tree.nodes.keys.sought(high))?,
        }
        self.arrive()
    }

    /// Goes to the version before.
    pub(crate) fn prev(&mut self) -> Result<()> {
        let Some(chunk) = &self.chunk else { return Ok(()) };
        if self.at > 0 {
            self.at -= 1;
            return self.arrive();
        }
        match chunk.low {
            0 => self.chunk = None,
            low => self.back_from(self.tree.nodes.keys.sought(low).before())?,
        }
        self.arrive()
    }

    fn order(&self, slot: Slot, place: Place<'_>) -> std::cmp::Ordering {
        self.tree.nodes.keys.seek_leaf(slot, place)
    }

    /// The first version not before a place, in its leaf or one behind.
    fn forward_from(&mut self, place: Place<'_>) -> Result<()> {
        let mut chunk = self.tree.chunk(place)?;
        loop {
            self.at = chunk.slots.partition_point(|slot| self.order(*slot, place).is_lt());
            if self.at < chunk.slots.len() {
                self.chunk = Some(chunk);
                return Ok(());
            }
            if chunk.high == 0 {
                self.chunk = None;
                return Ok(());
            }
            chunk = self.tree.chunk(self.tree.nodes.keys.sought(chunk.high))?;
        }
    }

    /// The last version before a place, in its leaf or one before.
    fn back_from(&mut self, place: Place<'_>) -> Result<()> {
        let mut chunk = self.tree.chunk(place)?;
        loop {
            let before = chunk.slots.partition_point(|slot| self.order(*slot, place).is_lt());
            if before > 0 {
                self.at = before - 1;
                self.chunk = Some(chunk);
                return Ok(());
            }
            if chunk.low == 0 {
                self.chunk = None;
                return Ok(());
            }
            chunk = self.tree.chunk(self.tree.nodes.keys.sought(chunk.low).before())?;
        }
    }
}
