//! Opening: what is there, which process may use it, and recovery in its order. Each sublevel
//! recovers by a function of its own. This module calls them one after the other, and hands what
//! one finds to the next as a value.
//!
//! 1. Region: superblock, fixed parts, floor.
//! 2. Journal: tables, extents, D; the pair is checked.
//! 3. Pools and zones; commit decides what was committed.
//! 4. All of that is made durable again, what is dead is let go, and this opening's incarnation
//!    is on the media: before the first ticket. A second cut anywhere in here finds the same.
//! 5. Table events and spilled runs beyond the journal are applied to it. Its runs that no
//!    transaction committed go.
//! 6. Records that are committed, of living tables, and not drained are indexed.
//! 7. Prepared transactions have their locks again. Zones with nothing left are released; the
//!    background starts.

mod beside;
mod create;
mod index_file;
mod load;
mod media;
mod own_records;
mod presence;
mod rebuild;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use self::create::create_with;
use self::load::make_durable;
use self::own_records::{OwnRecords, catch_up};
use self::presence::{Presence, check_not_of_node};
use super::catalog::Catalog;
use super::instance::Instance;
use super::{Engine, OpenHow, secondary_cache, threads_of};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::events::Events;
#[cfg(any(test, feature = "testing"))]
use crate::base::options::Storage;
use crate::base::options::{Failpoint, Making, Options};
use crate::base::progress::{Meter, OPEN};
use crate::cache::Below;
use crate::commit::{
    Accepted, Committer, Evidence, Gidx, JournalMark, Passed, Poison, Recovered, Start,
    bytes_to_read, recover,
};
use crate::jobs::{self, JobContext, memory};
use crate::level0::verify_row;
use crate::locks::LockManager;
use crate::memtable::{Record, records_in};
use crate::mvcc::{Runner, SnapshotRegistry, Watermark};
use crate::os::sync::atomic::{AtomicUsize, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::OnceLock;
use crate::os::{DirectoryLock, Files, ForkGuard, ReaderRegistration, create_directory, time};
use crate::pindex::forest::Forest;
use crate::pm::alloc::{PagePool, StreamKind, StreamPool, ZonePool};
use crate::pm::{Region, Superblock};
use crate::scheduler::Scheduler;
use crate::sstable::BlockCache;
use crate::table::{Awaited, Pace, Shared, UnshippedRuns, Wakeup, WriteMemory};
use crate::version::{JournalFloor, VersionSet};

pub(crate) use beside::{has_writer_come, open_again};
pub(crate) use create::{
    CLAIMS_FILE, Content, end_making, remove_part, remove_region_elsewhere, remove_unfinished,
};
pub(crate) use load::{Loaded, NamedObjects, check_pair, object_client};
pub(crate) use media::{note, path as region_path};
pub(crate) use own_records::lost_runs;
#[cfg(any(test, feature = "testing"))]
pub(crate) use presence::Marker;
pub(crate) use presence::{
    NODE, Parts, files_of, find_damaged, has_file, is_database, lock, lock_region, look_for,
    node_number, remove_marker,
};

pub(crate) fn open(path: &Path, options: &Options, how: OpenHow) -> Result<Arc<Instance>> {
    let started = time::now();
    options.check()?;
    options.check_place(path)?;
    // Once and for all: a verification of the open database looks the region up again.
    let options = &options.with_absolute_path()?;
    let (locked, found) = match enter(path, options, (how, options.making)) {
        Err(busy) if how == OpenHow::ReadOnly && busy.kind() == ErrorKind::Busy => {
            return beside::open((path, options), &busy, started);
        }
        entered => entered?,
    };
    if found != Presence::Database {
        let making = (options, options.making.unwrap_or_default());
        create_with(&locked.files, path, making, &found, |_| Ok(Content::default()))?;
    }
    locked.open((path, options), how, started)
}

/// Locks the directory `path`, which is made if it is missing, and says what it holds.
fn enter(
    path: &Path,
    options: &Options,
    how: (OpenHow, Option<Making>),
) -> Result<(LockedDatabase, Presence)> {
    options.check()?;
    options.check_place(path)?;
    let files = files_of(options);
    if look_for(&files, path, options, how)? != Presence::Database {
        check_not_of_node(path, options, how.0)?;
        memory::check_new(options)?;
    }
    create_directory(&*files, path).map_err(|e| Error::io("create", path, e))?;
    let lock = lock(&*files, path, options, how.0)?;
    // Another process may have been faster.
    let found = look_for(&files, path, options, how)?;
    // Behind the lock: a node that runs, or is being promoted, has the database open.
    check_not_of_node(path, options, how.0)?;
    Ok((LockedDatabase { files, lock }, found))
}

/// Makes a database in `to`, which is empty. `fill` writes its extents there, and says what they
/// are. It is whole only once the call that makes it says so, where [`Options::making`] names one.
/// No other opening enters the directory until the caller drops what comes back.
///
/// # Errors
///
/// `Invalid` for bad options; `Exists` if there is something in `to`; `Busy` if another process
/// works there; those of `fill`. There is no database then.
pub(crate) fn create_of_extents(
    to: &Path,
    options: &Options,
    fill: impl FnOnce(&Arc<dyn Files>) -> Result<Content>,
) -> Result<LockedDatabase> {
    let making = options.making.unwrap_or(Making::Restore);
    let (locked, found) = enter(to, options, (OpenHow::Create, Some(making)))?;
    create_with(&locked.files, to, (options, making), &found, fill)?;
    Ok(locked)
}

/// How an opening went.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OpenStats {
    /// Milliseconds from the call to a database that serves.
    pub total_ms: f64,
    /// Of these, reading zones and rebuilding the index.
    pub rebuild_ms: f64,
    /// Records that were indexed.
    pub records_rebuilt: u64,
    /// Records that were looked at; the persistent index knows the others.
    pub records_read: u64,
    /// Bytes of a persistent index that were held against its checksums: all of one that was
    /// closed.
    pub index_bytes_checked: u64,
    /// Commit groups above the floor that recovery found whole.
    pub groups_accepted: u64,
    /// Edits of the journal that were replayed, its checkpoint included.
    pub journal_edits: u64,
    /// Whether another process had it open to write. All that is read is as of the opening, at the
    /// commit `commit.visible`.
    pub beside_writer: bool,
}

