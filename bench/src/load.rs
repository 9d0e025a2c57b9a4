//! What can be asked of the figures beyond their own sizes.

use std::time::Duration;

use crate::keys::Distribution;
use crate::stores::Memory;

/// Sizes and choices; each figure has its own where none is given.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Load {
    /// Only these systems, by their names in reports, separated by commas.
    #[arg(long)]
    pub(crate) systems: Option<String>,
    /// YCSB: only these workloads, as `ACF`.
    #[arg(long)]
    pub(crate) workloads: Option<String>,
    /// YCSB: how records are chosen, instead of each workload's own way.
    #[arg(long, value_enum)]
    pub(crate) distribution: Option<Distribution>,
    /// Records that are loaded first.
    #[arg(long)]
    pub(crate) records: Option<u64>,
    /// Bytes of a value.
    #[arg(long)]
    pub(crate) value: Option<usize>,
    /// Threads at work.
    #[arg(long)]
    pub(crate) threads: Option<u64>,
    /// YCSB: an open loop of so many operations a second, of all threads together.
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// How long each case runs.
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Memory of each store in MiB: a quarter for what it writes (Terrace: its region), the rest
    /// for caching what it reads.
    #[arg(long)]
    pub(crate) memory: Option<u64>,
}

impl Load {
    /// The time asked for, or a figure's own.
    pub(crate) fn time(&self, own: Duration) -> Duration {
        self.seconds.map_or(own, Duration::from_secs_f64)
    }

    /// The memory asked for, or a figure's own.
    pub(crate) fn memory(&self, own: Memory) -> Memory {
        let split = |mib: u64| Memory { write: mib << 18, cache: 3 * (mib << 18) };
        self.memory.map_or(own, split)
    }
}
