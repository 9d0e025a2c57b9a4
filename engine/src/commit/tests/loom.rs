//! The smallest parts of commit under loom: the types of production, in every schedule and with
//! every value that the orderings of memory allow, up to a number of forced switches.
//! `cargo test -p terrace --lib --features loom commit::tests::loom`

use std::sync::Arc;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;

use super::super::ring::{Finished, Ring, Written, ring_len};
use super::Fixture;
use crate::base::options::Durability::Durable;
use crate::commit::ring::WaitQueue;
use crate::mvcc::Watermark;
use crate::os::sync::{Mutex, fence};
use crate::pm::Span;

/// Tries every schedule with at most so many switches that no thread asked for.
fn explore(switches: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(switches);
    builder.max_branches = 20_000;
    builder.check(test);
}

/// Waits as committers do: a waiter, one more look, sleep. Looks and stores of what is waited for
/// are relaxed: the queue's fences are all there is.
fn wait_for(queue: &WaitQueue, reached: &AtomicU64, goal: u64) {
    while reached.load(Ordering::Relaxed) < goal {
        let waiter = queue.enter();
        if reached.load(Ordering::Relaxed) < goal {
            waiter.sleep();
        }
    }
}

#[test]
fn a_sleeper_sees_the_change_or_is_rung() {
    explore(3, || {
        let (queue, reached) = (Arc::new(WaitQueue::default()), Arc::new(AtomicU64::new(0)));
        let sleeper = {
            let (queue, reached) = (Arc::clone(&queue), Arc::clone(&reached));
            thread::spawn(move || wait_for(&queue, &reached, 1))
        };
        reached.store(1, Ordering::Relaxed);
        queue.wake_all();
        // A sleeper that no thread wakes is a deadlock to loom.
        sleeper.join().unwrap();
    });
}

