//! Opening: what is there, who may use it, and recovery in its order. Each layer recovers by a
//! function of its own; here they are called one after the other, and what one finds is handed
//! to the next as a value.
//!
//! 1. Region: superblock, fixed parts, floor.
//! 2. Journal: tables, extents, D; the pair is checked.
//! 3. Pools and zones; commit decides what was committed.
//! 4. All of that is made durable again, what is dead is let go, and this opening's incarnation
//!    is on the media: before the first ticket. A second cut anywhere in here finds the same.
//! 5. Table events and spilled runs beyond the journal are applied to it; runs that it has and
//!    nobody committed go.
//! 6. Records that are committed, of living tables, and not drained are indexed.
//! 7. Prepared transactions have their locks again. Zones with nothing left are released; the
//!    background starts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use super::OpenHow;
use super::create::create;
use super::index_file::{self, FoundIndex, IndexFile};
use super::inner::{Engine, Inner};
use super::jobs::JobContext;
use super::marker;
use super::media;
use super::memory;
use super::own_records::{News, OwnRecords};
use super::presence::{Parts, Presence, look};
use super::rebuild;
use super::scheduler::Scheduler;
use super::secondary_cache;
use super::stats::OpenStats;
use crate::alloc::{StreamKind, StreamPool, ZonePool};
use crate::cache::Below;
use crate::commit::{
    Accepted, Committer, Evidence, Floor, Gidx, JournalMark, Passed, Poison, RESUME, Recovered,
    Resume, Start, recover,
};
use crate::error::{Damage, Error, Result};
use crate::extent::BlockCache;
use crate::levels::{Edit, FoundEdits, JournalFloor, Op, VersionSet};
use crate::locks::LockManager;
use crate::memtable::{Record, records_in};
use crate::mvcc::{SnapshotRegistry, Watermark};
use crate::options::{Index, OpenProgress, Options, Planted, Storage};
use crate::os::{Access, DirectoryLock, Files, ForkGuard, RealFiles, cores, create_directory};
use crate::pm::{Lived, Region, Span, Superblock};
use crate::ptree::forest::Forest;
use crate::record::Lsn;
use crate::spill::WriteMemory;
use crate::table::{Bell, Gate, Pace, Shared, TableSlot};

pub(super) fn open(path: &Path, options: &Options, how: OpenHow) -> Result<Arc<Inner>> {
    let started = Instant::now();
    options.check()?;
    options.check_place(path)?;
    let files = files_of(options);
    if admit(look(&files, path, options)?, path, how)? != Presence::Database {
        memory::check_new(options)?;
    }
    create_directory(&*files, path).map_err(|e| Error::io("create", path, e))?;
    let mut lock = lock(path, options, how)?;
    // Another process may have been faster.
    let found = admit(look(&files, path, options)?, path, how)?;
    if found != Presence::Database {
        create(&files, path, options, &found)?;
    }
    lock_region(&mut lock, path, options, how)?;
    if how != OpenHow::ReadOnly {
        // Beside a database it is a stray, since the region was used.
        marker::remove(&*files, path)?;
    }
    let engine =
        Opening { files, path, options, read_only: how == OpenHow::ReadOnly }.run(started)?;
    Inner::start(engine, lock)
}

/// What is found, if an opening may go on with it: a database, or room for one that it may make.
fn admit(found: Presence, path: &Path, how: OpenHow) -> Result<Presence> {
    let path = path.display();
    let refusal = match (&found, how) {
        (Presence::NoJournal(parts), _) => return Err(parts.error()),
        (Presence::Foreign(name), _) => format!(
            "{path} holds {name:?} and no Terrace database; name an empty or a new directory"
        ),
        (Presence::Database, OpenHow::Create) => {
            format!("{path} holds a database already; open it, or name another directory")
        }
        (Presence::Missing | Presence::Empty | Presence::Unfinished(_), OpenHow::ReadOnly) => {
            format!("there is no database in {path}")
        }
        _ => return Ok(found),
    };
    Err(Error::invalid(refusal))
}

