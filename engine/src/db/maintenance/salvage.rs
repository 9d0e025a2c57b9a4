//! Salvage: whatever of a damaged database can be read, in a new one.
//!
//! Older places are written first and newer ones over them. Levels come first, from the deepest up.
//! Then come the records of the region and the spilled runs in the order of their sequence numbers,
//! without what D says has moved and what has expired. Where a newer version is lost, an older one
//! may show. Of a database without a journal, or behind lost edits, [`parts`] takes what is there.

mod levels;
mod parts;
mod rows;
mod tables;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::alloc::{ZonePool, ZoneScan};
use crate::commit::{Evidence, JournalMark, Payload, readable};
use crate::db::events::Event;
use crate::db::open::{
    Loaded, Opening, check_pair, end_making, files_of, find_damaged, lock, lock_region,
};
use crate::db::{Database, OpenHow};
use crate::error::{Damage, Error, Result};
use crate::levels::{
    Edit, GoneTables, JournalFloor, Op, Run, SalvagedSet, TableInfo, Version, VersionSet,
};
use crate::memtable::{Record, records_in};
use crate::mvcc::{Clock, KeyInterval};
use crate::options::{Durability, Making, Options, TableOptions, Tier};
use crate::os::Unread;
use crate::pm::Region;
use crate::read::KeyRange;
use crate::record::{Kind, Lsn, Reader, SYSTEM_TABLE, TableId};
use crate::table::{Table, WriteBatch};

use tables::SalvagedTables;

/// Bytes of a batch that is worth a commit.
const BATCH_BYTES: usize = 256 * 1024;

/// What [`Database::salvage`] found.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SalvageReport {
    /// Tables in the new database.
    pub tables: u64,
    /// Records that were read and written to it, older versions and deletions included.
    pub records: u64,
    /// What could not be read. Keys in it are missing, or show an older value. Also transactions
    /// that were prepared and have no verdict, and tables whose names are lost.
    pub lost: Vec<Damage>,
}

/// Writes what can be read of `from` to `to`.
pub(super) fn salvage(from: &Path, to: &Path, options: &Options) -> Result<SalvageReport> {
    let files = files_of(options);
    let parts = find_damaged(&files, from, options)?;
    let mut lock = lock(&*files, from, options, OpenHow::ReadOnly)?;
    lock_region(&mut lock, &*files, (from, options), OpenHow::ReadOnly)?;
    let opening = Opening { files, path: from, options, read_only: true };
    let mut report = SalvageReport::default();
    let loaded = report.keep(opening.load_readable())?;
    if let Some(parts) = &parts {
        report.lost.push(parts.damage());
        parts::salvage(&opening, loaded.as_ref(), to, &mut report)?;
        return Ok(report);
    }
    let mark = loaded.as_ref().map_or_else(JournalMark::default, |loaded| loaded.floor.journal);
    let floor = JournalFloor { epoch: mark.epoch, number: mark.edit };
    let SalvagedSet { set, lost: flaws, mut gone, removed: mut known, lost_edits } =
        VersionSet::open_readable(Arc::clone(&opening.files), from, floor)?;
    opening.attach_objects(&set, 0)?;
    if let Some(loaded) = loaded.as_ref().filter(|_| set.database_id() != [0; 16]) {
        check_pair(&loaded.region, &loaded.superblock, &set)?;
    }
    let journal_is_whole = flaws.is_empty();
    report.lost.extend(flaws);
    let target = begin(to)?;
    let mut writer = Writer::new(&target);
    let records = match &loaded {
        Some(loaded) => report.region(loaded, |report, region, zones| {
            let mut rows = report.named_rows(region, &set)?;
            if !journal_is_whole {
                rows.extend(report.unnamed_rows(region, (&set, &gone, &lost_edits), zones)?);
            }
            Ok(rows)
        })?,
        None => Vec::new(),
    };
    known.extend(extents_of(&set));
    report.adopt_events(from, (&set, &mut gone), &records);
    known.extend(extents_of(&set));
    if !journal_is_whole {
        report.doubted_tables(from, (&set, &lost_edits), &records);
    }
    for table in set.tables() {
        let options = set.version(table.id).map_or_else(TableOptions::new, |v| v.options);
        // The new database has no object store.
        let options = options.cold(Tier::Ssd);
        let into = target.create_followed_table(&table.name, options)?;
        let before = report.lost.len();
        report.levels(&set, (table.id, journal_is_whole), &into, &mut writer)?;
        report.name_table(before, &table.name);
    }
    let mut runs = runs_of(&set).into_iter().peekable();
    let mut into_tables = SalvagedTables::of_journal((&target, from), (&set, journal_is_whole))?;
    for record in &records {
        while let Some((table, run)) = runs.next_if(|(_, run)| run.lsn < record.seq) {
            report.run(&set, (&table, &run), &into_tables, &mut writer)?;
        }
        report.record(record, (&mut into_tables, &gone), &mut writer)?;
    }
    for (table, run) in runs {
        report.run(&set, (&table, &run), &into_tables, &mut writer)?;
    }
    drop(into_tables);
    if !journal_is_whole {
        report.unnamed_extents(set.store(), &known, &mut writer)?;
    }
    report.records = writer.finish()?;
    report.tables = target.table_names().len() as u64;
    end(target, to)?;
    Ok(report)
}