/// A database whose directory this process has locked.
pub(crate) struct LockedDatabase {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) lock: DirectoryLock,
}

impl LockedDatabase {
    /// Opens the database. `options` have an absolute path.
    pub(crate) fn open(
        mut self,
        (path, options): (&Path, &Options),
        how: OpenHow,
        started: Instant,
    ) -> Result<Arc<Instance>> {
        lock_region(&mut self.lock, &*self.files, (path, options), how)?;
        if how != OpenHow::ReadOnly && options.making.is_none() {
            // Beside a database it is a stray, since the region was used.
            remove_marker(&*self.files, path)?;
        }
        let (files, read_only) = (self.files, how == OpenHow::ReadOnly);
        let options = &with_events(options);
        let opening = Opening { files, path, options, read_only, beside: None };
        let mut engine = opening.run(started)?;
        let lock = if read_only { beside::in_place_of(self.lock, &mut engine) } else { self.lock };
        Instance::start(engine, lock)
    }
}

/// The same options, with events of an instance of its own.
fn with_events(options: &Options) -> Options {
    let clock = || options.clock_of_records();
    let events = Events::new((options.on_event.clone(), options.slow_operation), clock);
    Options { events, ..options.clone() }
}

/// One opening of an existing database.
pub(crate) struct Opening<'a> {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) path: &'a Path,
    pub(crate) options: &'a Options,
    pub(crate) read_only: bool,
    /// What this process is beside one that writes, if that is so.
    pub(crate) beside: Option<&'a ReaderRegistration>,
}

