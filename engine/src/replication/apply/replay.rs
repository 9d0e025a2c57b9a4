//! What the levels of a checkpoint have of the commits with which a reader of it begins. The log
//! has them again from the oldest one on that the writer had above its levels.

use std::collections::BTreeMap;

use super::{Applier, BATCH_BYTES};
use crate::base::error::{Error, Result};
use crate::base::record::{Kind, Lsn, TableId, decode_end};
use crate::engine::table_events::TableEvent;
use crate::memtable::Record;
use crate::mvcc::{DrainedMap, KeyInterval};
use crate::replication::checkpoint::FoundCheckpoint;
use crate::replication::log::ShippedGroup;
use crate::table::WriteBatch;
use crate::version::Op;

/// Of a group that is applied up to a checkpoint's entry, so much is committed at a time. A record
/// may have a key of 64 KiB at both ends, and still fits.
const SOME_BYTES: usize = BATCH_BYTES / 4;
const SOME_RECORDS: usize = 1000;

/// The state of a checkpoint, by the writer's numbers of tables.
pub(super) struct ReplayFilter {
    /// Its LSN: what was created, dropped or prepared up to there is as it says.
    upto: Lsn,
    tables: BTreeMap<TableId, DrainedTable>,
    /// Whether all is applied again: a planted bug.
    again: bool,
}

/// What levels have of a table.
#[derive(Default)]
struct DrainedTable {
    /// All up to here.
    low: Lsn,
    map: DrainedMap,
}

impl ReplayFilter {
    pub(super) fn of(found: &FoundCheckpoint, again: bool) -> ReplayFilter {
        let upto = found.manifest.lsn;
        let low = if found.manifest.oldest == 0 { upto } else { found.manifest.oldest - 1 };
        let mut tables = BTreeMap::<TableId, DrainedTable>::new();
        for op in &found.manifest.edit.ops {
            match op {
                Op::CreateTable { table, .. } => {
                    let map = found.drained.get(table).cloned().unwrap_or_default();
                    tables.insert(*table, DrainedTable { low, map });
                }
                // Its rows up to there would be younger here than they were.
                Op::TimeToLive { table, expired, .. } => {
                    let of = tables.entry(*table).or_default();
                    of.low = of.low.max(*expired);
                }
                _ => {}
            }
        }
        ReplayFilter { upto, tables, again }
    }

    /// Whether the checkpoint is of a later moment than a commit.
    fn is_of(&self, lsn: Lsn) -> bool {
        lsn <= self.upto
    }

    /// Whether it has all of a record of a commit. A table that it lacks was dropped or truncated
    /// by then.
    fn has(&self, lsn: Lsn, record: &Record<'_>) -> bool {
        if !self.is_of(lsn) {
            return false;
        }
        let of = || self.tables.get(&record.table);
        match record.kind {
            Kind::CommitPrepared | Kind::RollBackPrepared => true,
            Kind::Put | Kind::Delete | Kind::Merge => {
                of().is_none_or(|of| lsn <= of.low.max(of.map.get(record.key)) && !self.again)
            }
            Kind::RangeDelete => of().is_none_or(|of| lsn <= of.low && !self.again),
            _ => false,
        }
    }
}

impl Applier {
    /// Adds the records of a group to a batch. Up to the checkpoint's entry nothing is shown, and a
    /// failure throws the database away. So what the writer has committed at once is several
    /// commits here: a smaller region may have no zone for one.
    pub(super) fn add_group(&mut self, batch: &mut WriteBatch, group: &ShippedGroup) -> Result<()> {
        for record in group.records() {
            self.add(batch, (group.lsn, record))?;
            let is_much = batch.stored_bytes() >= SOME_BYTES || batch.len() >= SOME_RECORDS;
            if is_much && self.replay.is_some() {
                self.commit(std::mem::take(batch))?;
            }
        }
        Ok(())
    }

    /// Fails up to the checkpoint's entry: after a failure the database may have a part of a
    /// commit.
    pub(super) fn check_shown(&self) -> Result<()> {
        let failed = || Error::invalid("a start from a checkpoint has failed; start again");
        if self.replay.is_some() { Err(failed()) } else { Ok(()) }
    }

    /// Whether the checkpoint that the reader starts from is of a later moment than a commit.
    pub(super) fn is_again(&self, lsn: Lsn) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.is_of(lsn))
    }

    /// Whether that has all of a commit's record.
    pub(super) fn has(&self, lsn: Lsn, record: &Record<'_>) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.has(lsn, record))
    }

    /// The keys of a range delete of a commit, but for those of which it has it.
    pub(super) fn lacking(&self, lsn: Lsn, record: &Record<'_>) -> Vec<KeyInterval> {
        let end = decode_end(record.key, record.value).flatten().map(<[u8]>::to_vec);
        let keys = KeyInterval { start: record.key.to_vec(), end };
        let replay = self.replay.as_ref().filter(|replay| replay.is_of(lsn) && !replay.again);
        match replay.and_then(|replay| replay.tables.get(&record.table)) {
            Some(of) => of.map.undrained(&keys, lsn),
            None => vec![keys],
        }
    }

    /// The table event of a group, if it is one that is to be carried out.
    pub(super) fn event_of(&self, group: &ShippedGroup) -> Option<TableEvent> {
        let event = group.records().find(|record| record.kind == Kind::TableEvent)?;
        TableEvent::decode(event.key, event.value).filter(|_| !self.is_again(group.lsn))
    }
}
