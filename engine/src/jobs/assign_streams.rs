//! Which tables have a stream of their own: a policy, looked at now and then.
//!
//! A table is busy when it wrote at least a tenth of what all wrote since the last look; it is idle
//! again below a fiftieth. Records name their table, so a table may change its stream at any time,
//! and all begin on the shared one at each opening.

use std::collections::BTreeMap;

use super::context::{JobContext, Outcome};
use super::ops::close_reopened;
use crate::base::error::{ErrorKind, Result};
use crate::base::options::CommitTuning;
use crate::base::record::TableId;
use crate::os::sync::locks::Mutex;
use crate::pm::STREAM_SLOTS;

/// The job.
#[derive(Debug, Default)]
pub(crate) struct AssignStreams {
    tuning: Mutex<CommitTuning>,
    /// Streams that tables have.
    own: Mutex<BTreeMap<TableId, u32>>,
}

/// What a look finds that should change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// A stream that no table has is closed.
    CloseReopened {
        /// The cleaner's too.
        cleaner: bool,
    },
    Give(TableId),
    Take(TableId),
}

/// The most urgent change, given what each table wrote since the last look, and which tables have a
/// stream.
fn choose(wrote: &BTreeMap<TableId, u64>, own: &[TableId], most: u32) -> Option<Plan> {
    let total: u64 = wrote.values().sum();
    let share = |table: &TableId| wrote.get(table).copied().unwrap_or(0);
    let idle = |table: &&TableId| share(table) * 50 < total || !wrote.contains_key(*table);
    if let Some(table) = own.iter().find(idle) {
        return Some(Plan::Take(*table));
    }
    if own.len() as u32 > most {
        return own.iter().min_by_key(|table| share(table)).map(|table| Plan::Take(*table));
    }
    let busy = |table: &&TableId| share(table) * 10 >= total && !own.contains(table);
    let busiest = wrote.keys().filter(busy).max_by_key(|table| (share(table), **table));
    busiest.filter(|_| (own.len() as u32) < most && total > 0).map(|table| Plan::Give(*table))
}

/// How many tables may have streams, in a mode and a region of so many units: each holds a zone
/// and a standby zone.
fn most_streams(tuning: CommitTuning, is_persistent_memory: bool, units: u32) -> u32 {
    let wanted = tuning.own_streams.unwrap_or(if is_persistent_memory { 8 } else { 0 });
    wanted.min(units / 16).min(STREAM_SLOTS - 1)
}

impl AssignStreams {
    /// Sets how many streams tables may have.
    pub(crate) fn tune(&self, tuning: CommitTuning) {
        *self.tuning.lock() = tuning;
    }

    /// Looks for a stream to close, to give, or to take.
    fn plan(&self, ctx: &JobContext) -> Option<Plan> {
        let (zones, committer) = (&ctx.shared.zones, &ctx.shared.committer);
        // The zones that streams are about to fill may be what divides the piece asked for.
        let asked_for = zones.lacks_wanted();
        let closes = |stream: &u32| asked_for || committer.cleaner != Some(*stream);
        if committer.reopened_streams().iter().any(closes) {
            return Some(Plan::CloseReopened { cleaner: asked_for });
        }
        let is_pm = ctx.shared.region.is_persistent_memory();
        let most = match asked_for {
            true => 0,
            false => most_streams(*self.tuning.lock(), is_pm, zones.room()),
        };
        let own: Vec<TableId> = self.own.lock().keys().copied().collect();
        if most == 0 && own.is_empty() {
            return None;
        }
        let mut index = ctx.tables.index();
        let wrote = index.wrote(&own);
        // A look at every sixteenth of the region that was written.
        if !asked_for && wrote.values().sum::<u64>() < zones.region_len() / 16 {
            return None;
        }
        let plan = choose(&wrote, &own, most);
        if plan.is_none() {
            index.reset_wrote();
        }
        plan
    }

    /// Makes the most urgent change.
    pub(crate) fn step(&self, ctx: &JobContext) -> Result<Outcome> {
        let Some(plan) = self.plan(ctx) else { return Ok(Outcome::NOTHING) };
        let set_stream = |id: TableId, stream| {
            ctx.tables.get(id).into_iter().for_each(|table| table.set_stream(stream));
        };
        match plan {
            Plan::CloseReopened { cleaner } => {
                return close_reopened(ctx, cleaner).map(Outcome::did);
            }
            Plan::Give(id) => {
                let stream = match ctx.shared.committer.open_stream() {
                    Err(e) if e.kind() == ErrorKind::Full => return Ok(Outcome::NOTHING),
                    opened => opened?,
                };
                let before = self.own.lock().insert(id, stream);
                debug_assert_ne!(stream, 0, "the shared stream is no table's own");
                debug_assert_ne!(
                    Some(stream),
                    ctx.shared.committer.cleaner,
                    "nor is the cleaner's"
                );
                debug_assert_eq!(before, None, "a table has one stream of its own at most");
                set_stream(id, stream);
            }
            Plan::Take(id) => {
                set_stream(id, 0);
                let stream = self.own.lock().remove(&id);
                debug_assert!(stream.is_some(), "a stream is taken from a table that has one");
                if let Some(stream) = stream {
                    ctx.shared.committer.close_stream(stream)?;
                }
            }
        }
        Ok(Outcome::DONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_tables_get_streams_and_idle_ones_lose_them() {
        let wrote = |shares: &[(TableId, u64)]| shares.iter().copied().collect::<BTreeMap<_, _>>();
        let even = wrote(&[(1, 50), (2, 40), (3, 10)]);
        assert_eq!(choose(&even, &[], 2), Some(Plan::Give(1)), "the busiest first");
        assert_eq!(choose(&even, &[1], 2), Some(Plan::Give(2)));
        assert_eq!(choose(&even, &[1, 2], 2), None, "no more than allowed");
        assert_eq!(choose(&even, &[1, 2], 1), Some(Plan::Take(2)), "fewer than before");
        let shifted = wrote(&[(1, 1), (2, 90), (3, 9)]);
        assert_eq!(choose(&shifted, &[1, 2], 2), Some(Plan::Take(1)));
        assert_eq!(choose(&shifted, &[4], 2), Some(Plan::Take(4)), "a dropped table");
        assert_eq!(choose(&wrote(&[(1, 0)]), &[], 2), None, "no table is written to");
    }
}
