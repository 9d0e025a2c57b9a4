//! The engine's own records among those that an opening finds: table events, prepares and their
//! verdicts, spilled runs, the last blob.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::records;
use crate::commit::{Accepted, Content, Recovered};
use crate::engine::Engine;
use crate::engine::events::Event;
use crate::error::{Error, Result};
use crate::levels::VersionSet;
use crate::locks::Locker;
use crate::memtable::Record;
use crate::options::Failpoint;
use crate::os::HashMap;
use crate::pm::Region;
use crate::record::{Kind, Lsn, Reader, SYSTEM_TABLE, TableId};
use crate::table::{Pinned, TableSlot};
use crate::txn::{Place, Prepared, decode_lock, lock_again, lock_run_again};
use crate::view::TicketLsn;

/// A prepare, whether or not it has its verdict.
struct FoundPrepare<'a> {
    id: &'a [u8],
    place: Place,
    entry: Accepted,
    /// What it has spilled.
    runs: Vec<u64>,
}

/// What the journal may not know of.
pub(super) enum News {
    Event(Event),
    /// A run that was committed.
    Run(u64),
}

/// What the engine itself has recorded.
#[derive(Default)]
pub(super) struct OwnRecords<'a> {
    /// What was committed and the journal may not know of, in the order of commits.
    pub(super) news: Vec<(Lsn, News)>,
    prepares: Vec<FoundPrepare<'a>>,
    /// Zones of verdicts by the LSN of the prepare that each is on.
    verdicts: HashMap<Lsn, u32>,
    /// The last one, and where it lies.
    blob: Option<(Lsn, u64)>,
}

