//! What may go from the shared store: entries and data that neither of the last two checkpoints
//! needs. Entries stay longer for the time of the retention, and for registered followers up to a
//! bound; a reader that goes on needs no data of checkpoints.
//!
//! The head moves first. Claims stay for ever: the object of a claim is what a writer meets that
//! was taken over. Data of a later claim is another writer's.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::replica::{EntryKind, LogHead, SharedLog, data_number};

/// Registered followers hold deletion back for so many checkpoints.
const MOST_HELD: usize = 16;

/// Entries below `number` were appended before a moment.
#[derive(Clone, Copy, Debug)]
struct AgeMark {
    number: u64,
    at: Instant,
}

/// The checkpoints that are kept.
#[derive(Debug)]
pub(super) struct Kept {
    /// This writer's claim.
    claim: u64,
    /// Their entries, with the data that they name. The first one may be another opening's, of
    /// which the data is not known: then nothing of other claims is deleted.
    checkpoints: VecDeque<(u64, Option<BTreeSet<String>>)>,
    /// One for each checkpoint from the oldest entry on.
    marks: VecDeque<AgeMark>,
    retention: Duration,
    /// When this writer began: earlier entries are taken for as old.
    began: Instant,
    knows_oldest: bool,
    /// Claims before this writer's that were found.
    claims: BTreeSet<u64>,
    /// Whether the store has to be looked through.
    is_due: bool,
    /// Pieces of this claim from here on may be on their way into a checkpoint.
    pending: u32,
    /// Entries are deleted up to the last one: a planted bug.
    early: bool,
}

impl Kept {
    /// With the checkpoint that the log had before this writer; 0 if there was none.
    pub(super) fn new(claim: u64, before: u64, (early, retention): (bool, Duration)) -> Kept {
        let before = (before > 0).then_some((before, None));
        Kept {
            claim,
            checkpoints: before.into_iter().collect(),
            marks: VecDeque::new(),
            retention,
            began: Instant::now(),
            knows_oldest: false,
            claims: BTreeSet::new(),
            is_due: false,
            pending: 0,
            early,
        }
    }

    /// There is one more checkpoint. Pieces from `pending` on are not in it.
    pub(super) fn add(&mut self, number: u64, data: BTreeSet<String>, pending: u32) {
        self.pending = pending;
        self.marks.push_back(AgeMark { number, at: Instant::now() });
        self.checkpoints.push_back((number, Some(data)));
        if self.checkpoints.len() > 2 {
            self.checkpoints.pop_front();
        }
        self.is_due = true;
    }

    /// Moves the head and deletes what it has left behind.
    ///
    /// # Errors
    ///
    /// The store does not answer: it is done later.
    pub(super) fn collect(&mut self, log: &SharedLog) -> Result<()> {
        if !std::mem::take(&mut self.is_due) {
            return Ok(());
        }
        self.collect_now(log).inspect_err(|_| self.is_due = true)
    }

    fn collect_now(&mut self, log: &SharedLog) -> Result<()> {
        let (Some((oldest, _)), Some((newest, _))) =
            (self.checkpoints.front(), self.checkpoints.back())
        else {
            return Ok(());
        };
        let (older, newest) = (*oldest, *newest);
        let oldest = self.first_needed(log, older)?;
        if !log.raise_head(LogHead { oldest, checkpoint: newest })? {
            return Ok(());
        }
        let below = if self.early { newest + 1 } else { oldest };
        self.delete_entries(log, below)?;
        self.delete_data(log)
    }

    /// The first entry that is kept, where the older checkpoint is entry `older`.
    fn first_needed(&mut self, log: &SharedLog, older: u64) -> Result<u64> {
        if !self.knows_oldest {
            // What an earlier writer has kept.
            let number = log.head()?.0.oldest;
            self.marks.push_front(AgeMark { number, at: self.began });
            self.knows_oldest = true;
        }
        let first = self.marks.front().map_or(1, |mark| mark.number);
        let is_old = |mark: &&AgeMark| mark.at.elapsed() >= self.retention;
        let by_time = self.marks.iter().rev().find(is_old).map_or(first, |mark| mark.number);
        let bound = self.marks.iter().rev().nth(MOST_HELD).map_or(first, |mark| mark.number);
        let followers = log.registered()?.into_iter();
        let held = followers.map(|(_, entry)| (entry + 1).max(bound)).min();
        let needed = older.min(by_time).min(held.unwrap_or(u64::MAX)).max(first);
        // One mark at or below what is kept stays.
        while self.marks.get(1).is_some_and(|mark| mark.number <= needed) {
            self.marks.pop_front();
        }
        Ok(needed)
    }

    fn delete_entries(&mut self, log: &SharedLog, below: u64) -> Result<()> {
        let mut gone = Vec::new();
        for number in log.entries_below(below)? {
            // All entries above its claim are this writer's own, and none of them is a claim.
            if number == self.claim || self.claims.contains(&number) {
                continue;
            }
            if number < self.claim {
                match log.header(number)? {
                    Some(header) if header.kind == EntryKind::Claim => {
                        self.claims.insert(number);
                        continue;
                    }
                    Some(_) => {}
                    None => continue,
                }
            }
            gone.push(crate::replica::entry_name(number));
        }
        log.delete(&gone)
    }

    fn delete_data(&self, log: &SharedLog) -> Result<()> {
        let known: Option<Vec<&BTreeSet<String>>> =
            self.checkpoints.iter().map(|(_, data)| data.as_ref()).collect();
        // The data of the checkpoint before this writer is not known.
        let Some(known) = known else { return Ok(()) };
        let is_gone = |name: &String| {
            let is_old = data_number(name).is_some_and(|(claim, piece)| {
                claim < self.claim || claim == self.claim && piece < self.pending
            });
            is_old && !known.iter().any(|data| data.contains(name))
        };
        let gone: Vec<String> = log.all_data()?.into_iter().filter(is_gone).collect();
        log.delete(&gone)
    }
}
