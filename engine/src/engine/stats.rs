//! What lies where, and what it has cost.

use std::time::Duration;

use super::Engine;
use super::instance::ShareStats;
use super::object_store::{self, ObjectStats};
use super::open::{self, OpenStats};
use crate::compaction::{Shape, misplaced};
use crate::jobs::memory::MemoryStats;
use crate::jobs::metrics::BackgroundStats;
use crate::level0::Size;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::pm::{PAGE, Purpose, Spent};
use crate::table::TableCore;
use crate::version::{MAX_LEVELS, Version, known_as};

/// Numbers of an open database. Counters start at its opening.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// What the database is: `open` to write, `read-only`, a `follower` or a `standby`, or
    /// `stopped` after a failure: nothing but its history is written any more, and it has to be
    /// opened again.
    pub state: &'static str,
    /// Why it stopped, if it did.
    pub stopped: Option<String>,
    /// The persistence mode of the region: `file`, `dax`, `emulated`, or in tests `simulated`.
    pub mode: &'static str,
    /// How the opening went.
    pub open: OpenStats,
    /// Commit.
    pub commit: CommitStats,
    /// What persistence has cost, by purpose: in the region, and in the persistent index.
    pub persistence: Vec<PersistenceStats>,
    /// The region.
    pub pm: PmStats,
    /// How writers are paced.
    pub pace: PaceStats,
    /// Waits for locks.
    pub locks: LockStats,
    /// Each table, by name.
    pub tables: Vec<TableStats>,
    /// Extent files.
    pub disk: DiskStats,
    /// The block cache.
    pub cache: CacheStats,
    /// What is held in memory.
    pub memory: MemoryStats,
    /// Background jobs.
    pub background: BackgroundStats,
    /// The object store, where the opening has one.
    pub objects: Option<ObjectStats>,
    /// Shipping of commits, where the database is shared.
    pub share: Option<ShareStats>,
}

/// What it cost to make bytes of the region durable, for one purpose.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PersistenceStats {
    /// `commit` (groups and the floor that rides along), `allocation` (zones linked and
    /// released), `background` (its jobs, with what they commit), or `other` (opening, closing).
    pub purpose: &'static str,
    /// Syncs of the region's file.
    pub syncs: u64,
    /// Cache lines flushed (persistent memory only).
    pub flushes: u64,
    /// Store fences (persistent memory only).
    pub fences: u64,
    /// Media blocks of 256 bytes that fenced ranges touched (persistent memory only).
    pub blocks: u64,
    /// Bytes written to the region's file; on persistent memory, bytes that were fenced.
    pub bytes: u64,
}

/// Commit.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CommitStats {
    /// Commit groups.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Publisher runs: groups made durable together.
    pub runs: u64,
    /// Syncs of the region's file.
    pub syncs: u64,
    /// Cache lines flushed (persistent memory only).
    pub flushes: u64,
    /// Store fences (persistent memory only).
    pub fences: u64,
    /// Media blocks of 256 bytes that were touched (mapped modes only).
    pub blocks: u64,
    /// Bytes written to the region's file; on persistent memory, bytes that were fenced.
    pub bytes: u64,
    /// Times a stream went on to its next zone.
    pub zone_switches: u64,
    /// Runs of commits that were too large for a zone, one a table, and of bulk loads.
    pub spilled_runs: u64,
    /// The last commit that readers see.
    pub visible: u64,
    /// The last commit that survives a power cut.
    pub durable: u64,
    /// Milliseconds that writers were slowed down because the region was filling, together. A wait
    /// counts as it goes on.
    pub throttled_ms: f64,
}

