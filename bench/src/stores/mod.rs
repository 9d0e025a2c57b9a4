//! Terrace and its peers behind one small trait. Each peer is a cargo feature; a build without it
//! says so instead of leaving it out in silence.

#[cfg(feature = "peer-fjall")]
mod fjall;
#[cfg(feature = "peer-lmdb")]
mod lmdb;
#[cfg(feature = "peer-redb")]
mod redb;
#[cfg(feature = "peer-rocksdb")]
mod rocksdb;
pub(crate) mod rows;
mod system;
mod terrace;
pub(crate) mod transactions;
mod versions;

use std::path::Path;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::keys::{Values, key};
use crate::random::Random;

pub(crate) use self::system::{Home, System};
pub(crate) use self::terrace::watch;
pub(crate) use self::versions::version;

/// What each caller does with a value: it reads a byte of every cache line. A store that lends its
/// pages lends them unread, and would do less than one that copies.
pub(crate) fn read_value(value: &[u8]) -> usize {
    let sum = value.iter().step_by(64).fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
    value.len()
}

/// A store under test. One map from keys to values is all that is asked.
pub(crate) trait Store: Send + Sync {
    /// Sets a key. With `durable`, it survives a power cut when this returns; without, it is to
    /// survive the process, and the settings say where it does not.
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()>;

    /// Looks several keys up together; how many are there.
    fn get_many(&self, keys: &[[u8; 8]]) -> Result<usize> {
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key)?.is_some());
        }
        Ok(found)
    }

    /// What it asked an object store for, and what lies where; none for a store without levels
    /// that may lie there.
    fn objects(&self) -> Option<ObjectUse> {
        None
    }

    /// Removes a key; it is to survive the process.
    fn delete(&self, _key: &[u8]) -> Result<()> {
        bail!("no figure deletes from this store")
    }

    /// Looks a key up and reads its value, by [`read_value`]; its length.
    fn get(&self, key: &[u8]) -> Result<Option<usize>>;

    /// Reads up to `rows` keys and values, by [`read_value`], from `from` on; how many there were.
    fn scan(&self, from: &[u8], rows: usize) -> Result<usize>;

    /// As [`Store::scan`], from `from` back.
    fn scan_back(&self, from: &[u8], rows: usize) -> Result<usize>;

    /// What it is set to, as it was told.
    fn settings(&self) -> String;

    /// How many files its level 0 has, if it is one that piles them up.
    fn level0_files(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Look-ups that each level on disk has answered, from level 1 on; none where it does not say.
    fn answered(&self) -> Vec<u64> {
        Vec::new()
    }

    /// What it did to bring level 0 down, and how it stands; none where it does not say.
    fn jobs(&self) -> Result<Option<Jobs>> {
        Ok(None)
    }

    /// Ends the memtable, if the store is one that piles them up.
    fn seal(&self) -> Result<()> {
        Ok(())
    }

    /// Waits for the background work that writers would wait for, had they gone on.
    fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    /// Waits for all background work, also what a store does only once no client writes. So the
    /// next phase starts from rest.
    fn rest(&self) -> Result<()> {
        self.catch_up()
    }
}

/// Puts rows 0 to `records` in order, none of them synced.
pub(crate) fn load(
    store: &dyn Store,
    records: u64,
    values: &Values,
    random: &mut Random,
) -> Result<()> {
    (0..records).try_for_each(|n| store.put(&key(n), values.draw(random), false))
}

/// What a store asked an object store for since it was opened, and the bytes that lie where.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObjectUse {
    pub(crate) puts: u64,
    pub(crate) gets: u64,
    /// Looks and lists.
    pub(crate) others: u64,
    pub(crate) object_bytes: u64,
    /// Of levels, on this machine.
    pub(crate) volume_bytes: u64,
}

impl ObjectUse {
    /// All requests but deletions, which cost nothing.
    pub(crate) fn requests(&self) -> u64 {
        self.puts + self.gets + self.others
    }
}

/// What a store has done since it was opened to bring level 0 down, and how it stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs {
    /// Jobs from level 0 to level 1.
    pub(crate) count: u64,
    /// Bytes that they read and wrote.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Of these, seconds in searches of places in row tables, where there are some.
    pub(crate) searching: Option<f64>,
    /// Bytes written to each level, from level 0 on.
    pub(crate) written: Vec<u64>,
    /// Levels on disk that have something.
    pub(crate) depth: u64,
    /// The part of the region that is taken, where there is one.
    pub(crate) pm_used: Option<f64>,
    /// The part of the region that row tables take, where there are some.
    pub(crate) in_rows: Option<f64>,
}

/// What every store is given.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Bytes that it may keep of what it writes (memtables; Terrace's region).
    pub(crate) write: u64,
    /// Bytes for caching what it reads.
    pub(crate) cache: u64,
}

impl Memory {
    /// All of it.
    pub(crate) fn all(self) -> u64 {
        self.write + self.cache
    }
}

