//! The log in the object store: how entries are read, found and claimed. Its **head** says where a
//! search begins, and which entries are still kept. The head only moves up.
//!
//! Thread safety: any thread may call any method.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::entry::{Entry, EntryBody, EntryHeader, EntryKind, EntryRefused, HEADER_LEN, LogClaim};
use crate::backup::object_damage;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::memory::Gauge;
use crate::base::record::{Lsn, Reader, Sealable, other_format, put_u64};
use crate::storage::{
    FailureKind, MOST_SENT, ObjectClient, ObjectInfo, ObjectRead, ObjectSpan, ObjectTag, PutWhen,
    RequestFailure, SHARED_DATA, Transfers, shared_name,
};

pub(super) const HEAD: &str = "shared/head";

/// What an entry is taken for, of which no list has told the length: a full segment.
const ENTRY_BYTES: u64 = 4 << 20;

/// A list shows so many objects at most.
pub(super) const PAGE: usize = 1000;

/// So many small objects are read at once.
pub(crate) const READS_AT_ONCE: usize = 16;

const HEADER: ObjectSpan = ObjectSpan::Bytes { offset: 0, len: HEADER_LEN as u64 };

/// How often a put is looked at again whose object comes and goes.
pub(super) const TRIES: u32 = 8;

/// The log of a shared database.
#[derive(Debug)]
pub(crate) struct SharedLog {
    /// What asks the store. Once it is stopped, the log is closed.
    pub(crate) client: Arc<ObjectClient>,
    /// Whether a search's end counts without a look at the head: a planted bug.
    pub(super) trusts_searches: bool,
}

/// What became of an entry that was to be appended.
#[derive(Debug)]
pub(crate) enum Appended {
    /// It is there.
    Done,
    /// There is another one.
    Taken,
}

/// What a reader of the log finds where its next entry is to be.
#[derive(Debug)]
pub(crate) enum NextEntry {
    There(Entry),
    /// Nothing, as far as was asked.
    Absent,
    /// The log has left it behind: a collector has deleted it. A claim may lie in its hole.
    Deleted,
}

/// What the head says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogHead {
    /// Entries from here on are kept; below it only claims are. 1 as long as there is no head.
    pub(crate) oldest: u64,
    /// A checkpoint that is kept.
    pub(crate) checkpoint: u64,
    /// A collection has gone through what lies below it, and left claims alone.
    pub(crate) cleaned: u64,
}

impl Sealable for LogHead {
    const MAGIC: &'static [u8; 8] = b"TERRHEAD";
    const WHAT: &'static str = "head of the log";

    fn encode_rest(&self, out: &mut Vec<u8>) {
        [self.oldest, self.checkpoint, self.cleaned]
            .into_iter()
            .for_each(|number| put_u64(out, number));
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Option<LogHead> {
        let (oldest, checkpoint, cleaned) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let is_sound = (1..=checkpoint).contains(&oldest) && cleaned <= oldest;
        is_sound.then_some(LogHead { oldest, checkpoint, cleaned })
    }
}

impl SharedLog {
    pub(crate) fn new(client: Arc<ObjectClient>, trusts_searches: bool) -> SharedLog {
        SharedLog { client, trusts_searches }
    }

    /// Where it is, for messages.
    pub(crate) fn address(&self) -> String {
        self.client.address()
    }

    /// Whether work of several requests may go on.
    ///
    /// # Errors
    ///
    /// `Closed` once it is stopped.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.client.is_stopped() { Err(Error::closed()) } else { Ok(()) }
    }

    /// The head, with its tag; that of an empty log if there is none.
    pub(crate) fn head(&self) -> Result<(LogHead, Option<ObjectTag>)> {
        let found = self.client.read_register(HEAD)?;
        let empty = (LogHead { oldest: 1, ..LogHead::default() }, None);
        Ok(found.map_or(empty, |found| (found.value, Some(found.tag))))
    }

