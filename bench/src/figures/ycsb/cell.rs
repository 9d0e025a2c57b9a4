//! One store under one or more workloads, in a process of its own: loaded once, then one phase
//! after the other, each with what the kernel counted.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::workload::{Client, Workload};
use crate::drive::{Drive, Until};
use crate::isolated;
use crate::kernel::{Device, peak_memory};
use crate::keys::{Distribution, Records, Values};
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Memory, Store, System, load};

const MIB: f64 = (1 << 20) as f64;

/// What is measured of one system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) system: System,
    pub(crate) memory: Memory,
    pub(crate) records: u64,
    pub(crate) value: usize,
    pub(crate) durable: bool,
    pub(crate) seed: u64,
    pub(crate) phases: Vec<Phase>,
}

/// One workload on what is loaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Phase {
    /// Its name in reports.
    pub(crate) case: String,
    pub(crate) workload: Workload,
    pub(crate) distribution: Distribution,
    pub(crate) threads: u64,
    pub(crate) rate: Option<f64>,
    pub(crate) until: End,
}

/// When a phase ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum End {
    /// After so many milliseconds.
    Millis(u64),
    /// When so many times the loaded bytes have been written.
    Turnovers(f64),
}

/// Measures a cell.
pub(crate) fn measure(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    let home = cell.system.home(dir)?;
    let loader = System { kind: cell.system.kind.loader(), ..cell.system };
    let mut store = loader.open(&home, cell.memory, report)?;
    let values = Values::new(cell.value);
    let mut random = Random::new(cell.seed);
    load(&*store, cell.records, &values, &mut random)?;
    store.rest()?;
    if loader != cell.system {
        drop(store);
        store = cell.system.open(&home, cell.memory, report)?;
        store.rest()?;
    }
    let there = AtomicU64::new(cell.records);
    let device = Device::of(&home.path())?;
    for phase in &cell.phases {
        let before = device.as_ref().map(Device::traffic).transpose()?;
        let answered = store.answered();
        let written = run(&cell, phase, &*store, &values, &there, report)?;
        let (case, system) = (&phase.case, &cell.system.name());
        if let (Some(device), Some(before)) = (&device, before) {
            let io = device.traffic()?.since(before);
            report.add(case, system, "device bytes", io.written as f64 / MIB, "MiB");
            report.add(
                case,
                system,
                "device bytes of user bytes",
                io.written as f64 / written,
                "B/B",
            );
            report.add(case, system, "device bytes read", io.read as f64 / MIB, "MiB");
            if matches!(phase.until, End::Turnovers(_)) {
                // With what a store does only once no client writes.
                store.rest()?;
                let written_at_rest = device.traffic()?.since(before).written as f64;
                report.add(case, system, "device bytes at rest", written_at_rest / written, "B/B");
            }
        }
        let share = of_level1(&answered, &store.answered());
        report.add(case, system, "level 1 of disk answers", share * 100.0, "%");
        report.add(case, system, "peak memory", peak_memory()? as f64 / MIB, "MiB");
    }
    Ok(())
}

/// The share of level 1 in what the levels on disk have answered in between; not a number where
/// they have answered nothing.
fn of_level1(before: &[u64], after: &[u64]) -> f64 {
    let earlier = before.iter().copied().chain(std::iter::repeat(0));
    let new: Vec<u64> = after.iter().zip(earlier).map(|(after, before)| after - before).collect();
    new.first().copied().unwrap_or(0) as f64 / new.iter().sum::<u64>() as f64
}

/// Runs a phase: the bytes of keys and values that it wrote.
fn run(
    cell: &Cell,
    phase: &Phase,
    store: &dyn Store,
    values: &Values,
    there: &AtomicU64,
    report: &mut Report,
) -> Result<f64> {
    let records = Records::new(phase.distribution, cell.records);
    let (workload, durable) = (phase.workload, cell.durable);
    let client = Client { workload, store, records: &records, values, there, durable };
    let until = match phase.until {
        End::Millis(millis) => Until::Time(std::time::Duration::from_millis(millis)),
        End::Turnovers(times) => {
            Until::Operations((cell.records as f64 * times / workload.writes()) as u64)
        }
    };
    let seen = Drive { threads: phase.threads, until, rate: phase.rate }.run(|thread| {
        let mut random = Random::new(cell.seed ^ (thread + 1) << 40);
        let client = &client;
        move || client.operation(&mut random)
    })?;
    if matches!(phase.until, End::Turnovers(_)) {
        // What was put off is part of the price.
        store.catch_up()?;
    }
    report.seen(&phase.case, &cell.system.name(), &seen);
    Ok(seen.operations as f64 * workload.writes() * (8 + cell.value) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_level_1_is_of_what_came_in_between() {
        assert!((of_level1(&[10, 5], &[40, 15]) - 0.75).abs() < 1e-9);
        assert!((of_level1(&[], &[1, 3]) - 0.25).abs() < 1e-9, "a level that came meanwhile");
        assert!(of_level1(&[7], &[7]).is_nan() && of_level1(&[], &[]).is_nan());
    }
}
