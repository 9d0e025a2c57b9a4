//! Building an index from sorted records: leaves are filled one after the other, and nothing is
//! searched, moved or split.
//!
//! Thread safety: each part is built by one thread, and no other thread has the index yet.

use std::sync::Arc;

use super::heap::Heap;
use super::inner::{Child, Contents};
use super::leaf::Leaf;
use super::records::Records;
use super::separator::Separator;
use super::{Counts, Index};

/// A node is filled to this share, in eighths: the next inserts shall find room.
const FILL: usize = 6;

/// A subtree whose place among its neighbours is known by its first and its last record.
struct Built {
    child: Child,
    first: u64,
    last: u64,
}

/// A leaf that is in no tree yet.
struct Filled<const L: usize> {
    leaf: Box<Leaf<L>>,
    first: u64,
    last: u64,
}

impl<R: Records + Sync, const L: usize, const I: usize> Index<R, L, I> {
    /// The index of the records at these offsets. The parts ascend, and so do the records in each
    /// of them (by key, the newest version first), without duplicates. Each part is built by a
    /// thread of its own; `seen` is shown the records of a leaf when they are in the cache. Costs
    /// a read of each record.
    pub(crate) fn build(
        records: Arc<R>,
        parts: &[Vec<u64>],
        seen: &(dyn Fn(&[u64]) + Sync),
    ) -> Index<R, L, I>
    where
        R: Send,
    {
        let mut index = Index::new(records);
        let (records, counts) = (&*index.records, &index.counts);
        let filled: Vec<Vec<Filled<L>>> = crate::os::thread::scope(|scope| {
            let fill = |part: &'_ [u64]| leaves(part, records, counts, seen);
            let spawn = |part| scope.spawn(move || fill(part));
            let threads: Vec<_> = parts.iter().skip(1).map(|part| spawn(part.as_slice())).collect();
            let first = parts.first().map(|part| fill(part));
            let joined = threads.into_iter().map(|t| match t.join() {
                Ok(leaves) => leaves,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            first.into_iter().chain(joined).collect()
        });
        let guard = crossbeam_epoch::pin();
        let heap = Heap::new(&guard, &counts.memory);
        let mut level: Vec<Built> = filled.into_iter().flatten().map(Built::from).collect();
        while level.len() > I + 1 {
            let above = |group: &[Built]| parent::<L, I, R>(group, records, heap);
            level = level.chunks(share(I + 1)).map(above).collect();
        }
        if level.is_empty() {
            let leaf = heap.leaf::<L>();
            level.push(Built { child: Child::leaf(leaf), first: 0, last: 0 });
        }
        let contents = contents(&level, records);
        let len = parts.iter().map(Vec::len).sum();
        counts.len.store(len, super::Ordering::Relaxed);
        // The one leaf of the empty index goes. From here to the new root nothing may panic, or the
        // leaf would go twice.
        index.take_apart(&guard);
        index.root.fill(&contents, Heap::new(&guard, &index.counts.memory));
        index
    }
}

impl<const L: usize> From<Filled<L>> for Built {
    fn from(filled: Filled<L>) -> Built {
        let Filled { leaf, first, last } = filled;
        Built { child: Child::leaf(leaf), first, last }
    }
}

/// How much of a node's room is filled.
fn share(room: usize) -> usize {
    (room * FILL / 8).max(2)
}

fn leaves<R: Records, const L: usize>(
    part: &[u64],
    records: &R,
    counts: &Counts,
    seen: &(dyn Fn(&[u64]) + Sync),
) -> Vec<Filled<L>> {
    let guard = crossbeam_epoch::pin();
    let heap = Heap::new(&guard, &counts.memory);
    let len = share(L).min(L);
    let fill = |(n, offsets): (usize, &[u64])| {
        // Sorted records lie anywhere: those of the leaf after the next are on their way meanwhile.
        let ahead = part.iter().skip((n + 2) * len).take(len);
        ahead.for_each(|at| records.prefetch(*at));
        let leaf = heap.leaf();
        leaf.fill(offsets, records, heap);
        seen(offsets);
        Filled { leaf, first: offsets[0], last: offsets[offsets.len() - 1] }
    };
    part.chunks(len).enumerate().map(fill).collect()
}

fn parent<const L: usize, const I: usize, R: Records>(
    group: &[Built],
    records: &R,
    heap: Heap<'_>,
) -> Built {
    let inner = heap.inner::<L, I>();
    inner.fill(&contents(group, records), heap);
    Built { child: Child::inner(inner), first: group[0].first, last: group[group.len() - 1].last }
}

fn contents<R: Records>(group: &[Built], records: &R) -> Contents {
    let between =
        |w: &[Built]| Separator::between(records.locate(w[0].last), records.locate(w[1].first));
    Contents {
        separators: group.windows(2).map(between).collect(),
        children: group.iter().map(|built| built.child).collect(),
    }
}
