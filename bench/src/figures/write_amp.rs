//! `write-amp`: bytes that the device was sent for each byte of keys and values, by how much data
//! there is beside level 0. Only updates; the region is counted, where it is a file.

use anyhow::Result;

use super::ycsb::cell::{Cell, End, Phase};
use super::ycsb::workload::Workload;
use crate::Settings;
use crate::isolated;
use crate::keys::Distribution;
use crate::report::Report;
use crate::stores::{Kind, Memory, System};

const FIGURE: &str = "write-amp";

const SYSTEMS: [System; 4] = [
    System::disk(Kind::Terrace),
    System::disk(Kind::TerraceEmulated),
    System::disk(Kind::RocksDb),
    System::disk(Kind::RocksDbTuned),
];

const METRIC: &str = "device bytes of user bytes";

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let (write, times): (u64, &[u64]) =
        if settings.quick { (2 << 20, &[2, 8]) } else { (8 << 20, &[1, 4, 16]) };
    let memory = load.memory(Memory { write, cache: write });
    let value = load.value.unwrap_or(500);
    let rounds = if settings.quick || settings.in_report { 1 } else { 2 };
    for _ in 0..rounds {
        for &times in times {
            for system in System::there(&SYSTEMS, settings, report) {
                let phase = |distribution: Distribution| Phase {
                    case: format!("{times} × level 0, {}", distribution.name()),
                    workload: Workload::UPDATES,
                    distribution,
                    threads: load.threads.unwrap_or(2),
                    rate: None,
                    until: End::Turnovers(if settings.quick { 1.0 } else { 3.0 }),
                };
                let mut phases = vec![phase(Distribution::Uniform), phase(Distribution::Zipfian)];
                phases.retain(|p| settings.wants(&p.case, &system.name()));
                let cell = Cell {
                    system,
                    memory,
                    records: times * memory.write / (8 + value as u64),
                    value,
                    durable: false,
                    seed: settings.seed,
                    phases,
                };
                if !cell.phases.is_empty() {
                    isolated::run(settings, report, FIGURE, &cell)?;
                }
            }
        }
    }
    for &times in times {
        for distribution in [Distribution::Uniform, Distribution::Zipfian] {
            of_rocksdb(report, &format!("{times} × level 0, {}", distribution.name()));
        }
    }
    Ok(())
}

/// Ours as a share of the better RocksDB's.
fn of_rocksdb(report: &mut Report, case: &str) {
    let of = |kind: Kind| report.median(case, kind.name(), METRIC);
    let ours = [Kind::Terrace, Kind::TerraceEmulated].map(|kind| (kind, of(kind)));
    let best = [Kind::RocksDb, Kind::RocksDbTuned].into_iter().filter_map(of);
    let best = best.fold(f64::NAN, f64::min);
    for (kind, ours) in ours {
        let share = ours.unwrap_or(f64::NAN) / best;
        report.add(case, kind.name(), "of rocksdb", share, "×");
    }
}
