//! Salvage: whatever of a damaged database can be read, in a new one.
//!
//! Older places are written first and newer ones over them. Levels come first, from the deepest up.
//! Then come the records of the region and the spilled runs in the order of their sequence numbers,
//! without what D says has moved and what has expired. Where a newer version is lost, an older one
//! may show. Of a database without a journal, or behind lost edits, [`parts`] takes what is there.

mod parts;
mod tables;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Damage, Mismatch, Result};
use crate::base::options::{Durability, Making, Options, TableOptions, Tier};
use crate::base::progress::Meter;
use crate::base::record::{Kind, Lsn, Reader, SYSTEM_TABLE};
use crate::commit::{
    Evidence, Gidx, JournalMark, LsnRanges, Payload, ReadableZones, bytes_to_read, readable,
};
use crate::engine::catalog::{READER_POSITION, READER_TABLE};
use crate::engine::open::{
    Loaded, NamedObjects, Opening, check_pair, end_making, files_of, find_damaged, lock,
    lock_region,
};
use crate::engine::table_events::TableEvent;
use crate::engine::{Database, OpenHow};
use crate::memtable::{Record, records_in};
use crate::mvcc::KeyInterval;
use crate::os::Unread;
use crate::pm::alloc::{StreamPool, ZonePool, ZoneScan};
use crate::pm::{Region, STREAM_SLOTS};
use crate::read::KeyRange;
use crate::storage::ExtentStore;
use crate::table::{Table, WriteBatch};
use crate::version::{
    Decided, Ended, JournalFloor, Level, ReadableJournal, Run, SalvagedSet, TableInfo, Version,
    VersionSet,
};

use tables::SalvagedTables;

/// Bytes of a batch that is worth a commit.
const BATCH_BYTES: usize = 256 * 1024;

/// What [`Options::salvage`] found.
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
    let opening = Opening { files, path: from, options, read_only: true, beside: None };
    let (mut report, meter) = (SalvageReport::default(), &Meter::new(options, "salvage"));
    meter.did(0)?;
    let loaded = report.keep(opening.load_readable())?;
    if let Some(parts) = &parts {
        report.lost.push(parts.damage());
        parts::salvage(&opening, loaded.as_ref(), (to, meter), &mut report)?;
        return Ok(report);
    }
    let mark = loaded.as_ref().map_or_else(JournalMark::default, |loaded| loaded.floor.journal);
    let floor = JournalFloor { epoch: mark.epoch, number: mark.edit };
    let journal = ReadableJournal::open(&opening.files, from, floor)?;
    let in_zones = loaded.as_ref().map(|loaded| report.zones(loaded, journal.durable(), meter));
    let in_zones = in_zones.transpose()?.unwrap_or_default();
    let all_is_read = loaded.as_ref().is_some_and(|loaded| loaded.region.unread().is_empty());
    let region_is_whole = all_is_read && report.lost.is_empty();
    let journal = journal.replay(in_zones.decided())?;
    let (set, journal_is_whole) = (&journal.set, journal.lost.is_empty());
    opening.attach_objects_of(set.store(), id_of(set, &loaded), NamedObjects::of(set), 0)?;
    if let Some(loaded) = loaded.as_ref().filter(|_| set.database_id() != [0; 16]) {
        check_pair(&loaded.region, &loaded.superblock, set.database_id())?;
    }
    report.lost.extend(journal.lost.iter().chain(&journal.torn).cloned());
    let (target, now) = (begin(to, options)?, options.clock_of_records().now());
    let (mut writer, mut records) = (Writer::new(&target, meter), Vec::new());
    if let Some(loaded) = &loaded {
        let mut rows = report.named_rows((&loaded.region, meter), set)?;
        if !journal_is_whole {
            rows.extend(report.unnamed_rows((&loaded.region, meter), &journal, &in_zones.zones)?);
        }
        records = report.region(&loaded.region, in_zones, rows);
    }
    if !journal_is_whole {
        if journal.may_have_objects {
            report.unnamed_objects(&opening, set.store(), &journal.ended);
        }
        report.doubted_tables(from, &journal, &records);
    }
    meter.plan(bytes_in(set, &records));
    for table in set.tables() {
        let options = set.version(table.id).map_or_else(TableOptions::new, |v| v.options);
        // The new database has no object store.
        let options = options.cold(Tier::Ssd);
        let into = target.create_followed_table(&table.name, options)?;
        let before = report.lost.len();
        report.levels((set, now), (table.id, journal_is_whole), &into, &mut writer)?;
        report.name_table(before, &table.name);
    }
    let mut runs = runs_of(set).into_iter().peekable();
    let mut into_tables = SalvagedTables::of_journal((&target, from), &journal, now)?;
    for record in &records {
        while let Some((table, run)) = runs.next_if(|(_, run)| run.lsn < record.seq) {
            report.run(set, (&table, &run), &into_tables, &mut writer)?;
        }
        report.record(record, (&mut into_tables, &journal.ended), &mut writer)?;
    }
    for (table, run) in runs {
        report.run(set, (&table, &run), &into_tables, &mut writer)?;
    }
    drop(into_tables);
    report.unclaimed_extents(&journal, region_is_whole, &mut writer)?;
    report.records = writer.finish()?;
    report.tables = target.table_names().len() as u64;
    end(target, to).map(|()| report)
}

