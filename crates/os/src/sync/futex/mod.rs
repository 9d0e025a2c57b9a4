//! A count to sleep at until it moves.

#[cfg(any(not(target_os = "linux"), test))]
mod condvar;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub use condvar::Futex;
#[cfg(target_os = "linux")]
pub use linux::Futex;
