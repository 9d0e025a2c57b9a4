//! One measurement at a time, on a machine that does nothing else.

use std::fs::File;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

/// Runnable tasks, averaged over a minute, above which nothing is timed, for each processor.
const LOAD_PER_CORE: f64 = 0.5;

/// Compilers and the like, whose presence spoils a measurement at once.
const COMPILERS: [&str; 5] = ["rustc", "cc1", "cc1plus", "ld", "clippy-driver"];

/// The right to measure.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Held until the measurement ends.
    #[expect(dead_code, reason = "the open file is the lock")]
    lock: File,
    /// Runnable tasks before it began.
    pub(crate) load: f64,
    /// Why the figures are not to be trusted, if they are taken anyway.
    pub(crate) disturbed: Option<String>,
}

/// Waits for other measurements to end, and looks whether the machine is quiet.
pub(crate) fn take(anyway: bool) -> Result<Guard> {
    let path = std::env::temp_dir().join("terrace-bench.lock");
    let lock = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    flock(&lock, FlockOperation::LockExclusive).context("cannot lock")?;
    let load = load()?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    let disturbed = match compiler() {
        Some(name) => Some(format!("{name} is running")),
        None if load > cores * LOAD_PER_CORE => Some(format!("the load is {load:.2}")),
        None => None,
    };
    if let Some(why) = &disturbed
        && !anyway
    {
        bail!("{why}: wait for it to end, or measure --anyway and have the figures marked");
    }
    Ok(Guard { lock, load, disturbed })
}

fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").context("cannot read the load")?;
    let first = text.split(' ').next().unwrap_or_default();
    first.parse().context("the load is no number")
}

fn compiler() -> Option<String> {
    let processes = std::fs::read_dir("/proc").ok()?;
    let name = |entry: std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("comm")).ok().map(|n| n.trim().to_string())
    };
    let mut names = processes.flatten().filter_map(name);
    names.find(|name| COMPILERS.contains(&name.as_str()))
}