pub(super) fn files_of(options: &Options) -> Arc<dyn Files> {
    match &options.storage {
        Storage::Real => Arc::new(RealFiles::with_permissions(options.permissions)),
        #[cfg(any(test, feature = "testing"))]
        Storage::Simulated(machine) => machine.files(),
    }
}

pub(super) fn lock(path: &Path, options: &Options, how: OpenHow) -> Result<DirectoryLock> {
    match &options.storage {
        #[cfg(any(test, feature = "testing"))]
        Storage::Real if options.has(Planted::SkipLock) => Ok(DirectoryLock::none()),
        Storage::Real => DirectoryLock::take(path, access(how), options.permissions),
        #[cfg(any(test, feature = "testing"))]
        Storage::Simulated(_) => Ok(DirectoryLock::none()),
    }
}

/// Takes the lock of the region too, where there is one.
///
/// # Errors
///
/// `Unavailable` when another open database has the region; or on an I/O error.
pub(super) fn lock_region(
    lock: &mut DirectoryLock,
    path: &Path,
    options: &Options,
    how: OpenHow,
) -> Result<()> {
    match options.storage {
        #[cfg(any(test, feature = "testing"))]
        Storage::Real if options.has(Planted::SkipLock) => Ok(()),
        Storage::Real => lock.take_region(&media::path(path, options), access(how)),
        #[cfg(any(test, feature = "testing"))]
        Storage::Simulated(_) => Ok(()),
    }
}

fn access(how: OpenHow) -> Access {
    if how == OpenHow::ReadOnly { Access::Shared } else { Access::Exclusive }
}

/// The database in `path`, or what is left of one, for what reads damaged ones: its parts where it
/// lacks the journal.
///
/// # Errors
///
/// `Invalid` when there is no database; or an I/O error.
pub(super) fn find_damaged(
    files: &Arc<dyn Files>,
    path: &Path,
    options: &Options,
) -> Result<Option<Parts>> {
    match look(files, path, options)? {
        Presence::Database => Ok(None),
        Presence::NoJournal(parts) => Ok(Some(parts)),
        _ => Err(Error::invalid(format!("there is no database in {}", path.display()))),
    }
}

/// One opening of an existing database.
pub(super) struct Opening<'a> {
    pub(super) files: Arc<dyn Files>,
    pub(super) path: &'a Path,
    pub(super) options: &'a Options,
    pub(super) read_only: bool,
}

/// The region, loaded as far as its fixed parts.
pub(super) struct Loaded {
    pub(super) region: Arc<Region>,
    pub(super) superblock: Superblock,
    pub(super) floor: Floor,
    pub(super) damages: Vec<Damage>,
}

