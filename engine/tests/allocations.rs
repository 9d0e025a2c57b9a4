//! What is allocated where nothing may be: in the sequencer, which every commit passes one after
//! the other; and in reads that lend a value. The allocator of this binary counts it.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{indexed, tiny};
use terrace::Durability::Relaxed;
use terrace::testing::is_in_sequencer;
use terrace::{CommitTuning, WriteBatch};

/// The system's allocator, which counts what threads ask of it in the sequencer.
struct Counting;

static IN_TURNSTILE: AtomicU64 = AtomicU64::new(0);
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What this thread has asked for.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

impl Counting {
    fn count() {
        let place = if is_in_sequencer() { &IN_TURNSTILE } else { &ELSEWHERE };
        place.fetch_add(1, Ordering::Relaxed);
        OWN.set(OWN.get() + 1);
    }
}

// SAFETY: every call goes on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: as the trait asks of the caller.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as the trait asks of the caller.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }

    // SAFETY: as the trait asks of the caller.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        Counting::count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(at, layout, len) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Commits of one record and of many, over one table and over eight, into streams that are shared
/// and own ones, with zone switches, range deletes, table events, freezes and backups between them.
///
/// Bug: a backup allocated in the sequencer. Cause: its snapshot was registered there, so as to be
/// of the same moment as its views. Fix: the registry is locked around the sequencer, and gets its
/// entry afterwards.
#[test]
fn the_sequencer_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in [("file", tiny().stepped()), ("emulated", indexed())] {
        let tuning = CommitTuning::new().own_streams(2).group_batches(4);
        let db = options.commit_tuning(tuning).open(dir.path().join(name)).unwrap();
        let tables: Vec<_> = (0..8).map(|t| db.table(&format!("t{t}")).unwrap()).collect();
        for round in 0..60u64 {
            for table in &tables[..2] {
                table.durability(Relaxed).put(round.to_be_bytes(), [1; 9000]).unwrap();
            }
            let mut batch = WriteBatch::new();
            for n in 0..40u64 {
                let table = &tables[(n % 8) as usize];
                batch.put(table, (round * 1000 + n).to_be_bytes(), [2; 100]);
            }
            db.write(batch).unwrap();
            tables[3].delete_range(round.to_be_bytes()..(round + 1).to_be_bytes()).unwrap();
            while db.step().unwrap() {}
            if round % 20 == 7 {
                let set = dir.path().join(format!("set of {name}"));
                // A thread of its own has nothing ready.
                let backup = || db.backup(set).map(drop);
                std::thread::scope(|scope| scope.spawn(backup).join()).unwrap().unwrap();
            }
        }
        db.truncate_table("t7").unwrap();
        db.drop_table("t6").unwrap();
        let stats = db.stats();
        assert!(stats.commit.zone_switches > 5 && stats.background.freezes > 5, "{stats:?}");
    }
    assert!(ELSEWHERE.load(Ordering::Relaxed) > 10_000, "allocations are counted");
    assert_eq!(IN_TURNSTILE.load(Ordering::Relaxed), 0);
}

/// A value is lent from a cached block and from the memtable; rows of a range from
/// the buffer of their chunk.
#[test]
fn lent_values_and_rows_allocate_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().stepped().cache_size(4 << 20).open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let key = |n: u64| n.to_be_bytes();
    for n in 0..2000 {
        table.durability(Relaxed).put(key(n), [n as u8; 50]).unwrap();
    }
    assert!(db.compact_range(&table, ..).unwrap().is_finished);
    table.put(key(3), [9; 50]).unwrap();
    let mut into = Vec::with_capacity(64);
    let mut round = || {
        let (before, mut sum) = (OWN.get(), 0);
        for n in 0..2000 {
            sum += table.get_with(key(n), |value| u64::from(value[0])).unwrap().unwrap();
            assert!(table.get_into(key(n), &mut into).unwrap() && into.len() == 50);
        }
        assert!(table.get_with(key(7000), <[u8]>::len).unwrap().is_none());
        assert_eq!(sum, (0..2000u64).map(|n| if n == 3 { 9 } else { n % 256 }).sum::<u64>());
        OWN.get() - before
    };
    // The first round reads blocks and fills the cache. In any other a read may run what databases
    // of other tests have deferred.
    let allocated: Vec<u64> = (0..8).map(|_| round()).collect();
    assert!(allocated[0] > 0 && allocated[1..].contains(&0), "{allocated:?} allocations");
    let (mut range, mut rows, mut allocations) = (table.range(..), 0, 0);
    loop {
        let before = OWN.get();
        let Some(row) = range.next_with(|key, value| (key.len(), value.len())) else { break };
        assert_eq!(row.unwrap(), (8, 50));
        (rows, allocations) = (rows + 1, allocations + u64::from(OWN.get() > before));
    }
    assert!(rows == 2000 && allocations < 20, "{rows} rows, {allocations} of them allocated");
}