/// A way to open a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Terrace, its region in a file.
    Terrace,
    /// Terrace, its region on tmpfs.
    TerraceEmulated,
    /// The same with a delay of 300 ns for each block of 256 bytes written.
    TerraceDelayed,
    /// Terrace, its region in a file, with a level 1 no larger than that: each turn of drains is
    /// merged with what lies below.
    TerraceShallow,
    /// The same, that writes anew all that a merge touches.
    TerraceAnew,
    /// Terrace, its region in a file, with levels 2 and deeper in an object store 20 ms away.
    TerraceObject,
    /// Terrace, its region on tmpfs, with level 0 in a matrix.
    TerraceMatrix,
    /// The same in a triangle.
    TerraceTriangle,
    /// Terrace, its region in a file, with level 0 in a matrix.
    TerraceMatrixFile,
    /// The same in a triangle.
    TerraceTriangleFile,
    /// Terrace as it opens with no option set, whatever memory the bench names.
    TerraceDefaults,
    /// RocksDB as it opens with no option set but that a new database is made.
    RocksDbDefaults,
    /// fjall as it opens with no option set.
    FjallDefaults,
    /// RocksDB with its documented defaults.
    RocksDb,
    /// RocksDB with filters, recycled log files, pipelined writes and more background threads.
    RocksDbTuned,
    /// RocksDB tuned, all of its levels compressed by zstd.
    RocksDbZstd,
    /// RocksDB that never compacts: every memtable that is sealed stays a file of level 0.
    RocksDbPiled,
    /// RocksDB with memtables and a level 1 in the proportions to level 0 that MatrixKV's authors
    /// had them in: a 128th, and a 32nd.
    RocksDbScaled,
    /// The same with level 0 on tmpfs.
    RocksDbLevel0Tmpfs,
    /// RocksDB that never writes its memtable out: all of it is in the log.
    RocksDbLogged,
    /// fjall with its defaults.
    Fjall,
    /// fjall with larger memtables, filters and hash indexes in blocks.
    FjallTuned,
    /// redb; there is nothing to tune but its cache.
    Redb,
    /// LMDB through heed.
    Lmdb,
    /// LMDB that writes through its mapping.
    LmdbTuned,
}

impl Kind {
    /// Whether it is Terrace in some form.
    fn is_terrace(self) -> bool {
        matches!(
            self,
            Kind::Terrace
                | Kind::TerraceEmulated
                | Kind::TerraceDelayed
                | Kind::TerraceShallow
                | Kind::TerraceAnew
                | Kind::TerraceObject
                | Kind::TerraceMatrix
                | Kind::TerraceTriangle
                | Kind::TerraceMatrixFile
                | Kind::TerraceTriangleFile
                | Kind::TerraceDefaults
        )
    }

    /// What it is loaded as: one that merges each turn would take very long for it.
    pub(crate) fn loader(self) -> Kind {
        match self {
            Kind::TerraceShallow | Kind::TerraceAnew => Kind::Terrace,
            other => other,
        }
    }

    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Terrace => "terrace-file",
            Kind::TerraceEmulated => "terrace-emulated",
            Kind::TerraceDelayed => "terrace-emu-300ns",
            Kind::TerraceShallow => "terrace-file-shallow",
            Kind::TerraceAnew => "terrace-file-shallow-anew",
            Kind::TerraceObject => "terrace-object",
            Kind::TerraceMatrix => "terrace-matrix",
            Kind::TerraceTriangle => "terrace-triangle",
            Kind::TerraceMatrixFile => "terrace-file-matrix",
            Kind::TerraceTriangleFile => "terrace-file-triangle",
            Kind::TerraceDefaults => "terrace-defaults",
            Kind::RocksDbDefaults => "rocksdb-defaults",
            Kind::FjallDefaults => "fjall-defaults",
            Kind::RocksDb => "rocksdb",
            Kind::RocksDbTuned => "rocksdb-tuned",
            Kind::RocksDbZstd => "rocksdb-zstd",
            Kind::RocksDbPiled => "rocksdb-piled",
            Kind::RocksDbScaled => "rocksdb-scaled",
            Kind::RocksDbLevel0Tmpfs => "rocksdb-l0-tmpfs",
            Kind::RocksDbLogged => "rocksdb-logged",
            Kind::Fjall => "fjall",
            Kind::FjallTuned => "fjall-tuned",
            Kind::Redb => "redb",
            Kind::Lmdb => "lmdb",
            Kind::LmdbTuned => "lmdb-tuned",
        }
    }

    /// Whether this build has it.
    pub(crate) fn is_built(self) -> bool {
        match self {
            Kind::RocksDb
            | Kind::RocksDbDefaults
            | Kind::RocksDbTuned
            | Kind::RocksDbZstd
            | Kind::RocksDbPiled
            | Kind::RocksDbScaled
            | Kind::RocksDbLevel0Tmpfs
            | Kind::RocksDbLogged => cfg!(feature = "peer-rocksdb"),
            Kind::Fjall | Kind::FjallDefaults | Kind::FjallTuned => cfg!(feature = "peer-fjall"),
            Kind::Redb => cfg!(feature = "peer-redb"),
            Kind::Lmdb | Kind::LmdbTuned => cfg!(feature = "peer-lmdb"),
            _ => self.is_terrace(),
        }
    }

    /// Opens a store in a directory of its own, a new one if there is none.
    pub(crate) fn open(self, dir: &Path, memory: Memory) -> Result<Box<dyn Store>> {
        match self {
            kind if kind.is_terrace() => terrace::open(dir, memory, kind),
            #[cfg(feature = "peer-rocksdb")]
            Kind::RocksDb
            | Kind::RocksDbDefaults
            | Kind::RocksDbTuned
            | Kind::RocksDbZstd
            | Kind::RocksDbPiled
            | Kind::RocksDbScaled
            | Kind::RocksDbLevel0Tmpfs
            | Kind::RocksDbLogged => rocksdb::open(dir, memory, self),
            #[cfg(feature = "peer-fjall")]
            Kind::Fjall | Kind::FjallDefaults | Kind::FjallTuned => {
                fjall::create(dir, memory, self)
            }
            #[cfg(feature = "peer-redb")]
            Kind::Redb => redb::create(dir, memory),
            #[cfg(feature = "peer-lmdb")]
            Kind::Lmdb | Kind::LmdbTuned => lmdb::create(dir, self),
            #[allow(unreachable_patterns, reason = "reached only without some feature")]
            _ => bail!("{} is not built in; see `cargo xtask peers`", self.name()),
        }
    }
}
