//! `alloc`: time, lines flushed and fences of one allocation: the object pool, an allocator with a
//! redo log, and `malloc`, which persists nothing; zones of several sizes; and copies in units of
//! persistent memory that no zone has, which persist nothing either. The source allocates a million
//! objects of 128 bytes to 16 KiB: less than 1 µs each, one flush and one fence.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use terrace::Mode;
use terrace::bench::{Allocation, PoolAllocator, VolatileAllocator, ZoneAllocator};
use terrace_ods::LoggedAllocator;

use crate::Settings;
use crate::report::Report;

const SIZES: [u64; 4] = [128, 1024, 4096, 16384];

/// Bytes of zones; a region of 1 GiB has units of 1 MiB.
const ZONES: [u64; 3] = [1 << 20, 2 << 20, 4 << 20];

/// Bytes of a region.
const REGION: u64 = 1 << 30;

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let shm = Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(if shm.is_dir() { shm } else { &settings.dir })?;
    let mode = Mode::Emulated { delay: Duration::ZERO };
    let (region, most) = if settings.quick { (REGION / 8, 50_000) } else { (REGION, 1_000_000) };
    for round in 0..settings.rounds {
        for size in SIZES {
            let case = format!("{size} B");
            let count = most.min(region / size / 2) / 64 * 64;
            let path = dir.path().join(format!("{round}-{size}"));
            if settings.wants(&case, "pool") {
                let pool = PoolAllocator::create(&path, region, mode, size as u32)?;
                persistent(report, &case, "pool", &pool, count)?;
                std::fs::remove_file(&path)?;
            }
            if settings.wants(&case, "redo log") {
                let logged = LoggedAllocator::create(&path, mode, size, count)?;
                persistent(report, &case, "redo log", &logged, count)?;
                std::fs::remove_file(&path)?;
            }
            if settings.wants(&case, "malloc") {
                volatile(report, &case, size, count);
            }
            if settings.wants(&case, "free units") {
                let copies = VolatileAllocator::create(&path, region, mode, size)?;
                persistent(report, &case, "free units", &copies, count)?;
                std::fs::remove_file(&path)?;
            }
        }
        for size in ZONES {
            let (case, path) = (format!("{} KiB", size >> 10), dir.path().join("zones"));
            if settings.wants(&case, "zone") {
                let zones = ZoneAllocator::create(&path, region, mode, size)?;
                persistent(report, &case, "zone", &zones, region / size / 2)?;
                std::fs::remove_file(&path)?;
            }
        }
    }
    for size in SIZES {
        report.paper(&format!("{size} B"), "pool", "time", 1000.0);
        report.paper(&format!("{size} B"), "pool", "lines", 1.0);
        report.paper(&format!("{size} B"), "pool", "fences", 1.0);
    }
    Ok(())
}

fn persistent(
    report: &mut Report,
    case: &str,
    system: &str,
    allocator: &dyn Allocation,
    count: u64,
) -> Result<()> {
    let (lines, fences) = allocator.costs();
    let began = Instant::now();
    let objects = (0..count).map(|_| allocator.allocate()).collect::<terrace::Result<Vec<_>>>()?;
    let time = began.elapsed();
    let (lines, fences) = (allocator.costs().0 - lines, allocator.costs().1 - fences);
    // The pool's segments are in it.
    report.add(case, system, "time", time.as_nanos() as f64 / count as f64, "ns");
    report.add(case, system, "lines", lines as f64 / count as f64, "lines");
    report.add(case, system, "fences", fences as f64 / count as f64, "fences");
    let (lines, began) = (allocator.costs().0, Instant::now());
    objects.into_iter().try_for_each(|object| allocator.release(object))?;
    let time = began.elapsed();
    let lines = allocator.costs().0 - lines;
    report.add(case, system, "release", time.as_nanos() as f64 / count as f64, "ns");
    report.add(case, system, "release lines", lines as f64 / count as f64, "lines");
    Ok(())
}

fn volatile(report: &mut Report, case: &str, size: u64, count: u64) {
    let began = Instant::now();
    let mut objects = Vec::with_capacity(count as usize);
    for _ in 0..count {
        objects.push(std::hint::black_box(Vec::<u8>::with_capacity(size as usize)));
    }
    let time = began.elapsed();
    report.add(case, "malloc", "time", time.as_nanos() as f64 / count as f64, "ns");
    let began = Instant::now();
    drop(objects);
    let time = began.elapsed();
    report.add(case, "malloc", "release", time.as_nanos() as f64 / count as f64, "ns");
}