impl Opening<'_> {
    fn run(&self, started: Instant) -> Result<Engine> {
        let Loaded { region, mut superblock, floor, .. } = self.load()?;
        let set = self.journal(&floor)?;
        check_pair(&region, &superblock, &set)?;
        let (zones, scans, leaks) = ZonePool::open(&region, superblock.geometry)?;
        seed_salts(self.options, &zones);
        let streams = StreamPool::scan(&region)?;
        let cleaner = streams.iter().find(|s| s.kind == StreamKind::Cleaner).map(|s| s.stream);
        let gidx = streams.iter().map(|s| Gidx::load(&region, s.stream));
        let gidx = gidx.collect::<Result<Vec<_>>>()?;
        let found = self.find_index(&region, &superblock)?;
        let rebuilt = Instant::now();
        let mut recovered = recover(&Evidence {
            region: &region,
            geometry: superblock.geometry,
            floor,
            incarnations: &superblock.incarnations,
            merged: found.forest.as_ref().map_or(0, Forest::merged),
            scans: &scans,
            gidx: &gidx,
            threads: self.threads(),
            progress: &|done, total| self.progress("scan", done, total),
            check_payloads: self.check_payloads(),
        })?;
        let mut floor = floor;
        if !self.read_only {
            // The journal was made durable as far as it was found.
            let JournalFloor { epoch, number } = set.floor();
            floor.journal = JournalMark { epoch, edit: number };
            self.make_durable(&region, (&zones, &mut recovered), &mut superblock, &mut floor)?;
            zones.release(&[recovered.empty.as_slice(), &leaks].concat())?;
        }
        let FoundIndex { forest, damage } = found;
        let forest = self.keep_index(&region, forest, &superblock)?;
        if let Some(forest) = forest.as_ref().filter(|_| self.check_payloads()) {
            doubt_passed_over(forest, &region, (&zones, &recovered));
        }
        let last = if self.read_only { recovered.last } else { superblock.lsn_base };
        tell_zones(&zones, &recovered);
        let incarnation = superblock.incarnations.current;
        let (streams, gidx) = (recovered.streams.clone(), recovered.gidx.clone());
        let len = |zone| superblock.geometry.zone_len(zones.units_of(zone));
        let found = recovered.zones.iter().map(|(zone, _)| len(*zone)).sum();
        let start = Start { last, incarnation, floor, streams, gidx, cleaner };
        let mut engine = self.engine(region, (zones, superblock), (set, forest), start);
        engine.index_damage = damage;
        engine.opened.index_bytes_checked = engine.forest.as_ref().map_or(0, |f| f.checked());
        engine.opened.groups_accepted = recovered.above_floor;
        engine.opened.records_read = recovered.records_read();
        engine.shared.committer.counts().appended.store(found, Ordering::Relaxed);
        let region = Arc::clone(&engine.shared.region);
        let own = OwnRecords::find(&region, &recovered, &engine.set)?;
        engine.catch_up(&recovered, &own)?;
        engine.opened.records_rebuilt =
            rebuild::index(&engine, &recovered, self.threads(), &|done, total| {
                self.progress("rebuild", done, total);
            })?;
        engine.scheduler.adopt_index(recovered.last)?;
        own.restore(&engine)?;
        engine.opened.rebuild_ms = rebuilt.elapsed().as_secs_f64() * 1e3;
        self.finish(&engine)?;
        engine.opened.journal_edits = engine.set.replayed();
        engine.opened.total_ms = started.elapsed().as_secs_f64() * 1e3;
        Ok(engine)
    }

    /// Releases what is dead, and sets what may be changed later.
    fn finish(&self, engine: &Engine) -> Result<()> {
        if !self.read_only {
            let dead = engine.shared.zones.dead(engine.settle()?);
            let dead = engine.shared.committer.releasable(dead);
            engine.shared.committer.release(&dead)?;
            engine.transactions.prepared.released(&engine.shared.zones, &dead);
        }
        engine.tune(self.options.tuning);
        engine.ctx.memory.check()
    }

    /// The forest that this opening goes on with, where one is wanted; else its file is removed.
    fn keep_index(
        &self,
        region: &Arc<Region>,
        found: Option<Forest>,
        superblock: &Superblock,
    ) -> Result<Option<Forest>> {
        let index = self.index_file(region);
        if self.wants_index() {
            return index.begin(found, superblock).map(Some);
        }
        if !self.read_only {
            index.remove(superblock)?;
        }
        Ok(None)
    }

    /// What there is of a persistent index, where one is wanted.
    fn find_index(&self, region: &Arc<Region>, superblock: &Superblock) -> Result<FoundIndex> {
        match self.wants_index() {
            true => self.index_file(region).find(superblock, self.threads()),
            false => Ok(FoundIndex::default()),
        }
    }

    fn wants_index(&self) -> bool {
        self.options.index == Index::Persistent && !self.read_only
    }

    /// Step 1.
    pub(super) fn load(&self) -> Result<Loaded> {
        let path = media::path(self.path, self.options);
        let (media, len) = media::open(&self.files, &path, self.read_only, self.options)?;
        let head = media.head(&path, len.min(Superblock::span().len))?;
        let (superblock, damaged) = Superblock::read(&head, &path)?;
        let expected = superblock.geometry.region_len();
        // Longer: it was about to grow when the power went.
        if len < expected {
            return Err(Error::corrupt(Damage {
                tier: "pm",
                file: path,
                offset: len.min(expected),
                what: "region".into(),
                expected: format!("{expected} bytes"),
                got: format!("{len} bytes"),
            }));
        }
        let room = superblock.geometry.greatest_len();
        #[cfg_attr(not(any(test, feature = "testing")), expect(unused_mut, reason = "planting"))]
        let mut region = Region::with_room(media, &path, expected, room)?;
        #[cfg(any(test, feature = "testing"))]
        region.plant(self.options.planted);
        region.load(Span { at: 0, len: superblock.geometry.zones_start() })?;
        let (floor, slot_damage) = Floor::load(&region)?;
        let damages = damaged.into_iter().chain(slot_damage).collect();
        Ok(Loaded { region: Arc::new(region), superblock, floor, damages })
    }

    pub(super) fn index_file<'a>(&'a self, records: &'a Arc<Region>) -> IndexFile<'a> {
        let path = index_file::path(self.path, self.options);
        IndexFile { files: &self.files, path, options: self.options, records }
    }

    /// Step 2, short of the pair.
    fn journal(&self, floor: &Floor) -> Result<VersionSet> {
        let mark = JournalFloor { epoch: floor.journal.epoch, number: floor.journal.edit };
        let found = match self.read_only {
            true => FoundEdits::Leave,
            false if self.options.has(Planted::KeepFoundEdits) => FoundEdits::Sync,
            false => FoundEdits::Rewrite,
        };
        let set = VersionSet::open(Arc::clone(&self.files), self.path, mark, found)?;
        if self.options.direct_io {
            set.store().go_direct();
        }
        if !self.options.stepped {
            set.store().go_behind();
        }
        Ok(set)
    }

    fn check_payloads(&self) -> bool {
        !self.options.has(Planted::SkipPayloadChecksum)
    }

    /// Step 4.
    fn make_durable(
        &self,
        region: &Region,
        (zones, recovered): (&ZonePool, &mut Recovered),
        superblock: &mut Superblock,
        floor: &mut Floor,
    ) -> Result<()> {
        // What was read may have been in a cache only, left there by a process that was killed:
        // also that a zone is free, on which the list of incarnations is about to rest.
        let fixed = Span { at: 0, len: zones.geometry().zones_start() };
        let found = recovered.rewrite.iter().copied().chain([fixed]);
        region.persist(found.map(|span| region.rewrite(span)))?;
        region.persist(recovered.reseal.iter().map(|(zone, len)| zones.reseal(*zone, *len)))?;
        let used = recovered.incarnations();
        let incarnations = &mut superblock.incarnations;
        let has_records = |l: &Lived| used.range(l.first..=l.last).next().is_some();
        incarnations.begin_next(recovered.last, has_records);
        let resumes = resume_zones(zones, recovered, incarnations.current);
        let resume = || resumes.iter().map(|(at, line)| region.write(*at, line));
        if incarnations.is_long() {
            // What is dead must not be found any more once the joined list calls it alive.
            region.persist(resume())?;
            incarnations.join();
        }
        superblock.lsn_base = recovered.seen.max(superblock.lsn_base);
        superblock.write(region)?;
        floor.number += 1;
        floor.lsn = superblock.lsn_base;
        floor.incarnation = superblock.incarnations.current;
        let mut words: Vec<_> = resume().chain([floor.store(region)]).collect();
        for (stream, gidx) in recovered.gidx.iter().enumerate() {
            words.extend(gidx.map(|gidx| gidx.store(region, stream as u32)));
        }
        region.persist(words)?;
        Ok(())
    }

    fn engine(
        &self,
        region: Arc<Region>,
        (zones, superblock): (ZonePool, Superblock),
        (set, forest): (VersionSet, Option<Forest>),
        start: Start,
    ) -> Engine {
        let (zones, poison) = (Arc::new(zones), Arc::new(Poison::default()));
        let visible = Arc::new(Watermark::new(start.last));
        let committer = Committer::new(
            Arc::clone(&region),
            Arc::clone(&zones),
            Arc::clone(&visible),
            Arc::clone(&poison),
            start,
        );
        let set = Arc::new(set);
        let clock = self.options.clock_of_records();
        clock.forward_to(set.timeline().last().map_or(0, |last| last.time));
        let secondary_cache = secondary_cache::of(&region, &zones, self.read_only);
        let below = secondary_cache.clone().map(|cache| cache as Arc<dyn Below>);
        let shared = Shared {
            set: Arc::clone(&set),
            large: RwLock::default(),
            region,
            zones,
            committer,
            snapshots: SnapshotRegistry::with_clock(visible, Arc::clone(&clock)),
            clock,
            cache: Arc::new(BlockCache::new(self.most_cache()).above(below)),
            poison,
            read_only: self.read_only,
            pace: Pace::default(),
            bell: Bell::default(),
            zone_bell: Bell::default(),
            fork: ForkGuard::new(),
            locks: LockManager::new(),
            write_memory: WriteMemory::new(memory::of_writes(self.options.memory)),
            most_lock_memory: memory::of_locks(self.options.memory),
            load_compression: self.options.compression.1,
            ddl: Mutex::new(()),
            closed: AtomicBool::new(false),
            defers: Gate::default(),
        };
        let (shared, forest) = (Arc::new(shared), forest.map(Arc::new));
        let ctx = Arc::new(JobContext::new(&shared, self.options, forest.clone()));
        Engine {
            path: self.path.to_path_buf(),
            options: self.options.clone(),
            shared,
            transactions: Arc::clone(&ctx.transactions),
            set,
            superblock: Mutex::new(superblock),
            scheduler: Arc::new(Scheduler::new(Arc::clone(&ctx))),
            ctx,
            forest,
            index_damage: None,
            opened: OpenStats::default(),
            secondary_cache,
        }
    }

    /// The most that the cache is ever given.
    fn most_cache(&self) -> u64 {
        self.options.memory.unwrap_or(self.options.cache_size)
    }

    fn threads(&self) -> usize {
        threads_of(self.options)
    }

    fn progress(&self, phase: &'static str, done: u64, total: u64) {
        if let Some(progress) = &self.options.progress {
            progress(OpenProgress { phase, done, total });
        }
    }
}