/// The region.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PmStats {
    /// What should be known of where it lies; nothing in most cases.
    pub note: Option<String>,
    /// Its size in bytes.
    pub capacity: u64,
    /// Bytes in a unit, the smallest zone. A zone is one unit, or two, four … in a row; the numbers
    /// of zones below are in units.
    pub zone_size: u64,
    /// Bytes in the largest zone: what a batch may take.
    pub largest_zone: u64,
    /// Bytes in the largest piece that is free: what a zone that is taken now can have.
    pub largest_free: u64,
    /// Zones that there are.
    pub zones: u32,
    /// Zones that are taken.
    pub zones_used: u32,
    /// Of these, zones that records are or will be appended to.
    pub zones_open: u32,
    /// Of these, zones without a record that counts: readers, or the next sync, keep them.
    pub zones_pinned: u32,
    /// Zones that hold a record that counts.
    pub zones_live: u32,
    /// How many zones the taken units make, large and small.
    pub zones_linked: u32,
    /// Of these, zones without a record that counts.
    pub zones_empty: u32,
    /// Records in zones that count.
    pub live_records: u64,
    /// Bytes of pages that row tables take, of units that are taken. Drains begin where these are
    /// 60 % of the region.
    pub row_table_bytes: u64,
    /// Streams that tables append to: the shared one, and those of busy tables.
    pub streams_used: u32,
    /// Bytes appended since the database was opened, beside the zones that were taken then.
    pub appended_bytes: u64,
    /// Of these, bytes behind the oldest record that is not drained: the last full round of
    /// drains. Beside open and pinned zones the region holds no more than that.
    pub round_bytes: u64,
    /// Bytes of memory that the indexes over its records take.
    pub index_memory: u64,
    /// Where the index of level 0 is: `volatile` or `persistent`.
    pub index: &'static str,
    /// Bytes of persistent memory that it takes.
    pub index_bytes: u64,
    /// The opening found a damaged index, and made it anew out of the records: what was wrong. Or
    /// there was no room for a persistent one, and the index is in memory.
    pub index_note: Option<String>,
    /// Whether a persistent index is still being counted after an opening: until it is, no zone is
    /// released.
    pub index_counting: bool,
}

/// How writers are paced, as of the background's last look; who waits, as of now.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PaceStats {
    /// Why writers wait: `none`, or in words.
    pub reason: &'static str,
    /// Bytes by which the round of drains lags behind what was appended.
    pub debt: u64,
    /// Bytes of records that drains move a second, as measured; 0 before the first.
    pub drain_rate: u64,
    /// Nanoseconds that writers wait for each KiB.
    pub delay_ns: u64,
    /// Writers that wait now, for the pace or for space.
    pub waiting: u64,
    /// For how long one or another of them has waited without a gap, in milliseconds.
    pub waiting_ms: f64,
    /// Why no space can be made, if so: what the last job failed with.
    pub stuck: Option<String>,
}

/// Waits for locks on rows and ranges.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockStats {
    /// Threads that wait now.
    pub waiting: u64,
    /// For how long one or another of them has waited without a gap, in milliseconds.
    pub waiting_ms: f64,
    /// Milliseconds that threads have waited, together. A wait counts as it goes on.
    pub waited_ms: f64,
}

/// A table.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TableStats {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// How long its records live, in milliseconds; `None` for ever.
    pub ttl_ms: Option<u64>,
    /// Records in memtables.
    pub memtable_records: u64,
    /// Of these, deletes of one key.
    pub memtable_deletes: u64,
    /// Bytes they take in the region.
    pub memtable_bytes: u64,
    /// Records in level 0.
    pub level0_records: u64,
    /// Bytes they take in the region.
    pub level0_bytes: u64,
    /// Of the records in memtables and level 0, range deletes.
    pub range_deletes: u64,
    /// Bytes of memory that the indexes of memtables and level 0 take.
    pub index_memory: u64,
    /// Runs of large commits and bulk loads that are not drained.
    pub spilled_runs: u64,
    /// Bytes they take on disk.
    pub spilled_bytes: u64,
    /// Levels on disk, from level 1.
    pub levels: Vec<LevelStats>,
    /// Extents of values that lie apart: [`TableOptions::large_values`](crate::TableOptions).
    pub value_extents: u64,
    /// Bytes they take on disk.
    pub value_bytes: u64,
    /// Of these, bytes of values that records refer to. While a bulk load is being merged its
    /// values may count twice.
    pub value_live_bytes: u64,
    /// Where levels 2 and deeper are to lie: `ssd` or `object`.
    pub cold: &'static str,
    /// Bytes of extents and of values that are objects.
    pub object_bytes: u64,
    /// Bytes of levels 2 and deeper, and of their values, that lie on another tier than they are
    /// to: they change it in the background.
    pub misplaced_bytes: u64,
}

