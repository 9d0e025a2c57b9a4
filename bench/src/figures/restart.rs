//! `restart`: how fast the index of what the region holds is there again, until the first correct
//! read is served. Beside it RocksDB, which opens a log of the same data, a bare loop: read, check,
//! insert into the same index; the persistent index alone, which is opened where it is; databases
//! in emulated persistent memory, with the index made anew and with the persistent one; and RocksDB
//! in the same memory.

use std::any::Any;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::thread::CpuSet;
use terrace::bench::{Arena, PersistentIndex, RecordIndex, checksum};
use terrace::{Database, Durability, Index, Mode, Options, WriteBatch};

use crate::Settings;
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory};

/// Bytes of a value, with keys of eight as in the source.
const VALUE: usize = 500;

/// RocksDB whose log and tables are where emulated persistent memory is.
const ROCKS_IN_MEMORY: &str = "rocksdb-logged on tmpfs";

/// Bytes that the bare loop reads and checks at a time: a zone.
const CHUNK: usize = 4 << 20;

/// What the source's engine rebuilds in about a second on 104 cores, in records.
const PAPER_RATE: f64 = 70e6;

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let records = if settings.quick { 60_000 } else { 2_000_000 };
    let load = Load { records, seed: settings.seed };
    let (ours, bare, rocks) =
        (settings.dir.join("terrace"), settings.dir.join("bare"), settings.dir.join("rocks"));
    load.make_terrace(&ours)?;
    load.make_bare(&bare)?;
    if Kind::RocksDbLogged.is_built() {
        load.make_rocks(&rocks)?;
    } else {
        report.not_built(Kind::RocksDbLogged.name());
    }
    let shm = Path::new("/dev/shm");
    let held = tempfile::tempdir_in(if shm.is_dir() { shm } else { &settings.dir })?;
    let arena = load.make_index(&settings.dir, held.path())?;
    let emulated = [("terrace-emulated", Index::Volatile), ("terrace-index", Index::Persistent)];
    for (name, index) in emulated {
        load.make_emulated(&held.path().join(name), index)?;
    }
    let copied = settings.dir.join("rocks-copy");
    let all = rustix::thread::sched_getaffinity(None)?;
    for _ in 0..settings.rounds_within(1) {
        for cores in [1, 2] {
            rustix::thread::sched_setaffinity(None, &first(&all, cores))?;
            for cold in [false, true] {
                let case = format!("{cores} cores, {}", if cold { "cold" } else { "warm" });
                let mut run = |system: &str, dir: &Path, open: &dyn Fn() -> Result<Kept>| {
                    if !settings.wants(&case, system) || !dir.exists() {
                        return anyhow::Ok(());
                    }
                    cache(dir, cold)?;
                    touch(&settings.dir, records as usize * 1024)?;
                    let from = Instant::now();
                    let kept = open()?;
                    let took = from.elapsed().as_secs_f64();
                    drop(kept);
                    report.add(&case, system, "restart", took * 1e3, "ms");
                    report.add(&case, system, "rate", records as f64 / took / 1e6, "Mrec/s");
                    Ok(())
                };
                run("terrace-file", &ours, &|| load.open_terrace(&ours))?;
                run("bare", &bare, &|| load.open_bare(&settings.dir, &bare, cores))?;
                if !cold {
                    // Memory that stays does not go cold.
                    run("persistent index", held.path(), &|| load.open_index(&arena, held.path()))?;
                    for (name, index) in emulated {
                        let dir = held.path().join(name);
                        run(name, &dir, &|| load.open_emulated(&dir, index))?;
                    }
                }
                if Kind::RocksDbLogged.is_built() {
                    let mut replay = |system: &str, copied: &Path| {
                        // An opening writes the log out as a table: each has a copy of its own.
                        copy(&rocks.join("db"), &copied.join("db"))?;
                        run(system, copied, &|| load.open_rocks(copied))?;
                        Ok::<_, anyhow::Error>(std::fs::remove_dir_all(copied)?)
                    };
                    replay(Kind::RocksDbLogged.name(), &copied)?;
                    if !cold {
                        replay(ROCKS_IN_MEMORY, &held.path().join("rocks-copy"))?;
                    }
                }
            }
            rustix::thread::sched_setaffinity(None, &all)?;
        }
    }
    ratios(report);
    Ok(())
}

/// What was opened; its end is not timed.
type Kept = Box<dyn Any>;

/// The first so many processors of a set.
fn first(all: &CpuSet, count: usize) -> CpuSet {
    let mut set = CpuSet::new();
    let there = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    there.take(count).for_each(|cpu| set.set(cpu));
    set
}