impl Opening<'_> {
    fn run(&self, started: Instant) -> Result<Engine> {
        let words = self.load()?;
        let set = self.journal(&words.region, (&words.superblock, &words.floor))?;
        // What an edit says was durable lies in zones that are in the index by then.
        let mut fixed = if self.beside.is_some() { self.load()? } else { words.clone() };
        fixed.floor = words.floor;
        let (zones, scans, leaks) = ZonePool::open(&fixed.region, fixed.superblock.geometry)?;
        seed_salts(self.options, &zones);
        let streams = StreamPool::scan(&fixed.region)?;
        let cleaner = streams.iter().find(|s| s.kind == StreamKind::Cleaner).map(|s| s.stream);
        let gidx = streams.iter().map(|s| Gidx::load(&words.region, s.stream));
        let gidx = gidx.collect::<Result<Vec<_>>>()?;
        let to_read = bytes_to_read(&scans, fixed.superblock.geometry);
        let (rebuilt, meter) = (time::now(), self.meter(to_read));
        meter.did(0)?;
        let found = self.find_index(&fixed.region, &fixed.superblock, &meter)?;
        let mut recovered = recover(&Evidence {
            merged: found.forest.as_ref().map_or(0, Forest::merged),
            threads: self.threads(),
            did: &|bytes| meter.did(bytes),
            check_payloads: self.check_payloads(),
            is_written: self.beside.is_some(),
            ..fixed.evidence((&scans, &gidx), set.durable())
        })?;
        if let Some(beside) = self.beside {
            // The writer keeps their pages until the number is in the registration.
            verify_rows(&fixed.region, &set, &meter)?;
            self.settle(beside, (&fixed.region, &words.superblock), &set, &mut recovered)?;
        }
        let Loaded { region, mut superblock, mut floor, .. } = fixed;
        if !self.read_only {
            // The journal was made durable as far as it was found.
            let JournalFloor { epoch, number } = set.floor();
            floor.journal = JournalMark { epoch, edit: number };
            let how = (self.options.lsn_after, self.options.share);
            make_durable(&region, (&zones, &mut recovered), &mut superblock, &mut floor, how)?;
            debug_assert!(recovered.last <= superblock.lsn_base, "the next LSN is above all");
            zones.release(&[recovered.empty.as_slice(), &leaks].concat())?;
        }
        let (forest, index_note) = self.keep_index(&region, found, &superblock)?;
        if let Some(forest) = forest.as_ref().filter(|_| self.check_payloads()) {
            mark_unverified(forest, &region, (&zones, &recovered));
        }
        self.attach_objects(&set, superblock.incarnations.current)?;
        let last = if self.read_only { recovered.last } else { superblock.lsn_base };
        tell_zones(&zones, &recovered);
        let incarnation = superblock.incarnations.current;
        let (streams, gidx) = (recovered.streams.clone(), recovered.gidx.clone());
        let len = |zone| superblock.geometry.zone_len(zones.units_of(zone));
        let found: u64 = recovered.zones.iter().map(|(zone, _)| len(*zone)).sum();
        meter.did(to_read.saturating_sub(found))?;
        let shares = self.options.share && !self.read_only;
        let feeds = shares.then_some(words.superblock.lsn_base);
        let start = Start { last, incarnation, floor, streams, gidx, cleaner, feeds };
        let mut engine = self.engine(region, (zones, superblock), (set, forest), start);
        engine.index_note = index_note;
        engine.opened.index_bytes_checked = engine.forest.as_ref().map_or(0, |f| f.checked());
        engine.recovered = recovered.last;
        engine.opened.groups_accepted = recovered.above_floor;
        engine.opened.records_read = records_read(&recovered);
        engine.shared.committer.counts.appended.store(found, Ordering::Relaxed);
        engine.opened.records_rebuilt = self.index(&engine, &recovered, &meter)?;
        engine.opened.rebuild_ms = time::since(rebuilt).as_secs_f64() * 1e3;
        self.finish(&engine)?;
        meter.end()?;
        engine.opened.journal_edits = engine.set.replayed();
        engine.opened.total_ms = time::since(started).as_secs_f64() * 1e3;
        Ok(engine)
    }

    /// All is read, and what counts of it is indexed. What is read of a persistent index and of row
    /// tables comes to it.
    fn meter(&self, to_read: u64) -> Meter {
        let meter = Meter::new(self.options, OPEN);
        meter.plan(2 * to_read);
        meter
    }

    /// The options from now on: a takeover has ended.
    fn options_behind(&self) -> Options {
        let mut options = self.options.clone();
        if options.lsn_after.take().is_some() {
            options.making = None;
        }
        options
    }

    /// Steps 5 to 7, of records: how many were indexed.
    fn index(&self, engine: &Engine, recovered: &Recovered, meter: &Meter) -> Result<u64> {
        let region = Arc::clone(&engine.shared.region);
        let own = OwnRecords::find(&region, recovered, &engine.set)?;
        catch_up(engine, recovered, &own)?;
        let records = rebuild::index(engine, recovered, self.threads(), meter)?;
        engine.scheduler.adopt_index(recovered.last)?;
        own.restore(engine)?;
        Ok(records)
    }

    /// Releases what is dead, and sets what may be changed later.
    fn finish(&self, engine: &Engine) -> Result<()> {
        if !self.read_only {
            // One that shares does not know yet what the store has, and keeps all.
            let (floor, committer) = (engine.ctx.sync_floor()?, &engine.shared.committer);
            let dead = engine.shared.zones.dead(floor.min(committer.kept()));
            let dead = committer.releasable(dead);
            // Where that cannot be said, the background looks again, and tells.
            let may_go = || engine.set.store().readers().have_opened(&mut None).unwrap_or(false);
            if committer.release(&dead, may_go)? > 0 {
                engine.transactions.prepared.released(&engine.shared.zones, &dead);
            }
        }
        jobs::keep_reserves(&engine.ctx);
        if !self.read_only {
            jobs::find_reserve(&engine.ctx)?;
        }
        engine.tune(self.options.commit_tuning);
        // No client has written to this opening yet, so the idle background begins at once.
        engine.ctx.idle.begin(engine.shared.committer.visible());
        engine.ctx.memory.check()
    }

    fn check_payloads(&self) -> bool {
        !self.options.has(Failpoint::SkipPayloadChecksum)
    }

    fn threads(&self) -> usize {
        threads_of(self.options)
    }
}

