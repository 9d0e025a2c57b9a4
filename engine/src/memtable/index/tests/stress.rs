//! The index under many threads, with checks that hold whatever their order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::slab::Slab;
use crate::base::record::{LSN_MAX, Lsn};
use crate::memtable::index::{Index, IndexCursor, Records};

/// Rounds of every thread: more at length.
fn rounds() -> u64 {
    if std::env::var_os("TERRACE_LONG").is_some() { 40 } else { 4 }
}

/// A generator of numbers, good enough for tests.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

const KEYS: u64 = 400;

/// Every fifth key stays for good; the others come and go.
fn key(n: u64) -> Vec<u8> {
    let mut key = format!("common to all/{:03}", n / 3).into_bytes();
    key.extend(std::iter::repeat_n(0, (n % 3) as usize));
    key
}

fn stays(n: u64) -> bool {
    n.is_multiple_of(5)
}

/// Walks from end to end: in order, each version once, and none that stays is missing.
fn walk<const L: usize, const I: usize>(
    slab: &Slab,
    cursor: &mut IndexCursor<'_, Slab, L, I>,
    stable: &BTreeSet<Vec<u8>>,
    forward: bool,
) {
    let mut last: Option<(Vec<u8>, Lsn)> = None;
    let mut seen = 0;
    if forward {
        cursor.seek(b"", LSN_MAX);
    } else {
        cursor.seek_before(None);
    }
    while let Some((seq, at)) = cursor.version() {
        let (key, own) = slab.locate(at);
        assert_eq!(own, seq);
        if let Some((last_key, last_seq)) = &last {
            let order = last_key.as_slice().cmp(key).then(seq.cmp(last_seq));
            assert!(if forward { order.is_lt() } else { order.is_gt() }, "out of order at {at}");
        }
        seen += usize::from(seq == 0 && stable.contains(key));
        last = Some((key.to_vec(), seq));
        if forward {
            cursor.next();
        } else {
            cursor.prev();
        }
    }
    assert_eq!(seen, stable.len(), "versions that stay are missing");
}

/// Puts in and takes out versions of its own until the rounds are over.
fn churn<const L: usize, const I: usize>(slab: &Arc<Slab>, index: &Index<Slab, L, I>, own: u64) {
    let mut random = Random(own * 7919 + 1);
    let mut present = BTreeSet::new();
    for _ in 0..rounds() * 4000 {
        let guard = crossbeam_epoch::pin();
        // Runs of neighbours come and go, so that leaves empty and go too.
        let n = random.below(KEYS);
        let put = random.below(2) == 0;
        for n in n..(n + random.below(12)).min(KEYS) {
            let (key, seq) = (key(n), own);
            if put && present.insert(n) {
                index.insert(&key, seq, slab.add(&key, seq));
            } else if !put && present.remove(&n) {
                let at = index.remove(&key, seq).expect("invariant: its own version is there");
                slab.reuse(at);
            }
            let found = index.get(&key, seq).map(|(found, _)| found);
            if present.contains(&n) {
                assert_eq!(found, Some(seq), "its own version of {n}");
            } else if stays(n) {
                assert!(found.is_some_and(|found| found < seq), "an older version of {n}");
            } else {
                assert!(found.is_none_or(|found| found < seq), "no version of {n}");
            }
        }
        drop(guard);
    }
    for n in present {
        assert!(index.remove(&key(n), own).is_some());
    }
}

fn stress<const L: usize, const I: usize>() {
    let slab = Slab::new(2_000_000);
    let index = Index::<Slab, L, I>::new(Arc::clone(&slab));
    let stable: BTreeSet<Vec<u8>> = (0..KEYS).filter(|n| stays(*n)).map(key).collect();
    for key in &stable {
        index.insert(key, 0, slab.add(key, 0));
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let walkers = [true, false].map(|forward| {
            let (slab, index, stable, over) = (&slab, &index, &stable, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    walk(slab, &mut index.cursor(), stable, forward);
                }
            })
        });
        let writers: Vec<_> = (1..=3)
            .map(|own| {
                let (slab, index) = (&slab, &index);
                scope.spawn(move || churn(slab, index, own))
            })
            .collect();
        let ends: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
        // One by one: the end of the scope alone is nothing that ThreadSanitizer understands.
        walkers.into_iter().for_each(|walker| walker.join().unwrap());
    });
    assert_eq!(index.len(), stable.len());
    walk(&slab, &mut index.cursor(), &stable, true);
}

#[test]
fn tiny_nodes() {
    stress::<3, 2>();
}

#[test]
fn small_nodes() {
    stress::<8, 8>();
}

/// Bug of the index before this one: a drain's retirement and the drop of its table, on two
/// threads, both counted a record out of its zone. The zone looked dead while other tables had
/// records in it, and was released. Cause: the removal gave the version to the second comer too.
/// Fix: of several threads that remove a version one gets it.
#[test]
fn a_version_is_removed_once_whoever_races_for_it() {
    const N: u64 = 20_000;
    let slab = Slab::new(N as usize + 1);
    let index: Index<Slab> = Index::new(Arc::clone(&slab));
    for seq in 1..=N {
        let at = slab.add(b"key", seq);
        index.insert(b"key", seq, at);
    }
    let (removed, start) = (AtomicU64::new(0), std::sync::Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                let won = (1..=N).filter(|seq| index.remove(b"key", *seq).is_some()).count();
                removed.fetch_add(won as u64, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(removed.into_inner(), N);
    assert_eq!(index.len(), 0);
}