/// Has the files of a directory in the page cache, or not.
fn cache(dir: &Path, cold: bool) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            cache(&path, cold)?;
            continue;
        }
        let file = File::open(&path)?;
        if cold {
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        } else {
            std::io::copy(&mut &file, &mut std::io::sink())?;
        }
    }
    Ok(())
}

/// Uses so much memory and gives it back, in small pages and in huge ones: the system keeps them in
/// different lists. A guest's first touch of memory may be slow, and is no part of what is timed,
/// whichever store comes first.
fn touch(scratch: &Path, bytes: usize) -> Result<()> {
    drop(std::hint::black_box(vec![1_u8; bytes]));
    let (arena, piece) = (Arena::new(scratch, bytes as u64)?, vec![1; CHUNK]);
    for at in (0..bytes).step_by(CHUNK) {
        arena.append_encoded(&piece[..CHUNK.min(bytes - at)]);
    }
    Ok(())
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// The data, the same for all.
struct Load {
    records: u64,
    seed: u64,
}

impl Load {
    fn key(&self, n: u64) -> [u8; 8] {
        Random::new(self.seed.wrapping_add(n)).next().to_be_bytes()
    }

    /// The value of record `n`: its number, and bytes.
    fn value(n: u64) -> Vec<u8> {
        let mut value = vec![7; VALUE];
        value[..8].copy_from_slice(&n.to_be_bytes());
        value
    }

    /// Where the first read goes: any record, the same for all.
    fn probe(&self) -> u64 {
        self.records * 2 / 3
    }

    /// Commits of 50 records, in a region that they fill by less than half.
    fn make_terrace(&self, dir: &Path) -> Result<()> {
        let db = self.options().create(dir)?;
        self.fill(&db)?;
        Ok(db.close()?)
    }

    /// A region with room for all records.
    fn options(&self) -> Options {
        let bytes = self.records * (24 + 8 + VALUE as u64 + 8);
        Options::new().pm_size((bytes * 5 / 2).max(64 << 20))
    }

    fn fill(&self, db: &Database) -> Result<()> {
        let table = db.table("t")?;
        for first in (0..self.records).step_by(50) {
            let mut batch = WriteBatch::new();
            for n in first..(first + 50).min(self.records) {
                batch.put(&table, self.key(n), Self::value(n));
            }
            db.write_with(&batch, Durability::Relaxed)?;
        }
        ensure!(db.stats().background.drains == 0, "the region was too small");
        Ok(())
    }

    /// The options of a database in emulated persistent memory, all of it below `dir`.
    fn emulated(&self, dir: &Path, index: Index) -> Options {
        let mode = Mode::Emulated { delay: Duration::ZERO };
        self.options().mode(mode).pm_path(dir.join("region")).index(index)
    }

    fn make_emulated(&self, dir: &Path, index: Index) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        let db = self.emulated(dir, index).create(dir.join("db"))?;
        self.fill(&db)?;
        Ok(db.close()?)
    }

    fn open_emulated(&self, dir: &Path, index: Index) -> Result<Kept> {
        let db = self.emulated(dir, index).open(dir.join("db"))?;
        self.check(db, index)
    }

    fn open_terrace(&self, dir: &Path) -> Result<Kept> {
        self.check(Database::open(dir)?, Index::Volatile)
    }

    /// The first read, and whether the opening did what it should.
    fn check(&self, db: Database, index: Index) -> Result<Kept> {
        let value = db.existing_table("t")?.get(self.key(self.probe()))?;
        ensure!(value.as_deref() == Some(&Self::value(self.probe())), "a wrong read");
        let rebuilt = db.stats().open.records_rebuilt;
        let is_whole = match index {
            // All of them are merged when it is closed.
            Index::Persistent => rebuilt == 0,
            _ => rebuilt == self.records,
        };
        ensure!(is_whole, "{rebuilt} of {} records were indexed", self.records);
        Ok(Box::new(db))
    }

    /// Chunks: a checksum, a length, and as many records as fit.
    fn make_bare(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        let arena = Arena::new(dir, (self.records * 1024).max(CHUNK as u64))?;
        let mut file = std::io::BufWriter::new(File::create(dir.join("chunks"))?);
        let (mut buffer, mut chunk_at) = (Vec::new(), 0);
        for n in 0..self.records {
            arena.append(&self.key(n), n + 1, &Self::value(n), &mut buffer);
            let len = arena.tail() - chunk_at;
            if len as usize + buffer.len() + 16 > CHUNK || n + 1 == self.records {
                let bytes = arena.bytes(chunk_at, len);
                let mut chunk = u64::from(checksum(bytes)).to_le_bytes().to_vec();
                chunk.extend_from_slice(&len.to_le_bytes());
                chunk.extend_from_slice(bytes);
                chunk.resize(CHUNK, 0);
                file.write_all(&chunk)?;
                chunk_at = arena.tail();
            }
        }
        file.flush()?;
        Ok(file.get_ref().sync_all()?)
    }

    fn open_bare(&self, scratch: &Path, dir: &Path, threads: usize) -> Result<Kept> {
        let file = File::open(dir.join("chunks"))?;
        let len = file.metadata()?.len();
        let arena = Arena::new(scratch, len)?;
        let (index, next) = (RecordIndex::new(&arena), AtomicUsize::new(0));
        let chunks = len as usize / CHUNK;
        let rebuilt = std::thread::scope(|scope| {
            let work = || {
                let (mut rebuilt, mut buffer) = (0, vec![0; CHUNK]);
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= chunks {
                        return Ok(rebuilt);
                    }
                    file.read_exact_at(&mut buffer, (n * CHUNK) as u64)?;
                    let (sum, rest) = buffer.split_first_chunk::<8>().expect("a chunk is longer");
                    let (len, rest) = rest.split_first_chunk::<8>().expect("a chunk is longer");
                    let len = u64::from_le_bytes(*len);
                    let bytes = &rest[..len as usize];
                    let expected = u64::from_le_bytes(*sum);
                    ensure!(u64::from(checksum(bytes)) == expected, "a damaged chunk");
                    let at = arena.append_encoded(bytes);
                    rebuilt += index.insert_all(at, len);
                }
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|w| w.join().expect("no panic")).sum::<Result<u64>>()
        })?;
        ensure!(rebuilt == self.records, "records are missing");
        let at = index.get(&self.key(self.probe()));
        let found = at.map(|at| arena.read(at).1);
        ensure!(found == Some(&Self::value(self.probe())[..]), "a wrong read");
        Ok(Box::new((index, arena)))
    }

    /// The records, and the persistent index of them.
    fn make_index(&self, scratch: &Path, dir: &Path) -> Result<Arena> {
        let arena = Arena::new(scratch, self.records * 1024)?;
        let index = PersistentIndex::create(&arena, &dir.join("index"), self.records * 64)?;
        let mut buffer = Vec::new();
        for n in 0..self.records {
            let at = arena.append(&self.key(n), n + 1, &Self::value(n), &mut buffer);
            index.insert(&self.key(n), n + 1, at)?;
        }
        index.set_merged(self.records)?;
        Ok(arena)
    }

    fn open_index(&self, arena: &Arena, dir: &Path) -> Result<Kept> {
        let index = PersistentIndex::open(arena, &dir.join("index"))?;
        ensure!(index.merged() == self.records, "records are missing");
        let found = index.get(&self.key(self.probe()))?.map(|at| arena.read(at).1);
        ensure!(found == Some(&Self::value(self.probe())[..]), "a wrong read");
        Ok(Box::new(index))
    }

    fn memory(&self) -> Memory {
        Memory { write: (self.records * 2048).max(256 << 20), cache: 64 << 20 }
    }

    fn make_rocks(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        let store = Kind::RocksDbLogged.open(dir, self.memory())?;
        (0..self.records).try_for_each(|n| store.put(&self.key(n), &Self::value(n), false))
    }

    fn open_rocks(&self, dir: &Path) -> Result<Kept> {
        let store = Kind::RocksDbLogged.open(dir, self.memory())?;
        ensure!(store.get(&self.key(self.probe()))? == Some(VALUE), "a wrong read");
        Ok(Box::new(store))
    }
}

