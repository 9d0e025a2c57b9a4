//! Cleaning: what still lives in a zone that is mostly dead is copied into the cleaner's zone, with
//! its sequence numbers, so that the zone can be released. Without it one cold record would keep
//! each zone of a hot table until the turn comes round to it.
//!
//! The copies are an ordinary commit of their own, whose sub-entry says that its records keep
//! their numbers (`docs/format.md`). It is durable before the first copy can be found, so a source
//! is released only when its copies survive; until then recovery finds a record twice, and counts
//! it once (`docs/commit.md`).

use std::collections::HashMap;
use std::sync::Arc;

use super::inner::Engine;
use super::releasing::Batch;
use crate::commit::{Group, payloads_of};
use crate::error::{ErrorKind, Result};
use crate::memtable::{Record, records_in};
use crate::mvcc::pin;
use crate::options::{Durability, Planted};
use crate::record::{Kind, TableId};
use crate::table::TableCore;

/// A zone is cleaned when at most one in so many of its records lives.
const MOSTLY_DEAD: u64 = 8;

/// A record that lives, and where.
struct Living<'a> {
    at: u64,
    record: Record<'a>,
}

impl Engine {
    /// Cleans some zones that are mostly dead, if they are worth it; whether there were.
    pub(super) fn clean(&self, batch: Batch) -> Result<bool> {
        let Some(stream) = self.shared.committer.cleaner() else { return Ok(false) };
        let zones = &self.shared.zones;
        // Eligibility: nothing is moved that a power cut could still undo.
        let durable = self.shared.committer.durable();
        let mut not_worth = self.background.not_worth_cleaning.lock();
        let mut candidates = zones.mostly_dead(durable, MOSTLY_DEAD);
        candidates.retain(|zone| not_worth.get(zone) != Some(&zones.live(*zone)));
        if !self.are_worth_it(&candidates, batch) {
            return Ok(false);
        }
        let _guard = pin();
        let tables: HashMap<_, _> = self.tables().into_iter().map(|t| (t.id(), t)).collect();
        let budget = zones.geometry().usual_zone() / 4;
        let (mut living, mut bytes, mut cleaned) = (Vec::new(), 0, 0);
        for zone in candidates {
            let found = self.living(&tables, zone)?;
            let more: u64 = found.iter().map(|l| l.record.stored_len() as u64).sum();
            // Few large records may be much of a zone; or what keeps it is no record to move.
            if found.is_empty() || more > budget {
                not_worth.insert(zone, zones.live(zone));
                continue;
            }
            if bytes + more > budget {
                break;
            }
            bytes += more;
            cleaned += 1;
            living.extend(found);
        }
        if living.is_empty() {
            return Ok(false);
        }
        // The oldest record first: neighbours in time die together.
        living.sort_by_key(|l| l.record.seq);
        match self.copy(stream, &living) {
            Ok(copies) => self.relocate(&tables, &living, copies)?,
            // No zone is left for copies; drains make room without any.
            Err(e) if e.kind() == ErrorKind::Full => return Ok(false),
            Err(e) => return Err(e),
        }
        self.background.metrics.zones_cleaned.add(cleaned);
        self.background.metrics.records_moved.add(living.len() as u64);
        Ok(true)
    }

    /// The records of a zone that a read can find.
    fn living(
        &self,
        tables: &HashMap<TableId, Arc<TableCore>>,
        zone: u32,
    ) -> Result<Vec<Living<'_>>> {
        let region = &self.shared.region;
        let at = self.shared.zones.geometry().zone(zone);
        let records = payloads_of(region, self.shared.zones.geometry(), zone)
            .flat_map(|payload| records_in(region, at + payload.at, payload.len));
        let lives = |at: u64, record: &Record<'_>| {
            let in_table = |table: &Arc<TableCore>| table.view().holds(record, at);
            tables.get(&record.table).map_or_else(|| Ok(self.is_last_blob(record, at)), in_table)
        };
        let found = records.filter_map(|(at, record)| match lives(at, &record) {
            Ok(lives) => lives.then_some(Ok(Living { at, record })),
            Err(e) => Some(Err(e)),
        });
        found.collect()
    }

    fn is_last_blob(&self, record: &Record<'_>, at: u64) -> bool {
        record.kind == Kind::Blob && self.shared.committer.blobs().holds(record.seq, at)
    }

    /// Commits copies of the records, durably; where the first one is, and its zone.
    fn copy(&self, stream: u32, living: &[Living<'_>]) -> Result<(u32, u64)> {
        let records: Vec<Record<'_>> = living.iter().map(|l| l.record).collect();
        let group = Group::moved(stream, &records);
        let committer = &self.shared.committer;
        let pending = committer.enqueue_group(group, Durability::Durable, &mut |_| ())?;
        let (zone, at) = (pending.zone(), pending.records_at());
        // Before D forgets what only it knows of older records.
        let oldest = living.iter().map(|l| l.record.seq).min().unwrap_or(0);
        self.shared.zones.lower_oldest(zone, oldest);
        if !self.options.has(Planted::FreeBeforeCopy) {
            pending.wait()?;
        }
        Ok((zone, at))
    }

    /// Has readers find the copies, which begin at `at` in `zone`, and counts the records out of
    /// the zones that they were in.
    fn relocate(
        &self,
        tables: &HashMap<TableId, Arc<TableCore>>,
        living: &[Living<'_>],
        (zone, mut at): (u32, u64),
    ) -> Result<()> {
        let zones = &self.shared.zones;
        for Living { at: from, record } in living {
            let in_table = |table: &Arc<TableCore>| {
                // A table is not dropped meanwhile: its records would be counted out twice.
                let _change = table.change();
                table.view().relocate(record, *from, at)
            };
            let blob = || Ok(self.shared.committer.blobs().relocate(record.seq, *from, at));
            let found = tables.get(&record.table).map_or_else(blob, in_table)?;
            // One that went in the meantime has counted its old place out; nobody has the new one.
            let gone_from = if found { zones.zone_of(*from) } else { zone };
            zones.sub_live(gone_from, 1);
            at += record.stored_len() as u64;
        }
        self.shared.bell.ring();
        Ok(())
    }
}
