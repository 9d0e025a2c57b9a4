//! `sync`: what the bare device asks for a durable write of some pages of a preallocated file,
//! buffered (`pwrite` and `fdatasync`) and direct (`O_DIRECT | O_DSYNC`).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::Settings;
use crate::latency::Latency;
use crate::random::Random;
use crate::report::Report;

const PAGE: usize = 4096;
const FILE: usize = 64 << 20;

/// Pages, aligned as direct I/O wants them.
#[repr(align(4096))]
struct Page([u8; PAGE]);

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let path = settings.dir.join("bare");
    preallocate(&path)?;
    let buffered = OpenOptions::new().write(true).open(&path)?;
    let direct =
        OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC).open(&path)?;
    let time = Duration::from_millis(settings.pick(400, 1000, 2000));
    let mut random = Random::new(settings.seed);
    for _ in 0..settings.rounds {
        for pages in [1, 2, 4, 17] {
            let mut case =
                |name: &str, system: &str, write: &mut dyn FnMut(&[u64]) -> Result<()>| {
                    measure_case(report, &mut random, time, pages, name, system, write)
                };
            let scattered = format!("{pages} scattered pages");
            case(&scattered, "buffered", &mut |at| write_buffered(&buffered, at))?;
            case(&scattered, "direct", &mut |at| write_direct(&direct, at))?;
        }
    }
    Ok(())
}

fn measure_case(
    report: &mut Report,
    random: &mut Random,
    time: Duration,
    pages: usize,
    case: &str,
    system: &str,
    write: &mut dyn FnMut(&[u64]) -> Result<()>,
) -> Result<()> {
    let mut latency = Latency::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let at: Vec<u64> =
            (0..pages).map(|_| random.below((FILE / PAGE) as u64) * PAGE as u64).collect();
        let from = Instant::now();
        write(&at)?;
        latency.record(from.elapsed());
    }
    report.add(case, system, "p50", latency.micros(0.5), "µs");
    report.add(case, system, "p99", latency.micros(0.99), "µs");
    Ok(())
}

fn preallocate(path: &std::path::Path) -> Result<()> {
    let file = File::create(path)?;
    let zeros = vec![0; 1 << 20];
    for at in (0..FILE).step_by(zeros.len()) {
        file.write_all_at(&zeros, at as u64)?;
    }
    file.sync_all()?;
    Ok(())
}

fn write_buffered(file: &File, offsets: &[u64]) -> Result<()> {
    let page = Page([1; PAGE]);
    for at in offsets {
        file.write_all_at(&page.0, *at)?;
    }
    file.sync_data()?;
    Ok(())
}

fn write_direct(file: &File, offsets: &[u64]) -> Result<()> {
    let page = Page([2; PAGE]);
    for at in offsets {
        file.write_all_at(&page.0, *at)?;
    }
    Ok(())
}