/// The ratios that the expectations are about.
fn ratios(report: &mut Report) {
    for state in ["warm", "cold"] {
        let case = |cores: u32| format!("{cores} cores, {state}");
        let rate = |report: &Report, cores: u32, system: &str| {
            report.median(&case(cores), system, "rate").unwrap_or(f64::NAN)
        };
        for cores in [1, 2] {
            let ours = rate(report, cores, "terrace-file");
            let of_bare = ours / rate(report, cores, "bare");
            report.add(&case(cores), "terrace-file", "of bare", of_bare, "×");
            let of_rocks = ours / rate(report, cores, Kind::RocksDbLogged.name());
            report.add(&case(cores), "terrace-file", "of rocksdb", of_rocks, "×");
            let of_rocks =
                rate(report, cores, "terrace-index") / rate(report, cores, ROCKS_IN_MEMORY);
            report.add(&case(cores), "terrace-index", "of rocksdb on tmpfs", of_rocks, "×");
        }
        let speed_up = rate(report, 2, "terrace-file") / rate(report, 1, "terrace-file");
        report.add(&format!("2 cores of 1, {state}"), "terrace-file", "speed-up", speed_up, "×");
        report.paper(&case(2), "terrace-file", "rate", PAPER_RATE / 1e6);
    }
}
