//! Requests that are under way side by side: pieces of data that are read or sent, and entries of
//! the log that are read ahead.
//!
//! A request to a bucket takes tens of milliseconds, however little it carries, and one connection
//! carries a part of what the network does. So a few requests are begun before the answer of the
//! first one is waited for. Answers are taken in the order in which the requests were begun.
//!
//! Thread safety: none of its own; each is one job's.
//!
//! Invariants:
//!
//! 1. At most `MOST` requests are under way, with at most `MOST_BYTES` in all; one alone may have
//!    more.
//! 2. A piece counts as sent only once [`DataSends::finish`] has its answer.

use std::collections::VecDeque;

use super::entry::Entry;
use super::log::{NextEntry, SharedLog, entry_name};
use crate::error::Result;
use crate::tier::{FailureKind, ObjectRead, ObjectSpan, ObjectWrite};

/// So many requests at a time.
const MOST: usize = 8;

/// So many bytes of them.
const MOST_BYTES: u64 = 32 << 20;

/// What an entry is taken for, of which the length is not known: a full segment.
const ENTRY_BYTES: u64 = 4 << 20;

/// Requests that were begun, the oldest first.
#[derive(Debug)]
struct UnderWay<T> {
    begun: VecDeque<(u64, T)>,
    bytes: u64,
}

impl<T> Default for UnderWay<T> {
    fn default() -> UnderWay<T> {
        UnderWay { begun: VecDeque::new(), bytes: 0 }
    }
}

impl<T> UnderWay<T> {
    /// Whether one of `len` bytes may begin now.
    fn has_room_for(&self, len: u64) -> bool {
        let fits = self.begun.len() < MOST && self.bytes + len <= MOST_BYTES;
        fits || self.begun.is_empty()
    }

    fn add(&mut self, len: u64, request: T) {
        debug_assert!(self.has_room_for(len), "requests have a bound (invariant 1)");
        self.begun.push_back((len, request));
        self.bytes += len;
    }

    /// The oldest one, whose answer comes next.
    fn oldest(&mut self) -> Option<T> {
        let (len, request) = self.begun.pop_front()?;
        self.bytes -= len;
        Some(request)
    }
}

/// A piece on its way to the store.
#[derive(Debug)]
struct SendingPiece<K> {
    piece: K,
    name: String,
    bytes: Vec<u8>,
    request: ObjectWrite,
}

/// Pieces of data on their way to the store.
#[derive(Debug)]
pub(crate) struct DataSends<'a, K> {
    log: &'a SharedLog,
    under_way: UnderWay<SendingPiece<K>>,
    /// Those of which the request failed.
    failed: Vec<K>,
}

impl<'a, K> DataSends<'a, K> {
    pub(crate) fn new(log: &'a SharedLog) -> DataSends<'a, K> {
        DataSends { log, under_way: UnderWay::default(), failed: Vec::new() }
    }

    /// Begins to send a piece, under a name that is used once. It may wait for earlier ones.
    ///
    /// # Errors
    ///
    /// As [`DataSends::finish`], of an earlier piece; this one is not begun then.
    pub(crate) fn send(&mut self, piece: K, name: String, bytes: Vec<u8>) -> Result<()> {
        let len = bytes.len() as u64;
        while !self.under_way.has_room_for(len) {
            self.finish_oldest()?;
        }
        let request = self.log.client.begin_put(&name, &bytes);
        self.under_way.add(len, SendingPiece { piece, name, bytes, request });
        Ok(())
    }

    /// Waits until the store has all of them.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer; the message names the object.
    pub(crate) fn finish(&mut self) -> Result<()> {
        while !self.under_way.begun.is_empty() {
            self.finish_oldest()?;
        }
        Ok(())
    }

    fn finish_oldest(&mut self) -> Result<()> {
        let Some(SendingPiece { piece, name, bytes, request }) = self.under_way.oldest() else {
            return Ok(());
        };
        let sent = request.finish(&self.log.client, &bytes);
        let told = self.log.client.told("write", &name, sent);
        if told.is_err() {
            self.failed.push(piece);
        }
        told
    }

    /// Ends sending: the pieces that the store may lack.
    pub(crate) fn into_unsent(self) -> impl Iterator<Item = K> {
        let begun = self.under_way.begun.into_iter().map(|(_, sending)| sending.piece);
        self.failed.into_iter().chain(begun)
    }
}

impl SharedLog {
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
        let mut under_way = UnderWay::default();
        let mut take_oldest =
            |under_way: &mut UnderWay<(String, u32, ObjectRead)>| -> Result<bool> {
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
    under_way: UnderWay<(u64, ObjectRead)>,
}

impl<'a> EntryReads<'a> {
    /// Entries from `first` on, below `end`: they are there already.
    pub(crate) fn new(log: &'a SharedLog, first: u64, end: u64) -> EntryReads<'a> {
        EntryReads { log, next: first, end, under_way: UnderWay::default() }
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
