//! Step 5: what was committed and the journal does not know of is applied to it, and the tables
//! that are there then.

use std::collections::BTreeSet;

use super::own_records::{News, OwnRecords};
use crate::commit::Recovered;
use crate::engine::Engine;
use crate::error::Result;
use crate::levels::{Edit, Op};
use crate::options::Failpoint;
use crate::record::Lsn;
use crate::table::TableSlot;

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
fn adopt_run(engine: &Engine, run: u64, lsn: Lsn) -> Result<()> {
    let pending = engine.set.pending_runs();
    let Some((run, table)) = pending.into_iter().find(|(pending, _)| *pending == run) else {
        return Ok(());
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