    /// Moves the head up; whether it is there or further now.
    pub(crate) fn raise_head(&self, to: LogHead) -> Result<bool> {
        for _ in 0..TRIES {
            let (head, tag) = self.head()?;
            let to = LogHead {
                oldest: to.oldest.max(head.oldest),
                checkpoint: to.checkpoint.max(head.checkpoint),
                cleaned: to.cleaned.max(head.cleaned),
            };
            if head == to {
                return Ok(true);
            }
            // If it has changed, then by another writer, or by an attempt of this one.
            if self.client.replace_register(HEAD, &to, tag)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The header of an entry, if there is one.
    pub(crate) fn header(&self, number: u64) -> Result<Option<EntryHeader>> {
        self.finish_header(number, self.client.begin_get(&entry_name(number), HEADER))
    }

    /// An entry, if there is one.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is damaged, `Invalid` if it is of another format; `Unavailable` if the
    /// store does not answer.
    pub(crate) fn entry(&self, number: u64) -> Result<Option<Entry>> {
        let bytes = self.get(number, ObjectSpan::Whole)?;
        let entry = bytes.map(|bytes| Entry::decode(&bytes, number)).transpose();
        entry.map_err(|refused| self.refuse(number, refused))
    }

    /// The claim that entry `number` is, if it is one.
    pub(crate) fn claim(&self, number: u64) -> Result<Option<LogClaim>> {
        Ok(match self.entry(number)?.map(|entry| entry.body) {
            Some(EntryBody::Claim(claim)) => Some(claim),
            _ => None,
        })
    }

    /// The entry that a reader applies next. Where there is none, it asks the head only if it
    /// `looks`.
    pub(crate) fn next_entry(&self, number: u64, looks: bool) -> Result<NextEntry> {
        self.judge(number, self.entry(number)?, looks)
    }

    /// What to make of what lies at a number.
    pub(super) fn judge(
        &self,
        number: u64,
        found: Option<Entry>,
        looks: bool,
    ) -> Result<NextEntry> {
        let is_claim = found.as_ref().is_some_and(|it| matches!(it.body, EntryBody::Claim(_)));
        let asks = is_claim || found.is_none() && looks;
        if asks && self.is_past(number)? {
            return Ok(NextEntry::Deleted);
        }
        // A log ends behind its last entry: a reader of this one has the entry before.
        let before = number.saturating_sub(1).max(1);
        if found.is_none() && looks && self.header(before)?.is_none() && !self.is_past(before)? {
            return Err(self.other(&format!("it has no entry {before}")));
        }
        Ok(found.map_or(NextEntry::Absent, NextEntry::There))
    }

    fn get(&self, number: u64, span: ObjectSpan) -> Result<Option<Vec<u8>>> {
        let name = entry_name(number);
        match self.client.get(&name, span) {
            Ok(got) => Ok(Some(got.bytes)),
            Err(failure) if failure.kind == FailureKind::Missing => Ok(None),
            Err(failure) => Err(self.client.error("read", &name, failure)),
        }
    }

    /// Whether the log has left `number` behind: an object there is no entry of it any more.
    pub(crate) fn is_past(&self, number: u64) -> Result<bool> {
        Ok(self.head()?.0.oldest > number)
    }

    /// Puts an entry where there is none. A repetition of the same bytes is done too.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer: the entry may be there, or may come.
    pub(crate) fn append(&self, number: u64, bytes: &Bytes) -> Result<Appended> {
        let name = entry_name(number);
        for _ in 0..TRIES {
            match self.client.put(&name, bytes, &PutWhen::Absent) {
                Ok(_) => return Ok(Appended::Done),
                Err(failure) if failure.kind == FailureKind::Changed => {}
                Err(failure) => return Err(self.client.error("append", &name, failure)),
            }
            // It may be what an earlier attempt has written.
            match self.get(number, ObjectSpan::Whole)? {
                Some(found) if found == *bytes => return Ok(Appended::Done),
                Some(_) => return Ok(Appended::Taken),
                None => {}
            }
        }
        let failure = RequestFailure::new(FailureKind::Away, "the object comes and goes");
        Err(self.client.error("append", &name, failure))
    }

    /// Reads a piece of data.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is gone; `Unavailable` if the store does not answer.
    pub(crate) fn data(&self, name: &str) -> Result<Vec<u8>> {
        let got = self.client.get(name, ObjectSpan::Whole);
        self.client.told("read", name, got).map(|got| got.bytes)
    }

    /// Deletes objects.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer, `Closed` once the log is stopped; some of them
    /// may be gone.
    pub(crate) fn delete(&self, names: &[String]) -> Result<()> {
        for (n, some) in names.chunks(1000).enumerate() {
            // A closing waits for one request.
            if n > 0 {
                self.check_open()?;
            }
            let deleted = self.client.delete(some);
            self.client.told("delete", &some[0], deleted)?;
        }
        Ok(())
    }

    /// The headers of entries, where they are there and sound.
    pub(crate) fn sound_headers(&self, numbers: &[u64]) -> Result<Vec<Option<EntryHeader>>> {
        let mut found = Vec::with_capacity(numbers.len());
        for some in numbers.chunks(READS_AT_ONCE) {
            self.check_open()?;
            for (number, read) in some.iter().zip(self.begin_headers(some)) {
                found.push(match self.finish_header(*number, read) {
                    Err(error)
                        if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid) =>
                    {
                        None
                    }
                    header => header?,
                });
            }
        }
        Ok(found)
    }

    /// Begins to read headers, all at once.
    pub(super) fn begin_headers(&self, numbers: &[u64]) -> Vec<ObjectRead> {
        let begin = |number: &u64| self.client.begin_get(&entry_name(*number), HEADER);
        numbers.iter().map(begin).collect()
    }

    /// As [`SharedLog::header`], of one whose read was begun.
    pub(super) fn finish_header(
        &self,
        number: u64,
        read: ObjectRead,
    ) -> Result<Option<EntryHeader>> {
        let got = match read.finish(&self.client) {
            Err(failure) if failure.kind == FailureKind::Missing => return Ok(None),
            got => self.client.told("read", &entry_name(number), got)?,
        };
        let header = EntryHeader::decode(&got.bytes, number);
        header.map(Some).map_err(|refused| self.refuse(number, refused))
    }

    /// The numbers of entries from one to below another that a list shows.
    pub(crate) fn entries_in(&self, numbers: Range<u64>) -> Result<Vec<u64>> {
        let after = numbers.start.checked_sub(1).map(entry_name).unwrap_or_default();
        let listed = self.listed((PREFIX, &after), Some(&entry_name(numbers.end)))?;
        let listed = listed.iter().filter_map(|info| entry_number(&info.name));
        Ok(listed.filter(|found| numbers.contains(found)).collect())
    }

    /// The first of the entries from `first` on, all of which are there below `end`, with which a
    /// reader comes beyond the commits before `lsn`: `end` if there is none. Parts of a large
    /// commit go with it. One that is damaged counts as what comes behind it.
    pub(crate) fn first_with(&self, lsn: Lsn, (first, end): (u64, u64)) -> Result<u64> {
        let sound = |number| match self.header(number) {
            Ok(None) => Err(self.damage("shared/log", format!("entry {number}"))),
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
            found => found,
        };
        let (mut from, mut upto) = (first, end);
        while from < upto {
            let middle = from + (upto - from) / 2;
            let behind = (middle..upto).find_map(|number| sound(number).transpose());
            match behind.transpose()? {
                Some(header) if header.last < lsn => from = header.number + 1,
                _ => upto = middle,
            }
        }
        while from > first && sound(from - 1)?.is_some_and(|it| it.kind == EntryKind::Part) {
            from -= 1;
        }
        Ok(from)
    }

    /// Bytes of the entries behind `number`, as lists show them; of each one `least` at least.
    pub(crate) fn bytes_behind(&self, number: u64, least: u64) -> Result<u64> {
        let listed = self.listed((PREFIX, &entry_name(number)), None)?;
        Ok(listed.iter().map(|info| info.len.max(least)).sum())
    }

    /// As [`SharedLog::bytes_behind`], of entries of which all are there below `end`. `None` if one
    /// of those is missing.
    pub(crate) fn sound_bytes_behind(&self, number: u64, end: u64) -> Result<Option<u64>> {
        let listed = self.listed((PREFIX, &entry_name(number)), None)?;
        let mut found = listed.iter().filter_map(|info| entry_number(&info.name));
        // A list may be old.
        let missing = (number + 1..end).find(|number| found.next() != Some(*number));
        let is_missing = match missing {
            Some(number) => self.header(number)?.is_none(),
            None => false,
        };
        Ok((!is_missing).then(|| listed.iter().map(|info| info.len).sum()))
    }

    /// The pieces of data that a list shows.
    pub(crate) fn all_data(&self) -> Result<Vec<String>> {
        let listed = self.listed((SHARED_DATA, ""), None)?;
        Ok(listed.into_iter().map(|info| info.name).collect())
    }

    /// What lists show of a prefix, after a name, and up to one at least if there is an end.
    pub(super) fn listed(
        &self,
        (prefix, after): (&str, &str),
        upto: Option<&str>,
    ) -> Result<Vec<ObjectInfo>> {
        let mut found: Vec<ObjectInfo> = Vec::new();
        loop {
            let last = found.last().map_or(after, |last| &last.name);
            let listed = self.page(prefix, last)?;
            let is_last = listed.len() < PAGE;
            found.extend(listed);
            let last = found.last().map(|last| last.name.as_str());
            if is_last || upto.is_some() && last >= upto {
                return Ok(found);
            }
        }
    }

    /// What one list shows of a prefix, after a name; fewer than [`PAGE`] if no more follow.
    fn page(&self, prefix: &str, after: &str) -> Result<Vec<ObjectInfo>> {
        self.check_open()?;
        self.client.told("list", prefix, self.client.list(prefix, after))
    }

    /// The error of an entry that cannot be used.
    pub(super) fn refuse(&self, number: u64, refused: EntryRefused) -> Error {
        let name = entry_name(number);
        match refused {
            EntryRefused::Format(version) => {
                other_format(format_args!("{name} of {}", self.address()), version)
            }
            EntryRefused::Damaged(expected) => self.damage(&name, expected),
        }
    }

    /// The error of an object that is damaged.
    pub(crate) fn damage(&self, name: &str, expected: String) -> Error {
        object_damage(&self.address(), name, expected)
    }

    /// The error of a claim before which other entries come again and again.
    pub(crate) fn overtaken(&self) -> Error {
        let message = format!(
            "cannot claim the shared store {}: its writer appends all the time; try again, or stop \
             the writer first",
            self.address()
        );
        Error::new(ErrorKind::Unavailable, message)
    }

    /// The error of a reader that follows another log, or a later state of this one.
    pub(crate) fn other(&self, found: &str) -> Error {
        Error::invalid(format!(
            "the shared store {} does not have the log that this directory follows: {found}; name \
             the store that it follows, or remove the directory and start again from this store",
            self.address()
        ))
    }

    /// The error of a store that has nothing to start from.
    pub(crate) fn empty(&self, kind: ErrorKind) -> Error {
        let message = format!(
            "the store {} has no shared database with a checkpoint; wait for the first one of its \
             writer, or open a database there with share; see that the URL is the same",
            self.address()
        );
        Error::new(kind, message)
    }

    /// The error of an opening where another database's writer has sent a claim, and maybe nothing
    /// else. The directory never was this log's writer.
    pub(super) fn foreign(&self, claim: &LogClaim, checkpoint: u64) -> Error {
        let address = self.address();
        let message = match checkpoint {
            0 => format!(
                "another database begins to use the shared store {address}: {claim} has claimed \
                 it, and has sent no checkpoint; use another prefix, or wait and follow it; if \
                 that directory is lost and its process has ended for good, the store has none of \
                 its commits: delete all objects below {address}/shared"
            ),
            _ => format!(
                "the shared store {address} is another database's: {claim} has claimed it; use \
                 another prefix, or follow it in a new directory"
            ),
        };
        Error::invalid(message)
    }

    /// The error for a directory that has claimed an entry behind the end of the log.
    pub(super) fn put_back(&self, claim: &LogClaim) -> Error {
        let message = format!(
            "the shared store {} lacks what this directory has sent: it was put back to an older \
             state, or emptied, and {claim} has claimed it last; see what this database alone has \
             with `terrace dump --unshipped`, and put the newer state back, or use another prefix",
            self.address()
        );
        Error::new(ErrorKind::Fenced, message)
    }

    /// The error of an opening that another one has overtaken.
    pub(crate) fn fenced(&self, by: &str) -> Error {
        let message = format!(
            "another opening took the shared store {} over: {by}; close this database, see what it \
             alone has with `terrace dump --unshipped`, and follow the other one in a new \
             directory, or take it over again with open_shared",
            self.address()
        );
        Error::new(ErrorKind::Fenced, message)
    }
}

pub(super) const PREFIX: &str = "shared/log/";

/// The name of entry `number`.
pub(crate) fn entry_name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The number of the entry of a name.
fn entry_number(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok()
}

/// A piece of data: the claim of who sent it, and its number.
pub(crate) type PieceId = (u64, u32);

/// The piece of data of a name.
pub(crate) fn data_number(name: &str) -> Option<PieceId> {
    let (claim, number) = name.strip_prefix(SHARED_DATA)?.split_once('-')?;
    let found = (u64::from_str_radix(claim, 16).ok()?, u32::from_str_radix(number, 16).ok()?);
    (shared_name(found.0, found.1) == name).then_some(found)
}

/// Entries that are read ahead, up to an end of the log.
#[derive(Debug)]
pub(crate) struct EntryReads<'a> {
    log: &'a SharedLog,
    /// The number of the next one that is begun.
    next: u64,
    end: u64,
    /// Bytes of entries that are not begun, where those of full segments would leave no room for
    /// many: one page at most. Entries below `listed` have their place in it.
    lens: BTreeMap<u64, u64>,
    listed: u64,
    under_way: Transfers<(u64, ObjectRead)>,
}

