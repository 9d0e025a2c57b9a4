//! The workloads of the Yahoo cloud serving benchmark, and what one thread does of them.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::keys::{Distribution, Records, Values, key};
use crate::random::Random;
use crate::stores::Store;

/// One workload: shares of operations in percent; the rest are reads followed by a write.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(crate) name: char,
    read: u64,
    update: u64,
    insert: u64,
    scan: u64,
    pub(crate) distribution: Distribution,
}

const ZIPFIAN: Distribution = Distribution::Zipfian;

/// A to F, each with the distribution that the benchmark gives it.
pub(crate) const WORKLOADS: [Workload; 6] = [
    Workload { name: 'A', read: 50, update: 50, insert: 0, scan: 0, distribution: ZIPFIAN },
    Workload { name: 'B', read: 95, update: 5, insert: 0, scan: 0, distribution: ZIPFIAN },
    Workload { name: 'C', read: 100, update: 0, insert: 0, scan: 0, distribution: ZIPFIAN },
    Workload {
        name: 'D',
        read: 95,
        update: 0,
        insert: 5,
        scan: 0,
        distribution: Distribution::Latest,
    },
    Workload { name: 'E', read: 0, update: 0, insert: 5, scan: 95, distribution: ZIPFIAN },
    Workload { name: 'F', read: 50, update: 0, insert: 0, scan: 0, distribution: ZIPFIAN },
];

impl Workload {
    /// Nothing but updates; none of the benchmark's.
    pub(crate) const UPDATES: Workload =
        Workload { name: 'U', read: 0, update: 100, insert: 0, scan: 0, distribution: ZIPFIAN };

    /// The workload of a letter.
    pub(crate) fn of(name: char) -> Option<Workload> {
        WORKLOADS.into_iter().find(|w| w.name == name)
    }

    /// The share of operations that write.
    pub(crate) fn writes(&self) -> f64 {
        (100 - self.read - self.scan) as f64 / 100.0
    }
}

/// What the threads of a workload share.
pub(crate) struct Client<'a> {
    pub(crate) workload: Workload,
    pub(crate) store: &'a dyn Store,
    pub(crate) records: &'a Records,
    pub(crate) values: &'a Values,
    /// Records that are there, those of inserts under way included.
    pub(crate) there: &'a AtomicU64,
    pub(crate) durable: bool,
}

impl Client<'_> {
    /// One operation.
    pub(crate) fn operation(&self, random: &mut Random) -> Result<()> {
        let w = &self.workload;
        let n = self.records.draw(random, self.there.load(Ordering::Relaxed));
        let draw = random.below(100);
        if draw < w.read {
            self.read(n)
        } else if draw < w.read + w.update {
            self.write(n, random)
        } else if draw < w.read + w.update + w.insert {
            self.write(self.there.fetch_add(1, Ordering::Relaxed), random)
        } else if draw < w.read + w.update + w.insert + w.scan {
            self.store.scan(&key(n), 1 + random.below(100) as usize)?;
            Ok(())
        } else {
            self.read(n)?;
            self.write(n, random)
        }
    }

    fn read(&self, n: u64) -> Result<()> {
        let found = self.store.get(&key(n))?;
        // What another thread is inserting may not be there yet.
        ensure!(found.is_some() || n >= self.records.loaded(), "record {n} is missing");
        Ok(())
    }

    fn write(&self, n: u64, random: &mut Random) -> Result<()> {
        self.store.put(&key(n), self.values.draw(random), self.durable)
    }
}