impl<'a> OwnRecords<'a> {
    /// Finds them among what was committed.
    ///
    /// # Errors
    ///
    /// `Invalid` when one is of a kind that this version does not know.
    pub(super) fn find(
        region: &'a Region,
        recovered: &Recovered,
        set: &VersionSet,
    ) -> Result<OwnRecords<'a>> {
        let mut own = OwnRecords::default();
        for (zone, accepted) in &recovered.zones {
            for entry in accepted.iter().filter(|entry| !entry.is_merged) {
                if entry.content == Content::Prepared {
                    own.prepares.push(prepare(region, *zone, entry)?);
                    continue;
                }
                if !entry.has_own {
                    continue;
                }
                for (at, record) in records(region, entry) {
                    if record.table == SYSTEM_TABLE {
                        own.take_in(*zone, at, &record, set)?;
                    }
                }
            }
        }
        own.news.sort_by_key(|(lsn, _)| *lsn);
        Ok(own)
    }

    fn take_in(&mut self, zone: u32, at: u64, record: &Record<'_>, set: &VersionSet) -> Result<()> {
        match record.kind {
            Kind::TableEvent if Event::is_news_to(set, record.seq) => {
                let event = Event::decode(record.key, record.value)
                    .ok_or_else(|| unknown(&format!("table event {}", record.seq)))?;
                self.news.push((record.seq, News::Event(event)));
            }
            Kind::SpilledRun => {
                let run = Reader::new(record.key).u64();
                let run = run.ok_or_else(|| unknown(&format!("run of commit {}", record.seq)))?;
                self.news.push((record.seq, News::Run(run)));
            }
            Kind::TableEvent => {}
            Kind::CommitPrepared | Kind::RollBackPrepared => {
                let prepared = Reader::new(record.value).u64();
                let prepared =
                    prepared.ok_or_else(|| unknown(&format!("verdict {}", record.seq)))?;
                debug_assert!(prepared < record.seq, "a verdict comes after its prepare");
                self.verdicts.insert(prepared, zone);
            }
            Kind::Blob => {
                // Its copy by the cleaner, if both are there, is the same.
                self.blob = self.blob.max(Some((record.seq, at)));
            }
            _ => return Err(unknown(&format!("record {}", record.seq))),
        }
        Ok(())
    }

    /// The runs of prepares that are open, which stay pending.
    pub(super) fn runs_of_prepares(&self) -> BTreeSet<u64> {
        let is_open = |found: &&FoundPrepare<'_>| !self.verdicts.contains_key(&found.place.lsn);
        self.prepares.iter().filter(is_open).flat_map(|found| &found.runs).copied().collect()
    }

    /// Step 7: prepares without a verdict are open again, with their locks; verdicts and the last
    /// blob keep their zones.
    ///
    /// # Errors
    ///
    /// `Invalid` when a prepare is of a kind that this version does not know.
    pub(super) fn restore(self, engine: &Engine) -> Result<()> {
        let (zones, prepared) = (&engine.shared.zones, &engine.transactions.prepared);
        if let Some((lsn, at)) = self.blob {
            zones.add_live(zones.zone_of(at), 1);
            engine.shared.committer.blobs().note(lsn, at, lsn);
        }
        let slots = engine.ctx.tables.slots();
        for found in &self.prepares {
            match self.verdicts.get(&found.place.lsn) {
                None => prepared.restore(zones, found.id, found.reopen(engine, &slots)?),
                Some(zone) if *zone != found.place.zone => {
                    prepared.restore_verdict(zones, *zone, found.place.zone);
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// The prepare in a sub-entry.
fn prepare<'a>(region: &'a Region, zone: u32, entry: &Accepted) -> Result<FoundPrepare<'a>> {
    let mut found = records(region, entry).map(|(_, record)| record);
    let is_run = |record: &Record<'_>| record.kind == Kind::SpilledRun;
    let runs = records(region, entry).map(|(_, record)| record).filter(is_run);
    let runs: Option<Vec<u64>> = runs.map(|record| Reader::new(record.key).u64()).collect();
    let sound = |head: &Record<'_>| {
        let mut counts = Reader::new(head.value);
        let all = u64::from(counts.u32()?) + u64::from(counts.u32()?) + 1;
        (head.kind == Kind::Prepare && counts.is_empty() && all == entry.records).then_some(())
    };
    let head = found.next().filter(|head| sound(head).is_some());
    let locks_are_sound = found
        .filter(|record| record.kind == Kind::Lock)
        .all(|record| decode_lock(record.key, record.value).is_some());
    let head = head.filter(|_| locks_are_sound);
    let unknown = || unknown(&format!("prepare {}", entry.lsn));
    let (id, runs) = (head.ok_or_else(unknown)?.key, runs.ok_or_else(unknown)?);
    let (lsn, at, len) = (entry.lsn, entry.payload_at, entry.payload_len);
    let place = Place { lsn, zone, at, len, records: entry.records };
    Ok(FoundPrepare { id, place, entry: *entry, runs })
}

impl FoundPrepare<'_> {
    fn reopen(
        &self,
        engine: &Engine,
        slots: &HashMap<TableId, Arc<TableSlot>>,
    ) -> Result<Prepared> {
        let shared = &engine.shared;
        let missing = || unknown(&format!("prepare {} of a table", self.place.lsn));
        let locks = !shared.read_only && !shared.region.has(Failpoint::UnlockPrepares);
        let mut locker = locks.then(|| Locker::new(&shared.locks));
        let mut targets: Vec<Arc<Pinned>> = Vec::new();
        let mut target = |table| -> Result<Arc<Pinned>> {
            if let Some(known) = targets.iter().find(|target| target.core.id() == table) {
                return Ok(Arc::clone(known));
            }
            let pinned = Arc::new(slots.get(&table).ok_or_else(missing)?.pin());
            targets.push(Arc::clone(&pinned));
            Ok(pinned)
        };
        for (_, record) in records(&shared.region, &self.entry).skip(1) {
            if record.kind != Kind::SpilledRun {
                let target = target(record.table)?;
                locker.as_mut().map_or(Ok(()), |l| lock_again(shared, l, &target, &record))?;
            }
        }
        let (mut runs, lsn) = (Vec::with_capacity(self.runs.len()), TicketLsn::unknown());
        // After the ranges: rows in those need no locks of their own.
        for run in &self.runs {
            let (table, extents) = engine.set.pending_run(*run).ok_or_else(missing)?;
            let target = target(table)?;
            locker.as_mut().map_or(Ok(()), |l| lock_run_again(shared, l, &target, &extents))?;
            runs.push(shared.join_again(&target.core, (*run, extents), &lsn));
        }
        Ok(Prepared { place: self.place, targets, runs, locker })
    }
}

fn unknown(what: &str) -> Error {
    Error::invalid(format!(
        "{what} is of a kind that this version of Terrace does not know; use a newer one"
    ))
}
