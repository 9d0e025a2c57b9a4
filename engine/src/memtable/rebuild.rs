//! Rebuilds the index of a table from what a scan of the zones has found: it sorts, and then builds
//! in bulk. That costs a fraction of inserting record by record, where most of the time goes into
//! waiting for memory.
//!
//! Sorting is by key, then the newest version first. An item is eight bytes of the key, behind the
//! prefix that all keys of the table share, and the offset. Records are compared only where those
//! bytes are equal. Each thread sorts what one thread has found. Then the sorted runs are cut at
//! the same keys, and each thread merges one range of keys.
//!
//! Only the newest version of a key enters the index, since every later reader reads at or above
//! the last commit. If that has operands, the versions that they go on with enter too. A record
//! that is found twice counts once: the cleaner had copied it when the power was cut.

use std::sync::Arc;

use super::Index;
use super::index::Records;
use super::records::{Record, record_at};
use crate::base::record::{Kind, LSN_MAX, Lsn, common, slice};
use crate::mvcc::Tombstone;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::pm::Region;

/// Below this many records threads are not worth starting.
const WORTH_THREADS: usize = 16 * 1024;

/// Samples for each range that keys are cut into.
const SAMPLES: usize = 64;

/// The records of one table that one thread has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// What all keys begin with.
    prefix: Option<Vec<u8>>,
    items: Vec<Item>,
    /// This many of the first items have digests behind a longer prefix.
    stale: usize,
    tombstones: Vec<Arc<Tombstone>>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    digest: u64,
    at: u64,
}

impl Found {
    /// Adds a record.
    pub(crate) fn add(&mut self, at: u64, key: &[u8]) {
        let prefix = self.prefix.get_or_insert_with(|| key.to_vec());
        let shared = common(prefix, key);
        if shared < prefix.len() {
            prefix.truncate(shared);
            self.stale = self.items.len();
        }
        self.items.push(Item { digest: slice(key, shared), at });
    }

    /// Adds a range tombstone.
    pub(crate) fn add_tombstone(&mut self, tombstone: Arc<Tombstone>) {
        self.tombstones.push(tombstone);
    }

    /// Brings all digests behind what the keys of all finders begin with.
    fn align(&mut self, region: &Region, skip: usize) {
        let is_aligned = self.prefix.as_ref().is_none_or(|prefix| prefix.len() == skip);
        let stale = if is_aligned { self.stale } else { self.items.len() };
        for item in &mut self.items[..stale] {
            item.digest = slice(region.locate(item.at).0, skip);
        }
    }
}

/// An index that was rebuilt, and what is in it.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) index: Index,
    /// Each once.
    pub(crate) tombstones: Vec<Arc<Tombstone>>,
    /// Deletes of one key in it.
    pub(crate) deletes: u64,
    /// Bytes in zones, of range tombstones too.
    pub(crate) bytes: u64,
    /// The smallest sequence number in it.
    pub(crate) oldest: Option<Lsn>,
}

/// Sorts what was found of a table and builds its index, on up to `threads` threads. `counts` is
/// told the offset of each record that is in it.
pub(crate) fn rebuild(
    region: &Arc<Region>,
    mut found: Vec<Found>,
    threads: usize,
    counts: &(dyn Fn(u64) + Sync),
) -> Rebuilt {
    let tombstones = each_once(&mut found);
    let (skip, sorter) = (shared_by_all(&found), Sorter { region });
    let parts = sorter.sorted(found, skip, threads);
    let (bytes, oldest) = (AtomicU64::new(0), AtomicU64::new(LSN_MAX));
    let deletes = AtomicU64::new(0);
    let seen = |offsets: &[u64]| {
        let records = || offsets.iter().map(|at| record_at(region, *at));
        let stored: usize = records().map(|record| record.stored_len()).sum();
        bytes.fetch_add(stored as u64, Ordering::Relaxed);
        let gone = records().filter(|record| record.kind == Kind::Delete).count();
        deletes.fetch_add(gone as u64, Ordering::Relaxed);
        oldest.fetch_min(records().map(|r| r.seq).min().unwrap_or(LSN_MAX), Ordering::Relaxed);
        offsets.iter().for_each(|at| counts(*at));
    };
    let index = Index::build(Arc::clone(region), &parts, &seen);
    let ranges = tombstones.iter().map(|tombstone| tombstone.at());
    seen(&ranges.collect::<Vec<_>>());
    let oldest = Some(oldest.into_inner()).filter(|_| index.len() + tombstones.len() > 0);
    let (deletes, bytes) = (deletes.into_inner(), bytes.into_inner());
    Rebuilt { index, tombstones, deletes, bytes, oldest }
}

