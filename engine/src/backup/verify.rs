//! Verification: every structure of `docs/format.md`, on every tier, against its checksum. The
//! nodes of a persistent index have none, so it is held against the records that it is over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::base::error::{Damage, ErrorKind, Findings, Mismatch, Result, VerifyReport};
use crate::base::options::Options;
use crate::base::progress::Meter;
use crate::base::record::{Kind, LSN_MAX, Lsn, TableId};
use crate::commit::{
    Accepted, Content, Evidence, Gidx, Recovered, bytes_to_read, readable, recover,
};
use crate::engine::open::{
    self, Loaded, Opening, Parts, files_of, find_damaged, lock, lock_region, lost_runs, records,
    region_path,
};
use crate::engine::{Engine, OpenHow};
use crate::level0::verify_row;
use crate::memtable::Record;
use crate::mvcc::pin;
use crate::os::HashMap;
use crate::pindex::forest::Forest;
use crate::pm::Region;
use crate::pm::alloc::{StreamPool, ZonePool};
use crate::sstable::{Extent, ExtentMeta};
use crate::storage::ExtentStore;
use crate::table::TableCore;
use crate::version::{FoundEdits, JournalFloor, Manifest, Version, VersionSet};

/// The parts of a database, in the order in which they are verified.
const JOURNAL: &str = "the fixed parts and the journal";
const ZONES: &str = "the zones of the region";
const INDEX: &str = "the persistent index";
const EXTENTS: &str = "the extents";
const ROWS: &str = "the row tables";

/// The one of a set.
const BACKUPS: &str = "all backups";

const VERIFY: &str = "verify";

pub(super) fn verify_with(path: &Path, options: &Options) -> Result<VerifyReport> {
    let files = files_of(options);
    let parts = find_damaged(&files, path, options)?;
    let mut lock = match lock(&*files, path, options, OpenHow::ReadOnly) {
        Err(e) if e.kind() == ErrorKind::Busy && parts.is_none() => {
            return verify_beside(path, options);
        }
        locked => locked?,
    };
    lock_region(&mut lock, &*files, (path, options), OpenHow::ReadOnly)?;
    let opening = Opening { files, path, options, read_only: true, beside: None };
    let meter = Meter::new(options, VERIFY);
    VerifyReport::of([JOURNAL, ZONES, INDEX, EXTENTS, ROWS], |report| {
        closed_database(&opening, parts.as_ref(), report, &meter)
    })
}

/// Checks the closed database of `opening`, of which `parts` are missing.
fn closed_database(
    opening: &Opening<'_>,
    parts: Option<&Parts>,
    report: &mut VerifyReport,
    meter: &Meter,
) -> Result<()> {
    let (path, options) = (opening.path, opening.options);
    meter.did(0)?;
    report.damages.extend(parts.map(Parts::damage));
    let region = region_path(path, options);
    let loaded = report.keep(opening.load(), || fixed_parts(&region))?;
    let opened = match parts {
        Some(_) => None,
        None => {
            let place = || Mismatch::default().at("journal", "journal", path, 0);
            report.keep(open_journal(opening, loaded.as_ref()), place)?
        }
    };
    if let Some(set) = &opened {
        match opening.attach_objects(set, 0) {
            Err(error) if options.object_store.is_none() => report.look(|found| {
                let objects = || Mismatch::default().at("objects", "object", path, 0);
                found.add(&error, objects);
                0
            }),
            attached => attached?,
        }
    }
    report.looked_at(JOURNAL);
    let of_pair =
        |set: &&VersionSet, loaded: &Loaded| set.database_id() == loaded.superblock.database_id;
    if let Some(loaded) = &loaded {
        let pair = opened.as_ref().filter(|set| of_pair(set, loaded));
        let recovered = report.region(loaded, pair.map_or(0, VersionSet::durable), true, meter)?;
        if let (Some(recovered), Some(set)) = (recovered, pair) {
            report.damages.extend(lost_runs(&loaded.region, &recovered, set)?);
        }
        report.looked_at(ZONES);
        let index = opening.index_file(&loaded.region);
        let place = || Mismatch::default().at("index", "pm", index.path(), 0);
        let verified = index.verify(&loaded.superblock, meter);
        if let Some((checked, damages)) = report.keep(verified, place)? {
            report.checked += checked;
            report.damages.extend(damages);
        }
        report.looked_at(INDEX);
    }
    if let Some(set) = opened {
        report.look(|found| set.verify(found, meter));
        meter.did(0)?;
        report.looked_at(EXTENTS);
        if let Some(loaded) = &loaded {
            report.row_tables(&loaded.region, &set, meter)?;
        }
        report.looked_at(ROWS);
        if loaded.is_some_and(|loaded| !of_pair(&&set, &loaded)) {
            let found = Mismatch::new("that of the journal", "another one");
            report.damages.push(found.at("database id", "pm", region, 16));
        }
    }
    report.not_checked.clear();
    meter.end()
}

