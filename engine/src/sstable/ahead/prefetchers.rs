//! The prefetchers of a reader while it asks for a block: which one it comes to, how much that
//! reads at once, and which one makes room.

use super::{
    DEPTH_OF_OBJECT, FIRST_OF_OBJECT, HALF_OF_FIRST, LANES, LEAST_OF_MANY, MOST, MOST_OF_OBJECT,
    PieceParts, Prefetcher, RAMP, ReadAhead, Walks,
};
use crate::os::sync::atomic::Ordering;
use crate::os::sync::locks::MutexGuard;
use crate::sstable::block::SharedBlock;
use crate::sstable::{ExtentMeta, InLevel, WHOLE};

impl ReadAhead {
    /// Where the reader is. A job holds at most about `ahead` bytes of read-ahead: in each
    /// prefetcher so many parts as pieces. A piece has at least one block, and may be half as long
    /// again where that is the rest of its extent. All but one part are read meanwhile. Of a user
    /// `ahead` is what may be held of objects.
    pub(in crate::sstable) fn prefetchers(&self, ahead: u64, parts: PieceParts) -> Prefetchers<'_> {
        let (parts, longest) = (parts as u32, MOST / (parts as u32).min(PieceParts::Two as u32));
        let each = |levels: usize| {
            let piece = ahead / levels as u64 / u64::from(parts);
            piece.min(u64::from(longest)) as u32
        };
        let lanes = || self.places.load(Ordering::Relaxed).max(LANES);
        let (window, most) = (self.of_job.map(each), self.of_job.unwrap_or_else(lanes));
        // Beside the piece that the job has.
        let coming = |window: u32| ahead / most as u64 / u64::from(window.max(1));
        let deep = window.map_or(DEPTH_OF_OBJECT as u64, |window| coming(window).saturating_sub(1));
        let depth_of_object = deep.clamp(1, DEPTH_OF_OBJECT as u64) as usize;
        let mut walks = self.walks.lock();
        walks.wake();
        let piece = ahead / DEPTH_OF_OBJECT as u64;
        let piece = piece.clamp(u64::from(FIRST_OF_OBJECT), u64::from(MOST_OF_OBJECT)) as u32;
        Prefetchers {
            window,
            longest,
            longest_of_object: piece,
            most,
            depth_of_object,
            wanted: self.wanted.load(Ordering::Relaxed),
            walks,
        }
    }
}

/// The prefetchers of a reader, while it asks for a block.
pub(in crate::sstable) struct Prefetchers<'a> {
    /// The length of a job's pieces.
    window: Option<u32>,
    /// The greatest length of a user's.
    longest: u32,
    longest_of_object: u32,
    most: usize,
    /// How many pieces of an object may be on their way.
    depth_of_object: usize,
    /// Rows that the user still wants.
    wanted: usize,
    pub(super) walks: MutexGuard<'a, Walks>,
}

impl Prefetchers<'_> {
    /// A block that the reader asked for just now.
    pub(in crate::sstable) fn remembered(&self, extent: u64, n: usize) -> Option<SharedBlock> {
        let mut all = self.walks.prefetchers.iter().flat_map(|prefetcher| &prefetcher.remembered);
        all.find(|(e, m, _)| (*e, *m) == (extent, n)).map(|(_, _, block)| block.clone())
    }

    /// The reader asks for block `n`, of `len` bytes, of an extent.
    pub(in crate::sstable) fn come_to(
        &mut self,
        extent: u64,
        n: usize,
        len: u32,
    ) -> &mut Prefetcher {
        let (window, longest) = (self.window, self.longest);
        let prefetcher = self.of_extent(extent, Some(n));
        prefetcher.step_to(n, len);
        (prefetcher.most, prefetcher.depth, prefetcher.wanted) = (longest, 1, u64::MAX);
        if let Some(window) = window {
            prefetcher.window = window.max(1);
            prefetcher.most = prefetcher.window;
        }
        prefetcher
    }

    /// The same of an extent, which may be an object.
    pub(in crate::sstable) fn come_to_in(
        &mut self,
        extent: &ExtentMeta,
        n: usize,
        len: u32,
    ) -> &mut Prefetcher {
        let (is_job, depth) = (self.window.is_some(), self.depth_of_object);
        let (longest, rows) = (self.longest_of_object, self.wanted);
        let prefetcher = self.come_to(extent.id, n, len);
        if !extent.location.is_object() {
            return prefetcher;
        }
        if is_job {
            prefetcher.depth = if prefetcher.is_walk() { depth } else { 1 };
            return prefetcher;
        }
        prefetcher.most = longest;
        let is_first = prefetcher.window == 0;
        prefetcher.wanted = RAMP * prefetcher.come;
        if rows < usize::MAX {
            let row = u64::from(extent.location.len) / extent.records.max(1);
            let of_level = (rows as u64).saturating_mul(row.max(1)) / u64::from(WHOLE);
            let wanted = of_level.saturating_mul(u64::from(prefetcher.share));
            // Levels need not have the same share everywhere. Rows begin somewhere in the first
            // block, and end somewhere in the last.
            prefetcher.wanted = wanted.saturating_add(wanted / 8 + 2 * u64::from(len));
            let one = prefetcher.wanted.min(u64::from(LEAST_OF_MANY));
            let piece = (prefetcher.wanted / depth as u64).max(one).min(u64::from(longest)) as u32;
            prefetcher.window = if is_first { piece } else { prefetcher.window };
        }
        prefetcher.window = prefetcher.window.clamp(FIRST_OF_OBJECT, longest);
        let is_long = rows < usize::MAX || prefetcher.come >= HALF_OF_FIRST;
        prefetcher.depth = if is_long { depth } else { 1 };
        prefetcher
    }

    /// A range begins at block `n` of an extent.
    pub(in crate::sstable) fn begin_walk(
        &mut self,
        (at, n): (InLevel<'_>, usize),
        is_backward: bool,
    ) {
        let Some(extent) = at.extent() else { return };
        let prefetcher = self.of_extent(extent.meta().id, Some(n));
        prefetcher.is_backward = is_backward;
        prefetcher.lies(at);
    }

    /// The prefetcher of an extent. If there is none, a new one at block `at`, perhaps in place of
    /// the one that was used longest ago.
    pub(super) fn of_extent(&mut self, extent: u64, at: Option<usize>) -> &mut Prefetcher {
        let Walks { prefetchers, uses, .. } = &mut *self.walks;
        let found = prefetchers.iter().position(|prefetcher| prefetcher.extent == extent);
        let number = found.unwrap_or_else(|| {
            // What has arrived is what the reader has waited for.
            let oldest = || (0..prefetchers.len()).min_by_key(|n| prefetchers[*n].last_to_go());
            if let Some(oldest) = oldest().filter(|_| prefetchers.len() >= self.most) {
                prefetchers.swap_remove(oldest);
            }
            prefetchers.push(Prefetcher::new(extent, at));
            prefetchers.len() - 1
        });
        debug_assert_eq!(
            prefetchers.iter().filter(|prefetcher| prefetcher.extent == extent).count(),
            1,
            "invariant 1"
        );
        *uses += 1;
        prefetchers[number].used = *uses;
        &mut prefetchers[number]
    }
}