/// The range tombstones that were found, without copies that a cleaner made.
fn each_once(found: &mut [Found]) -> Vec<Arc<Tombstone>> {
    let mut all: Vec<_> =
        found.iter_mut().flat_map(|f| std::mem::take(&mut f.tombstones)).collect();
    all.sort_by(|a, b| (a.seq, &a.interval.start).cmp(&(b.seq, &b.interval.start)));
    all.dedup_by(|a, b| (a.seq, &a.interval.start) == (b.seq, &b.interval.start));
    all
}

/// How many bytes all keys begin with.
fn shared_by_all(found: &[Found]) -> usize {
    let mut prefixes = found.iter().filter_map(|f| f.prefix.as_deref());
    let Some(first) = prefixes.next() else { return 0 };
    prefixes.fold(first.len(), |shared, prefix| common(&first[..shared], prefix))
}

/// Does `work` for each job, on threads of their own; the results in the order of the jobs.
fn on_threads<J: Send, T: Send>(jobs: Vec<J>, work: impl Fn(J) -> T + Sync) -> Vec<T> {
    let work = &work;
    crate::os::thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || work(job))).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    })
}

struct Sorter<'a> {
    region: &'a Region,
}

impl Sorter<'_> {
    /// The versions of each key that later readers need, in ascending parts, one for each of at
    /// most `threads` threads.
    fn sorted(&self, mut found: Vec<Found>, skip: usize, threads: usize) -> Vec<Vec<u64>> {
        let count: usize = found.iter().map(|f| f.items.len()).sum();
        if threads < 2 || count < WORTH_THREADS {
            found.iter_mut().for_each(|found| found.align(self.region, skip));
            let mut items: Vec<Item> = found.into_iter().flat_map(|f| f.items).collect();
            self.sort(&mut items);
            return vec![self.newest(&items)];
        }
        // All had the same time to find, so that what one has found is a fair share.
        let mut runs = on_threads(found, |mut found| {
            found.align(self.region, skip);
            self.sort(&mut found.items);
            found.items
        });
        runs.retain(|run| !run.is_empty());
        on_threads(self.cut(&runs, threads), |pieces| self.merge(&pieces))
    }

    fn sort(&self, items: &mut [Item]) {
        items.sort_unstable_by(|a, b| self.compare(a, b));
    }

    fn compare(&self, a: &Item, b: &Item) -> std::cmp::Ordering {
        a.digest.cmp(&b.digest).then_with(|| {
            let ((key, seq), (other, other_seq)) =
                (self.region.locate(a.at), self.region.locate(b.at));
            key.cmp(other).then(other_seq.cmp(&seq))
        })
    }

    /// Cuts sorted runs into at most `ranges` ranges of digests, each of which has a piece of each
    /// run. Records of a key have the same digest, so no key is cut apart.
    fn cut<'r>(&self, runs: &'r [Vec<Item>], ranges: usize) -> Vec<Vec<&'r [Item]>> {
        let samples = |run: &'r Vec<Item>| {
            run.iter().step_by((run.len() / (ranges * SAMPLES)).max(1)).map(|item| item.digest)
        };
        let mut samples: Vec<u64> = runs.iter().flat_map(samples).collect();
        samples.sort_unstable();
        let mut bounds: Vec<u64> =
            (1..ranges).map(|n| samples[n * samples.len() / ranges]).collect();
        bounds.dedup();
        let mut rest: Vec<&[Item]> = runs.iter().map(Vec::as_slice).collect();
        let mut pieces = Vec::with_capacity(ranges);
        for bound in bounds {
            let below = rest.iter_mut().map(|rest| {
                let (below, above) =
                    rest.split_at(rest.partition_point(|item| item.digest < bound));
                *rest = above;
                below
            });
            pieces.push(below.collect());
        }
        pieces.push(rest);
        pieces
    }

    /// Merges sorted pieces; the newest version of each key.
    fn merge(&self, pieces: &[&[Item]]) -> Vec<u64> {
        let mut items = pieces.concat();
        // The stable sort finds the runs and merges them.
        items.sort_by(|a, b| self.compare(a, b));
        self.newest(&items)
    }

    /// The first version of each key.
    fn newest(&self, items: &[Item]) -> Vec<u64> {
        let same_key = |a: &Item, b: &Item| {
            a.digest == b.digest && self.region.locate(a.at).0 == self.region.locate(b.at).0
        };
        // Of a key whose newest version goes on with an older one, that one is needed too.
        let (mut needed, mut open) = (Vec::with_capacity(items.len()), None);
        for (i, item) in items.iter().enumerate() {
            let record = |at| record_at(self.region, at);
            if i > 0 && same_key(&items[i - 1], item) {
                let goes_on = open.is_some_and(|newer| record(item.at).seq < newer);
                if !goes_on {
                    continue;
                }
            }
            open = Some(record(item.at)).filter(Record::is_open_merge).map(|record| record.seq);
            needed.push(item.at);
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;
    use crate::memtable::{Memtable, encode_record, set_seq};
    use crate::mvcc::KeyInterval;
    use terrace_testkit::Machine;

    const COUNT: u64 = 3 * WORTH_THREADS as u64;

    fn mixed(n: u64) -> u64 {
        (n ^ 0x5bd1_e995).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7
    }

    /// Three versions of most keys, of which some are there twice, dealt to four finders.
    fn found(region: &Region) -> (Vec<Found>, BTreeMap<Vec<u8>, Lsn>) {
        let (mut found, mut newest) = (vec![Found::default(); 4], BTreeMap::new());
        let (mut at, mut buffer) = (0, Vec::new());
        for n in 0..COUNT {
            let key = match mixed(n) % (COUNT / 3) {
                // Keys whose first bytes tell nothing, keys that are prefixes of others.
                k if k % 5 == 0 => format!("all alike, and then {k}").into_bytes(),
                k => format!("all {k}").into_bytes(),
            };
            let seq = 1 + n / 2 % 50_000;
            buffer.clear();
            encode_record(&mut buffer, 1, Kind::Put, &key, b"value");
            set_seq(&mut buffer, seq);
            drop(region.write(at, &buffer));
            found[mixed(n + 7) as usize % 4].add(at, &key);
            at += buffer.len() as u64;
            let best = newest.entry(key).or_insert(seq);
            *best = seq.max(*best);
        }
        (found, newest)
    }

    #[test]
    fn the_newest_version_of_each_key_once_in_order() {
        let region = Region::of_machine(&Machine::with_memory(), 8 << 20).unwrap();
        let (all, newest) = found(&region);
        for threads in [1, 2, 5] {
            let counted = Mutex::new(Vec::new());
            let rebuilt =
                rebuild(&region, all.clone(), threads, &|at| counted.lock().unwrap().push(at));
            let mut counted = counted.into_inner().unwrap();
            counted.sort_unstable();
            counted.dedup();
            assert_eq!((rebuilt.index.len(), counted.len()), (newest.len(), newest.len()));
            assert_eq!(rebuilt.oldest, newest.values().min().copied());
            let mut cursor = rebuilt.index.cursor();
            cursor.seek(b"", LSN_MAX);
            let mut bytes = 0;
            for (key, seq) in &newest {
                let (found, at) = cursor.version().unwrap();
                assert_eq!((region.locate(at).0, found), (key.as_slice(), *seq));
                bytes += record_at(&region, at).stored_len() as u64;
                cursor.next();
            }
            assert_eq!(cursor.version(), None);
            assert_eq!(rebuilt.bytes, bytes, "{threads} threads");
        }
    }

    /// Views keep memtables and level 0 that the newest one has not any more.
    #[test]
    fn indexes_are_counted_as_long_as_anybody_has_them() {
        let region = Region::of_machine(&Machine::with_memory(), 8 << 20).unwrap();
        let gauge = Arc::clone(region.indexes());
        let (found, _) = found(&region);
        let memtable = Arc::new(Memtable::new(Arc::clone(&region)));
        let empty = gauge.bytes();
        assert!(empty > 0);
        let interval = KeyInterval { start: vec![7; 100], end: None };
        memtable.insert_ranges(vec![Arc::new(Tombstone::new(interval, 7))]);
        let old = Arc::clone(&memtable);
        let rebuilt = rebuild(&region, found, 2, &|_| {});
        let level0 = rebuilt.index;
        drop(memtable);
        let beside = size_of_val(&level0) as u64;
        let both = level0.memory() as u64 - beside + old.memory() - beside;
        assert_eq!(gauge.bytes(), both, "to the byte");
        assert!(both > empty + 100 + 9 * level0.len() as u64);
        drop((old, level0));
        assert_eq!(gauge.bytes(), 0);
    }

    #[test]
    fn nothing_found_is_an_empty_index() {
        let region = Region::of_machine(&Machine::with_memory(), 1 << 20).unwrap();
        let rebuilt = rebuild(&region, vec![Found::default()], 3, &|_| panic!("no record"));
        assert_eq!((rebuilt.index.len(), rebuilt.oldest, rebuilt.bytes), (0, None, 0));
        assert_eq!(rebuilt.index.get(b"key", LSN_MAX), None);
    }
}
