//! Address space: set aside, made accessible, mapped to a file, given back.
//!
//! Thread safety: every function may be called from any thread. Who may access what when is the
//! caller's to settle.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;
