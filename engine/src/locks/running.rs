//! The transactions that a thread runs: those whose [`Database::run`](crate::Database::run) is on
//! its stack. Such a transaction ends after its closure has returned. So a call that waits inside
//! of the closure, on the same thread, must not wait for it.
//!
//! A handle that a thread has from [`Database::begin`](crate::Database::begin) is not listed. It
//! may move to another thread, which ends the transaction while this one waits: nothing tells the
//! two cases apart.
//!
//! Thread safety: each thread has a list of its own. A guard stays on its thread.

use std::cell::RefCell;
use std::marker::PhantomData;

use smallvec::SmallVec;

use super::manager::LockManager;
use super::request::OwnerId;

/// A transaction, by the address of its lock manager and its number. The guard's transaction keeps
/// the manager alive.
type Running = (usize, OwnerId);

thread_local! {
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// Lists a transaction for as long as it lives.
pub(crate) struct RunsHere {
    running: Running,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl RunsHere {
    /// The calling thread runs the transaction `owner`.
    pub(crate) fn enter(manager: &LockManager, owner: OwnerId) -> RunsHere {
        let running = (address(manager), owner);
        RUNNING.with_borrow_mut(|list| list.push(running));
        RunsHere { running, _thread: PhantomData }
    }
}

impl Drop for RunsHere {
    fn drop(&mut self) {
        let last = RUNNING.with_borrow_mut(Vec::pop);
        debug_assert_eq!(last, Some(self.running), "runs of one thread end in reverse order");
    }
}

/// The transactions of a database that the calling thread runs, but for `owner` itself.
pub(super) fn on_this_thread(manager: &LockManager, owner: OwnerId) -> SmallVec<[OwnerId; 2]> {
    let here = address(manager);
    let others = |&&(of, id): &&Running| of == here && id != owner;
    RUNNING.with_borrow(|list| list.iter().filter(others).map(|&(_, id)| id).collect())
}

fn address(manager: &LockManager) -> usize {
    std::ptr::from_ref(manager).addr()
}
