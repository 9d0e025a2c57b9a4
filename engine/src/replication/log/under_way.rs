//! Pieces of data that are read or sent side by side, and entries of the log that are read ahead.
//!
//! Thread safety: none of its own; each is one job's.

use std::sync::Arc;

use super::entry::Entry;
use super::names::entry_name;
use super::shared_log::{NextEntry, SharedLog};
use crate::error::Result;
use crate::memory::Gauge;
use crate::tier::{FailureKind, ObjectRead, ObjectSpan, Sends, Transfers};

/// What an entry is taken for, of which the length is not known: a full segment.
const ENTRY_BYTES: u64 = 4 << 20;

impl SharedLog {
    /// What a job sends pieces of data with, within what it may have under way.
    pub(crate) fn sends<K>(&self, within: (&Arc<Gauge>, u64)) -> Sends<K> {
        Sends::new(&self.client, within)
    }

    /// Reads pieces of data, of which the names and lengths are `wanted`, and hands each to `take`
    /// in their order.
    ///
    /// # Errors
    ///
    /// `Corrupt` if one is gone or has another length; `Unavailable` if the store does not answer.
    /// The message names the object. Those of `take`.
    pub(crate) fn fetch_data(
        &self,
        wanted: impl IntoIterator<Item = (String, u32)>,
        mut take: impl FnMut(Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut under_way = Transfers::default();
        let mut take_oldest =
            |under_way: &mut Transfers<(String, u32, ObjectRead)>| -> Result<bool> {
                let Some((name, len, request)) = under_way.oldest() else { return Ok(false) };
                let got = self.client.told("read", &name, request.finish(&self.client))?;
                if got.bytes.len() != len as usize {
                    return Err(self.damage(&name, format!("{len} bytes")));
                }
                take(got.bytes).map(|()| true)
            };
        for (name, len) in wanted {
            while !under_way.has_room_for(u64::from(len)) {
                take_oldest(&mut under_way)?;
            }
            let request = self.client.begin_get(&name, ObjectSpan::Whole);
            under_way.add(u64::from(len), (name, len, request));
        }
        while take_oldest(&mut under_way)? {}
        Ok(())
    }
}

/// Entries that are read ahead, up to an end of the log.
#[derive(Debug)]
pub(crate) struct EntryReads<'a> {
    log: &'a SharedLog,
    /// The number of the next one that is begun.
    next: u64,
    end: u64,
    under_way: Transfers<(u64, ObjectRead)>,
}

impl<'a> EntryReads<'a> {
    /// Entries from `first` on, below `end`: they are there already.
    pub(crate) fn new(log: &'a SharedLog, first: u64, end: u64) -> EntryReads<'a> {
        EntryReads { log, next: first, end, under_way: Transfers::default() }
    }

    /// The next entry, whose number is `number`; [`NextEntry::Deleted`] where the log has left it
    /// behind.
    ///
    /// # Errors
    ///
    /// As [`SharedLog::entry`].
    pub(crate) fn next(&mut self, number: u64) -> Result<NextEntry> {
        while self.next < self.end && self.under_way.has_room_for(ENTRY_BYTES) {
            let read = self.log.client.begin_get(&entry_name(self.next), ObjectSpan::Whole);
            self.under_way.add(ENTRY_BYTES, (self.next, read));
            self.next += 1;
        }
        let Some((found, read)) = self.under_way.oldest() else { return Ok(NextEntry::Absent) };
        debug_assert_eq!(found, number, "entries are read in their order");
        let entry = match read.finish(&self.log.client) {
            Err(failure) if failure.kind == FailureKind::Missing => None,
            got => {
                let got = self.log.client.told("read", &entry_name(number), got)?;
                let entry = Entry::decode(&got.bytes, number);
                Some(entry.map_err(|refused| self.log.refuse(number, refused))?)
            }
        };
        self.log.judge(number, entry, true)
    }
}
