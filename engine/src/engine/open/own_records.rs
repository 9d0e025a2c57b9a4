//! The engine's own records among those that an opening finds: table events, prepares and their
//! verdicts, spilled runs, the last blob. What was committed of them and the journal does not know
//! of is applied to it (step 5), and the tables are those that are there then.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::records;
use crate::base::error::{Damage, Error, Result};
use crate::base::options::Failpoint;
use crate::base::record::{Kind, Lsn, Reader, SYSTEM_TABLE, TableId};
use crate::commit::{Accepted, Content, Recovered};
use crate::engine::Engine;
use crate::engine::table_events::TableEvent;
use crate::locks::Locker;
use crate::memtable::Record;
use crate::os::HashMap;
use crate::pm::Region;
use crate::read::view::TicketLsn;
use crate::table::{Pinned, TableSlot};
use crate::txn::{Place, Prepared, decode_lock, lock_again, lock_run_again};
use crate::version::{Edit, Op, VersionSet};

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
    Event(Box<TableEvent>),
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
            Kind::TableEvent if TableEvent::is_news_to(set, record.seq) => {
                let event = TableEvent::decode(record.key, record.value)
                    .ok_or_else(|| unknown(&format!("table event {}", record.seq)))?;
                self.news.push((record.seq, News::Event(Box::new(event))));
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
    pub(super) fn restore(self, engine: &Engine) -> Result<()> {
        let (zones, prepared) = (&engine.shared.zones, &engine.transactions.prepared);
        if let Some((lsn, at)) = self.blob {
            zones.add_live(zones.zone_of(at), 1);
            engine.shared.committer.blobs.note(lsn, at, lsn);
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

/// Runs of commits and of open prepares that no edit of the journal made.
pub(crate) fn lost_runs(
    region: &Region,
    recovered: &Recovered,
    set: &VersionSet,
) -> Result<Vec<Damage>> {
    let lacking = runs_without_edit(region, recovered, set, false)?;
    Ok(lacking.into_iter().filter_map(|(run, lsn)| set.lost_run(run, lsn)).collect())
}

/// The first commit or prepare whose run the journal does not know of, since it was read before the
/// zones, and another process writes. `None` if it knows of all.
pub(super) fn unknown_runs(
    region: &Region,
    recovered: &Recovered,
    set: &VersionSet,
) -> Result<Option<Lsn>> {
    // A prepare that has its verdict too: without what follows it, it has none.
    let lacking = runs_without_edit(region, recovered, set, true)?;
    Ok(lacking.into_iter().map(|(_, lsn)| lsn).filter(|lsn| *lsn > set.durable()).min())
}

/// Runs of commits and of prepares, those with a verdict or not, that are not pending, with their
/// LSNs.
fn runs_without_edit(
    region: &Region,
    recovered: &Recovered,
    set: &VersionSet,
    with_verdict: bool,
) -> Result<Vec<(u64, Lsn)>> {
    let own = OwnRecords::find(region, recovered, set)?;
    let committed = own.news.iter().filter_map(|(lsn, news)| match news {
        News::Run(run) => Some((*run, *lsn)),
        News::Event(_) => None,
    });
    let has_verdict = |found: &FoundPrepare<'_>| own.verdicts.contains_key(&found.place.lsn);
    let prepares = own.prepares.iter().filter(|found| with_verdict || !has_verdict(found));
    let prepared = prepares.flat_map(|it| it.runs.iter().map(|run| (*run, it.place.lsn)));
    let lacks = |(run, _): &(u64, Lsn)| set.pending_run(*run).is_none();
    Ok(committed.chain(prepared).filter(lacks).collect())
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
            let lost = || engine.set.lost_run(*run, self.place.lsn);
            let found = engine.set.pending_run(*run);
            let found = found.ok_or_else(|| lost().map_or_else(missing, Error::corrupt));
            let (table, extents) = found?;
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

/// Applies the news and makes the tables.
pub(super) fn catch_up(engine: &Engine, recovered: &Recovered, own: &OwnRecords<'_>) -> Result<()> {
    debug_assert!(own.news.is_sorted_by_key(|(lsn, _)| *lsn), "news come in the order of commits");
    if engine.options.has(Failpoint::JudgeBeforeNews) {
        judge_pending_runs(engine, recovered.last, &own.runs_of_prepares())?;
    }
    for (lsn, news) in &own.news {
        debug_assert!(*lsn <= recovered.last, "what is applied was committed");
        match news {
            News::Event(event) => adopt(engine, event.edit(*lsn))?,
            News::Run(run) => adopt_run(engine, *run, *lsn)?,
        }
    }
    judge_pending_runs(engine, recovered.last, &own.runs_of_prepares())?;
    debug_assert!(
        has_only_prepared(engine, &own.runs_of_prepares()),
        "each run is committed, gone, or of a prepare"
    );
    for table in engine.set.tables() {
        let version = engine.set.version(table.id);
        let Some(version) = version else { continue };
        let core = engine.catalog.new_core(table.id, &table.name, table.created_lsn, version);
        // What a persistent index does not know of is still to be merged.
        let merged = engine.forest.as_ref().map_or(recovered.last, |forest| forest.merged());
        core.set_merged(core.merged().max(merged));
        engine.ctx.tables.insert(&table.name, TableSlot::new(core));
    }
    Ok(())
}

/// Whether no run is pending but those of open prepares.
fn has_only_prepared(engine: &Engine, prepared: &BTreeSet<u64>) -> bool {
    engine.set.pending_runs().iter().all(|(run, _)| prepared.contains(run))
}

/// Applies what was decided before to the journal; read-only, to what is in memory.
fn adopt(engine: &Engine, edit: Edit) -> Result<()> {
    match engine.shared.read_only {
        true => engine.set.adopt(&edit),
        // An opening has to get through on a full disk.
        false => engine.ctx.apply_freeing(edit).map(drop),
    }
}

/// The record of a run was accepted: if the journal still has it as pending, it is committed.
///
/// # Errors
///
/// `Corrupt` if the edit that made it is lost; as [`adopt`].
fn adopt_run(engine: &Engine, run: u64, lsn: Lsn) -> Result<()> {
    let pending = engine.set.pending_runs();
    let Some((run, table)) = pending.into_iter().find(|(pending, _)| *pending == run) else {
        return engine.set.lost_run(run, lsn).map_or(Ok(()), |lost| Err(Error::corrupt(lost)));
    };
    adopt(engine, Edit { ops: vec![Op::CommitRun { table, run, lsn }] })
}

/// Runs whose records were not accepted never were committed, but those of open prepares.
fn judge_pending_runs(engine: &Engine, last: Lsn, prepared: &BTreeSet<u64>) -> Result<()> {
    let accepts = engine.options.has(Failpoint::AcceptPendingRun);
    let judge = |(run, table)| match accepts {
        true => Op::CommitRun { table, run, lsn: last },
        false => Op::DropRun { table, run },
    };
    let pending = engine.set.pending_runs().into_iter();
    let ops: Vec<Op> = pending.filter(|(run, _)| !prepared.contains(run)).map(judge).collect();
    if ops.is_empty() { Ok(()) } else { adopt(engine, Edit { ops }) }
}
