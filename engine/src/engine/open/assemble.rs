//! The engine of an opened database, put together of its parts.

use std::sync::Arc;

use super::Opening;
use crate::alloc::{PagePool, ZonePool};
use crate::cache::Below;
use crate::commit::{Committer, Poison, Start};
use crate::engine::Engine;
use crate::engine::catalog::Catalog;
use crate::engine::open_stats::OpenStats;
use crate::engine::secondary_cache;
use crate::extent::BlockCache;
use crate::jobs::JobContext;
use crate::jobs::memory;
use crate::levels::VersionSet;
use crate::locks::LockManager;
use crate::mvcc::{Runner, SnapshotRegistry, Watermark};
use crate::os::ForkGuard;
use crate::os::sync::atomic::{AtomicBool, AtomicUsize};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::OnceLock;
use crate::pm::{Region, Superblock};
use crate::ptree::forest::Forest;
use crate::scheduler::Scheduler;
use crate::spill::WriteMemory;
use crate::table::{Awaited, Pace, Shared, UnshippedRuns, Wakeup};

impl Opening<'_> {
    /// The engine, with nothing indexed yet.
    pub(super) fn engine(
        &self,
        region: Arc<Region>,
        (zones, superblock): (ZonePool, Superblock),
        (set, forest): (VersionSet, Option<Forest>),
        start: Start,
    ) -> Engine {
        let (zones, poison) = (Arc::new(zones), Arc::new(Poison::default()));
        let visible = Arc::new(Watermark::new(start.last));
        let committer = Committer::new(
            Arc::clone(&region),
            Arc::clone(&zones),
            Arc::clone(&visible),
            Arc::clone(&poison),
            start,
        );
        let set = Arc::new(set);
        let clock = self.options.clock_of_records();
        clock.forward_to(set.timeline().last().map_or(0, |last| last.time));
        let secondary_cache = secondary_cache::of(&region, &zones, self.read_only);
        let below = secondary_cache.clone().map(|cache| cache as Arc<dyn Below>);
        let queue = Arc::default();
        let pages = Arc::new(PagePool::new(Arc::clone(&region), Arc::clone(&zones), &queue));
        let shared = Shared {
            set: Arc::clone(&set),
            gate: Arc::clone(set.store().gate()),
            unshipped: UnshippedRuns::default(),
            region,
            zones,
            pages,
            committer,
            snapshots: SnapshotRegistry::with_clock(visible, Arc::clone(&clock)),
            clock,
            cache: Arc::new(BlockCache::new(self.options.memory_plan().most_cache()).above(below)),
            poison,
            read_only: self.read_only,
            pace: Pace::default(),
            wakeup: Wakeup::default(),
            zone_wakeup: Wakeup::default(),
            fork: ForkGuard::new(),
            locks: LockManager::new(memory::of_locks(self.options.memory_plan().limit())),
            write_memory: WriteMemory::new(memory::of_writes(self.options.memory_plan().limit())),
            load_compression: self.options.compression.1,
            ddl: Mutex::new(()),
            follows: AtomicBool::new(false),
            awaited: Awaited::default(),
            queue: Arc::clone(&queue),
            deferred: AtomicUsize::new(0),
        };
        let (shared, forest) = (Arc::new(shared), forest.map(Arc::new));
        let ctx = Arc::new(JobContext::new(&shared, self.options, (superblock, forest.clone())));
        let scheduler = Arc::new(Scheduler::new(Arc::clone(&ctx)));
        Engine {
            path: self.path.to_path_buf(),
            options: self.options.clone(),
            shared,
            transactions: Arc::clone(&ctx.transactions),
            set,
            catalog: Catalog::new(Arc::clone(&ctx), Arc::clone(&scheduler.jobs.count_live)),
            scheduler,
            ctx,
            forest,
            index_damage: None,
            opened: OpenStats::default(),
            recovered: 0,
            shipper: OnceLock::new(),
            secondary_cache,
            runner: Mutex::new((!self.read_only).then(|| Runner::new(&queue))),
        }
    }
}
