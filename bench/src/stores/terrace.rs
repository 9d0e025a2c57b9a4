//! Terrace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use terrace::{Database, Durability, Mode, Options, Table};

use super::{Memory, Store};
use crate::latency::let_work;

struct Terrace {
    table: Table,
    db: Database,
    /// A region outside the directory, to be removed.
    region: Option<PathBuf>,
}

pub(super) fn open(dir: &Path, memory: Memory, emulated: bool) -> Result<Box<dyn Store>> {
    let mut options = Options::new().pm_size(memory.write).cache_size(memory.cache);
    let region = emulated.then(|| {
        let name = format!("terrace-bench-store-{}", std::process::id());
        let shm = Path::new("/dev/shm");
        if shm.is_dir() { shm.join(name) } else { dir.join(name) }
    });
    let fresh = !dir.join("db").exists();
    if let Some(region) = &region {
        if fresh {
            drop(std::fs::remove_file(region));
        }
        options = options.mode(Mode::Emulated { delay: Duration::ZERO }).pm_path(region);
    }
    let db = options.open(dir.join("db"))?;
    Ok(Box::new(Terrace { table: db.table("t")?, db, region }))
}

impl Store for Terrace {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        let durability = if durable { Durability::Durable } else { Durability::Relaxed };
        Ok(self.table.put_with(key, value, durability)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.table.get(key)?.map(|value| value.len()))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        let mut bytes = 0;
        let mut n = 0;
        for row in self.table.range(from..).limit(rows) {
            bytes += row?.1.len();
            n += 1;
        }
        std::hint::black_box(bytes);
        Ok(n)
    }

    fn rest(&self) -> Result<()> {
        let busy = |s: &terrace::Stats| s.background.drains + s.background.compactions;
        let mut before = busy(&self.db.stats());
        loop {
            let_work(Duration::from_millis(300));
            let now = busy(&self.db.stats());
            if now == before {
                return Ok(());
            }
            before = now;
        }
    }
}

impl Drop for Terrace {
    fn drop(&mut self) {
        if let Some(region) = &self.region {
            drop(std::fs::remove_file(region));
        }
    }
}