/// Fails when the region and the journal are not of one database.
fn check_pair(region: &Region, superblock: &Superblock, set: &VersionSet) -> Result<()> {
    if set.database_id() == superblock.database_id {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the region {} and the journal beside it belong to different databases; put back the files \
         that belong together",
        region.path().display()
    )))
}

/// Tells zones what was found in them.
fn tell_zones(zones: &ZonePool, recovered: &Recovered) {
    for (zone, accepted) in &recovered.zones {
        let oldest = accepted.iter().map(|a| a.oldest).min().unwrap_or(0);
        let greatest = accepted.last().map_or(0, |a| a.lsn);
        zones.set_found(*zone, oldest, greatest, accepted.iter().map(|a| a.records).sum());
    }
}

/// Has the payloads that recovery passed over be looked at when the index first leads to them.
fn doubt_passed_over(
    forest: &Forest,
    region: &Arc<Region>,
    (zones, recovered): (&ZonePool, &Recovered),
) {
    let (region, geometry, merged) = (Arc::clone(region), zones.geometry(), forest.merged());
    let passed: BTreeMap<u32, Passed> =
        recovered.passed_over().into_iter().map(|passed| (passed.zone, passed)).collect();
    let of: Vec<(u32, u32)> = passed.keys().map(|zone| (*zone, zones.units_of(*zone))).collect();
    let look = move |zone| passed.get(&zone)?.damage(&region, geometry, merged);
    forest.records().doubt(geometry, &of, Box::new(look));
}