/// Makes the new database. It is whole only after [`end`].
fn begin(to: &Path) -> Result<Database> {
    let making = Options { making: Some(Making::Salvage), ..Options::new() };
    Database::open_with(to, &making, OpenHow::Create)
}

fn end(target: Database, to: &Path) -> Result<()> {
    let database_id = target.inner.set.database_id();
    target.close()?;
    end_making(to, &Options::new(), database_id)
}

/// What of a table event the journal lacks. The edit of an earlier one than its last may be lost.
fn missing_of(event: &Event, seq: Lsn, (set, gone): (&VersionSet, &GoneTables)) -> Edit {
    let mut edit = event.edit(seq);
    let is_news = Event::is_news_to(set, seq);
    let makes = matches!(event, Event::Create { .. } | Event::Truncate { .. });
    let is_there = |table: &TableId| set.version(*table).is_some();
    edit.ops.retain(|op| match op {
        Op::DropTable { table } => is_there(table),
        Op::CreateTable { table, .. } | Op::TableOptions { table, .. } if makes => {
            is_news || !is_there(table) && !gone.has(*table)
        }
        _ => is_news,
    });
    edit
}

/// The spilled runs of all tables, the oldest first.
fn runs_of(set: &VersionSet) -> Vec<(TableInfo, Arc<Run>)> {
    let of_table = |table: TableInfo| {
        let runs = set.version(table.id).map_or_else(Vec::new, |version| version.runs.clone());
        runs.into_iter().map(move |run| (table.clone(), run))
    };
    let mut runs: Vec<_> = set.tables().into_iter().flat_map(of_table).collect();
    runs.sort_by_key(|(_, run)| run.lsn);
    runs
}

/// The extents of all tables. Those of runs without a commit are of none: the edit that says that
/// they were committed may be lost.
fn extents_of(set: &VersionSet) -> BTreeSet<u64> {
    let mut ids = BTreeSet::new();
    for version in set.tables().iter().filter_map(|table| set.version(table.id)) {
        let runs = version.runs.iter().map(|run| &run.extents);
        for level in version.levels.iter().chain(runs) {
            ids.extend(level.extents().iter().map(|extent| extent.meta().id));
        }
    }
    ids
}

/// The LSN up to which everything of a table has expired by now.
fn expired(set: &VersionSet, version: &Version) -> Lsn {
    let now = version.options.ttl.map_or(0, |_| Clock::of_machine().now());
    version.expired_at(&set.timeline(), now)
}

/// What is there of zones.
struct InZones {
    payloads: Vec<Payload>,
    /// Where zones lie.
    zones: Vec<Range<u64>>,
}

