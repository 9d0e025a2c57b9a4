//! `write-amp`: bytes that the device was sent for each byte of keys and values, by how much data
//! there is beside level 0. Only updates; the region is counted, where it is a file.
//!
//! Beside it what reuse saves. Ranges of keys are **distinct** that only one input of a merge has:
//! there extents stay as they are, and blocks are copied. Updates of a tenth of the key range, in
//! evenly spread pieces, leave 90 % of what lies below them distinct, those of a hundredth 99 %.
//! They are more than level 0 holds, and level 1 is no larger, so that they come to be merged with
//! what lies below.

use std::time::Duration;

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

/// How much of the key range is distinct, and how many times the throughput is with reuse of that
/// without, as X-Engine's authors found ("X-Engine: an optimized storage engine for large-scale
/// e-commerce transaction processing", SIGMOD 2019).
const REUSE: [(Distribution, f64); 2] =
    [(Distribution::Distinct90, 2.99), (Distribution::Distinct99, 19.83)];

/// With reuse, and without.
const REUSERS: [System; 2] = [System::disk(Kind::TerraceShallow), System::disk(Kind::TerraceAnew)];

/// Their memory: a hundredth of what is loaded does not fit level 0.
const SHALLOW: Memory = Memory { write: 2 << 20, cache: 6 << 20 };

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let (write, times): (u64, &[u64]) =
        if settings.quick { (2 << 20, &[4]) } else { (8 << 20, &[1, 4, 16]) };
    let memory = load.memory(Memory { write, cache: write });
    let rounds = settings.pick(1, 1, 2);
    let both = [Distribution::Uniform, Distribution::Zipfian];
    let turnovers = End::Turnovers(if settings.quick { 1.0 } else { 3.0 });
    for _ in 0..rounds {
        for &times in times {
            for system in System::there(&SYSTEMS, settings, report) {
                let phases =
                    both.map(|distribution| phase(settings, times, distribution, turnovers));
                run(settings, report, (system, memory, times), phases.to_vec())?;
            }
        }
    }
    for &times in times {
        for distribution in both {
            of_rocksdb(report, &case(times, distribution));
        }
    }
    measure_reuse(settings, report)
}

fn measure_reuse(settings: &Settings, report: &mut Report) -> Result<()> {
    // Where a hundredth fits level 0, nothing is merged.
    let (times, reuse, seconds) =
        settings.pick((8, &REUSE[..1], 1), (32, &REUSE[..1], 5), (128, &REUSE[..], 15));
    let millis = settings.load.time(Duration::from_secs(seconds)).as_millis() as u64;
    // One round: loading takes far longer than what is measured.
    for (distribution, _) in reuse {
        for system in System::there(&REUSERS, settings, report) {
            let phase = phase(settings, times, *distribution, End::Millis(millis));
            run(settings, report, (system, SHALLOW, times), vec![phase])?;
        }
    }
    for (distribution, paper) in reuse {
        of_no_reuse(report, &case(times, *distribution), *paper);
    }
    Ok(())
}

fn phase(settings: &Settings, times: u64, distribution: Distribution, until: End) -> Phase {
    Phase {
        case: case(times, distribution),
        workload: Workload::UPDATES,
        distribution,
        threads: settings.load.threads.unwrap_or(2),
        rate: None,
        until,
    }
}

/// Those of the phases that are asked for, where so many times level 0 is loaded.
fn run(
    settings: &Settings,
    report: &mut Report,
    (system, memory, times): (System, Memory, u64),
    mut phases: Vec<Phase>,
) -> Result<()> {
    phases.retain(|p| settings.wants(&p.case, &system.name()));
    if phases.is_empty() {
        return Ok(());
    }
    let value = settings.load.value.unwrap_or(500);
    let records = times * memory.write / (8 + value as u64);
    let (durable, seed) = (false, settings.seed);
    let cell = Cell { system, memory, records, value, durable, seed, phases };
    isolated::run_bounded(settings, report, FIGURE, (system, memory), &cell)
}

fn case(times: u64, distribution: Distribution) -> String {
    format!("{times} × level 0, {}", distribution.name())
}

/// Throughput with reuse as so many times that without.
fn of_no_reuse(report: &mut Report, case: &str, paper: f64) {
    let [on, off] = REUSERS.map(|system| report.median(case, &system.name(), "throughput"));
    let times = on.unwrap_or(f64::NAN) / off.unwrap_or(f64::NAN);
    report.add(case, &REUSERS[0].name(), "reuse on of off", times, "×");
    report.paper(case, &REUSERS[0].name(), "reuse on of off", paper);
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