/// A level of a table.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// Its number, from 1.
    pub level: u8,
    /// Sorted parts that lie over each other and have something: of level 1 several, where drains
    /// have come by more than once since it was merged into level 2.
    pub sublevels: u64,
    /// Extents in it.
    pub extents: u64,
    /// Records in them.
    pub records: u64,
    /// Of these, deletes of one key and range deletes: tombstones.
    pub deletes: u64,
    /// Of these, range deletes, cut at the ends of extents.
    pub range_deletes: u64,
    /// Bytes they take on disk.
    pub bytes: u64,
    /// Look-ups that it answered, those that found a delete included.
    pub answered: u64,
}

/// Extent files.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DiskStats {
    /// Extent files, each with one descriptor.
    pub files: u64,
    /// Bytes that the files take on the device, at most: what was not taken since the opening may
    /// have been given back before.
    pub file_bytes: u64,
    /// Of these, bytes that hold extents.
    pub extent_bytes: u64,
    /// Free bytes that are kept for the jobs under way.
    pub headroom_bytes: u64,
    /// Bytes given back to the file system.
    pub returned_bytes: u64,
    /// Bytes written to extents.
    pub written_bytes: u64,
    /// Bytes read from extents.
    pub read_bytes: u64,
    /// In so many reads. Ranges and jobs read many blocks at once.
    pub reads: u64,
    /// Whether all of it passes by the operating system's cache: `Options::direct_io`, where the
    /// file system can, once there are files.
    pub direct_io: bool,
    /// Syncs of the files.
    pub syncs: u64,
    /// Memory that block indexes and filters take, beside the cache.
    pub index_memory: u64,
    /// Openings that read beside this one, which writes: one for each moment that is shown.
    pub readers: u64,
    /// The numbers of their processes, as these have them; 0 of one whose file cannot be opened.
    pub reader_processes: Vec<u32>,
    /// Bytes of extents of records that only these need.
    pub kept_bytes: u64,
}

/// The block cache.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes it may hold.
    pub capacity: u64,
    /// Bytes it holds.
    pub used: u64,
    /// Blocks found in it.
    pub hits: u64,
    /// Blocks that had to be read.
    pub misses: u64,
    /// Bytes of blocks in free units of the region, in `dax` and `emulated`: a cache below this
    /// one, which gives way to records.
    pub below_used: u64,
    /// Blocks found there instead of being read from their medium.
    pub below_hits: u64,
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

pub(crate) fn collect(engine: &Engine) -> Stats {
    let below = engine.secondary_cache.as_ref();
    let stopped = engine.shared.poison.why().map(str::to_owned);
    Stats {
        state: match engine.options.follows {
            _ if stopped.is_some() => "stopped",
            Some(role) => role,
            None if engine.shared.read_only => "read-only",
            None => "open",
        },
        stopped,
        mode: engine.shared.region.mode(),
        open: engine.opened,
        commit: commit(engine),
        persistence: persistence(engine),
        pm: pm(engine),
        pace: pace(engine),
        locks: locks(engine),
        tables: tables(engine),
        disk: disk(engine),
        cache: CacheStats {
            capacity: engine.shared.cache.capacity(),
            used: engine.shared.cache.used(),
            hits: engine.shared.cache.hits(),
            misses: engine.shared.cache.misses(),
            below_used: below.map_or(0, |below| below.used()),
            below_hits: below.map_or(0, |below| below.hits()),
        },
        memory: engine.ctx.memory.held(),
        background: engine.ctx.metrics.background(engine.shared.snapshots.held().0 as u64),
        objects: object_store::stats(engine),
        share: engine.shipper.get().and_then(|shipper| shipper.stats(engine)),
    }
}

