//! The end of the log: a search for it, since nothing says where it is.
//!
//! Thread safety: any thread may call any method.

use std::iter::once;

use super::entry::{Entry, EntryHeader};
use super::shared_log::{HEAD, LogHead, SharedLog, TRIES};
use crate::base::error::{ErrorKind, Result};
use crate::base::record::Lsn;
use crate::storage::{FailureKind, RequestFailure};

/// So many numbers a search for the end looks at, in the time of a request.
const PROBES: u64 = 7;
const MOST_DOUBLINGS: u64 = 62;

/// The end of the log at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogEnd {
    /// The first number without an entry.
    pub(crate) next: u64,
    /// The last claim; 0 if there is none.
    pub(crate) claim: u64,
    /// The newest checkpoint; 0 if there is none.
    pub(crate) checkpoint: u64,
    /// The last LSN.
    pub(crate) last: Lsn,
}

impl LogEnd {
    /// The end of a log of which an entry is the last.
    pub(crate) fn behind(entry: &Entry) -> LogEnd {
        let Entry { number, claim, checkpoint, last, .. } = *entry;
        LogEnd { next: number + 1, claim, checkpoint, last }
    }
}

impl SharedLog {
    /// The end of the log: found by doubling and dividing, since entries have no holes from the
    /// head's oldest on. It may have gone on by now; [`SharedLog::is_past`] says.
    pub(crate) fn end(&self) -> Result<LogEnd> {
        self.end_behind(0)
    }

    /// As [`SharedLog::end`], where entry `known` has been there.
    pub(crate) fn end_behind(&self, known: u64) -> Result<LogEnd> {
        for _ in 0..TRIES {
            let (head, _) = self.head()?;
            let (there, end) = self.search_end(head, known)?;
            // Where entries were deleted meanwhile, the search has met a hole.
            if self.trusts_searches || self.head()?.0.oldest <= there.max(1) {
                return Ok(end);
            }
        }
        let failure = RequestFailure::new(FailureKind::Away, "the head moves all the time");
        Err(self.client.error("read", HEAD, failure))
    }

    /// The last entry that is found from a head or an entry on, and the end behind it. Several
    /// numbers are looked at in the time of a request: at distances that double, then in what is
    /// left.
    pub(super) fn search_end(&self, head: LogHead, known: u64) -> Result<(u64, LogEnd)> {
        let mut there = head.checkpoint.max(head.oldest - 1).max(known);
        let mut doublings = 0;
        let doubling = |from: u64, first: u64| {
            (first..first + PROBES).map(move |n| from.saturating_add(1 << n.min(MOST_DOUBLINGS)))
        };
        let mut numbers: Vec<u64> = once(there).chain(doubling(there, 0)).collect();
        let (mut last, mut missing) = (Ok(None), None);
        loop {
            let start = there;
            for (number, read) in numbers.iter().zip(self.begin_headers(&numbers)) {
                match self.finish_header(*number, read) {
                    // A damaged one is there. What it says is of no use, unless it is the last.
                    Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                    header @ (Err(_) | Ok(Some(_))) => (there, last) = (*number, header),
                    // Nothing is as old as the beginning.
                    Ok(None) if *number == start => {}
                    Ok(None) => {
                        missing = Some(*number);
                        break;
                    }
                }
            }
            numbers = match missing {
                Some(missing) if missing - there == 1 => break,
                Some(missing) => {
                    let step = (missing - there).div_ceil(PROBES + 1);
                    (there + step..missing).step_by(step as usize).collect()
                }
                None => {
                    doublings += PROBES;
                    doubling(there, doublings).collect()
                }
            };
        }
        let end = LogEnd { next: there + 1, ..LogEnd::default() };
        let Some(EntryHeader { claim, checkpoint, last, .. }) = last? else {
            return Ok((there, end));
        };
        Ok((there, LogEnd { claim, checkpoint, last, ..end }))
    }
}
