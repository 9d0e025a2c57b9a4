//! How a node goes on: the next entries, or a start from a newer checkpoint.

use super::{MOST_BEHIND, Node};
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::sync::atomic::Ordering;
use crate::replication::apply::{Applier, EntryApplied};
use crate::replication::checkpoint::FoundCheckpoint;
use crate::replication::log::{Entry, EntryBody, EntryReads, NextEntry};
use crate::replication::takeover;

/// Of so many answers that there is none, one has the node look whether it was deleted.
const LOOKS: u32 = 8;

/// After so many entries in a row that are there, a node looks whether as many more are, and reads
/// those together: one at a time it may fall behind a writer that is nearer to the store.
const AHEAD: u32 = 16;

/// A start from a checkpoint that failed behind its data.
#[derive(Debug)]
pub(super) struct FailedStart {
    checkpoint: u64,
    /// The entry that it failed with.
    entry: u64,
    /// What the next try would meet again.
    refusal: Option<(ErrorKind, String)>,
}

impl Node {
    /// Goes on; whether there was something to do.
    pub(super) fn advance(&self, applier: &mut Option<Applier>, kept: u64) -> Result<bool> {
        if self.is_left_behind(applier.as_ref(), kept) {
            self.start_anew(applier)?;
            return Ok(true);
        }
        let Some(reader) = applier else {
            self.restart(applier)?;
            return Ok(true);
        };
        let number = reader.next()?;
        if self.hits.load(Ordering::Relaxed) < AHEAD {
            let misses = self.misses.load(Ordering::Relaxed);
            let looks = self.options.stepped || misses.is_multiple_of(LOOKS);
            let next = self.log.next_entry(number, looks);
            return self.go_on(applier, next);
        }
        self.hits.store(0, Ordering::Relaxed);
        let end = number + u64::from(AHEAD);
        // Entries have no holes.
        let are_there = self.log.header(end - 1)?.is_some();
        let store = reader.db.inner.set.store().clone();
        let within = store.memory().job_sends();
        let end = if are_there { end } else { number + 1 };
        let mut entries = EntryReads::new(&self.log, (number, end), within);
        let mut did = false;
        for number in number..end {
            // It may have started from a checkpoint.
            if self.stop.load(Ordering::Acquire)
                || applier.as_mut().map(Applier::next).transpose()? != Some(number)
            {
                break;
            }
            did |= self.go_on(applier, entries.next(number))?;
        }
        if are_there {
            self.hits.store(AHEAD, Ordering::Relaxed);
        }
        Ok(did)
    }

    /// Goes on with what was found at the next entry's place; whether there was something to do.
    fn go_on(&self, applier: &mut Option<Applier>, next: Result<NextEntry>) -> Result<bool> {
        let Some(reader) = applier else { return Ok(false) };
        let number = reader.next()?;
        let next = match next {
            Ok(NextEntry::There(entry)) => reader.apply(&entry, &self.log).map(|it| (entry, it)),
            Ok(NextEntry::Absent) => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                self.hits.store(0, Ordering::Relaxed);
                return Ok(false);
            }
            Ok(NextEntry::Deleted) => {
                self.restart(applier)?;
                self.progress.lock().missed += 1;
                return Ok(true);
            }
            Err(error) => Err(error),
        };
        self.misses.store(0, Ordering::Relaxed);
        let starts_anew = match next {
            Ok((_, EntryApplied::Leaps)) => true,
            Ok((entry, EntryApplied::Done)) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                self.note_position(reader);
                self.starts_at(&entry, reader)?
            }
            // Without newer data the node would start again and again from what it has.
            Err(error) if takeover::is_lasting(&error) => {
                if !takeover::is_mended(&self.log, reader.base, number, &error)? {
                    return Err(error);
                }
                true
            }
            // If the writer has deleted it, the next step starts anew.
            Err(error) => return Err(error),
        };
        if starts_anew {
            self.restart(applier)?;
        }
        Ok(true)
    }

    /// Whether a reader starts from an entry that it has come to: a checkpoint, and the writer is
    /// about to delete what it reads, or it has too much of its own. A start applies what the log
    /// has from the checkpoint's first entry on, which may be no less.
    fn starts_at(&self, entry: &Entry, reader: &Applier) -> Result<bool> {
        if !self.reads_store || !matches!(entry.body, EntryBody::Checkpoint(_)) {
            return Ok(false);
        }
        // What no handle needs any more holds nothing back.
        self.clean();
        let behind = self.behind.fetch_add(1, Ordering::Relaxed) + 1;
        let most = if self.options.follower_name.is_some() { MOST_BEHIND } else { 1 };
        let own = reader.db.inner.set.store().space().taken_bytes;
        Ok(behind >= most
            || own > self.options.object_cache && self.log.bytes_behind(entry.first - 1, 0)? < own)
    }

    /// Notes that a start from a checkpoint failed behind its data, if it would again: each try
    /// copies all data.
    pub(super) fn note_failed_start(&self, found: &FoundCheckpoint, entry: u64, error: &Error) {
        if takeover::is_lasting(error) {
            let (checkpoint, mut failed) = (found.manifest.number, self.failed_start.lock());
            // Or it has failed once more with entries that are there.
            let lasts = error.kind().is_refusal()
                || failed.as_ref().is_some_and(|failed| failed.checkpoint == checkpoint);
            let refusal = lasts.then(|| (error.kind(), error.to_string()));
            *failed = Some(FailedStart { checkpoint, entry, refusal });
        }
    }

    /// Fails where a start from a checkpoint is known to fail.
    pub(super) fn check_start(&self, found: &FoundCheckpoint) -> Result<()> {
        let number = match &*self.failed_start.lock() {
            Some(failed) if failed.checkpoint == found.manifest.number => match &failed.refusal {
                Some((kind, what)) => return Err(Error::new(*kind, what.clone())),
                None => failed.entry,
            },
            _ => return Ok(()),
        };
        // What was damaged may have been put back.
        let lost = || self.log.damage("shared/log", format!("entry {number}"));
        self.log.entry(number)?.map(drop).ok_or_else(lost)
    }
}
