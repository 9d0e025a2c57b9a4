//! Terrace.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use terrace::{
    Database, Durability, Level0Container, Mode, Options, Range, Table, TableOptions, Tier,
};

use super::{Jobs, Kind, Memory, ObjectUse, Store, read_value};
use crate::latency::let_work;

/// How far away the object store is, and the bytes a second of a connection to it.
const DISTANCE: (Duration, u64) = (Duration::from_millis(20), 100_000_000);

struct Terrace {
    table: Table,
    /// The same, whose writes are relaxed.
    relaxed: Table,
    db: Database,
    settings: String,
    /// Removed with it.
    _region: Option<Region>,
    #[cfg(feature = "watch")]
    _page: Option<terrace_monitor::Monitor>,
}

/// Whether databases have their page served.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Has the pages of databases served that are opened from now on, if it is so asked for.
pub(crate) fn watch(is_asked_for: bool) -> Result<()> {
    let can = cfg!(feature = "watch");
    anyhow::ensure!(can || !is_asked_for, "--watch needs terrace-bench with the feature `watch`");
    IS_WATCHED.store(is_asked_for, Ordering::Relaxed);
    Ok(())
}

/// Serves the page of a database, and says where.
#[cfg(feature = "watch")]
fn page(db: &Database) -> Result<Option<terrace_monitor::Monitor>> {
    if !IS_WATCHED.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let page = terrace_monitor::serve(db, "127.0.0.1:0")?;
    eprintln!("watch it at {}", page.url());
    Ok(Some(page))
}

/// An emulated region's file, which lies outside the directory.
pub(super) struct Region(PathBuf);

impl Drop for Region {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// Opens a database with the memory that every store gets: one limit for the region's image, the
/// indexes and the cache. An emulated region lies beside it, as persistent memory does.
pub(super) fn database(
    dir: &Path,
    memory: Memory,
    kind: Kind,
) -> Result<(Database, Option<Region>, String)> {
    let delay = match kind {
        Kind::TerraceEmulated | Kind::TerraceMatrix | Kind::TerraceTriangle => Some(Duration::ZERO),
        Kind::TerraceDelayed => Some(Duration::from_nanos(300)),
        _ => None,
    };
    if kind == Kind::TerraceDefaults {
        let options = Options::new();
        let settings = format!("{options:?}, no option set");
        return Ok((options.open(dir.join("db"))?, None, settings));
    }
    let limit = if delay.is_some() { memory.cache } else { memory.all() };
    let mut options = Options::new().pm_size(memory.write).memory(limit);
    let region = delay.map(|_| {
        let name = format!("terrace-bench-store-{}", std::process::id());
        let shm = Path::new("/dev/shm");
        Region(if shm.is_dir() { shm.join(name) } else { dir.join(name) })
    });
    if let (Some(delay), Some(region)) = (delay, &region) {
        if !dir.join("db").exists() {
            drop(std::fs::remove_file(&region.0));
        }
        options = options.mode(Mode::Emulated { delay }).pm_path(&region.0);
    }
    let mut rest = "default compression";
    if matches!(kind, Kind::TerraceShallow | Kind::TerraceAnew) {
        options = options.level1_size(memory.write);
    }
    if kind == Kind::TerraceAnew {
        options = options.reuse(false);
        rest = "default compression, no reuse of extents and blocks";
    }
    if kind == Kind::TerraceObject {
        let bucket = format!("file://{}", dir.join("bucket").display());
        options = options.object_store(bucket).object_store_distance(DISTANCE.0, DISTANCE.1);
        rest = "default compression; the object store is a directory that is 20 ms away, with \
                100 MB/s a connection";
    }
    let settings = format!("{options:?}, {rest}; {limit} bytes of memory in all");
    Ok((options.open(dir.join("db"))?, region, settings))
}

pub(super) fn open(dir: &Path, memory: Memory, kind: Kind) -> Result<Box<dyn Store>> {
    let (db, region, settings) = database(dir, memory, kind)?;
    let level0 = match kind {
        Kind::TerraceMatrix | Kind::TerraceMatrixFile => Level0Container::Matrix,
        Kind::TerraceTriangle | Kind::TerraceTriangleFile => Level0Container::Triangle,
        _ => Level0Container::GlobalIndex,
    };
    let table = match db.existing_table("t") {
        Ok(table) => table,
        Err(_) => {
            let is_object = kind == Kind::TerraceObject;
            let cold = if is_object { Tier::Object } else { Tier::Ssd };
            db.create_table("t", TableOptions::new().level0(level0).cold(cold))?
        }
    };
    let settings = format!("{settings}, level 0: {}", table.options().level0_container().name());
    let relaxed = table.durability(Durability::Relaxed);
    Ok(Box::new(Terrace {
        #[cfg(feature = "watch")]
        _page: page(&db)?,
        table,
        relaxed,
        db,
        settings,
        _region: region,
    }))
}

impl Terrace {
    /// Waits until no job ended for so long and none is under way.
    fn wait_until_still(&self, still: Duration) -> Result<()> {
        let (mut before, mut since) = (0, Instant::now());
        while since.elapsed() < still {
            let_work(Duration::from_millis(100));
            let now = self.db.stats();
            let jobs = now.background.drains + now.background.compactions;
            let objects = now.objects.as_ref();
            let follows = now.tables.iter().any(|table| table.misplaced_bytes > 0)
                || objects.is_some_and(|objects| objects.deleting > 0);
            if jobs != before || now.disk.headroom_bytes > 0 || follows {
                (before, since) = (jobs, Instant::now());
            }
        }
        Ok(())
    }
}

impl Store for Terrace {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        let table = if durable { &self.table } else { &self.relaxed };
        Ok(table.put(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.relaxed.delete(key)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.table.get_with(key, read_value)?)
    }

