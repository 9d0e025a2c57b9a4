//! Which tables have a stream of their own: a policy, looked at now and then.
//!
//! A table is busy when it wrote at least a tenth of what all wrote since the last look; it is idle
//! again below a fiftieth. Records name their table, so a table may change its stream at any time,
//! and all begin on the shared one at each opening.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::inner::Engine;
use crate::error::{ErrorKind, Result};
use crate::options::CommitTuning;
use crate::pm::STREAM_SLOTS;
use crate::record::TableId;
use crate::table::TableCore;

/// What the policy remembers.
#[derive(Debug, Default)]
pub(super) struct Streams {
    state: Mutex<State>,
    tuning: Mutex<CommitTuning>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that each table had written at the last look.
    written: HashMap<TableId, u64>,
    /// Streams that a table has.
    own: HashMap<TableId, u32>,
}

/// What a look finds that should change.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Give(TableId),
    Take(TableId),
}

/// The most urgent change, given what each table wrote since the last look, and who has a stream.
fn choose(wrote: &HashMap<TableId, u64>, own: &[TableId], most: u32) -> Option<Change> {
    let total: u64 = wrote.values().sum();
    let share = |table: &TableId| wrote.get(table).copied().unwrap_or(0);
    let idle = |table: &&TableId| share(table) * 50 < total || !wrote.contains_key(*table);
    if let Some(table) = own.iter().find(idle) {
        return Some(Change::Take(*table));
    }
    if own.len() as u32 > most {
        return own.iter().min_by_key(|table| share(table)).map(|table| Change::Take(*table));
    }
    let busy = |table: &&TableId| share(table) * 10 >= total && !own.contains(table);
    let busiest = wrote.keys().filter(busy).max_by_key(|table| (share(table), **table));
    busiest.filter(|_| (own.len() as u32) < most && total > 0).map(|table| Change::Give(*table))
}

/// How many tables may have streams, in a mode and a region of so many units: each holds a zone
/// and a spare one.
fn most_streams(tuning: CommitTuning, is_persistent_memory: bool, units: u32) -> u32 {
    let wanted = tuning.own_streams.unwrap_or(if is_persistent_memory { 8 } else { 0 });
    wanted.min(units / 16).min(STREAM_SLOTS - 1)
}

impl Engine {
    /// Changes how commits are grouped and where their records go.
    pub(super) fn tune(&self, tuning: CommitTuning) {
        self.shared.committer.set_group_bounds(tuning.group_batches, tuning.group_bytes);
        self.shared.committer.follow_published_rule(tuning.published_rule);
        *self.streams.tuning.lock() = tuning;
        self.shared.bell.ring();
    }

    /// Gives one busy table a stream, or takes one from a table that is idle or gone; whether
    /// there was anything to do.
    pub(super) fn assign_streams(&self) -> Result<bool> {
        let tuning = *self.streams.tuning.lock();
        let zones = &self.shared.zones;
        let is_pm = self.shared.region.is_persistent_memory();
        // The zones that streams are about to fill may be what divides the piece asked for.
        let asked_for = zones.lacks_wanted();
        if self.close_reopened(asked_for)? {
            return Ok(true);
        }
        let most = if asked_for { 0 } else { most_streams(tuning, is_pm, zones.geometry().units) };
        let mut state = self.streams.state.lock();
        if most == 0 && state.own.is_empty() {
            return Ok(false);
        }
        let tables = self.tables();
        let wrote = state.since_last_look(&tables);
        // A look at every sixteenth of the region that was written.
        if !asked_for && wrote.values().sum::<u64>() < self.shared.region.len() / 16 {
            return Ok(false);
        }
        let own: Vec<TableId> = state.own.keys().copied().collect();
        match choose(&wrote, &own, most) {
            Some(change) => self.carry_out_change(&mut state, &tables, &change),
            None => {
                state.written = tables.iter().map(|t| (t.id(), t.written())).collect();
                Ok(false)
            }
        }
    }

    /// Closes a stream that no table has; the cleaner's too if `cleaner` says so, which is open
    /// from one copy to the next else. Whether there was one.
    pub(super) fn close_reopened(&self, cleaner: bool) -> Result<bool> {
        let committer = &self.shared.committer;
        let reopened = committer.reopened_streams();
        let closes = |stream: &&u32| cleaner || committer.cleaner() != Some(**stream);
        let Some(stream) = reopened.iter().find(closes) else { return Ok(false) };
        committer.close_stream(*stream)?;
        Ok(true)
    }

    fn carry_out_change(
        &self,
        state: &mut State,
        tables: &[Arc<TableCore>],
        change: &Change,
    ) -> Result<bool> {
        match change {
            Change::Give(id) => {
                let stream = match self.shared.committer.open_stream() {
                    Err(e) if e.kind() == ErrorKind::Full => return Ok(false),
                    opened => opened?,
                };
                state.own.insert(*id, stream);
                tables.iter().filter(|t| t.id() == *id).for_each(|t| t.set_stream(stream));
            }
            Change::Take(id) => {
                tables.iter().filter(|t| t.id() == *id).for_each(|t| t.set_stream(0));
                if let Some(stream) = state.own.remove(id) {
                    self.shared.committer.close_stream(stream)?;
                }
            }
        }
        Ok(true)
    }
}

impl State {
    fn since_last_look(&self, tables: &[Arc<TableCore>]) -> HashMap<TableId, u64> {
        let before = |t: &Arc<TableCore>| self.written.get(&t.id()).copied().unwrap_or(0);
        tables.iter().map(|t| (t.id(), t.written() - before(t))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_tables_get_streams_and_idle_ones_lose_them() {
        let wrote = |shares: &[(TableId, u64)]| shares.iter().copied().collect::<HashMap<_, _>>();
        let even = wrote(&[(1, 50), (2, 40), (3, 10)]);
        assert_eq!(choose(&even, &[], 2), Some(Change::Give(1)), "the busiest first");
        assert_eq!(choose(&even, &[1], 2), Some(Change::Give(2)));
        assert_eq!(choose(&even, &[1, 2], 2), None, "no more than allowed");
        assert_eq!(choose(&even, &[1, 2], 1), Some(Change::Take(2)), "fewer than before");
        let shifted = wrote(&[(1, 1), (2, 90), (3, 9)]);
        assert_eq!(choose(&shifted, &[1, 2], 2), Some(Change::Take(1)));
        assert_eq!(choose(&shifted, &[4], 2), Some(Change::Take(4)), "a dropped table");
        assert_eq!(choose(&wrote(&[(1, 0)]), &[], 2), None, "nobody writes");
    }
}