/// Makes the new database. It is whole only after [`end`].
fn begin(to: &Path, options: &Options) -> Result<Database> {
    let in_memory = options.in_memory.clone();
    let making = Options { making: Some(Making::Salvage), in_memory, ..Options::new() };
    Database::open_unshared(to, &making, OpenHow::Create)
}

fn end(target: Database, to: &Path) -> Result<()> {
    // A node would go on from its position, over what is lost.
    if target.table_names().iter().any(|name| name == READER_TABLE) {
        target.existing_table(READER_TABLE)?.delete(READER_POSITION)?;
    }
    let (inner, database_id) = (target.inner.clone(), target.inner.set.database_id());
    target.close()?;
    end_making(to, &inner.options, database_id)
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

/// Bytes of extents, and of records of the region.
fn bytes_in(set: &VersionSet, records: &[Record<'_>]) -> u64 {
    let of_version = |version: &Version| {
        let runs = version.runs.iter().map(|run| run.extents.bytes());
        version.levels.iter().map(Level::bytes).chain(runs).sum::<u64>()
    };
    let versions = set.tables().into_iter().filter_map(|table| set.version(table.id));
    let in_region = records.iter().map(bytes_of).sum::<u64>();
    versions.map(|version| of_version(&version)).sum::<u64>() + in_region
}

fn bytes_of(record: &Record<'_>) -> u64 {
    (record.key.len() + record.value.len()) as u64
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

/// The extents of runs without a commit.
fn pending_extents(set: &VersionSet) -> BTreeSet<u64> {
    let runs = set.pending_runs().into_iter().filter_map(|(run, _)| set.pending_run(run));
    let ids = |level: Level| level.extents().iter().map(|extent| extent.meta().id).collect();
    runs.flat_map(|(_, level)| -> Vec<u64> { ids(level) }).collect()
}

/// The LSN up to which everything of a table has expired by now. The clock of a machine may be
/// behind that of the one that wrote: what readers saw expire stays away.
fn expired((set, now): (&VersionSet, u64), version: &Version) -> Lsn {
    let timeline = set.timeline();
    let seen = timeline.last().map_or(0, |last| last.time);
    version.expired_at(&timeline, now.max(seen))
}

/// Sorts records by their commits, and leaves one of each. What the cleaner or a row table has
/// taken in lies where it was, too, until its zone is released.
fn in_place<'a>(records: &mut Vec<Record<'a>>) {
    // Within a commit range deletes come first. Records of the engine's own have a key in common
    // where one has an id of the user's, and another one a number of the engine's.
    let place = |r: &Record<'a>| (r.seq, r.kind != Kind::RangeDelete, r.table, r.key, r.kind as u8);
    records.sort_by_key(place);
    records.dedup_by_key(|record| place(record));
}

/// What is there of zones.
#[derive(Default)]
struct InZones<'a> {
    records: Vec<Record<'a>>,
    prepared: Vec<Payload>,
    /// Where zones lie.
    zones: Vec<Range<u64>>,
}

impl InZones<'_> {
    /// The events and the runs that were committed.
    fn decided(&self) -> Decided {
        let mut decided = Decided::default();
        for record in self.records.iter().filter(|record| record.table == SYSTEM_TABLE) {
            let seq = record.seq;
            if record.kind == Kind::SpilledRun {
                decided.runs.extend(Reader::new(record.key).u64().map(|run| (run, seq)));
            } else if record.kind == Kind::TableEvent
                && let Some(event) = TableEvent::decode(record.key, record.value)
            {
                decided.events.insert(seq, event.edit(seq));
            }
        }
        decided
    }
}