    fn get_many(&self, keys: &[[u8; 8]]) -> Result<usize> {
        Ok(self.table.multi_get(keys)?.iter().flatten().count())
    }

    fn objects(&self) -> Option<ObjectUse> {
        let stats = self.db.stats();
        let mut used = ObjectUse { volume_bytes: stats.disk.extent_bytes, ..ObjectUse::default() };
        used.object_bytes = stats.tables.iter().map(|table| table.object_bytes).sum();
        if let Some(asked) = stats.objects {
            (used.puts, used.gets) = (asked.puts, asked.gets);
            used.others = asked.heads + asked.lists;
        }
        Some(used)
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        count(self.table.range(from..).limit(rows))
    }

    fn scan_back(&self, from: &[u8], rows: usize) -> Result<usize> {
        count(self.table.range(..=from).limit(rows).rev())
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }

    fn answered(&self) -> Vec<u64> {
        let tables = self.db.stats().tables;
        let own = tables.into_iter().find(|table| table.name == "t");
        own.map_or(Vec::new(), |t| t.levels.iter().map(|level| level.answered).collect())
    }

    fn jobs(&self) -> Result<Option<Jobs>> {
        let stats = self.db.stats();
        let (background, disk, pm) = (&stats.background, &stats.disk, &stats.pm);
        // Level 0 gets what commits write, and what the background copies within the region.
        let region = stats.persistence.iter().map(|purpose| purpose.bytes).sum();
        let sent = stats.objects.as_ref().map_or(0, |objects| objects.sent_bytes);
        let deeper = (disk.written_bytes + sent).saturating_sub(background.drained_bytes);
        let levels = stats.tables.iter().map(|table| table.levels.iter());
        let depth = levels.map(|levels| levels.filter(|level| level.extents > 0).count());
        let has_rows = background.row_tables > 0;
        let units = f64::from(pm.zones) * pm.zone_size as f64;
        Ok(Some(Jobs {
            count: background.drains,
            bytes: background.drained_level0_bytes + background.drained_bytes,
            seconds: background.drain_ms / 1e3,
            searching: has_rows.then(|| terrace::bench::row_search_nanos() as f64 / 1e9),
            written: vec![region, background.drained_bytes, deeper],
            depth: depth.max().unwrap_or(0) as u64,
            pm_used: Some(f64::from(pm.zones_used) / f64::from(pm.zones.max(1))),
            in_rows: has_rows.then(|| pm.row_table_bytes as f64 / units.max(1.0)),
        }))
    }

    fn catch_up(&self) -> Result<()> {
        self.wait_until_still(Duration::from_millis(300))
    }

    fn rest(&self) -> Result<()> {
        // After a second without writes it makes level 1 small, and gives free space back.
        self.wait_until_still(Duration::from_secs(2))
    }
}

fn count(mut range: Range) -> Result<usize> {
    let mut n = 0;
    while let Some(row) = range.next_with(|_, value| read_value(value)) {
        std::hint::black_box(row?);
        n += 1;
    }
    Ok(n)
}
