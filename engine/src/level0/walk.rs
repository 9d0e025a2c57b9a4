//! Walks over the records of level 0.

use super::versions::{Position, Versions};
use crate::error::Result;
use crate::memtable::{Record, record_at};
use crate::pm::Region;
use crate::record::{Cursor, EntryRef, Lsn, SeparatedValue};

/// A position among the records that an index leads to.
pub(super) struct Walk<'a> {
    region: &'a Region,
    /// Decoded once a step: a merge looks at it several times.
    record: Option<(u64, Record<'a>)>,
    position: Position<'a>,
}

impl<'a> Walk<'a> {
    /// One over `index`, nowhere at first.
    pub(super) fn new(region: &'a Region, index: &'a Versions) -> Walk<'a> {
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

    /// The record here, with its offset.
    pub(super) fn record(&self) -> Option<(u64, Record<'a>)> {
        self.record
    }
}

impl Cursor for Walk<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.position.seek(key, seq)?;
        self.look();
        debug_assert!(self.is_at_or_behind(key, seq), "a search lands at or behind its key");
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.position.seek_before(key)?;
        self.look();
        debug_assert!(
            key.is_none_or(|key| self.record.is_none_or(|(_, record)| record.key < key)),
            "a search backwards lands before its key"
        );
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.position.next()?;
        self.look();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.position.prev()?;
        self.look();
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.record.as_ref().map(|(_, record)| record.entry())
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        Ok(None)
    }
}
