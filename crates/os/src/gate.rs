//! The gate of an open database. What writes a file of the database is inside, and a closing waits
//! for it before it gives back the directory's lock.
//!
//! The gate is open, closing or closed. [`Gate::shut`] makes it closing, [`Gate::bar`] closed, and
//! [`Gate::give_back`] gives back the lock, which the gate owns.
//!
//! A **call** is what a user asks for and several files take part in: a large commit, a prepare and
//! its verdict, a bulk load's end, a table event, growth, a verification, a part of a backup, a job
//! of a stepped database. It enters while the gate is open. A closing waits for all calls before it
//! settles, since only the background may write to the journal then. No call waits for user code
//! while it is inside: a bulk load or a transaction that spills enters for each extent alone, and
//! fails with `Closed` at the next one.
//!
//! A **step** is one write: of an extent (`storage::ssd::Reserved` holds it), a sync of
//! extents, an edit of the journal, an entry of the cache of ends, deferred work on level 0. A
//! thread of the background is in a step for as long as it lives. Steps enter until the gate is
//! closed, so jobs under way end as they began. Nothing writes behind them.
//!
//! A commit that fits in a zone does not enter: it would write a line that others write. It passes
//! the sequencer, which is a door of the same kind: the closing shuts it, and waits for the last
//! ticket, after a failure too (`commit/write.rs`).
//!
//! A read does not enter: it holds an epoch. A read of an extent asks [`Gate::is_closed`] once its
//! bytes are there, and fails with `Closed` then. The next opening gives space out again, so bytes
//! from there on may be of another extent, with a sound checksum. The answer is exact: the lock is
//! given back after the gate is closed, so a read with bytes of the next opening finds it closed.
//! Before that reads go on, since jobs read while a closing waits for them.
//!
//! The persistent index and a mapped region are what the
//! next opening writes. There the closing waits for the epochs of reads that found the gate open.
//! So a closing on a thread with an epoch is refused too.
//!
//! Order: a thread enters before it takes `ddl`, a table's change, or any other lock, and holds
//! none while it waits for the gate. The closing wakes what calls wait for (row locks, pace, manual
//! compactions, requests to an object store), waits for calls, joins the threads of the background,
//! settles, bars the gate, and gives the lock back. After a failure (`Poison`) it does the same and
//! writes less.
//!
//! Thread safety: every method may be called from any thread. A thread may enter again while it is
//! in a call. A closing from a thread that is inside would wait for itself: [`Gate::is_inside`]
//! tells. The mutex is held for a few instructions, and nothing is locked under it. In a forked
//! child another thread of the parent may have held it, so no method of a child takes it.

use std::sync::Arc;
use std::thread::ThreadId;

use crossbeam_utils::CachePadded;

use super::{DirectoryLock, ForkGuard, NotOpen};
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::locks::{Condvar, Mutex};

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

/// The gate.
#[derive(Debug)]
pub struct Gate {
    /// Changes with the mutex held.
    phase: AtomicU8,
    fork: ForkGuard,
    threads: CachePadded<Mutex<Threads>>,
    left: Condvar,
}

/// The threads that are inside, once for each time that they entered.
#[derive(Debug, Default)]
struct Threads {
    calls: Vec<ThreadId>,
    steps: Vec<ThreadId>,
    lock: Option<DirectoryLock>,
}

impl Threads {
    fn of(&mut self, entered: Entered) -> &mut Vec<ThreadId> {
        match entered {
            Entered::Call => &mut self.calls,
            Entered::Step => &mut self.steps,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    Call,
    Step,
}

/// Inside of the gate until it is dropped.
#[derive(Debug)]
pub struct Inside {
    gate: Arc<Gate>,
    thread: ThreadId,
    entered: Entered,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            phase: AtomicU8::new(OPEN),
            fork: ForkGuard::new(),
            threads: CachePadded::default(),
            left: Condvar::new(),
        }
    }
}

impl Gate {
    /// Fails once a closing has begun, and in a forked child. Costs two loads.
    ///
    /// # Errors
    ///
    /// `Closed`, or `Forked` in a forked child.
    #[inline]
    pub fn check_open(&self) -> Result<(), NotOpen> {
        if self.is_shut() {
            return Err(NotOpen::Closed);
        }
        self.fork.check()
    }

    /// Whether a closing has begun.
    #[inline]
    pub fn is_shut(&self) -> bool {
        self.phase.load(Ordering::Acquire) != OPEN
    }

    /// Whether the next opening may be under way: nothing is inside, or soon will be. One load.
    pub fn is_closed(&self) -> bool {
        self.phase.load(Ordering::Acquire) == CLOSED
    }

