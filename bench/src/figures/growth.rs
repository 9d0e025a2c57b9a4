//! `growth`: the main figures as something grows: the data (×1, ×4, ×16, with memory that does
//! not), the threads of durable writers, the size of values. The slope says what a doubling does.

use anyhow::Result;

use super::ycsb::cell::{Cell, End, Phase};
use super::ycsb::workload::Workload;
use crate::Settings;
use crate::isolated;
use crate::keys::Distribution;
use crate::report::Report;
use crate::stores::{Kind, Memory, System};

const FIGURE: &str = "growth";

const SYSTEMS: [System; 3] = [
    System::disk(Kind::Terrace),
    System::disk(Kind::RocksDbTuned),
    System::disk(Kind::TerraceEmulated),
];

/// One point of a line: what is different in it.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// What grows, and how large it is here.
    line: &'static str,
    at: u64,
    records: u64,
    value: usize,
    threads: u64,
    durable: bool,
}

/// Workloads, by the lines they are for.
fn workloads(line: &str) -> &'static str {
    match line {
        "data" => "ACE",
        _ => "A",
    }
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let quick = settings.quick;
    let base = if quick { 6_000 } else { 100_000 };
    let memory = settings.load.memory(match quick {
        true => Memory { write: 8 << 20, cache: 8 << 20 },
        false => Memory { write: 64 << 20, cache: 64 << 20 },
    });
    let point =
        |line, at| Point { line, at, records: base, value: 500, threads: 2, durable: false };
    let data = [1, 4, 16].map(|times| Point { records: base * times, ..point("data", times) });
    let threads: &[u64] = if quick { &[1, 16] } else { &[1, 2, 4, 8, 16] };
    let threads =
        threads.iter().map(|n| Point { threads: *n, durable: true, ..point("threads", *n) });
    let values: &[u64] = if quick { &[16, 4096] } else { &[16, 100, 500, 4096] };
    let values = values.iter().map(|bytes| Point {
        value: *bytes as usize,
        // As many bytes, whatever the size of each.
        records: (base * 508 / (8 + bytes)).min(base * 4),
        ..point("value bytes", *bytes)
    });
    let points: Vec<Point> = data.into_iter().chain(threads).chain(values).collect();
    let rounds = if quick { 1 } else { settings.rounds_within(1).min(3) };
    for _ in 0..rounds {
        let systems = System::there(&SYSTEMS, settings, report);
        let most = if quick { 2 } else { systems.len() };
        for system in systems.into_iter().take(most) {
            for point in &points {
                run(settings, report, system, memory, point)?;
            }
        }
    }
    for system in SYSTEMS {
        for line in ["data", "threads", "value bytes"] {
            slopes(report, &points, &system.name(), line);
        }
    }
    Ok(())
}

fn case(workload: char, point: &Point) -> String {
    let sync = if point.durable { "durable" } else { "unsynced" };
    let unit = if point.line == "data" { "×" } else { "" };
    format!("{workload} {sync}, {} {unit}{}", point.line, point.at)
}

fn run(
    settings: &Settings,
    report: &mut Report,
    system: System,
    memory: Memory,
    point: &Point,
) -> Result<()> {
    let millis = settings.pick(250, 1000, 2000);
    let workloads = workloads(point.line).chars().filter_map(Workload::of);
    let phases = workloads.map(|workload| Phase {
        case: case(workload.name, point),
        workload,
        distribution: Distribution::Zipfian,
        threads: point.threads,
        rate: None,
        until: End::Millis(millis),
    });
    let phases: Vec<Phase> =
        phases.filter(|phase| settings.wants(&phase.case, &system.name())).collect();
    if phases.is_empty() {
        return Ok(());
    }
    let cell = Cell {
        system,
        memory,
        records: point.records,
        value: point.value,
        durable: point.durable,
        seed: settings.seed,
        phases,
    };
    isolated::run(settings, report, FIGURE, &cell)
}

/// How much more throughput a doubling brings, in percent, along each line; and the line itself.
fn slopes(report: &mut Report, points: &[Point], system: &str, line: &str) {
    for workload in workloads(line).chars() {
        let on = points.iter().filter(|point| point.line == line);
        let seen = on.filter_map(|point| {
            let rate = report.median(&case(workload, point), system, "throughput")?;
            Some((point.at as f64, rate))
        });
        let seen: Vec<(f64, f64)> = seen.collect();
        let Some(slope) = slope(&seen) else { continue };
        let name = format!("{workload} by {line}");
        let percent = (slope.exp2() - 1.0) * 100.0;
        report.add(&name, system, "throughput by doubling", percent, "%");
        let rows: Vec<Vec<f64>> = seen.iter().map(|(at, rate)| vec![*at, *rate]).collect();
        report.series(&name, system, &[line, "op/s"], &rows);
    }
}

/// The slope of the best straight line through the points, both axes in powers of two.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.log2(), y.log2())).collect();
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / n;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / n;
    let above: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (logs.len() > 1 && below > 0.0).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_the_power_of_growth() {
        let of = |f: fn(f64) -> f64| slope(&[1.0, 4.0, 16.0].map(|x| (x, f(x)))).unwrap();
        assert!((of(|x| 7.0 * x) - 1.0).abs() < 1e-9);
        assert!((of(|x| 7.0 / x.sqrt()) + 0.5).abs() < 1e-9);
        assert!(of(|_| 3.0).abs() < 1e-9);
        assert_eq!(slope(&[(1.0, 2.0)]), None);
    }
}