#[test]
fn one_ring_through_one_sleeper_wakes_them_all() {
    explore(2, || {
        let (queue, reached) = (Arc::new(WaitQueue::default()), Arc::new(AtomicU64::new(0)));
        let sleepers = [(); 2].map(|()| {
            let (queue, reached) = (Arc::clone(&queue), Arc::clone(&reached));
            thread::spawn(move || wait_for(&queue, &reached, 1))
        });
        reached.store(1, Ordering::Relaxed);
        queue.wake_through_one();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

fn finished(at: u64, relaxed: bool) -> Finished {
    let written = Written { stream: Some(3), span: Span { at, len: 128 } };
    Finished { written: [written].into_iter().collect(), relaxed }
}

/// Two groups finish out of order, and one that comes a ring's length later has the slot again.
#[test]
fn a_finished_slot_has_all_that_was_put_in() {
    explore(3, || {
        let ring = Arc::new(Ring::new());
        let finishers = [1, 2].map(|lsn| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.finish(lsn, &finished(lsn * 64, lsn == 2)))
        });
        let take = |lsn: u64| {
            let mut spans = Vec::new();
            let relaxed = ring.take(lsn, |written| spans.push(written.span.at));
            (spans, relaxed)
        };
        let mut taken = 0;
        while taken < 2 && ring.is_finished(taken + 1) {
            taken += 1;
            assert_eq!(take(taken), (vec![taken * 64], taken == 2));
        }
        finishers.into_iter().for_each(|finisher| finisher.join().unwrap());
        (taken + 1..=2).for_each(|lsn| drop(take(lsn)));
        assert!(!ring.is_finished(1 + ring_len()));
        ring.finish(1 + ring_len(), &finished(7 * 64, false));
        assert_eq!(take(1 + ring_len()), (vec![7 * 64], false));
    });
}

/// A thread that sees a watermark sees what was done before it was raised, also if another thread
/// has raised it further since. What was done is relaxed: the watermark's orderings are all there
/// is.
#[test]
fn who_sees_a_watermark_sees_what_came_before_it() {
    explore(3, || {
        let mark = Arc::new(Watermark::new(0));
        let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let first = {
            let (mark, done) = (Arc::clone(&mark), Arc::clone(&done));
            thread::spawn(move || {
                done[0].store(1, Ordering::Relaxed);
                mark.raise(1);
            })
        };
        let second = {
            let (mark, done) = (Arc::clone(&mark), Arc::clone(&done));
            thread::spawn(move || {
                if mark.get() == 1 {
                    done[1].store(1, Ordering::Relaxed);
                    mark.raise(2);
                }
            })
        };
        let seen = mark.get();
        (0..seen as usize).for_each(|n| assert_eq!(done[n].load(Ordering::Relaxed), 1));
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// A publisher's stage in small. A thread that finishes a slot tries to publish; if the stage is
/// taken it sleeps. The thread that gives the stage back looks once more, and wakes a sleeper if
/// there is something to do. Without that look, a slot that was finished meanwhile would stay.
struct Stage {
    ring: Ring,
    published: AtomicU64,
    turn: Mutex<()>,
    queue: WaitQueue,
    turns: AtomicUsize,
}

impl Stage {
    fn has_work(&self) -> bool {
        let next = self.published.load(Ordering::Relaxed) + 1;
        self.ring.is_finished(next) && !self.turn.is_locked()
    }

    fn publish(&self) {
        let Some(turn) = self.turn.try_lock() else { return };
        let mut last = self.published.load(Ordering::Relaxed);
        while self.ring.is_finished(last + 1) {
            last += 1;
            self.ring.take(last, |_| ());
        }
        self.published.store(last, Ordering::Relaxed);
        self.turns.fetch_add(1, Ordering::Relaxed);
        drop(turn);
        self.queue.wake_all();
        fence(Ordering::SeqCst);
        if self.has_work() {
            self.queue.wake_one();
        }
    }

    fn commit(&self, lsn: u64) {
        self.ring.finish(lsn, &finished(lsn * 64, false));
        while self.published.load(Ordering::Relaxed) < lsn {
            if self.has_work() {
                self.publish();
                continue;
            }
            let waiter = self.queue.enter();
            if self.published.load(Ordering::Relaxed) < lsn && !self.has_work() {
                waiter.sleep();
            }
        }
    }
}

#[test]
fn no_finished_slot_stays_when_the_stage_is_given_back() {
    explore(2, || {
        let stage = Arc::new(Stage {
            ring: Ring::new(),
            published: AtomicU64::new(0),
            turn: Mutex::new(()),
            queue: WaitQueue::default(),
            turns: AtomicUsize::new(0),
        });
        let other = Arc::clone(&stage);
        let other = thread::spawn(move || other.commit(2));
        stage.commit(1);
        other.join().unwrap();
        assert_eq!(stage.published.load(Ordering::Relaxed), 2);
        assert!(stage.turns.load(Ordering::Relaxed) <= 2);
    });
}

/// The publisher itself: two groups that two threads wait for, which one of them publishes or each
/// its own. Both are finished before: what races with a finish is tried in small above, and with
/// fewer schedules in `model.rs`.
#[test]
fn two_groups_are_published_whoever_does_it() {
    for dax in [false, true] {
        explore(1, move || {
            let fixture = Arc::new(Fixture::new(dax));
            for key in ["a", "b"] {
                fixture.committer.enqueue(&mut &fixture.batch(&[(key, "1")]), Durable).unwrap();
            }
            let wait = |fixture: &Fixture, lsn| {
                fixture.committer.wait_for(lsn, Durable).unwrap();
                assert!(fixture.committer.durable() >= lsn, "acknowledged means durable");
                assert!(fixture.committer.visible() >= lsn, "a commit sees itself");
            };
            let other = Arc::clone(&fixture);
            let other = thread::spawn(move || wait(&other, 2));
            wait(&fixture, 1);
            other.join().unwrap();
            assert_eq!(fixture.committer.durable(), 2);
        });
    }
}