/// A damaged header of the journal says no id; the region has the same.
fn id_of(set: &VersionSet, loaded: &Option<Loaded>) -> [u8; 16] {
    let own = Some(set.database_id()).filter(|id| *id != [0; 16]);
    own.or(loaded.as_ref().map(|loaded| loaded.superblock.database_id)).unwrap_or_default()
}

impl SalvageReport {
    /// Turns damage into a line of the report; other errors stay errors.
    fn keep<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) => match e.damage() {
                Some(damage) => {
                    let is_told = self.lost.contains(damage);
                    self.lost.extend((!is_told).then(|| damage.clone()));
                    Ok(None)
                }
                None => Err(e),
            },
        }
    }

    /// The records of the region in the order of their commits: those in zones, and those in `rows`
    /// of row tables.
    fn region<'a>(
        &mut self,
        region: &Region,
        in_zones: InZones<'a>,
        mut rows: Vec<Record<'a>>,
    ) -> Vec<Record<'a>> {
        let InZones { mut records, prepared, .. } = in_zones;
        records.append(&mut rows);
        in_place(&mut records);
        self.open_prepares(region, &prepared, &records);
        let lost = region.unread().into_iter().map(|Unread { place, error }| {
            let expected = format!("{} readable bytes", place.end - place.start);
            region.damage(place.start, "region", Mismatch::new(expected, error))
        });
        self.lost.extend(lost);
        records
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
            let what = format!("prepared transaction \"{}\"", head.key.escape_ascii());
            let got = match region.unread().is_empty() {
                true => format!("neither; its {writes} writes are left out"),
                false => format!(
                    "neither; a commit behind unreadable sectors may have its {writes} writes"
                ),
            };
            let found = Mismatch::new("a commit or a rollback", got);
            self.lost.push(region.damage(offset, what, found));
        }
    }

    /// The rows of extents that lost edits may have named. Where records of the region are lost,
    /// those of pending runs too: one of the records may have committed them.
    fn unclaimed_extents(
        &mut self,
        SalvagedSet { set, lost, ended, .. }: &SalvagedSet,
        region_is_whole: bool,
        writer: &mut Writer<'_>,
    ) -> Result<()> {
        if !lost.is_empty() {
            let known = &extents_of(set) | &ended.extents;
            return self.unnamed_extents(set.store(), |id| !known.contains(&id), writer);
        }
        let pending = pending_extents(set);
        match region_is_whole || pending.is_empty() {
            true => Ok(()),
            false => self.unnamed_extents(set.store(), |id| pending.contains(&id), writer),
        }
    }

    /// Says how many objects of the store no edit names, as far as they can be listed. They are not
    /// looked into.
    fn unnamed_objects(&mut self, opening: &Opening<'_>, store: &ExtentStore, ended: &Ended) {
        let store = store.objects();
        let listed = store.map(|objects| objects.collect(true));
        let (what, got) = match listed {
            None => {
                let why = match opening.options.object_store {
                    None => "no object store was named",
                    Some(_) => "without region and journal it is not known whose they are",
                };
                ("objects".into(), format!("{why}; rows in objects are left out"))
            }
            Some(Err(error)) => ("objects".into(), format!("no list of them: {error}")),
            Some(Ok(listed)) => {
                let left = listed.left.iter();
                let unnamed = left.filter(|id| !ended.extents.contains(&id.extent)).count();
                if unnamed == 0 {
                    return;
                }
                let got = "none; their rows are left out, whether they are current or not";
                (format!("{unnamed} objects"), got.into())
            }
        };
        let file: PathBuf =
            store.map_or_else(|| opening.path.into(), |objects| objects.address().into());
        let found = Mismatch::new("edits of the journal that name them, or that removed them", got);
        self.lost.push(found.at(what, "object", file, 0));
    }

    /// What is there of zones; the journal knows that all up to `durable` was durable. What lies
    /// behind a gap has a line: no opening takes it.
    fn zones<'a>(
        &mut self,
        loaded: &'a Loaded,
        durable: Lsn,
        meter: &Meter,
    ) -> Result<InZones<'a>> {
        self.lost.extend(loaded.damages.iter().cloned());
        let (region, geometry) = (&loaded.region, loaded.superblock.geometry);
        let scans = ZonePool::scan_readable(region, geometry, &mut self.lost)?;
        let gidx = self.gidx(region)?;
        meter.plan(bytes_to_read(&scans, geometry));
        let did = |bytes| meter.did(bytes);
        let evidence = Evidence { did: &did, ..loaded.evidence((&scans, &gidx), durable) };
        let ReadableZones { payloads, last } = readable(&evidence, &mut self.lost)?;
        // No power cut makes a sector unreadable: what is behind one may well have been committed.
        let has_unread = !region.unread().is_empty();
        let counts = |it: &Record<'_>| it.seq <= last || has_unread && it.table != SYSTEM_TABLE;
        let (prepared, payloads): (Vec<_>, Vec<_>) =
            payloads.into_iter().partition(|it| it.is_prepared);
        let in_payload = |it: &Payload| records_in(region, it.at, it.len);
        let records = payloads.iter().flat_map(in_payload).map(|(_, record)| record);
        // What the cleaner has copied was committed before the copy was.
        let (records, above): (Vec<_>, Vec<_>) = records.partition(counts);
        let (prepared, prepared_above): (Vec<_>, Vec<_>) =
            prepared.into_iter().partition(|it| it.lsn <= last);
        let above = above.iter().map(|it| it.seq).chain(prepared_above.iter().map(|it| it.lsn));
        let mut lsns = LsnRanges::default();
        lsns.extend(above.collect::<BTreeSet<_>>());
        if !lsns.is_empty() {
            let got = match has_unread {
                true => "a gap and unreadable sectors before it: its rows count, and nothing else",
                false => "a gap before it: it may never have been committed, and is left out",
            };
            let found = Mismatch::new(format!("all LSNs from {} on", last + 1), got);
            self.lost.push(region.damage(0, format!("LSN {lsns}"), found));
        }
        let span = |scan: &ZoneScan| {
            let at = geometry.zone(scan.zone);
            at..at + scan.len(geometry)
        };
        Ok(InZones { records, prepared, zones: scans.iter().map(span).collect() })
    }

    /// The GIDX words of the streams. Of damaged streams only the first is told: as a rule they lie
    /// in one page.
    fn gidx(&mut self, region: &Region) -> Result<Vec<Option<Gidx>>> {
        let (mut gidx, mut damaged) = (Vec::new(), Vec::new());
        for stream in 0..STREAM_SLOTS {
            let found = StreamPool::find(region, stream);
            if matches!(found, Ok(None)) {
                continue;
            }
            damaged.extend(found.err());
            gidx.resize(stream as usize, None);
            gidx.push(self.keep(Gidx::load(region, stream))?.flatten());
        }
        let others = damaged.len().saturating_sub(1);
        if let Some(first) = damaged.into_iter().next() {
            let before = self.lost.len();
            self.keep(Err::<(), _>(first))?;
            if let Some(told) = self.lost.get_mut(before).filter(|_| others > 0) {
                told.got = format!("{}; and {others} others are damaged, too", told.got);
            }
        }
        Ok(gidx)
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
        if run.lsn <= into_tables.expired(table.id) {
            return Ok(());
        }
        let into = writer.db.table(&table.name)?;
        let before = self.lost.len();
        for extent in run.extents.extents().iter() {
            // An edit that drains all of an extent removes or moves it, and is lost.
            let meta = extent.meta();
            let drained = version.drained.least_within(&meta.smallest_key, &meta.greatest_key);
            let is_covered = drained >= run.lsn;
            extent.salvage(&mut self.lost, |entry| {
                if !is_covered && version.drained.get(entry.key) >= run.lsn
                    || into_tables.hide(table.id, entry.key, run.lsn)
                {
                    return Ok(());
                }
                writer.write(&into, entry.kind, entry.key, entry.value)
            })?;
            writer.meter.did(u64::from(meta.location.len))?;
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
    meter: &'a Meter,
}

impl<'a> Writer<'a> {
    fn new(db: &'a Database, meter: &'a Meter) -> Writer<'a> {
        Writer { db, batch: WriteBatch::new(), records: 0, blob: None, meter }
    }

    /// Writes a record that is not a range delete.
    fn write(&mut self, into: &Table, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        match kind {
            Kind::Put | Kind::Delete | Kind::Merge => {}
            Kind::RangeDelete
            | Kind::Prepare
            | Kind::CommitPrepared
            | Kind::RollBackPrepared
            | Kind::SpilledRun
            | Kind::Reference
            | Kind::TableEvent
            | Kind::Blob
            | Kind::Lock => return Ok(()),
        }
        // The operands of a key in a batch become one record, which has a limit.
        self.commit_beyond(value.len())?;
        self.batch.push(into, kind, key, value);
        self.records += 1;
        Ok(())
    }

    /// Deletes what lies in an interval so far.
    fn delete_range(&mut self, into: &Table, interval: &KeyInterval) -> Result<()> {
        let KeyRange { lower, upper } = KeyRange::from(interval.clone());
        self.batch.delete_range(into, (lower, upper));
        self.records += 1;
        self.commit_beyond(0)
    }

    /// Commits what there is, if with so many bytes more it is worth it.
    fn commit_beyond(&mut self, more: usize) -> Result<()> {
        if !self.batch.is_empty() && self.batch.stored_bytes() + more >= BATCH_BYTES {
            let batch = std::mem::take(&mut self.batch);
            self.db.write_with(&batch, Durability::Relaxed)?;
            self.meter.did(0)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<u64> {
        self.meter.end()?;
        if let Some(blob) = self.blob {
            self.batch.set_blob(blob);
        }
        // One with a blob alone has no operation.
        if !self.batch.is_empty() || self.blob.is_some() {
            self.db.write(self.batch)?;
        }
        Ok(self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: a salvage passed over the verdict on a transaction, or the run of a large one. Cause: a
    /// user may give a transaction the eight bytes of a run's number as its id. Both records of one
    /// commit have the same key then, and one counted as a copy of the other. Fix: their kinds tell
    /// them apart.
    #[test]
    fn records_of_several_kinds_may_have_one_key() {
        let record = |kind, table, key| Record { seq: 7, table, kind, key, value: b"" };
        let run = &9u64.to_le_bytes()[..];
        let all = [
            record(Kind::RangeDelete, 3, b"k"),
            record(Kind::CommitPrepared, SYSTEM_TABLE, run),
            record(Kind::SpilledRun, SYSTEM_TABLE, run),
            record(Kind::Put, 3, b"k"),
        ];
        let kinds = |records: &[Record<'_>]| {
            records.iter().map(|record| (record.table, record.kind as u8)).collect::<Vec<_>>()
        };
        let mut records: Vec<Record<'_>> = all.iter().chain(&all).cloned().collect();
        in_place(&mut records);
        assert_eq!(records.len(), all.len());
        assert_eq!(records[0].kind, Kind::RangeDelete);
        let (mut found, mut want) = (kinds(&records), kinds(&all));
        found.sort_unstable();
        want.sort_unstable();
        assert_eq!(found, want);
    }
}