/// How many threads open and close a database: as many as there are cores, one where every step is
/// to come in its turn.
pub(super) fn threads_of(options: &Options) -> usize {
    if options.stepped { 1 } else { cores() }
}

/// On a simulated machine every run is the same, salts too.
#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(unused_variables, reason = "there are no simulated machines")
)]
fn seed_salts(options: &Options, zones: &ZonePool) {
    #[cfg(any(test, feature = "testing"))]
    if matches!(options.storage, Storage::Simulated(_)) {
        zones.salts.repeat();
    }
}

/// Lines for the open zones that this opening goes on in: where each goes in the region, and its
/// bytes. Nothing that a crashed opening left behind them checks out any more.
fn resume_zones(
    zones: &ZonePool,
    recovered: &mut Recovered,
    incarnation: u64,
) -> Vec<(u64, Vec<u8>)> {
    let mut lines = Vec::new();
    let salts: BTreeMap<u32, u64> = recovered.open_salts.iter().copied().collect();
    for (stream, number) in recovered.streams.iter_mut().zip(0..) {
        // In a zone that is full nothing lies behind its tail.
        let Some(zone) = stream.zone.filter(|zone| stream.tail < zone.len) else { continue };
        let resume = Resume {
            incarnation,
            zone_generation: zones.generation(zone.number),
            stream: number,
            salt: zones.draw_salt(zone.number, incarnation),
        };
        let before = salts.get(&zone.number).copied().unwrap_or(0);
        let at = zones.geometry().zone(zone.number) + stream.tail;
        lines.push((at, resume.encode(zone.number, before)));
        stream.skip(RESUME as u64);
    }
    lines
}

