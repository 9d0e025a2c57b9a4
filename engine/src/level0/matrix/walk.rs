//! A cursor over several row tables as one.

use std::cmp::Reverse;
use std::sync::Arc;

use super::row::{Narrowed, OpenRow};
use crate::base::error::Result;
use crate::base::options::Failpoint;
use crate::base::record::{Cursor, EntryRef, LSN_MAX, Lsn, SeparatedValue};
use crate::memtable::Record;
use crate::mvcc::DrainedMap;
use crate::pm::Region;

/// Whether searches go by hints, for measurements of what these are worth.
#[cfg(feature = "bench")]
pub(crate) static FOLLOWS_HINTS: crate::os::sync::atomic::AtomicBool =
    crate::os::sync::atomic::AtomicBool::new(true);

/// Nanoseconds that cursors spent in the search of places in rows: what threads that share the rows
/// of a column among them could save at most.
#[cfg(feature = "bench")]
pub(crate) static SEARCH_NANOS: crate::os::sync::atomic::AtomicU64 =
    crate::os::sync::atomic::AtomicU64::new(0);

/// A position among the records of row tables that D does not cover.
pub(super) struct RowsCursor<'a> {
    region: &'a Region,
    drained: &'a DrainedMap,
    /// The newest first.
    rows: Arc<Vec<Arc<OpenRow>>>,
    /// In each row table: the first entry that is not before the position, but for some that do
    /// not count.
    at: Vec<u32>,
    /// In each row table: the first record that counts from there on, after a step forward.
    heads: Vec<Option<Record<'a>>>,
    is_forward: bool,
    /// The row table of the record here, and the record.
    here: Option<(usize, Record<'a>)>,
}

impl<'a> RowsCursor<'a> {
    /// One that is nowhere.
    pub(super) fn new(
        region: &'a Region,
        rows: Arc<Vec<Arc<OpenRow>>>,
        drained: &'a DrainedMap,
    ) -> RowsCursor<'a> {
        let (at, heads) = (vec![0; rows.len()], vec![None; rows.len()]);
        RowsCursor { region, drained, rows, at, heads, is_forward: false, here: None }
    }

    /// The record of an entry, if it counts.
    fn visible(&self, row: &OpenRow, n: u32) -> Option<Record<'a>> {
        if row.is_gone(n) {
            return None;
        }
        let entry = row.entry(self.region, n);
        let counts = entry.seq > self.drained.get(row.key(self.region, &entry));
        counts.then(|| row.record(self.region, &entry))
    }

    /// Goes to the lower bound of `key` in each row table, from the newest to the oldest.
    fn bounds(&mut self, key: &[u8]) {
        #[cfg(feature = "bench")]
        let from = std::time::Instant::now();
        let mut narrowed: Option<Narrowed> = None;
        let rows = Arc::clone(&self.rows);
        for (n, row) in rows.iter().enumerate() {
            self.at[n] = row.lower_bound(self.region, key, row.range(narrowed));
            narrowed = narrow(&rows, n, self.at[n], self.region);
        }
        #[cfg(feature = "bench")]
        SEARCH_NANOS.fetch_add(
            u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX),
            crate::os::sync::atomic::Ordering::Relaxed,
        );
    }

    /// Finds the head of a row table.
    fn find_head(&mut self, n: usize) {
        let row = Arc::clone(&self.rows[n]);
        self.heads[n] = None;
        while self.at[n] < row.entries() && self.heads[n].is_none() {
            self.heads[n] = self.visible(&row, self.at[n]);
            self.at[n] += u32::from(self.heads[n].is_none());
        }
    }

    /// To the smallest record at or after what `at` says.
    fn settle_forward(&mut self) {
        (0..self.rows.len()).for_each(|n| self.find_head(n));
        self.is_forward = true;
        self.choose_head();
    }

    fn choose_head(&mut self) {
        let heads = self.heads.iter().enumerate();
        let heads = heads.filter_map(|(n, head)| Some((n, (*head)?)));
        self.here = heads.min_by(|(_, a), (_, b)| order(a).cmp(&order(b)));
    }

    /// To the greatest record before what `at` says.
    fn settle_back(&mut self) {
        self.is_forward = false;
        let mut best: Option<(usize, u32, Record<'a>)> = None;
        let rows = Arc::clone(&self.rows);
        for (n, row) in rows.iter().enumerate() {
            let found = (0..self.at[n]).rev().find_map(|at| Some((at, self.visible(row, at)?)));
            // What does not count is passed once.
            self.at[n] = found.map_or(0, |(at, _)| at + 1);
            let is_last = |(_, record): &(u32, Record<'_>)| {
                best.as_ref().is_none_or(|(_, _, last)| order(record) > order(last))
            };
            best = found.filter(is_last).map(|(at, record)| (n, at, record)).or(best);
        }
        self.here = best.map(|(n, at, record)| {
            self.at[n] = at;
            (n, record)
        });
    }
}

/// What the row table `n` says of where the bound lies in the next one: nothing if that is not the
/// one that its hints lead into, which is gone then.
pub(super) fn narrow(
    rows: &[Arc<OpenRow>],
    n: usize,
    bound: u32,
    region: &Region,
) -> Option<Narrowed> {
    #[cfg(feature = "bench")]
    if !FOLLOWS_HINTS.load(crate::os::sync::atomic::Ordering::Relaxed) {
        return None;
    }
    let below = rows.get(n + 1)?;
    let is_led_into = below.meta.id == rows[n].below();
    let follows = is_led_into || region.has(Failpoint::FollowStaleHints);
    if follows { rows[n].narrow(region, bound, below) } else { None }
}

fn order<'r>(record: &Record<'r>) -> (&'r [u8], Reverse<Lsn>) {
    (record.key, Reverse(record.seq))
}

impl Cursor for RowsCursor<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.bounds(key);
        if seq < LSN_MAX {
            let rows = Arc::clone(&self.rows);
            for (n, row) in rows.iter().enumerate() {
                // Versions behind one that is gone are gone too, or covered.
                while self.at[n] < row.entries() && !row.is_gone(self.at[n]) {
                    let entry = row.entry(self.region, self.at[n]);
                    if entry.seq <= seq || row.key(self.region, &entry) != key {
                        break;
                    }
                    self.at[n] += 1;
                }
            }
        }
        self.settle_forward();
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        match key {
            Some(key) => self.bounds(key),
            None => self.at = self.rows.iter().map(|row| row.entries()).collect(),
        }
        for (at, row) in self.at.iter_mut().zip(self.rows.iter()) {
            *at = row.readable().before(*at).map_or(0, |last| last + 1);
        }
        self.settle_back();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        if let Some((n, _)) = self.here {
            self.at[n] += 1;
            if self.is_forward {
                self.find_head(n);
                self.choose_head();
            } else {
                self.settle_forward();
            }
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if self.here.is_some() {
            self.settle_back();
        }
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.here.as_ref().map(|(_, record)| record.entry())
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        Ok(None)
    }
}
