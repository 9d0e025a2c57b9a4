//! `tpcc`: a TPC-C-like driver: the five transactions in their shares, on the standard's tables at
//! any scale, without keying and thinking times, so no figure of it may be held beside an audited
//! one. Terrace and RocksDB's `TransactionDB` go through the same code; the standard's consistency
//! conditions are checked at the end.

mod check;
#[cfg(test)]
mod kills;
mod load;
mod schema;
mod terminal;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use self::terminal::{Kind, Terminal};
use crate::Settings;
use crate::drive::Drive;
use crate::isolated;
use crate::latency::Latency;
use crate::report::Report;
use crate::stores::{Kind as StoreKind, Memory, System, transactions, version};

const FIGURE: &str = "tpcc";

const SYSTEMS: [System; 6] = [
    System::disk(StoreKind::Terrace),
    System::disk(StoreKind::RocksDb),
    System::disk(StoreKind::RocksDbTuned),
    System::disk(StoreKind::TerraceEmulated),
    System::tmpfs(StoreKind::RocksDbTuned),
    System::tmpfs(StoreKind::RocksDb),
];

/// How large it is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Scale {
    warehouses: u32,
    /// Of a district.
    customers: u32,
    items: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    memory: Memory,
    scale: Scale,
    threads: u64,
    millis: u64,
    case: String,
    seed: u64,
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let whole = Scale { warehouses: 4, customers: 3000, items: 100_000 };
    let quick = Scale { warehouses: 2, customers: 60, items: 1000 };
    let (scale, millis) = settings.pick((quick, 800), (whole, 10_000), (whole, 20_000));
    let memory = Memory { write: 64 << 20, cache: 64 << 20 };
    let threads = load.threads.unwrap_or(8);
    let Scale { warehouses, customers, items } = scale;
    let size = format!("{warehouses} warehouses of {customers} × 10 customers, {items} items");
    for _ in 0..settings.rounds_within(1).min(3) {
        let systems = System::there(&SYSTEMS, settings, report);
        let most = if settings.quick { 5 } else { systems.len() };
        for system in systems.into_iter().take(most) {
            let cell = Cell {
                system,
                memory: load.memory(memory),
                scale,
                threads,
                millis: load.time(Duration::from_millis(millis)).as_millis() as u64,
                case: format!("TPC-C-like, {threads} terminals, {size}"),
                seed: settings.seed,
            };
            if settings.wants(&cell.case, &system.name()) {
                isolated::run(settings, report, FIGURE, &cell)?;
            }
        }
    }
    Ok(())
}