impl SalvageReport {
    /// Turns damage into a line of the report; other errors stay errors.
    fn keep<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) => match e.damage() {
                Some(damage) => {
                    self.lost.push(damage.clone());
                    Ok(None)
                }
                None => Err(e),
            },
        }
    }

    /// Table events and commits of runs that the journal lacks. An event that does not fit what is
    /// left of it is lost.
    fn adopt_events(
        &mut self,
        from: &Path,
        (set, gone): (&VersionSet, &mut GoneTables),
        records: &[Record<'_>],
    ) {
        for record in records.iter().filter(|record| record.table == SYSTEM_TABLE) {
            if record.kind == Kind::SpilledRun {
                self.adopt_run(from, set, record);
            } else if record.kind == Kind::TableEvent
                && let Some(event) = Event::decode(record.key, record.value)
            {
                if let Event::Drop { table } | Event::Truncate { table, .. } = event {
                    gone.add(table);
                }
                let edit = missing_of(&event, record.seq, (set, gone));
                if let Err(refused) = set.adopt_readable(&edit) {
                    self.does_not_fit(from, format!("table event {}", record.seq), &refused);
                }
            }
        }
    }

    fn adopt_run(&mut self, from: &Path, set: &VersionSet, record: &Record<'_>) {
        let run = record.key.first_chunk().copied().map(u64::from_le_bytes);
        let pending = set.pending_runs().into_iter().find(|(pending, _)| Some(*pending) == run);
        let Some((run, table)) = pending else { return };
        let op = Op::CommitRun { table, run, lsn: record.seq };
        if let Err(refused) = set.adopt(&Edit { ops: vec![op] }) {
            self.does_not_fit(from, format!("run {run} of commit {}", record.seq), &refused);
        }
    }

    fn does_not_fit(&mut self, from: &Path, what: String, refused: &Error) {
        let (file, expected) = (from.to_path_buf(), "one that fits the journal".into());
        let got = refused.to_string();
        self.lost.push(Damage { tier: "journal", file, offset: 0, what, expected, got });
    }

    /// The records of the region in the order of their commits: those in zones, and those in the
    /// row tables that `rows` finds outside of the zones that it is told of.
    fn region<'a>(
        &mut self,
        loaded: &'a Loaded,
        rows: impl FnOnce(&mut Self, &'a Region, &[Range<u64>]) -> Result<Vec<Record<'a>>>,
    ) -> Result<Vec<Record<'a>>> {
        let region = &*loaded.region;
        let InZones { payloads, zones } = self.zones(loaded)?;
        let (prepared, payloads): (Vec<_>, Vec<_>) =
            payloads.into_iter().partition(|payload| payload.is_prepared);
        let in_payload = |payload: &Payload| records_in(region, payload.at, payload.len);
        let in_zones = payloads.iter().flat_map(in_payload).map(|(_, record)| record);
        let mut records: Vec<Record<'_>> = in_zones.collect();
        records.append(&mut rows(self, region, &zones)?);
        // Within a commit range deletes come first, and a key occurs once beside them. What the
        // cleaner or a row table has taken in lies where it was, too, until its zone is released.
        let place = |r: &Record<'a>| (r.seq, r.kind != Kind::RangeDelete, r.table, r.key);
        records.sort_by_key(place);
        records.dedup_by_key(|record| place(record));
        self.open_prepares(region, &prepared, &records);
        let lost = region.unread().into_iter().map(|Unread { place, error }| Damage {
            tier: "pm",
            file: region.path().to_path_buf(),
            offset: place.start,
            what: "region".into(),
            expected: format!("{} readable bytes", place.end - place.start),
            got: error,
        });
        self.lost.extend(lost);
        Ok(records)
    }

    /// Says which transactions were prepared and neither committed nor rolled back.
    fn open_prepares(&mut self, region: &Region, prepared: &[Payload], records: &[Record<'_>]) {
        let is_verdict =
            |r: &&Record<'_>| matches!(r.kind, Kind::CommitPrepared | Kind::RollBackPrepared);
        let verdicts = records.iter().filter(is_verdict);
        let verdicts: BTreeSet<Lsn> = verdicts.filter_map(|r| Reader::new(r.value).u64()).collect();
        for payload in prepared {
            let head = records_in(region, payload.at, payload.len).next();
            let Some((offset, head)) = head.filter(|(_, r)| !verdicts.contains(&r.seq)) else {
                continue;
            };
            let writes = Reader::new(head.value).u32().unwrap_or(0);
            self.lost.push(Damage {
                tier: "pm",
                file: region.path().to_path_buf(),
                offset,
                what: format!("prepared transaction \"{}\"", head.key.escape_ascii()),
                expected: "a commit or a rollback".into(),
                got: format!("neither; its {writes} writes are left out"),
            });
        }
    }

    /// What is there of zones.
    fn zones(&mut self, loaded: &Loaded) -> Result<InZones> {
        self.lost.extend(loaded.damages.iter().cloned());
        let geometry = loaded.superblock.geometry;
        let scans = ZonePool::scan_readable(&loaded.region, geometry, &mut self.lost)?;
        let evidence = Evidence {
            region: &loaded.region,
            geometry,
            floor: loaded.floor,
            incarnations: &loaded.superblock.incarnations,
            merged: 0,
            scans: &scans,
            gidx: &[],
            threads: 1,
            progress: &|_, _| (),
            check_payloads: true,
        };
        let payloads = readable(&evidence, &mut self.lost)?;
        let span = |scan: &ZoneScan| {
            let at = geometry.zone(scan.zone);
            at..at + scan.len(geometry)
        };
        Ok(InZones { payloads, zones: scans.iter().map(span).collect() })
    }

    /// What is not drained of a run.
    fn run(
        &mut self,
        set: &VersionSet,
        (table, run): (&TableInfo, &Run),
        into_tables: &SalvagedTables<'_>,
        writer: &mut Writer<'_>,
    ) -> Result<()> {
        let Some(version) = set.version(table.id) else { return Ok(()) };
        if run.lsn <= expired(set, &version) {
            return Ok(());
        }
        let into = writer.db.table(&table.name)?;
        let before = self.lost.len();
        for extent in run.extents.extents().iter() {
            extent.salvage(&mut self.lost, |entry| {
                if version.drained.get(entry.key) >= run.lsn
                    || into_tables.hide(table.id, entry.key, run.lsn)
                {
                    return Ok(());
                }
                writer.write(&into, entry.kind, entry.key, entry.value)
            })?;
        }
        self.name_table(before, &table.name);
        Ok(())
    }

    /// Adds the name of their table to the losses from `first` on.
    fn name_table(&mut self, first: usize, table: &str) {
        for damage in &mut self.lost[first..] {
            damage.what = format!("{} of table {table:?}", damage.what);
        }
    }
}

