//! `defaults`: every store as it opens with no option set, under a bound on the memory of the
//! process and of the pages that the system caches for it. The data is a tenth of the bound, as
//! large as it, and four times as large.

use anyhow::Result;

use super::ycsb::cell::{Cell, End, Phase};
use super::ycsb::workload::Workload;
use crate::Settings;
use crate::isolated;
use crate::keys::Distribution;
use crate::report::Report;
use crate::stores::{Kind, Memory, System};

const FIGURE: &str = "defaults";

const SYSTEMS: [System; 3] = [
    System::disk(Kind::TerraceDefaults),
    System::disk(Kind::RocksDbDefaults),
    System::disk(Kind::FjallDefaults),
];

const VALUE: usize = 500;

/// Bytes of a record, with its key.
const RECORD: u64 = 8 + VALUE as u64;

/// The data by the bound, in tenths.
const SIZES: [(&str, u64); 3] = [("0.1×", 1), ("1×", 10), ("4×", 40)];

/// What is done: the workload, and how records are chosen.
const CASES: [(char, Distribution); 4] = [
    ('C', Distribution::Zipfian),
    ('C', Distribution::Uniform),
    ('E', Distribution::Zipfian),
    ('A', Distribution::Uniform),
];

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let bound = match settings.load.memory {
        Some(mib) => mib << 20,
        None if settings.quick => 256 << 20,
        None => 1 << 30,
    };
    let millis = settings.pick(500, 2000, 10_000);
    let systems = System::there(&SYSTEMS, settings, report);
    for _ in 0..settings.rounds_within(1) {
        for (size, tenths) in SIZES {
            for system in &systems {
                let phases = phases(settings, *system, size, millis);
                if phases.is_empty() {
                    continue;
                }
                let cell = Cell {
                    system: *system,
                    memory: Memory { write: 0, cache: 0 },
                    records: bound / 10 * tenths / RECORD,
                    value: VALUE,
                    durable: false,
                    seed: settings.seed,
                    phases,
                };
                isolated::run_within(settings, report, FIGURE, (*system, bound), &cell)?;
            }
        }
    }
    Ok(())
}

fn phases(settings: &Settings, system: System, size: &str, millis: u64) -> Vec<Phase> {
    let phases = CASES.iter().filter_map(|(name, distribution)| {
        let case = format!("{name} {}, data {size} memory", distribution.name());
        let phase = Phase {
            workload: Workload::of(*name)?,
            distribution: *distribution,
            threads: 2,
            rate: None,
            until: End::Millis(millis),
            case,
        };
        settings.wants(&phase.case, &system.name()).then_some(phase)
    });
    phases.collect()
}
