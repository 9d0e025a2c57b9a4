//! The memtable's index counts the memory that it takes to the byte: held against an allocator that
//! counts, after inserts in any order, splits, removals down to nothing, and a build in one go.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use terrace::bench::{Arena, RecordIndex};

thread_local! {
    /// Bytes that this thread has been given and has not given back.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

/// The system's, which counts by thread.
struct Counting;

fn count(bytes: isize) {
    // At the end of a thread its counter is gone.
    let _gone = LIVE.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: all that is asked is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise, and what was allocated here came from there.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Keys of all kinds: short and long ones, prefixes of each other, long ones with long prefixes in
/// common, of which nodes and separators keep copies outside of themselves.
fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for n in 0..4000u32 {
        keys.push(format!("{n:05}").into_bytes());
        keys.push([&[7; 100][..], &n.to_be_bytes()].concat());
        keys.push([&n.to_be_bytes()[..], &[9; 300]].concat());
    }
    keys.extend((0..500).map(|len| vec![b'x'; len]));
    keys.sort();
    keys
}

/// The same, in an order of no order.
fn shuffled(keys: &[Vec<u8>]) -> Vec<&Vec<u8>> {
    let step = 7919;
    (0..keys.len()).map(|n| &keys[n * step % keys.len()]).collect()
}

/// Has the epochs free something: their queue never comes to rest from then on, and has as much in
/// it each time that it has least.
fn begin(arena: &Arena, keys: &[Vec<u8>]) {
    let (index, mut buffer) = (RecordIndex::new(arena), Vec::new());
    for key in keys {
        index.insert(key, 1, arena.append(key, 1, b"value", &mut buffer));
    }
    keys.iter().for_each(|key| assert!(index.remove(key, 1).is_some()));
}

/// Bytes that are live on this thread once the epochs hold nothing back but their own least.
fn live() -> isize {
    let now = |_| {
        RecordIndex::collect();
        LIVE.get()
    };
    (0..2000).map(now).min().unwrap()
}

/// An index, and what was live before it was made.
struct Watched {
    index: RecordIndex,
    before: isize,
    /// What it counts of itself that is not on the heap.
    beside: usize,
}

impl Watched {
    fn new(arena: &Arena) -> Watched {
        let before = live();
        let index = RecordIndex::new(arena);
        let beside = index.memory() - (live() - before) as usize;
        // But for the records that it is of, which it shares.
        let own = size_of::<RecordIndex>();
        assert!(beside <= own && beside + 128 >= own, "{beside} of {own} bytes of it are counted");
        Watched { index, before, beside }
    }

    fn check(&self, when: &str, n: usize) {
        let counted = self.index.memory() - self.beside;
        assert_eq!(counted as isize, live() - self.before, "{when} {n}");
    }
}

#[test]
fn memory_is_counted_to_the_byte() {
    let scratch = tempfile::tempdir().unwrap();
    let arena = Arena::new(scratch.path(), 32 << 20).unwrap();
    let (keys, mut buffer) = (keys(), Vec::new());
    begin(&arena, &keys[..1000]);
    let order = shuffled(&keys);
    let mut append = |key: &[u8], seq| arena.append(key, seq, b"value", &mut buffer);
    let newer: Vec<u64> = order.iter().map(|key| append(key, 2)).collect();
    let older: Vec<u64> = order.iter().map(|key| append(key, 1)).collect();
    let sorted: [Vec<u64>; 1] = [keys.iter().map(|key| append(key, 3)).collect()];

    let watched = Watched::new(&arena);
    let index = &watched.index;
    let most = order.len();
    for (n, key) in order.iter().enumerate() {
        index.insert(key, 1, older[n]);
        if n < 200 || n % 1000 == 0 {
            watched.check("after insert", n);
        }
    }
    order.iter().zip(&newer).for_each(|(key, at)| index.insert(key, 2, *at));
    watched.check("with a second version of each, of", most);
    assert!(index.memory() > 9 * 2 * most, "{} bytes for {most} keys", index.memory());
    for (n, key) in keys.iter().enumerate() {
        assert!(index.remove(key, 1).is_some() && index.remove(key, 2).is_some());
        if n % 1000 == 0 || n + 20 > most {
            watched.check("after the versions went of key", n);
        }
    }
    let empty = index.memory();
    drop(watched);

    let before = live();
    let built = RecordIndex::build(&arena, &sorted);
    let beside = Watched::new(&arena).beside;
    let counted = |built: &RecordIndex| (built.memory() - beside) as isize;
    assert_eq!(counted(&built), live() - before, "built in one go");
    assert!(built.memory() > empty + 9 * most, "{} bytes", built.memory());
    order.iter().zip(&newer).for_each(|(key, at)| built.insert(key, 2, *at));
    assert_eq!(counted(&built), live() - before, "and filled further");
    drop(built);
    assert_eq!(live(), before, "all of it is given back");
}