/// Checks the row tables of all tables.
fn verify_rows(region: &Region, set: &VersionSet, meter: &Meter) -> Result<()> {
    for version in set.tables().iter().filter_map(|table| set.version(table.id)) {
        for row in &version.rows {
            verify_row(region, (version.table, row), &version.drained, meter)?;
        }
    }
    Ok(())
}

/// How many records were looked at.
fn records_read(recovered: &Recovered) -> u64 {
    let entries = recovered.zones.iter().flat_map(|(_, accepted)| accepted);
    entries.filter(|entry| !entry.is_merged).map(|entry| entry.records).sum()
}

/// Tells zones what was found in them.
fn tell_zones(zones: &ZonePool, recovered: &Recovered) {
    for (zone, accepted) in &recovered.zones {
        let oldest = accepted.iter().map(|a| a.oldest).min().unwrap_or(0);
        let greatest = accepted.last().map_or(0, |a| a.lsn);
        debug_assert!(accepted.iter().all(|a| a.lsn <= greatest), "a zone has its last LSN last");
        zones.set_found(*zone, oldest, greatest, accepted.iter().map(|a| a.records).sum());
    }
}

/// Has the payloads that recovery passed over be looked at when the index first leads to them.
fn mark_unverified(
    forest: &Forest,
    region: &Arc<Region>,
    (zones, recovered): (&ZonePool, &Recovered),
) {
    let (region, geometry, merged) = (Arc::clone(region), zones.geometry(), forest.merged());
    let passed: BTreeMap<u32, Passed> =
        recovered.passed_over().into_iter().map(|passed| (passed.zone, passed)).collect();
    let of: Vec<(u32, u32)> = passed.keys().map(|zone| (*zone, zones.units_of(*zone))).collect();
    let look = move |zone| passed.get(&zone)?.damage(&region, geometry, merged);
    forest.records().mark_unverified(geometry, &of, Box::new(look));
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

/// The records of a committed sub-entry, with their offsets.
pub(crate) fn records<'a>(
    region: &'a Region,
    entry: &Accepted,
) -> impl Iterator<Item = (u64, Record<'a>)> {
    records_in(region, entry.payload_at, entry.payload_len)
}

