//! Walks over the records of level 0.

use super::versions::{Position, Versions};
use crate::error::Result;
use crate::memtable::{Record, record_at};
use crate::mvcc::DrainedMap;
use crate::pm::Region;
use crate::record::{Cursor, EntryRef, Lsn, SeparatedValue};

/// A position among the records that an index leads to.
pub(super) struct Walk<'a, P> {
    region: &'a Region,
    /// Decoded once a step: a merge looks at it several times.
    record: Option<(u64, Record<'a>)>,
    position: P,
}

impl<'a, P: Position> Walk<'a, P> {
    /// One over `index`, nowhere at first.
    pub(super) fn new<I: Versions<Cursor<'a> = P>>(region: &'a Region, index: &'a I) -> Self {
        Walk { region, record: None, position: index.cursor() }
    }

    /// Whether it is at a version at or behind (`key`, `seq`), or at the end.
    fn is_at_or_behind(&self, key: &[u8], seq: Lsn) -> bool {
        let is = |record: &Record<'_>| record.key > key || record.key == key && record.seq <= seq;
        self.record.as_ref().is_none_or(|(_, record)| is(record))
    }

    fn look(&mut self) {
        self.record = self.position.version().map(|(_, at)| (at, record_at(self.region, at)));
    }

    /// To the first record at or after (`key`, `seq`).
    pub(super) fn place(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.position.seek(key, seq)?;
        self.look();
        debug_assert!(self.is_at_or_behind(key, seq), "a search lands at or behind its key");
        Ok(())
    }

    /// To the last record of a key smaller than `key`; of all keys without one.
    fn place_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.position.seek_before(key)?;
        self.look();
        debug_assert!(
            key.is_none_or(|key| self.record.is_none_or(|(_, record)| record.key < key)),
            "a search backwards lands before its key"
        );
        Ok(())
    }

    /// To the following record.
    pub(super) fn step(&mut self) -> Result<()> {
        self.position.next()?;
        self.look();
        Ok(())
    }

    fn step_back(&mut self) -> Result<()> {
        self.position.prev()?;
        self.look();
        Ok(())
    }

    /// The record here, with its offset.
    pub(super) fn record(&self) -> Option<(u64, Record<'a>)> {
        self.record
    }
}

/// A walk that leaves out what D covers.
pub(super) struct Undrained<'a, P> {
    pub(super) walk: Walk<'a, P>,
    pub(super) drained: &'a DrainedMap,
}

impl<P: Position> Undrained<'_, P> {
    fn covered(&self) -> bool {
        self.walk.record().is_some_and(|(_, r)| r.seq <= self.drained.get(r.key))
    }

    fn skip_forward(&mut self) -> Result<()> {
        while self.covered() {
            self.walk.step()?;
        }
        Ok(())
    }

    fn skip_back(&mut self) -> Result<()> {
        while self.covered() {
            self.walk.step_back()?;
        }
        Ok(())
    }
}

impl<P: Position> Cursor for Undrained<'_, P> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.walk.place(key, seq)?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.walk.place_before(key)?;
        self.skip_back()
    }

    fn next(&mut self) -> Result<()> {
        self.walk.step()?;
        self.skip_forward()
    }

    fn prev(&mut self) -> Result<()> {
        self.walk.step_back()?;
        self.skip_back()
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.walk.record().map(|(_, record)| record.entry())
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        Ok(None)
    }
}