/// In a process of its own.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    let home = cell.system.home(dir)?;
    let store = transactions::open(cell.system.kind, &home.path(), cell.memory)?;
    let (case, system) = (&cell.case, &cell.system.name());
    report.settings(system, &format!("{}; {}", version(cell.system.kind), store.settings()));
    load::load(&*store, cell.scale, cell.seed)?;
    let latencies: [Mutex<Latency>; 5] = std::array::from_fn(|_| Mutex::new(Latency::new()));
    let drive = Drive::closed(cell.threads, Duration::from_millis(cell.millis));
    let seen = drive.run(|thread| {
        let mut terminal = Terminal::new(&*store, cell.scale, thread as u32, cell.seed);
        let latencies = &latencies;
        move || {
            let from = Instant::now();
            let (kind, _) = terminal.next()?;
            latencies[kind as usize].lock().record(from.elapsed());
            Ok(())
        }
    })?;
    check::check(&*store).with_context(|| format!("{system} is inconsistent"))?;
    report.seen(case, system, &seen);
    let a_minute = |count: u64| count as f64 / seen.took.as_secs_f64() * 60.0;
    let all = latencies.iter().map(|latency| latency.lock().count()).sum();
    report.add(case, system, "transactions a minute", a_minute(all), "tpm");
    for (kind, latency) in Kind::ALL.into_iter().zip(&latencies) {
        let latency = latency.lock();
        let metric = format!("{}, p95", kind.name());
        report.add(case, system, &metric, latency.micros(0.95) / 1e3, "ms");
        if kind == Kind::NewOrder {
            report.add(case, system, "new orders a minute", a_minute(latency.count()), "tpm");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::schema::{Table, district, stock};
    use super::*;
    use crate::stores::transactions::{Transactional, run};

    const SCALE: Scale = Scale { warehouses: 2, customers: 9, items: 50 };

    fn store(dir: &Path) -> Box<dyn Transactional> {
        let memory = Memory { write: 16 << 20, cache: 16 << 20 };
        let store = transactions::open(StoreKind::Terrace, dir, memory).unwrap();
        load::load(&*store, SCALE, 3).unwrap();
        store
    }

    #[test]
    fn all_conditions_hold_after_many_transactions_of_every_kind() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        check::check(&*store).unwrap();
        let done: Mutex<[u32; 5]> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (store, done) = (&*store, &done);
                scope.spawn(move || {
                    let mut terminal = Terminal::new(store, SCALE, thread, 5);
                    for _ in 0..100 {
                        let (kind, _) = terminal.next().unwrap();
                        done.lock()[kind as usize] += 1;
                    }
                });
            }
        });
        assert!(done.lock().iter().all(|n| *n > 0), "{done:?}");
        check::check(&*store).unwrap();
    }

    #[test]
    fn a_row_that_went_wrong_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let add = |table: Table, parts: &[u32], column: usize, by: i64| {
            run(&*store, |t| {
                let mut row = table.lock(t, parts)?;
                row.add(column, by);
                table.put(t, parts, &row)
            })
            .unwrap();
        };
        // The conditions that do not hold, by number.
        let wrong = || -> BTreeSet<u32> {
            let error = check::check(&*store).err().map(|e| e.to_string()).unwrap_or_default();
            let said = error.split("condition ").skip(1);
            said.map(|text| text.split(':').next().unwrap().parse().unwrap()).collect()
        };
        let found = |table: Table, parts: &[u32], column, conditions: &[u32]| {
            add(table, parts, column, 1);
            assert_eq!(wrong(), conditions.iter().copied().collect(), "{table:?}, {column}");
            add(table, parts, column, -1);
            assert_eq!(wrong(), BTreeSet::new(), "set right again");
        };
        found(Table::Warehouse, &[1], schema::warehouse::YTD, &[1, 8]);
        found(Table::District, &[1, 2], district::YTD, &[1, 9]);
        found(Table::District, &[1, 2], district::NEXT_ORDER, &[2]);
        found(Table::Order, &[1, 2, 3], schema::order::LINES, &[4, 6]);
        found(Table::Order, &[1, 2, 9], schema::order::CARRIER, &[5, 7]);
        found(Table::OrderLine, &[1, 2, 9, 1], schema::line::DELIVERED, &[7, 10, 12]);
        found(Table::Customer, &[2, 1, 1], schema::customer::BALANCE, &[10, 12]);
        found(Table::Customer, &[2, 1, 1], schema::customer::YTD_PAYMENT, &[12]);
        found(Table::Customer, &[2, 1, 1], schema::customer::DELIVERIES, &[11]);
        found(Table::History, &[2, 1, 1, u32::MAX, 0], schema::history::AMOUNT, &[8, 9, 10]);
        found(Table::Stock, &[1, 1], stock::QUANTITY, &[]);

        // As many lines in all, but not in each order.
        add(Table::Order, &[1, 2, 3], schema::order::LINES, 1);
        add(Table::Order, &[1, 2, 4], schema::order::LINES, -1);
        assert_eq!(wrong(), BTreeSet::from([6]));
        add(Table::Order, &[1, 2, 3], schema::order::LINES, -1);
        add(Table::Order, &[1, 2, 4], schema::order::LINES, 1);

        // One of the new orders, not the first and not the last, is new no more.
        run(&*store, |t| t.delete(&Table::NewOrder.key(&[1, 2, 8]))).unwrap();
        assert_eq!(wrong(), BTreeSet::from([3, 5, 11]));
        add(Table::Order, &[1, 2, 8], schema::order::CARRIER, 1);
        add(Table::Customer, &[1, 2, 8], schema::customer::DELIVERIES, 1);
        assert_eq!(wrong(), BTreeSet::from([3, 7]), "and its lines were not delivered");
    }
}