fn pace(engine: &Engine) -> PaceStats {
    let ((reason, debt, drain_rate), pace) = (engine.scheduler.pace(), &engine.shared.pace);
    let waits = pace.waits();
    PaceStats {
        reason,
        debt,
        drain_rate,
        delay_ns: pace.delay(),
        waiting: waits.waiting.into(),
        waiting_ms: ms(waits.lasts()),
        stuck: pace.stuck(),
    }
}

fn locks(engine: &Engine) -> LockStats {
    let waits = engine.shared.events.times().lock_waiters.look();
    let (waiting_ms, waited_ms) = (ms(waits.lasts()), ms(waits.waited));
    LockStats { waiting: waits.waiting.into(), waiting_ms, waited_ms }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn commit(engine: &Engine) -> CommitStats {
    let committer = &engine.shared.committer;
    let (counts, spent) = (&committer.counts, engine.shared.region.counts().on(Purpose::Commit));
    CommitStats {
        groups: read(&counts.groups),
        records: read(&counts.records),
        runs: committer.runs(),
        syncs: read(&spent.syncs),
        flushes: read(&spent.flushes),
        fences: read(&spent.fences),
        blocks: read(&spent.blocks),
        bytes: read(&spent.bytes),
        zone_switches: read(&counts.zone_switches),
        spilled_runs: read(&counts.spilled_runs),
        visible: committer.visible(),
        durable: committer.durable(),
        throttled_ms: ms(engine.shared.pace.waits().waited),
    }
}

fn persistence(engine: &Engine) -> Vec<PersistenceStats> {
    let index = engine.forest.as_ref().map(|forest| forest.counts());
    let counts = [Some(engine.shared.region.counts()), index];
    let of = |(purpose, name)| {
        let sum = |counter: fn(&Spent) -> &AtomicU64| {
            counts.iter().flatten().map(|counts| read(counter(counts.on(purpose)))).sum()
        };
        PersistenceStats {
            purpose: name,
            syncs: sum(|spent| &spent.syncs),
            flushes: sum(|spent| &spent.flushes),
            fences: sum(|spent| &spent.fences),
            blocks: sum(|spent| &spent.blocks),
            bytes: sum(|spent| &spent.bytes),
        }
    };
    Purpose::ALL.map(of).to_vec()
}

fn pm(engine: &Engine) -> PmStats {
    let zones = &engine.shared.zones;
    // The region may grow meanwhile: there are never more units free than there are.
    let free = zones.free();
    let geometry = zones.geometry();
    // In this order, so that what is appended meanwhile does not pass for zones without bytes.
    let used = geometry.units - free;
    let (zones_linked, zones_empty) = zones.linked();
    let appended = read(&engine.shared.committer.counts.appended);
    let is_emulated = engine.shared.region.mode() == "emulated";
    PmStats {
        note: is_emulated.then(|| open::note(engine.shared.region.path())).flatten(),
        capacity: engine.shared.region.len(),
        zone_size: geometry.unit,
        largest_zone: geometry.largest_zone(),
        largest_free: geometry.zone_len(zones.largest_free()),
        zones: geometry.units,
        zones_used: used,
        zones_open: zones.open_units(),
        zones_pinned: zones.pinned_units(),
        zones_live: zones.live_units(),
        zones_linked,
        zones_empty,
        live_records: zones.live_records(),
        row_table_bytes: engine.shared.pages.used() * PAGE,
        streams_used: engine.shared.committer.streams_used(),
        appended_bytes: appended,
        round_bytes: engine.scheduler.round_bytes(),
        index_memory: engine.tables().iter().map(|t| t.view().index_memory()).sum(),
        index: if engine.forest.is_some() { "persistent" } else { "volatile" },
        index_bytes: engine.forest.as_ref().map_or(0, |forest| forest.bytes()),
        index_note: engine.index_note.clone(),
        index_counting: !zones.is_counted(),
    }
}

fn tables(engine: &Engine) -> Vec<TableStats> {
    let shape = engine.ctx.shape();
    engine.tables().iter().map(|core| table(core, &shape)).collect()
}

/// The numbers of one table.
pub(crate) fn table(core: &TableCore, shape: &Shape) -> TableStats {
    let view = core.view();
    let Size { records: level0_records, bytes: level0_bytes } = view.level0.size();
    let frozen: u64 = view.frozen.iter().map(|f| f.memtable.bytes()).sum();
    let values = view.version.live_values();
    TableStats {
        name: core.name(),
        id: core.id(),
        ttl_ms: view.version.options.ttl_micros().map(|micros| micros / 1000),
        memtable_records: view.memtable_records(),
        memtable_deletes: view.memtable_deletes(),
        memtable_bytes: view.active.bytes() + frozen,
        level0_records,
        level0_bytes,
        range_deletes: view.range_deletes().count,
        index_memory: view.index_memory(),
        spilled_runs: view.runs().count() as u64,
        spilled_bytes: view.runs().map(|run| run.extents.bytes()).sum(),
        levels: levels(&view.version),
        value_extents: values.len() as u64,
        value_bytes: values.values().map(|(of, _)| u64::from(of.location.len)).sum(),
        value_live_bytes: values.values().map(|(_, live)| live).sum(),
        cold: view.version.options.cold.as_str(),
        object_bytes: view.version.levels.iter().map(|level| level.objects().1).sum::<u64>()
            + values
                .values()
                .filter(|(of, _)| of.location.is_object())
                .map(|(of, _)| u64::from(of.location.len))
                .sum::<u64>(),
        misplaced_bytes: misplaced(&view.version, shape),
    }
}

fn levels(version: &Version) -> Vec<LevelStats> {
    let mut levels: Vec<LevelStats> = Vec::new();
    for (n, level) in (1..).zip(&version.levels) {
        let known = known_as(n);
        if levels.last().is_none_or(|last| last.level != known) {
            levels.push(LevelStats { level: known, ..LevelStats::default() });
        }
        let Some(stats) = levels.last_mut() else { continue };
        stats.sublevels += u64::from(!level.is_empty());
        stats.extents += level.extents().len() as u64;
        stats.records += level.records();
        stats.deletes += level.deletes();
        stats.range_deletes += level.tombstones();
        stats.bytes += level.bytes();
        stats.answered += version.answers.of(n);
    }
    // What sublevels had answered that are empty now counts on.
    if let Some(first) = levels.first_mut().filter(|first| first.level == 1) {
        let gone = version.levels.len() as u8 + 1..=MAX_LEVELS;
        let gone = gone.filter(|n| known_as(*n) == 1);
        first.answered += gone.map(|n| version.answers.of(n)).sum::<u64>();
    }
    levels
}

fn disk(engine: &Engine) -> DiskStats {
    let store = engine.set.store();
    let space = store.space();
    let readers = store.readers_beside(0).unwrap_or_default();
    DiskStats {
        files: space.files,
        file_bytes: space.file_bytes,
        headroom_bytes: space.reserved_bytes,
        returned_bytes: space.returned_bytes,
        extent_bytes: space.taken_bytes,
        written_bytes: store.bytes_written(),
        read_bytes: store.bytes_read(),
        reads: store.reads(),
        direct_io: store.is_direct(),
        syncs: store.syncs(),
        index_memory: store.memory().parts.bytes(),
        readers: readers.len() as u64,
        reader_processes: readers.iter().map(|reader| reader.process).collect(),
        kept_bytes: engine.set.kept_bytes(),
    }
}