impl<'a> EntryReads<'a> {
    /// Entries from `first` on, below `end`: they are there already. As many are under way as the
    /// job may have.
    pub(crate) fn new(
        log: &'a SharedLog,
        (first, end): (u64, u64),
        within: (&Arc<Gauge>, u64),
    ) -> EntryReads<'a> {
        let listed = if within.1 < MOST_SENT { first } else { end };
        let (lens, under_way) = (BTreeMap::new(), Transfers::new(within));
        EntryReads { log, next: first, end, lens, listed, under_way }
    }

    /// The bytes of the next one that is begun: those of a full segment, if no list shows it.
    fn next_len(&mut self) -> Result<u64> {
        if self.next == self.listed {
            let page = self.log.page(PREFIX, &entry_name(self.next - 1))?;
            let of = |info: &ObjectInfo| Some((entry_number(&info.name)?, info.len));
            self.lens = page.iter().filter_map(of).collect();
            let last = self.lens.last_key_value().filter(|_| page.len() == PAGE);
            self.listed = last.map_or(self.end, |(last, _)| last + 1);
        }
        Ok(self.lens.get(&self.next).copied().unwrap_or(ENTRY_BYTES))
    }

    /// The next entry, whose number is `number`; [`NextEntry::Deleted`] where the log has left it
    /// behind.
    pub(crate) fn next(&mut self, number: u64) -> Result<NextEntry> {
        while self.next < self.end {
            let len = self.next_len()?;
            if !self.under_way.has_room_for(len) {
                break;
            }
            let read = self.log.client.begin_get(&entry_name(self.next), ObjectSpan::Whole);
            self.under_way.add(len, (self.next, read));
            self.lens.remove(&self.next);
            self.next += 1;
        }
        let Some((_held, (found, read))) = self.under_way.oldest() else {
            return Ok(NextEntry::Absent);
        };
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
