//! A count to sleep at until it moves.

#[cfg(any(not(target_os = "linux"), test))]
mod condvar;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use condvar::Futex;
#[cfg(target_os = "linux")]
pub(crate) use linux::Futex;