/// Verifies a database that another process writes, as of a moment.
fn verify_beside(path: &Path, options: &Options) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let opened = open::open(path, options, OpenHow::ReadOnly);
    let place = || Mismatch::default().at("database", "pm", path, 0);
    match report.keep(opened, place)? {
        Some(opened) => open_database(&opened),
        None => Ok(report),
    }
}

/// The floor of a region says something of its own journal alone.
fn open_journal(opening: &Opening<'_>, loaded: Option<&Loaded>) -> Result<VersionSet> {
    let id = VersionSet::database_id_in(&*opening.files, opening.path)?;
    let own = loaded.filter(|loaded| id.is_none_or(|id| id == loaded.superblock.database_id));
    let floor = own.map_or(JournalFloor::default(), |loaded| JournalFloor {
        epoch: loaded.floor.journal.epoch,
        number: loaded.floor.journal.edit,
    });
    VersionSet::open(Arc::clone(&opening.files), opening.path, floor, FoundEdits::Leave)
}

fn fixed_parts(region: &Path) -> Damage {
    Mismatch::default().at("fixed parts of the region", "pm", region, 0)
}

/// Checks the open database of `engine`; commits wait meanwhile.
pub(crate) fn open_database(engine: &Engine) -> Result<VerifyReport> {
    // A closing waits for the part under way.
    let _inside = engine.shared.enter_call()?;
    let meter = Meter::new(&engine.options, VERIFY);
    VerifyReport::of([ROWS, ZONES, INDEX, EXTENTS], |report| look_through(engine, report, &meter))
}

fn look_through(engine: &Engine, report: &mut VerifyReport, meter: &Meter) -> Result<()> {
    meter.did(0)?;
    let opening = Opening {
        files: Arc::clone(engine.set.store().files()),
        path: &engine.path,
        options: &engine.options,
        read_only: true,
        beside: None,
    };
    if !engine.shared.read_only {
        engine.ctx.sync_floor()?;
    }
    if engine.is_beside {
        // The opening has checked the region as it read it, row tables as well, and the writer has
        // changed it since.
        report.checked += engine.opened.records_read;
        report.commit = Some(engine.shared.committer.visible());
    } else {
        report.region_of(engine, &opening, meter)?;
    }
    [ZONES, INDEX, ROWS].into_iter().for_each(|part| report.looked_at(part));
    report.cache(engine);
    report.look(|found| engine.set.verify(found, meter));
    // The objects of a database that is being closed cannot be read, and not all was looked at.
    engine.shared.check_open()?;
    meter.did(0)?;
    report.looked_at(EXTENTS);
    meter.end()
}