    /// Enters for a call.
    ///
    /// # Errors
    ///
    /// As [`Gate::check_open`], unless this thread is in a call already.
    pub fn enter_call(self: &Arc<Self>) -> Result<Inside, NotOpen> {
        self.enter(Entered::Call, |phase, threads, thread| {
            phase == OPEN || threads.calls.contains(&thread)
        })
    }

    /// Enters for one write.
    ///
    /// # Errors
    ///
    /// `Closed` once the gate is closed, or `Forked` in a forked child.
    pub fn enter_step(self: &Arc<Self>) -> Result<Inside, NotOpen> {
        self.enter(Entered::Step, |phase, _, _| phase != CLOSED)
    }

    fn enter(
        self: &Arc<Self>,
        entered: Entered,
        may: impl FnOnce(u8, &Threads, ThreadId) -> bool,
    ) -> Result<Inside, NotOpen> {
        self.fork.check()?;
        let thread = std::thread::current().id();
        let mut threads = self.threads.lock();
        if !may(self.phase.load(Ordering::Relaxed), &threads, thread) {
            return Err(NotOpen::Closed);
        }
        threads.of(entered).push(thread);
        drop(threads);
        Ok(Inside { gate: Arc::clone(self), thread, entered })
    }

    /// Whether this thread is inside.
    pub fn is_inside(&self) -> bool {
        let (threads, thread) = (self.threads.lock(), std::thread::current().id());
        threads.calls.contains(&thread) || threads.steps.contains(&thread)
    }

    /// No call enters from now on.
    pub fn shut(&self) {
        let _threads = self.threads.lock();
        self.phase.fetch_max(CLOSING, Ordering::Release);
    }

    /// Waits until no call is inside.
    pub fn wait_for_calls(&self) {
        debug_assert!(self.is_shut(), "calls would enter meanwhile");
        let mut threads = self.threads.lock();
        while !threads.calls.is_empty() {
            self.left.wait(&mut threads);
        }
    }

    /// Nothing enters from now on; waits until nothing is inside.
    pub fn bar(&self) {
        let mut threads = self.threads.lock();
        debug_assert!(threads.calls.is_empty(), "calls are waited for first");
        self.phase.store(CLOSED, Ordering::Release);
        while !threads.steps.is_empty() {
            self.left.wait(&mut threads);
        }
    }

    /// Keeps the lock of the directory, until the closing gives it back.
    pub fn keep(&self, lock: DirectoryLock) {
        let before = self.threads.lock().lock.replace(lock);
        debug_assert!(before.is_none(), "a database has one lock");
    }

    /// Gives back the lock of the directory, which the next opening may take.
    pub fn give_back(&self) {
        let mut threads = self.threads.lock();
        debug_assert!(
            self.phase.load(Ordering::Relaxed) == CLOSED && threads.steps.is_empty(),
            "nothing writes once the lock is given back"
        );
        let lock = threads.lock.take();
        drop(threads);
        drop(lock);
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.gate.fork.is_forked() {
            return;
        }
        let mut threads = self.gate.threads.lock();
        let of_kind = threads.of(self.entered);
        let at = of_kind.iter().rposition(|thread| *thread == self.thread);
        debug_assert!(at.is_some(), "each that leaves the gate has entered it");
        at.map(|at| of_kind.swap_remove(at));
        drop(threads);
        if self.gate.is_shut() {
            self.gate.left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn calls_are_waited_for_and_none_enters_later() {
        let (gate, done) = (Arc::new(Gate::default()), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Ok(_inside) = gate.enter_call() {
                        let again = gate.enter_call();
                        done.fetch_add(1, Ordering::Relaxed);
                        assert!(again.is_ok(), "a thread in a call enters again, shut or not");
                    }
                });
            }
            while done.load(Ordering::Relaxed) < 10 {
                std::thread::yield_now();
            }
            gate.shut();
            gate.wait_for_calls();
            let then = done.load(Ordering::Relaxed);
            assert_eq!(gate.enter_call().unwrap_err(), NotOpen::Closed);
            std::thread::yield_now();
            assert_eq!(done.load(Ordering::Relaxed), then);
        });
    }

    #[test]
    fn steps_go_on_until_the_gate_is_barred() {
        let gate = Arc::new(Gate::default());
        gate.shut();
        gate.wait_for_calls();
        let step = gate.enter_step().unwrap();
        assert!(gate.is_inside());
        assert!(gate.enter_call().is_err(), "a step is no call");
        std::thread::scope(|scope| {
            let barred = scope.spawn(|| gate.bar());
            while gate.enter_step().is_ok() {
                std::thread::yield_now();
            }
            assert!(!barred.is_finished(), "a step is inside");
            // It may end on another thread than it began on.
            scope.spawn(move || drop(step));
            barred.join().unwrap();
        });
        assert!(!gate.is_inside());
        gate.give_back();
    }
}
