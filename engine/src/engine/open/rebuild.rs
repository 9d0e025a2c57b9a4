//! Step 6 of an opening: the records that count are indexed, on all cores. Each row table that the
//! journal names is checked, and its pages are taken out of the free space of the region.

use std::sync::Arc;

use super::records;
use crate::base::error::{Error, Result};
use crate::base::options::Failpoint;
use crate::base::progress::Meter;
use crate::base::record::{LSN_MAX, Lsn, TableId};
use crate::commit::{Accepted, Content, Recovered};
use crate::engine::Engine;
use crate::jobs;
use crate::level0::{Level0, RowTables};
use crate::memtable::{Found, Memtable, rebuild};
use crate::mvcc::pin;
use crate::os::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::{HashMap, at_once};
use crate::read::view::Frozen;
use crate::table::TableCore;
use crate::version::{Edit, Op};

type Tables = HashMap<TableId, Arc<TableCore>>;

/// What one thread has found, by table; and whether it belongs in level 0, though a persistent
/// index is open: range tombstones up to its boundary.
type ByTable = HashMap<(TableId, bool), Found>;

/// Indexes what was committed, of living tables, and not drained; how many records that are.
/// `meter` counts the bytes of their zones.
pub(super) fn index(
    engine: &Engine,
    recovered: &Recovered,
    threads: usize,
    meter: &Meter,
) -> Result<u64> {
    let tables: Tables = engine.tables().into_iter().map(|t| (t.id(), t)).collect();
    let rows = Mutex::new(open_rows(engine, &tables, meter)?);
    let mut by_table: HashMap<_, Vec<Found>> = HashMap::default();
    for found in scan(engine, &tables, recovered, threads, meter)? {
        found.into_iter().for_each(|(place, found)| by_table.entry(place).or_default().push(found));
    }
    let jobs: Vec<_> = by_table.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let (next, total) = (AtomicUsize::new(0), AtomicU64::new(0));
    // Few tables: the threads share each. Many: each thread has tables of its own.
    let (abreast, each) = if jobs.len() < threads { (1, threads) } else { (threads, 1) };
    at_once(abreast, || {
        let claim = || jobs.get(next.fetch_add(1, Ordering::Relaxed));
        while let Some(job) = claim() {
            let Some(((table, is_merged), found)) = job.lock().take() else { continue };
            let Some(table) = tables.get(&table) else { continue };
            let rows = rows.lock().remove(&table.id());
            let records = install(engine, table, (found, is_merged), rows, each);
            total.fetch_add(records, Ordering::Relaxed);
        }
    });
    install_rows(engine, &tables, rows.into_inner());
    Ok(total.into_inner())
}

/// Finds the records, zone by zone.
fn scan(
    engine: &Engine,
    tables: &Tables,
    recovered: &Recovered,
    threads: usize,
    meter: &Meter,
) -> Result<Vec<ByTable>> {
    let (zones, all_zones) = (&recovered.zones, &engine.shared.zones);
    let len = |zone| all_zones.geometry().zone_len(all_zones.units_of(zone));
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Vec::with_capacity(threads));
    at_once(threads.min(zones.len()), || {
        let mut found = ByTable::default();
        let claim = || zones.get(next.fetch_add(1, Ordering::Relaxed));
        while let Some((zone, accepted)) = claim() {
            let scanned = scan_zone(engine, tables, accepted, &mut found);
            if let Err(error) = scanned.and_then(|()| meter.did(len(*zone))) {
                all.lock().push(Err(error));
                return;
            }
        }
        all.lock().push(Ok(found));
    });
    all.into_inner().into_iter().collect()
}

fn scan_zone(
    engine: &Engine,
    tables: &Tables,
    accepted: &[Accepted],
    found: &mut ByTable,
) -> Result<()> {
    let _guard = pin();
    let merged = engine.forest.as_ref().map_or(0, |forest| forest.merged());
    let region = &engine.shared.region;
    let counts = |e: &&Accepted| {
        let is_prepare = e.content == Content::Prepared && !region.has(Failpoint::IndexPrepares);
        !e.is_merged && !is_prepare
    };
    let accepted = accepted.iter().filter(counts);
    for (at, record) in accepted.flat_map(|entry| records(region, entry)) {
        let Some(table) = tables.get(&record.table) else { continue };
        let (view, is_merged) = (table.view(), record.seq <= merged);
        let drained = &view.version.drained;
        if let Some(tombstone) = record.tombstone(at) {
            if !drained.undrained(&tombstone.interval, tombstone.seq).is_empty() {
                found.entry((record.table, is_merged)).or_default().add_tombstone(tombstone);
            }
        } else if view.version.rows.iter().any(|row| row.has(record.seq)) {
            // A row table has it, or it was superseded.
        } else if !is_merged && record.seq > drained.get(record.key) {
            // A merge that was cut short may have put it into the index already, or a newer one.
            let known = view.level0.get(record.key, LSN_MAX, drained)?;
            if known.is_none_or(|known| known.seq < record.seq) {
                found.entry((record.table, false)).or_default().add(at, record.key);
            }
        }
    }
    Ok(())
}