impl VerifyReport {
    /// That of a verification by `look`, of these parts.
    fn of<const N: usize>(
        parts: [&str; N],
        look: impl FnOnce(&mut VerifyReport) -> Result<()>,
    ) -> Result<VerifyReport> {
        let not_checked = parts.map(str::to_owned).to_vec();
        let mut report = VerifyReport { not_checked, ..VerifyReport::default() };
        match look(&mut report) {
            Ok(()) => Ok(VerifyReport { not_checked: Vec::new(), ..report }),
            // Behind the last part there is nothing to end.
            Err(error) if error.kind() == ErrorKind::Cancelled && report.not_checked.is_empty() => {
                Ok(report)
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => Err(error.with_report(report)),
            Err(error) => Err(error),
        }
    }

    /// All of a part was looked at, as far as it can be.
    fn looked_at(&mut self, part: &str) {
        self.not_checked.retain(|other| other != part);
    }

    /// The region of an open database, with its row tables and index.
    fn region_of(&mut self, engine: &Engine, opening: &Opening<'_>, meter: &Meter) -> Result<()> {
        engine.shared.committer.while_quiet(|| -> Result<()> {
            let region = region_path(&engine.path, &engine.options);
            let place = || fixed_parts(&region);
            let Some(loaded) = self.keep(opening.load(), place)? else { return Ok(()) };
            // Pages of row tables stay as versions from here on say, until the guard goes. No code
            // of a user runs meanwhile.
            let guard = pin();
            self.row_tables(&loaded.region, &engine.set, &Meter::silent())?;
            drop(guard);
            self.looked_at(ROWS);
            let recovered = self.region(&loaded, engine.set.durable(), false, meter)?;
            self.looked_at(ZONES);
            recovered.map_or(Ok(()), |it| self.index(engine, &loaded.region, &it, meter))
        })
    }
}

/// What is wrong between frames of the block cache and swips of extents, if something is.
pub(crate) fn broken_cache(engine: &Engine) -> Option<String> {
    let (cache, set) = (&engine.shared.cache, &engine.set);
    let broken_in = |version: &Version| {
        let levels = version.extents().map(|(_, extent)| extent);
        let runs = version.runs.iter().flat_map(|run| run.extents.extents().iter());
        levels.chain(runs).find_map(|extent| {
            let broken = extent.check_swips(cache)?;
            Some(format!("extent {}: {broken}", extent.meta().id))
        })
    };
    let versions = set.tables().into_iter().filter_map(|table| set.version(table.id));
    cache.check().or_else(|| versions.into_iter().find_map(|version| broken_in(&version)))
}

impl VerifyReport {
    /// Whether all was read, and nothing is wrong.
    pub fn is_sound(&self) -> bool {
        let found = self.damages.len() + self.unreadable.len();
        found == 0 && self.not_checked.is_empty()
    }

    /// Adds what a check finds, and how much it has checked.
    pub(crate) fn look(&mut self, check: impl FnOnce(&mut Findings) -> u64) {
        let mut found = Findings::default();
        self.checked += check(&mut found);
        self.damages.append(&mut found.damages);
        self.unreadable.append(&mut found.unreadable);
    }