/// The records of a committed sub-entry, with their offsets.
pub(super) fn records<'a>(
    region: &'a Region,
    entry: &Accepted,
) -> impl Iterator<Item = (u64, Record<'a>)> {
    records_in(region, entry.payload_at, entry.payload_len)
}

impl Engine {
    /// Step 5, and the tables that are there after it.
    fn catch_up(&self, recovered: &Recovered, own: &OwnRecords<'_>) -> Result<()> {
        for (lsn, news) in &own.news {
            match news {
                News::Event(event) => self.adopt(event.edit(*lsn))?,
                News::Run(run) => self.adopt_run(*run, *lsn)?,
            }
        }
        self.judge_pending_runs(recovered.last, &own.runs_of_prepares())?;
        for table in self.set.tables() {
            let version = self.set.version(table.id);
            let Some(version) = version else { continue };
            let core = self.new_core(table.id, &table.name, table.created_lsn, version);
            // What a persistent index does not know of is still to be merged.
            let merged = self.forest.as_ref().map_or(recovered.last, |forest| forest.merged());
            core.set_merged(core.merged().max(merged));
            self.ctx.tables.insert(&table.name, TableSlot::new(core));
        }
        Ok(())
    }

    /// Applies what was decided before to the journal; read-only, to what is in memory.
    fn adopt(&self, edit: Edit) -> Result<()> {
        if self.shared.read_only { self.set.adopt(&edit) } else { self.apply(edit).map(drop) }
    }

    /// The record of a run was accepted: if the journal still has it as pending, it is committed.
    fn adopt_run(&self, run: u64, lsn: Lsn) -> Result<()> {
        let pending = self.set.pending_runs();
        let Some((run, table)) = pending.into_iter().find(|(pending, _)| *pending == run) else {
            return Ok(());
        };
        self.adopt(Edit { ops: vec![Op::CommitRun { table, run, lsn }] })
    }

    /// Runs whose records were not accepted never were committed, but those of open prepares.
    fn judge_pending_runs(&self, last: Lsn, prepared: &BTreeSet<u64>) -> Result<()> {
        let accepts = self.options.has(Planted::AcceptPendingRun);
        let judge = |(run, table)| match accepts {
            true => Op::CommitRun { table, run, lsn: last },
            false => Op::DropRun { table, run },
        };
        let pending = self.set.pending_runs().into_iter();
        let ops: Vec<Op> = pending.filter(|(run, _)| !prepared.contains(run)).map(judge).collect();
        if ops.is_empty() { Ok(()) } else { self.adopt(Edit { ops }) }
    }
}