/// Writes in batches; the last is made durable, with the last blob.
struct Writer<'a> {
    db: &'a Database,
    batch: WriteBatch,
    records: u64,
    blob: Option<&'a [u8]>,
}

impl<'a> Writer<'a> {
    fn new(db: &'a Database) -> Writer<'a> {
        Writer { db, batch: WriteBatch::new(), records: 0, blob: None }
    }

    /// Writes a record that is not a range delete.
    fn write(&mut self, into: &Table, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        match kind {
            Kind::Put | Kind::Delete | Kind::Merge => self.batch.push(into, kind, key, value),
            Kind::RangeDelete
            | Kind::Prepare
            | Kind::CommitPrepared
            | Kind::RollBackPrepared
            | Kind::SpilledRun
            | Kind::Reference
            | Kind::TableEvent
            | Kind::Blob
            | Kind::Lock => return Ok(()),
        };
        self.records += 1;
        self.commit_large()
    }

    /// Deletes what lies in an interval so far.
    fn delete_range(&mut self, into: &Table, interval: &KeyInterval) -> Result<()> {
        let KeyRange { lower, upper } = KeyRange::from(interval.clone());
        self.batch.delete_range(into, (lower, upper));
        self.records += 1;
        self.commit_large()
    }

    fn commit_large(&mut self) -> Result<()> {
        if self.batch.stored_bytes() >= BATCH_BYTES {
            let batch = std::mem::take(&mut self.batch);
            self.db.write_with(batch, Durability::Relaxed)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<u64> {
        if let Some(blob) = self.blob {
            self.batch.set_blob(blob);
        }
        if !self.batch.is_empty() {
            self.db.write(self.batch)?;
        }
        Ok(self.records)
    }
}