    /// Turns damage, and a file that cannot be read at some place, into a line of the report; other
    /// errors stay errors.
    pub(crate) fn keep<T>(
        &mut self,
        result: Result<T>,
        place: impl FnOnce() -> Damage,
    ) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) if e.damage().is_some() || e.is_unread() => {
                self.look(|found| {
                    found.add(&e, place);
                    0
                });
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// What a backup set has: its manifests, and every extent once.
    pub(super) fn of_backups(
        manifests: impl Iterator<Item = (u64, Result<Manifest>)>,
        store: &Arc<ExtentStore>,
        path: &Path,
        options: &Options,
    ) -> Result<VerifyReport> {
        let meter = Meter::new(options, VERIFY);
        VerifyReport::of([BACKUPS], |report| report.backups(manifests, (store, path), &meter))
    }

    fn backups(
        &mut self,
        manifests: impl Iterator<Item = (u64, Result<Manifest>)>,
        (store, path): (&Arc<ExtentStore>, &Path),
        meter: &Meter,
    ) -> Result<()> {
        meter.did(0)?;
        let (report, mut seen) = (self, BTreeSet::new());
        for (number, manifest) in manifests {
            report.not_checked = vec![format!("backup {number}, and those behind it")];
            report.checked += 1;
            let what = format!("manifest {number}");
            let place = || Mismatch::default().at(what, "backup", path, 0);
            let Some(manifest) = report.keep(manifest, place)? else { continue };
            let places = manifest.places();
            let places = places.iter().filter(|place| !seen.contains(*place));
            meter.plan(places.map(|place| u64::from(place.len)).sum());
            for extent in manifest.extents() {
                if !seen.insert(extent.location) {
                    continue;
                }
                meter.did(u64::from(extent.location.len))?;
                let extent = Extent::open(ExtentMeta::clone(extent), Arc::clone(store));
                report.look(|found| extent.verify(found));
                for values in extent.values() {
                    let place = values.meta().location;
                    if seen.insert(place) {
                        meter.did(u64::from(place.len))?;
                        report.look(|found| values.verify(found));
                    }
                }
            }
        }
        report.not_checked.clear();
        meter.end()
    }

    /// The frames of the block cache and the swips that lead to them: readers wait for none of it.
    fn cache(&mut self, engine: &Engine) {
        self.checked += 1;
        self.damages.extend(broken_cache(engine).map(|got| {
            let found = Mismatch::new("frames and swips that lead to each other", got);
            found.at("block cache", "memory", &engine.path, 0)
        }));
    }

    /// Row tables of level 0.
    fn row_tables(&mut self, region: &Region, set: &VersionSet, meter: &Meter) -> Result<()> {
        for version in set.tables().iter().filter_map(|table| set.version(table.id)) {
            for row in &version.rows {
                let of = (version.table, row);
                let verified = verify_row(region, of, &version.drained, meter);
                let what = format!("row table {} of table {}", row.id, version.table);
                let kept = self.keep(verified, || region.damage(0, what, Mismatch::default()))?;
                self.checked += kept.unwrap_or(1);
            }
        }
        Ok(())
    }

    /// Superblock and floor copies, pools, GIDX words, zones and all that was committed in them;
    /// what that is, if it can be said. Of a closed database it also looks behind the end: damage
    /// to a header may make an opening end before what a later one knows to be durable.
    fn region(
        &mut self,
        loaded: &Loaded,
        durable: Lsn,
        is_closed: bool,
        meter: &Meter,
    ) -> Result<Option<Recovered>> {
        self.checked += 4;
        self.damages.extend(loaded.damages.iter().cloned());
        let region = &loaded.region;
        let place = |what: &'static str| move || region.damage(0, what, Mismatch::default());
        let streams = self.keep(StreamPool::scan(region), place("stream pool"))?;
        let Some(streams) = streams else { return Ok(None) };
        self.checked += u64::from(crate::pm::STREAM_SLOTS) + streams.len() as u64;
        let opened = ZonePool::open(region, loaded.superblock.geometry);
        let Some((_, scans, leaks)) = self.keep(opened, place("zone headers"))? else {
            return Ok(None);
        };
        self.checked += u64::from(loaded.superblock.geometry.zone_slots) + scans.len() as u64;
        for zone in leaks {
            // Harmless after a crash, found and released at the next opening; after a clean
            // close there is none.
            let what = format!("header of zone {zone}, which is taken and not used");
            let found = Mismatch::new("a zone header", "something else");
            let at = loaded.superblock.geometry.zone(zone);
            self.damages.push(region.damage(at, what, found));
        }
        let mut gidx = Vec::with_capacity(streams.len());
        for stream in &streams {
            match self.keep(Gidx::load(region, stream.stream), place("GIDX words"))? {
                Some(word) => gidx.push(word),
                None => return Ok(None),
            }
        }
        self.checked += gidx.len() as u64;
        let did = |bytes| meter.did(bytes);
        let evidence = Evidence { did: &did, ..loaded.evidence((&scans, &gidx), durable) };
        // Of a closed database all is read twice.
        meter.plan(bytes_to_read(&scans, evidence.geometry) * (1 + u64::from(is_closed)));
        let recovered = self.keep(recover(&evidence), place("zones"))?;
        if let Some(last) = recovered.as_ref().filter(|_| is_closed).map(|it| it.last) {
            let mut lost = Vec::new();
            let behind = self.keep(readable(&evidence, &mut lost), place("zones"))?;
            if behind.is_some_and(|it| it.last > last) {
                self.damages.append(&mut lost);
            }
        }
        let entries = recovered.iter().flat_map(|recovered| &recovered.zones);
        self.checked += entries.map(|(_, entries)| entries.len() as u64).sum::<u64>();
        Ok(recovered)
    }
}

impl VerifyReport {
    /// Each entry leads to a committed record of its table, and each record up to the merged
    /// boundary is found, or a newer one of its key. Commits wait meanwhile.
    pub(super) fn index(
        &mut self,
        engine: &Engine,
        region: &Region,
        recovered: &Recovered,
        meter: &Meter,
    ) -> Result<()> {
        let Some(forest) = &engine.forest else { return Ok(()) };
        let tables: HashMap<TableId, Arc<TableCore>> =
            engine.tables().into_iter().map(|t| (t.id(), t)).collect();
        let entries = recovered.zones.iter().flat_map(|(_, entries)| entries);
        let entries = entries.filter(|entry| entry.content != Content::Prepared);
        let entries: Vec<&Accepted> = entries.collect();
        let ends = entries.iter().map(|e| (e.payload_at, e.payload_at + e.payload_len));
        let ends: BTreeMap<u64, u64> = ends.collect();
        let end_of = |at: u64| {
            let (_, end) = ends.range(..=at).next_back()?;
            (at < *end && at.is_multiple_of(8)).then_some(*end)
        };
        let bytes = |entry: &Accepted| entry.payload_len;
        meter.plan(2 * entries.iter().map(|entry| bytes(entry)).sum::<u64>());
        for table in tables.values() {
            meter.did(0)?;
            self.checked += 1;
            // The table may be dropped meanwhile.
            let _guard = pin();
            if let Some(at) = table.view().level0.in_zones.wrong_offset(table.id(), &end_of)? {
                let found = Mismatch::new("the offset of a record of it", at.to_string());
                self.damages.push(damage(forest, table.id(), found));
            }
        }
        meter.did(entries.iter().map(|entry| bytes(entry)).sum())?;
        let merged = forest.merged();
        for entry in entries {
            for (at, record) in records(region, entry) {
                let is_indexed = matches!(record.kind, Kind::Put | Kind::Delete | Kind::Merge);
                let Some(table) = tables.get(&record.table).filter(|_| is_indexed) else {
                    continue;
                };
                if record.seq <= merged && !is_found(table, &record)? {
                    let got = "none of its key, or an older one";
                    let found = Mismatch::new(format!("the record at {at}"), got);
                    self.damages.push(damage(forest, table.id(), found));
                }
            }
            meter.did(bytes(entry))?;
        }
        Ok(())
    }
}

/// Whether a read finds a record, or a newer one of its key, or it has moved to level 1.
fn is_found(table: &TableCore, record: &Record<'_>) -> Result<bool> {
    let _guard = pin();
    let view = table.view();
    let drained = &view.version.drained;
    let found = view.level0.get(record.key, LSN_MAX, drained)?;
    let found = found.map_or(0, |found| found.seq).max(drained.get(record.key));
    // An opening indexes the newest version of a key alone, and that may not be merged yet.
    let unmerged = view.newest_in_memtables(record.key).unwrap_or(0);
    Ok(found.max(unmerged) >= record.seq || table.check().is_err())
}

fn damage(forest: &Forest, table: TableId, found: Mismatch) -> Damage {
    found.at(format!("persistent index of table {table}"), "pm", forest.path(), 0)
}
