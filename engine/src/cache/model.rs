//! The pool under the scheduler: the types of production.
//! `cargo test -p terrace --lib cache::model`
//!
//! Epochs are opaque to it: it explores the order of the pool's own accesses, and takes
//! reclamation as given.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::os::schedule::explore;
use crate::os::thread;

use super::*;
use crate::base::memory::Gauge;
use crate::mvcc::{drive_all, pin};

const BLOCKS: usize = 3;

/// The number of a block. It is marked when it is dropped.
struct Value {
    n: usize,
    is_dropped: bool,
    alive: Arc<AtomicUsize>,
}

impl Weigh for Value {
    fn weight(&self) -> u64 {
        1000
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        assert!(!self.is_dropped, "once");
        self.is_dropped = true;
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Model {
    pool: Arc<FramePool<Value>>,
    extents: [Swips<Value>; 2],
    alive: Arc<AtomicUsize>,
}

impl Model {
    /// A pool with room for two of six blocks.
    fn new() -> Arc<Model> {
        let gauge = Arc::new(Gauge::default());
        let extents = [(); 2].map(|()| Swips::new(BLOCKS, &gauge));
        Arc::new(Model { pool: FramePool::new(2600), extents, alive: Arc::default() })
    }

    fn value(&self, n: usize) -> Value {
        self.alive.fetch_add(1, Ordering::Relaxed);
        Value { n, is_dropped: false, alive: Arc::clone(&self.alive) }
    }

    /// As a reader does. What it was lent is looked at again after others have had their turn.
    fn read(&self, extent: usize, n: usize) {
        let (guard, swips) = (pin(), &self.extents[extent]);
        if let Some(found) = self.pool.get(swips, n, &guard) {
            assert!(found.n == n && !found.is_dropped);
            thread::yield_now();
            assert!(found.n == n && !found.is_dropped, "a reader's frame was given up");
            return;
        }
        let room = self.pool.reserve(1000);
        thread::yield_now();
        let frame = self.pool.admit(room, (swips, n), self.value(n));
        assert!(frame.n == n && !frame.is_dropped);
    }

    fn replace(&self, extent: usize, n: usize) {
        let guard = pin();
        if let Some(frame) = self.pool.get(&self.extents[extent], n, &guard) {
            thread::yield_now();
            if let Some(room) = self.pool.reserve(1000) {
                drop(self.pool.replace(room, frame, self.value(n)));
            }
            assert!(frame.n == n && !frame.is_dropped);
        }
    }
}

/// Two threads read, one replaces and shares, one removes an extent, and the capacity changes.
#[test]
fn a_reader_never_sees_a_frame_that_was_given_up() {
    let test = || {
        let model = Model::new();
        let mut threads = Vec::new();
        for start in 0..2 {
            let model = Arc::clone(&model);
            threads.push(thread::spawn("model", move || {
                for n in 0..BLOCKS {
                    model.read((start + n) % 2, (start + n) % BLOCKS);
                }
            }));
        }
        let other = Arc::clone(&model);
        threads.push(thread::spawn("model", move || {
            other.pool.share((&other.extents[0], 0), (&other.extents[1], 0));
            other.replace(0, 0);
            other.pool.set_capacity(1300);
            other.read(1, 0);
        }));
        let other = Arc::clone(&model);
        threads.push(thread::spawn("model", move || {
            other.read(0, 1);
            other.extents[0].leave();
            assert!(!(0..BLOCKS).any(|n| other.extents[0].has(n)), "it leaves at once");
        }));
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok(), "a thread failed"));
        assert_eq!(model.pool.check(), None);
        assert!(!(0..BLOCKS).any(|n| model.extents[0].has(n)), "nothing is loaded for it again");
        let alive = Arc::clone(&model.alive);
        drop(model);
        // A test beside this one may have an epoch for a moment.
        let end = Instant::now() + Duration::from_secs(60);
        while alive.load(Ordering::Relaxed) != 0 && Instant::now() < end {
            drive_all();
        }
        assert_eq!(alive.load(Ordering::Relaxed), 0, "no frame is leaked");
    };
    explore(test);
}
