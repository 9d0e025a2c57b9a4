//! Step 6 of an opening: the records that count are indexed, on all cores.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::inner::Engine;
use super::open::records;
use crate::commit::{Accepted, Content, Recovered};
use crate::level0::GlobalIndex;
use crate::memtable::{Found, rebuild};
use crate::options::Planted;
use crate::os::at_once;
use crate::record::TableId;
use crate::table::TableCore;

type Tables = HashMap<TableId, Arc<TableCore>>;

/// What one thread has found, by table.
type ByTable = HashMap<TableId, Found>;

/// Indexes what was committed, of living tables, and not drained; how many records that are.
/// `progress` is told how many zones of how many are done.
pub(super) fn index(
    engine: &Engine,
    recovered: &Recovered,
    threads: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> u64 {
    let tables: Tables = engine.tables().into_iter().map(|t| (t.id(), t)).collect();
    let mut by_table: HashMap<TableId, Vec<Found>> = HashMap::new();
    for found in scan(engine, &tables, recovered, threads, progress) {
        found.into_iter().for_each(|(table, found)| by_table.entry(table).or_default().push(found));
    }
    let jobs: Vec<_> = by_table.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let (next, total) = (AtomicUsize::new(0), AtomicU64::new(0));
    // Few tables: the threads share each. Many: each thread has tables of its own.
    let (abreast, each) = if jobs.len() < threads { (1, threads) } else { (threads, 1) };
    at_once(abreast, || {
        let claim = || jobs.get(next.fetch_add(1, Ordering::Relaxed));
        while let Some(job) = claim() {
            let Some((table, found)) = job.lock().take() else { continue };
            let Some(table) = tables.get(&table) else { continue };
            total.fetch_add(install(engine, table, found, each), Ordering::Relaxed);
        }
    });
    total.into_inner()
}

/// Finds the records, zone by zone.
fn scan(
    engine: &Engine,
    tables: &Tables,
    recovered: &Recovered,
    threads: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Vec<ByTable> {
    let zones = &recovered.zones;
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let all = Mutex::new(Vec::with_capacity(threads));
    at_once(threads.min(zones.len()), || {
        let mut found = ByTable::new();
        let claim = || zones.get(next.fetch_add(1, Ordering::Relaxed));
        while let Some((_, accepted)) = claim() {
            scan_zone(engine, tables, accepted, &mut found);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(done as u64, zones.len() as u64);
        }
        all.lock().push(found);
    });
    all.into_inner()
}

fn scan_zone(engine: &Engine, tables: &Tables, accepted: &[Accepted], found: &mut ByTable) {
    let region = &engine.shared.region;
    let counts =
        |e: &&Accepted| e.content != Content::Prepared || region.has(Planted::IndexPrepares);
    let accepted = accepted.iter().filter(counts);
    for (at, record) in accepted.flat_map(|entry| records(region, entry)) {
        let Some(table) = tables.get(&record.table) else { continue };
        let drained = &table.view().version.drained;
        if let Some(tombstone) = record.tombstone(at) {
            if !drained.undrained(&tombstone.interval, tombstone.seq).is_empty() {
                found.entry(record.table).or_default().add_tombstone(tombstone);
            }
        } else if record.seq > drained.get(record.key) {
            found.entry(record.table).or_default().add(at, record.key);
        }
    }
}

/// Builds the level 0 of a table and counts its records into their zones; how many they are.
fn install(engine: &Engine, table: &TableCore, found: Vec<Found>, threads: usize) -> u64 {
    let region = &engine.shared.region;
    let zones = &engine.shared.zones;
    let counts = |at| zones.add_live(zones.zone_of(at), 1);
    let rebuilt = rebuild(region, found, threads, &counts);
    let count = (rebuilt.index.len() + rebuilt.tombstones.len()) as u64;
    let oldest = rebuilt.oldest;
    let level0 = Arc::new(GlobalIndex::rebuilt(Arc::clone(region), rebuilt));
    let mut change = table.change();
    change.apply(|view| view.level0 = level0);
    // Whatever is older has moved.
    change.turn.low = oldest.map_or(0, |oldest| oldest.saturating_sub(1));
    count
}