/// Indexes what was found of a table and counts it into its zones; how many records that are. It
/// goes to level 0, or, beside a persistent index, to a memtable that is to be merged into it.
fn install(
    engine: &Engine,
    table: &TableCore,
    (found, is_merged): (Vec<Found>, bool),
    rows: Option<RowTables>,
    threads: usize,
) -> u64 {
    let region = &engine.shared.region;
    let zones = &engine.shared.zones;
    let counts = |at| zones.add_live(zones.zone_of(at), 1);
    let rebuilt = rebuild(region, found, threads, &counts);
    let count = (rebuilt.index.len() + rebuilt.tombstones.len()) as u64;
    let oldest = rebuilt.oldest;
    let mut change = table.change();
    if engine.forest.is_none() {
        let in_rows = rows.as_ref().and_then(|_| oldest_row(table));
        let none = || {
            let chosen = engine.options.container_of(&table.view().version.options);
            RowTables::new(Arc::clone(&engine.shared.pages), chosen)
        };
        let level0 = Level0::rebuilt(rows.unwrap_or_else(none), rebuilt);
        debug_assert_eq!(table.view().level0.size().records, 0, "a table is indexed once");
        change.apply(|view| view.level0 = level0);
        // Whatever is older has moved.
        let oldest = oldest.into_iter().chain(in_rows).min();
        change.round.low = oldest.map_or(0, |oldest| oldest.saturating_sub(1));
    } else if is_merged {
        table.view().level0.tombstones.add(rebuilt.tombstones);
    } else {
        let memtable = Arc::new(Memtable::rebuilt(Arc::clone(region), rebuilt));
        let boundary = engine.shared.committer.visible();
        debug_assert!(oldest.is_none_or(|oldest| oldest <= boundary), "what is found is committed");
        change.apply(|view| view.frozen.push(Frozen { memtable, boundary }));
    }
    count
}

/// The row tables of each table that has some.
///
/// # Errors
///
/// `Corrupt` if one does not check out, or two have a page in common; `Invalid` beside a persistent
/// index, which knows nothing of them; `Cancelled`; or an I/O error.
fn open_rows(
    engine: &Engine,
    tables: &Tables,
    meter: &Meter,
) -> Result<HashMap<TableId, RowTables>> {
    let (mut opened, mut pages) = (HashMap::default(), Vec::new());
    for table in tables.values() {
        let view = table.view();
        let version = &view.version;
        if version.rows.is_empty() {
            continue;
        }
        let chosen = engine.options.container_of(&version.options);
        let home = (Arc::clone(&engine.shared.pages), chosen);
        let rows = (&version.rows[..], &version.drained);
        let rows = RowTables::open(home, table.id(), rows, meter)?;
        if engine.forest.is_some() {
            drop(view);
            remove_drained(engine, table, &rows)?;
            continue;
        }
        pages.extend(rows.pages());
        opened.insert(table.id(), rows);
    }
    engine.shared.pages.adopt(pages)?;
    Ok(opened)
}

/// Removes the row tables of a table of which all is drained. A persistent index does not know row
/// tables.
fn remove_drained(engine: &Engine, table: &TableCore, rows: &RowTables) -> Result<()> {
    let drained = rows.drained();
    if drained.len() < table.view().version.rows.len() {
        return Err(Error::invalid(format!(
            "table {:?} has row tables in level 0, which a persistent index does not know; open \
             the database with the index `volatile`; to open with it, first set the table's level0 \
             option to the global index, compact the table, and close",
            table.name()
        )));
    }
    let remove = |id| Op::RemoveRow { table: table.id(), id };
    let edit = Edit { ops: drained.into_iter().map(remove).collect() };
    let versions = match engine.shared.read_only {
        true => {
            engine.set.adopt(&edit)?;
            engine
                .set
                .version(table.id())
                .map(|version| (table.id(), version))
                .into_iter()
                .collect()
        }
        // An opening has to get through on a full disk.
        false => engine.ctx.apply_freeing(edit)?,
    };
    jobs::install(table, &mut table.change(), versions, 0);
    Ok(())
}

/// Shows the row tables of tables of which nothing was found in zones.
fn install_rows(engine: &Engine, tables: &Tables, rows: HashMap<TableId, RowTables>) {
    for (id, rows) in rows {
        let Some(table) = tables.get(&id) else { continue };
        debug_assert!(engine.forest.is_none(), "a persistent index has no row tables beside it");
        let level0 = Level0::new(rows);
        let mut change = table.change();
        change.apply(|view| view.level0 = level0);
        change.round.low = oldest_row(table).map_or(0, |oldest| oldest - 1);
    }
}

/// The smallest sequence number in row tables of a table.
fn oldest_row(table: &TableCore) -> Option<Lsn> {
    table.view().version.rows.iter().map(|row| row.oldest).min()
}
