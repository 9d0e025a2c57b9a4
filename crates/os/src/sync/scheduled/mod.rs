//! The primitives of production with a point of the scheduler before each access. A thread that is
//! no task uses them as they are.
//!
//! Of the tasks of a run one runs at a time, and waits only in the scheduler: a lock that another
//! holds is waited for there.

#![allow(missing_docs, reason = "the interfaces of the libraries that they stand for")]

pub mod atomic;
pub mod channel;
#[cfg(not(feature = "loom"))]
pub mod futex;
pub mod locks;
pub mod shared;

use std::time::Duration;

use crate::schedule::{block, now};

/// Tries again each time that `key` is woken, until the moment.
#[track_caller]
fn acquire<G>(key: usize, until: Option<Duration>, try_take: impl Fn() -> Option<G>) -> Option<G> {
    loop {
        match try_take() {
            Some(taken) => return Some(taken),
            None if until.is_some_and(|until| now() >= until) => return None,
            None => drop(block(key, until)),
        }
    }
}

/// As [`acquire`], for as long as it takes.
#[track_caller]
fn acquire_at_last<G>(key: usize, try_take: impl Fn() -> Option<G>) -> G {
    acquire(key, None, try_take).expect("invariant: there is no moment after which it gives up")
}

/// What stands for a value in the scheduler.
fn key<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<()>().addr()
}
