//! What the machine itself does to a run: a thread that syncs a page of its own, with nothing of a
//! store in between, and one that only asks to be woken. No store causes what either waits for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::latency::{Latency, let_work};
use crate::report::Report;

/// A probe's next sync comes so long after the one before.
const BETWEEN: Duration = Duration::from_millis(10);

/// What an idle thread sleeps.
const NAP: Duration = Duration::from_millis(1);

/// What was seen beside a run.
#[derive(Debug)]
pub(crate) struct Probed {
    syncs: Latency,
    hiccups: Latency,
}

impl Probed {
    /// The longest sync of one page, in milliseconds.
    pub(crate) fn longest_sync_ms(&self) -> f64 {
        self.syncs.micros(1.0) / 1e3
    }

    /// Adds it to a report.
    pub(crate) fn publish(&self, report: &mut Report, case: &str, system: &str) {
        report.add(case, system, "probe: sync of a page, p99", self.syncs.micros(0.99), "µs");
        report.add(case, system, "probe: longest sync of a page", self.longest_sync_ms(), "ms");
        let longest = self.hiccups.micros(1.0) / 1e3;
        report.add(case, system, "probe: longest hiccup", longest, "ms");
    }
}

/// Runs `work` with both probes beside it, the sync's file in `dir`.
pub(crate) fn beside<T>(dir: &Path, work: impl FnOnce() -> Result<T>) -> Result<(T, Probed)> {
    let file = File::create(dir.join("probe"))?;
    file.write_all_at(&[1; 4096], 0)?;
    file.sync_all()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let syncs = scope.spawn(move || {
            repeat(stop, BETWEEN, || {
                let from = Instant::now();
                file.write_all_at(&[2; 4096], 0)?;
                file.sync_data()?;
                Ok(from.elapsed())
            })
        });
        let hiccups = scope.spawn(move || {
            repeat(stop, Duration::ZERO, || {
                let from = Instant::now();
                let_work(NAP);
                Ok(from.elapsed().saturating_sub(NAP))
            })
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        let syncs = syncs.join().expect("no panic")?;
        let hiccups = hiccups.join().expect("no panic")?;
        Ok((done?, Probed { syncs, hiccups }))
    })
}

fn repeat(
    stop: &AtomicBool,
    between: Duration,
    once: impl Fn() -> Result<Duration>,
) -> Result<Latency> {
    let mut latency = Latency::new();
    while !stop.load(Ordering::Relaxed) {
        latency.record(once()?);
        let_work(between);
    }
    Ok(latency)
}