impl Opening<'_> {
    /// The lock table.
    fn locks(&self) -> Arc<LockManager> {
        let most = memory::of_locks(self.options.memory_plan().limit());
        let observer = self.options.on_lock_wait.clone();
        LockManager::with_observer(most, observer, &self.options.events)
    }

    /// What stops the database. Where this process writes, its lock file tells others.
    fn poison(&self) -> Arc<Poison> {
        let locked = || (Arc::clone(&self.files), self.path.to_path_buf());
        Arc::new(Poison::new(&self.options.events, (!self.read_only).then(locked)))
    }

    /// The engine, with nothing indexed yet.
    pub(super) fn engine(
        &self,
        region: Arc<Region>,
        (zones, superblock): (ZonePool, Superblock),
        (set, forest): (VersionSet, Option<Forest>),
        start: Start,
    ) -> Engine {
        let (set, zones, poison) = (Arc::new(set), Arc::new(zones), self.poison());
        let visible = Arc::new(Watermark::new(start.last));
        let (of_region, of_zones) = (Arc::clone(&region), Arc::clone(&zones));
        let (seen, stopped) = (Arc::clone(&visible), Arc::clone(&poison));
        let committer = Committer::new(of_region, of_zones, seen, stopped, start);
        let clock = self.options.clock_of_records();
        clock.forward_to(set.timeline().last().map_or(0, |last| last.time));
        let secondary_cache = secondary_cache(&region, &zones, self.read_only);
        let below = secondary_cache.clone().map(|cache| cache as Arc<dyn Below>);
        let (queue, readers) = (Arc::default(), set.store().readers());
        let pages = PagePool::new(Arc::clone(&region), Arc::clone(&zones), (&queue, readers));
        let shared = Shared {
            set: Arc::clone(&set),
            gate: Arc::clone(set.store().gate()),
            unshipped: UnshippedRuns::new(self.options.stepped),
            ended_runs: Mutex::default(),
            region,
            zones,
            pages: Arc::new(pages),
            committer,
            snapshots: SnapshotRegistry::with_clock(visible, Arc::clone(&clock)),
            clock,
            cache: BlockCache::above(self.options.memory_plan().most_cache(), below),
            poison,
            pace: Pace::new(&self.options.events),
            events: self.options.events.clone(),
            read_only: self.read_only,
            wakeup: Wakeup::default(),
            zone_wakeup: Wakeup::default(),
            fork: ForkGuard::new(),
            locks: self.locks(),
            write_memory: WriteMemory::new(memory::of_writes(self.options.memory_plan().limit())),
            load_compression: self.options.compression.1,
            ddl: Mutex::new(()),
            follows: self.options.follows.is_some(),
            awaited: Awaited::default(),
            queue: Arc::clone(&queue),
            deferred: AtomicUsize::new(0),
        };
        let (shared, forest) = (Arc::new(shared), forest.map(Arc::new));
        let options = self.options_behind();
        let ctx = Arc::new(JobContext::new(&shared, &options, (superblock, forest.clone())));
        let scheduler = Arc::new(Scheduler::new(Arc::clone(&ctx)));
        Engine {
            path: self.path.to_path_buf(),
            options,
            shared,
            transactions: Arc::clone(&ctx.transactions),
            set,
            catalog: Catalog::new(Arc::clone(&ctx), Arc::clone(&scheduler.jobs.count_live)),
            scheduler,
            ctx,
            forest,
            index_note: None,
            opened: OpenStats::default(),
            is_beside: self.beside.is_some(),
            recovered: 0,
            shipper: OnceLock::new(),
            secondary_cache,
            history_wakeup: Wakeup::default(),
            runner: Mutex::new((!self.read_only).then(|| Runner::new(&queue))),
        }
    }
}
