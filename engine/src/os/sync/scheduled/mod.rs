//! The primitives of production with a point of the scheduler before each access. A thread that is
//! no task uses them as they are.
//!
//! Of the tasks of a run one runs at a time, and waits only in the scheduler: a lock that another
//! holds is waited for there.

pub(crate) mod atomic;
pub(crate) mod channel;
#[cfg(not(all(test, any(feature = "loom", feature = "shuttle"))))]
pub(crate) mod futex;
pub(crate) mod locks;
pub(crate) mod shared;

/// What stands for a value in the scheduler.
fn key<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<()>().addr()
}
